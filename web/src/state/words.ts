// Words of a call as they come. The server says how many bytes came before each piece, so a piece can come twice, or anew after a reconnect, and the text is
// still right.

import type { Words } from '../api/types';

export interface Streamed {
  readonly attempt: number;
  readonly text: string;
  readonly bytes: number;
}

/** Whether an event of this kind takes back what its call has said so far: the final text is there, or the try came to nothing and the next may stay silent. */
export function takesBack(is: string): boolean {
  return is === 'said' || is === 'call_failed' || is === 'call_outcome_unknown' || is === 'call_cancelled';
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** What is to be shown after this piece. */
export function addWords(known: Streamed | undefined, piece: Words): Streamed {
  const bytes = encoder.encode(piece.text).length;
  if (!known || known.attempt !== piece.attempt) return { attempt: piece.attempt, text: piece.text, bytes: piece.at + bytes };
  if (piece.at >= known.bytes) return { attempt: piece.attempt, text: known.text + piece.text, bytes: piece.at + bytes };
  const kept = cut(known.text, known.bytes, piece.at);
  return { attempt: piece.attempt, text: kept + piece.text, bytes: piece.at + bytes };
}

/** The beginning of `text`, as far as the first `upTo` of its `bytes` bytes go; what was missed before the first piece counts too. */
function cut(text: string, bytes: number, upTo: number): string {
  const all = encoder.encode(text);
  const missed = bytes - all.length;
  return decoder.decode(all.subarray(0, Math.max(0, upTo - missed)));
}

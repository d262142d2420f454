// The text of calls while it is being streamed. The server sends the byte offset of each piece, so pieces that arrive twice, or again after a reconnect, do
// not change the result.

import type { TextDelta } from '../api/types';

export interface StreamedText {
  readonly attempt: number;
  readonly text: string;
  readonly bytes: number;
}

/** Whether an event of this type removes the streamed text of its call: the final reply was recorded, or the attempt failed. */
export function discardsStreamedText(type: string): boolean {
  return type === 'reply_sent' || type === 'call_failed' || type === 'call_outcome_unknown' || type === 'call_cancelled';
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Returns the text after this piece. */
export function addDelta(known: StreamedText | undefined, delta: TextDelta): StreamedText {
  const bytes = encoder.encode(delta.text).length;
  if (!known || known.attempt !== delta.attempt) return { attempt: delta.attempt, text: delta.text, bytes: delta.offset + bytes };
  if (delta.offset >= known.bytes) return { attempt: delta.attempt, text: known.text + delta.text, bytes: delta.offset + bytes };
  const kept = truncate(known.text, known.bytes, delta.offset);
  return { attempt: delta.attempt, text: kept + delta.text, bytes: delta.offset + bytes };
}

/** The part of `text` that lies before byte `end` of the reply. `text` may lack the beginning of the reply, whose first `bytes` bytes were sent so far. */
function truncate(text: string, bytes: number, end: number): string {
  const all = encoder.encode(text);
  const missed = bytes - all.length;
  return decoder.decode(all.subarray(0, Math.max(0, end - missed)));
}

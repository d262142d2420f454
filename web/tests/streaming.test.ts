import { expect, it } from 'vitest';
import { addDelta, discardsStreamedText, type StreamedText } from '../src/state/streaming';

const TEXT = 'Once upon a time – ein Füchslein 🦊, sehr schlau.';
const bytes = (text: string) => new TextEncoder().encode(text).length;

function pieces(size: number): { offset: number; text: string }[] {
  const chars = [...TEXT];
  const result: { offset: number; text: string }[] = [];
  let offset = 0;
  for (let index = 0; index < chars.length; index += size) {
    const text = chars.slice(index, index + size).join('');
    result.push({ offset, text });
    offset += bytes(text);
  }
  return result;
}

function read(list: { offset: number; text: string }[], attempt = 1): StreamedText | undefined {
  let known: StreamedText | undefined;
  for (const piece of list) known = addDelta(known, { call: 'c1', attempt, ...piece });
  return known;
}

it('deltas add up to the text however it is split', () => {
  for (const size of [1, 2, 3, 7, 100]) expect(read(pieces(size))?.text).toBe(TEXT);
});

it('repeated deltas do not change the text', () => {
  const list = pieces(4);
  for (let from = 0; from < list.length; from += 1) {
    expect(read([...list, ...list.slice(from)])?.text, `again from ${from}`).toBe(TEXT);
  }
});

it('a client that joins late shows the end, and the whole text once the beginning is repeated', () => {
  const list = pieces(5);
  const late = list.slice(3);
  expect(read(late)?.text).toBe(late.map((piece) => piece.text).join(''));
  expect(read([...late, ...list])?.text).toBe(TEXT);
});

it('another attempt starts over', () => {
  let known = read(pieces(6));
  known = addDelta(known, { call: 'c1', attempt: 2, offset: 0, text: 'Anew' });
  expect(known).toEqual({ attempt: 2, text: 'Anew', bytes: 4 });
});

it('the streamed text is discarded when the reply is recorded or the attempt fails', () => {
  for (const type of ['reply_sent', 'call_failed', 'call_outcome_unknown', 'call_cancelled']) expect(discardsStreamedText(type), type).toBe(true);
  for (const type of ['call_opened', 'call_answered', 'phase_entered']) expect(discardsStreamedText(type), type).toBe(false);
});

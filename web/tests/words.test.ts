import { expect, it } from 'vitest';
import { addWords, takesBack, type Streamed } from '../src/state/words';

const TEXT = 'Once upon a time – ein Füchslein 🦊, sehr schlau.';
const bytes = (text: string) => new TextEncoder().encode(text).length;

function pieces(size: number): { at: number; text: string }[] {
  const chars = [...TEXT];
  const result: { at: number; text: string }[] = [];
  let at = 0;
  for (let index = 0; index < chars.length; index += size) {
    const text = chars.slice(index, index + size).join('');
    result.push({ at, text });
    at += bytes(text);
  }
  return result;
}

function read(list: { at: number; text: string }[], attempt = 1): Streamed | undefined {
  let known: Streamed | undefined;
  for (const piece of list) known = addWords(known, { call: 'c1', attempt, ...piece });
  return known;
}

it('words come together however they are cut', () => {
  for (const size of [1, 2, 3, 7, 100]) expect(read(pieces(size))?.text).toBe(TEXT);
});

it('words that come again replace what was shown', () => {
  const list = pieces(4);
  for (let from = 0; from < list.length; from += 1) {
    expect(read([...list, ...list.slice(from)])?.text, `again from ${from}`).toBe(TEXT);
  }
});

it('a listener who joins late shows the end right, and all of it once the beginning is repeated', () => {
  const list = pieces(5);
  const late = list.slice(3);
  expect(read(late)?.text).toBe(late.map((piece) => piece.text).join(''));
  expect(read([...late, ...list])?.text).toBe(TEXT);
});

it('another try begins anew', () => {
  let known = read(pieces(6));
  known = addWords(known, { call: 'c1', attempt: 2, at: 0, text: 'Anew' });
  expect(known).toEqual({ attempt: 2, text: 'Anew', bytes: 4 });
});

it('what a try said is taken back when it comes to nothing', () => {
  for (const is of ['said', 'call_failed', 'call_outcome_unknown', 'call_cancelled']) expect(takesBack(is), is).toBe(true);
  for (const is of ['call_opened', 'call_answered', 'phase_entered']) expect(takesBack(is), is).toBe(false);
});

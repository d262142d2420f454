import { describe, expect, it } from 'vitest';
import type { DiffLine } from '../src/api/types';
import { hunks, wordDiff } from '../src/lib/hunks';

const line = (is: DiffLine['is'], text = ''): DiffLine => ({ is, text });
const same = (count: number) => Array.from({ length: count }, (_, index) => line('same', String(index)));

describe('hunks', () => {
  it('keep three lines around a change and hide the rest', () => {
    const lines = [...same(10), line('new', '+'), ...same(10)];
    expect(hunks(lines).map((hunk) => `${hunk.is} ${hunk.lines.length}`)).toEqual(['same 7', 'lines 7', 'same 7']);
  });

  it('lose no line', () => {
    const lines = [line('gone'), ...same(9), line('new'), line('gone'), ...same(2), line('new'), ...same(30)];
    expect(hunks(lines).flatMap((hunk) => hunk.lines)).toEqual(lines);
  });

  it('hide everything where nothing changed', () => {
    expect(hunks(same(5))).toEqual([{ is: 'same', lines: same(5) }]);
    expect(hunks([])).toEqual([]);
  });
});

describe('word by word', () => {
  const before = (parts: ReturnType<typeof wordDiff>) => parts.filter((part) => part.is !== 'new').map((part) => part.text).join('');
  const now = (parts: ReturnType<typeof wordDiff>) => parts.filter((part) => part.is !== 'gone').map((part) => part.text).join('');

  it.each([
    ['the quick fox', 'the slow fox'],
    ['', 'all new'],
    ['all gone', ''],
    ['Größe: 5', 'Größe: 6 🦊'],
    ['a b c d', 'd c b a'],
    ['x '.repeat(2000), 'y '.repeat(2000)],
  ])('both texts can be read out of the difference (%#)', (a, b) => {
    const parts = wordDiff(a, b);
    expect(before(parts)).toBe(a);
    expect(now(parts)).toBe(b);
  });

  it('marks no more than what changed', () => {
    expect(wordDiff('the quick fox', 'the slow fox')).toEqual([
      { is: 'same', text: 'the ' },
      { is: 'gone', text: 'quick' },
      { is: 'new', text: 'slow' },
      { is: 'same', text: ' fox' },
    ]);
  });
});

import { describe, expect, it } from 'vitest';
import type { PromptDiffLine } from '../src/api/types';
import { groupHunks, wordDiff } from '../src/lib/diff';

const line = (type: PromptDiffLine['type'], text = ''): PromptDiffLine => ({ type, text });
const same = (count: number) => Array.from({ length: count }, (_, index) => line('same', String(index)));

describe('hunks', () => {
  it('keep three lines of context and hide the rest', () => {
    const lines = [...same(10), line('added', '+'), ...same(10)];
    expect(groupHunks(lines).map((hunk) => `${hunk.type} ${hunk.lines.length}`)).toEqual(['same 7', 'lines 7', 'same 7']);
  });

  it('contain every line', () => {
    const lines = [line('removed'), ...same(9), line('added'), line('removed'), ...same(2), line('added'), ...same(30)];
    expect(groupHunks(lines).flatMap((hunk) => hunk.lines)).toEqual(lines);
  });

  it('hide everything where nothing changed', () => {
    expect(groupHunks(same(5))).toEqual([{ type: 'same', lines: same(5) }]);
    expect(groupHunks([])).toEqual([]);
  });
});

describe('wordDiff', () => {
  const before = (parts: ReturnType<typeof wordDiff>) => parts.filter((part) => part.type !== 'added').map((part) => part.text).join('');
  const after = (parts: ReturnType<typeof wordDiff>) => parts.filter((part) => part.type !== 'removed').map((part) => part.text).join('');

  it.each([
    ['the quick fox', 'the slow fox'],
    ['', 'all new'],
    ['all gone', ''],
    ['Größe: 5', 'Größe: 6 🦊'],
    ['a b c d', 'd c b a'],
    ['x '.repeat(2000), 'y '.repeat(2000)],
  ])('contains both texts (%#)', (a, b) => {
    const parts = wordDiff(a, b);
    expect(before(parts)).toBe(a);
    expect(after(parts)).toBe(b);
  });

  it('marks only what changed', () => {
    expect(wordDiff('the quick fox', 'the slow fox')).toEqual([
      { type: 'same', text: 'the ' },
      { type: 'removed', text: 'quick' },
      { type: 'added', text: 'slow' },
      { type: 'same', text: ' fox' },
    ]);
  });
});

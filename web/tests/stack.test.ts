import { describe, expect, it } from 'vitest';
import type { Fragment } from '../src/api/types';
import { cachedDepth, segments } from '../src/lib/stack';

function fragment(name: string, tokens: number): Fragment {
  return { name, tokens, part: 'ask', layer: 'task', source: null, source_words: null, why: '', cut_from: null, pinned: false, since: null, body: null };
}

describe('a prompt drawn to scale', () => {
  it('is exactly as high as it should be, without gaps', () => {
    const stack = segments([fragment('a', 900), fragment('b', 1), fragment('c', 99)], 500);
    let y = 0;
    for (const segment of stack) {
      expect(segment.y).toBeCloseTo(y);
      y += segment.height;
    }
    expect(y).toBeCloseTo(500);
  });

  it('shows in proportion, and shows even one token', () => {
    const stack = segments([fragment('a', 600), fragment('b', 300), fragment('c', 1)], 500);
    const [a, b, c] = stack.map((segment) => segment.height);
    expect((a ?? 0) / (b ?? 1)).toBeCloseTo(2);
    expect(c).toBeGreaterThan(1);
  });

  it('ends the cached part inside the fragment where it ends', () => {
    const stack = segments([fragment('a', 100), fragment('b', 100)], 200);
    expect(cachedDepth(stack, 0)).toBe(0);
    expect(cachedDepth(stack, 150)).toBeCloseTo(150);
    expect(cachedDepth(stack, 999)).toBeCloseTo(200);
  });

  it('of nothing is nothing', () => {
    expect(segments([], 100)).toEqual([]);
    expect(segments([fragment('a', 0)], 100)).toEqual([]);
  });
});

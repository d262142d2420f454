import { describe, expect, it } from 'vitest';
import type { ShownFragment } from '../src/api/types';
import { cachedHeight, stackSegments } from '../src/lib/prompt-stack';

function fragment(name: string, tokens: number): ShownFragment {
  return { name, tokens, part: 'ask', layer: 'task', source: null, source_summary: '', reason: '', tokens_before_cut: null, pinned: false, since_call: null, body: null };
}

describe('a prompt drawn to scale', () => {
  it('fills the height without gaps', () => {
    const stack = stackSegments([fragment('a', 900), fragment('b', 1), fragment('c', 99)], 500);
    let y = 0;
    for (const segment of stack) {
      expect(segment.y).toBeCloseTo(y);
      y += segment.height;
    }
    expect(y).toBeCloseTo(500);
  });

  it('is in proportion, and shows even one token', () => {
    const stack = stackSegments([fragment('a', 600), fragment('b', 300), fragment('c', 1)], 500);
    const [a, b, c] = stack.map((segment) => segment.height);
    expect((a ?? 0) / (b ?? 1)).toBeCloseTo(2);
    expect(c).toBeGreaterThan(1);
  });

  it('ends the cached part inside a fragment', () => {
    const stack = stackSegments([fragment('a', 100), fragment('b', 100)], 200);
    expect(cachedHeight(stack, 0)).toBe(0);
    expect(cachedHeight(stack, 150)).toBeCloseTo(150);
    expect(cachedHeight(stack, 999)).toBeCloseTo(200);
  });

  it('of an empty prompt is empty', () => {
    expect(stackSegments([], 100)).toEqual([]);
    expect(stackSegments([fragment('a', 0)], 100)).toEqual([]);
  });
});

// A prompt drawn to scale: how high each fragment is, where the cached part ends. Fragments of a few tokens stay visible.

import type { Fragment } from '../api/types';

export interface Segment {
  fragment: Fragment;
  y: number;
  height: number;
}

const LEAST = 2;

/** Heights in proportion to tokens, none below what the eye can see; together exactly `height`. */
export function segments(fragments: readonly Fragment[], height: number): Segment[] {
  const total = fragments.reduce((sum, fragment) => sum + fragment.tokens, 0);
  if (total === 0 || fragments.length === 0) return [];
  const raw = fragments.map((fragment) => Math.max(LEAST, (height * fragment.tokens) / total));
  const scale = height / raw.reduce((sum, part) => sum + part, 0);
  let y = 0;
  return fragments.map((fragment, index) => {
    const own = (raw[index] ?? 0) * scale;
    const segment = { fragment, y, height: own };
    y += own;
    return segment;
  });
}

/** How far down the stack the cached tokens reach. */
export function cachedDepth(stack: readonly Segment[], cached: number): number {
  let rest = cached;
  let depth = 0;
  for (const segment of stack) {
    if (rest <= 0) break;
    const { tokens } = segment.fragment;
    const share = tokens === 0 ? 0 : Math.min(1, rest / tokens);
    depth += segment.height * share;
    rest -= tokens;
  }
  return depth;
}

/** A band from a segment on the left to a row on the right. */
export function ribbon(left: { y: number; height: number }, right: { y: number; height: number }, width: number): string {
  const middle = width / 2;
  const [a, b, c, d] = [left.y, left.y + left.height, right.y + right.height, right.y].map((value) => value.toFixed(1));
  return `M0 ${a}C${middle} ${a} ${middle} ${d} ${width} ${d}V${c}C${middle} ${c} ${middle} ${b} 0 ${b}Z`;
}

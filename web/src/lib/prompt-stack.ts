// The geometry of a prompt drawn to token scale. Small fragments stay visible.

import type { ShownFragment } from '../api/types';

export interface StackSegment {
  fragment: ShownFragment;
  y: number;
  height: number;
}

const HEIGHT_MIN = 2;

/** Heights in proportion to tokens, with a minimum. They add up to exactly `height`. */
export function stackSegments(fragments: readonly ShownFragment[], height: number): StackSegment[] {
  const total = fragments.reduce((sum, fragment) => sum + fragment.tokens, 0);
  if (total === 0 || fragments.length === 0) return [];
  const raw = fragments.map((fragment) => Math.max(HEIGHT_MIN, (height * fragment.tokens) / total));
  const scale = height / raw.reduce((sum, part) => sum + part, 0);
  let y = 0;
  return fragments.map((fragment, index) => {
    const own = (raw[index] ?? 0) * scale;
    const segment = { fragment, y, height: own };
    y += own;
    return segment;
  });
}

/** The height of the cached part of the stack. */
export function cachedHeight(stack: readonly StackSegment[], cached: number): number {
  let rest = cached;
  let cachedPart = 0;
  for (const segment of stack) {
    if (rest <= 0) break;
    const { tokens } = segment.fragment;
    const share = tokens === 0 ? 0 : Math.min(1, rest / tokens);
    cachedPart += segment.height * share;
    rest -= tokens;
  }
  return cachedPart;
}

/** The path of a band from a segment on the left to a row on the right. */
export function ribbonPath(left: { y: number; height: number }, right: { y: number; height: number }, width: number): string {
  const middle = width / 2;
  const [a, b, c, d] = [left.y, left.y + left.height, right.y + right.height, right.y].map((value) => value.toFixed(1));
  return `M0 ${a}C${middle} ${a} ${middle} ${d} ${width} ${d}V${c}C${middle} ${c} ${middle} ${b} 0 ${b}Z`;
}

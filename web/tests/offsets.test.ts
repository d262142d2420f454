import { describe, expect, it } from 'vitest';
import { RowOffsets } from '../src/lib/offsets';

/** A seeded random number generator, so that failures are reproducible. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return state / 2_147_483_648;
  };
}

describe('RowOffsets', () => {
  it('agrees with plain addition', () => {
    for (let seed = 1; seed <= 20; seed += 1) {
      const next = random(seed);
      const size = 1 + Math.floor(next() * 200);
      const heights = Array.from({ length: size }, () => 100);
      const offsets = new RowOffsets(100);
      offsets.resize(size);
      for (let step = 0; step < 300; step += 1) {
        const index = Math.floor(next() * size);
        const height = Math.floor(next() * 500);
        expect(offsets.measure(index, height)).toBe(height - (heights[index] ?? 0));
        heights[index] = height;
      }
      let sum = 0;
      heights.forEach((height, index) => {
        expect(offsets.offset(index)).toBe(sum);
        sum += height;
      });
      expect(offsets.total).toBe(sum);
      for (let y = 0; y < sum; y += 37) {
        const index = offsets.rowAt(y);
        expect(offsets.offset(index) <= y && y < offsets.offset(index) + offsets.height(index), `seed ${seed}, y ${y}`).toBe(true);
      }
    }
  });

  it('keeps measured heights when the list grows', () => {
    const offsets = new RowOffsets(10);
    offsets.resize(3);
    offsets.measure(1, 50);
    offsets.resize(5);
    expect([0, 1, 2, 3, 4].map((index) => offsets.height(index))).toEqual([10, 50, 10, 10, 10]);
    expect(offsets.total).toBe(90);
  });

  it('supports an empty list', () => {
    const offsets = new RowOffsets(10);
    offsets.resize(0);
    expect(offsets.total).toBe(0);
    expect(offsets.rowAt(100)).toBe(0);
  });
});

// The positions of the rows of a long list in which only rendered rows have been measured. Sums are kept in a Fenwick tree, so lookups and updates take
// logarithmic time.

export class RowOffsets {
  #size = 0;
  #heights: Float64Array<ArrayBuffer> = new Float64Array(0);
  #sums: Float64Array<ArrayBuffer> = new Float64Array(1);
  #measured: Uint8Array<ArrayBuffer> = new Uint8Array(0);
  #estimate: number;

  constructor(estimate: number) {
    this.#estimate = estimate;
  }

  get size(): number {
    return this.#size;
  }

  get total(): number {
    return this.offset(this.#size);
  }

  /** Changes the number of rows. New rows get the estimated height. */
  resize(size: number): void {
    if (size === this.#size) return;
    const heights = new Float64Array(size);
    const measured = new Uint8Array(size);
    const kept = Math.min(size, this.#size);
    heights.set(this.#heights.subarray(0, kept));
    measured.set(this.#measured.subarray(0, kept));
    heights.fill(this.#estimate, kept);
    this.#heights = heights;
    this.#measured = measured;
    this.#size = size;
    this.#sums = new Float64Array(size + 1);
    for (let index = 0; index < size; index += 1) this.#add(index, heights[index] ?? 0);
  }

  height(index: number): number {
    return this.#heights[index] ?? 0;
  }

  isMeasured(index: number): boolean {
    return this.#measured[index] === 1;
  }

  /** Records a row's height and returns by how much it changed. */
  measure(index: number, height: number): number {
    const before = this.#heights[index];
    if (before === undefined) return 0;
    this.#measured[index] = 1;
    const change = height - before;
    if (change !== 0) {
      this.#heights[index] = height;
      this.#add(index, change);
    }
    return change;
  }

  /** The position of a row's top. */
  offset(index: number): number {
    let sum = 0;
    for (let at = Math.min(index, this.#size); at > 0; at -= at & -at) sum += this.#sums[at] ?? 0;
    return sum;
  }

  /** The index of the row at this position; the last row if it is below all rows. */
  rowAt(y: number): number {
    let index = 0;
    let rest = y;
    for (let step = highestPower(this.#size); step > 0; step >>= 1) {
      const next = index + step;
      const sum = this.#sums[next];
      if (next <= this.#size && sum !== undefined && sum <= rest) {
        index = next;
        rest -= sum;
      }
    }
    return Math.max(0, Math.min(index, this.#size - 1));
  }

  #add(index: number, change: number): void {
    for (let at = index + 1; at <= this.#size; at += at & -at) this.#sums[at] = (this.#sums[at] ?? 0) + change;
  }
}

function highestPower(size: number): number {
  let power = 1;
  while (power * 2 <= size) power *= 2;
  return size === 0 ? 0 : power;
}

// SPDX-License-Identifier: Apache-2.0
// History: a ring of moments, and for each series a ring of its values beside it. The memory is
// bounded: as many moments as fit, and a series that was not seen in any of them is dropped.

export class Store {
  constructor(capacity = 900) {
    this.capacity = capacity;
    this.times = new Float64Array(capacity);
    this.series = new Map();
    this.pushed = 0;
  }

  /** How many moments there are. */
  get size() {
    return Math.min(this.pushed, this.capacity);
  }

  /** The newest moment, in milliseconds; NaN before the first. */
  get last() {
    return this.pushed === 0 ? NaN : this.times[(this.pushed - 1) % this.capacity];
  }

  /** Where the i-th moment is, the oldest being 0. */
  at(i) {
    return (this.pushed - this.size + i) % this.capacity;
  }

  /** Adds a moment with the values it has; one that is not newer than the last is left out. */
  push(time, values) {
    if (!(time > this.last || this.pushed === 0)) return false;
    const pos = this.pushed % this.capacity;
    this.times[pos] = time;
    this.pushed += 1;
    for (const [key, entry] of this.series) {
      entry.data[pos] = NaN;
      if (this.pushed - entry.seen > this.capacity) this.series.delete(key);
    }
    for (const [key, value] of values) {
      let entry = this.series.get(key);
      if (entry === undefined) {
        entry = { data: new Float64Array(this.capacity).fill(NaN), seen: 0 };
        this.series.set(key, entry);
      }
      entry.data[pos] = typeof value === "number" ? value : NaN;
      entry.seen = this.pushed;
    }
    return true;
  }

  /** The values of a series, in the places of the ring; undefined if there is none. */
  data(key) {
    const entry = this.series.get(key);
    return entry === undefined ? undefined : entry.data;
  }

  /** The newest value of a series that is not newer than a moment. */
  value(key, until = Infinity) {
    const data = this.data(key);
    if (data === undefined) return NaN;
    for (let i = this.size - 1; i >= 0; i -= 1) {
      const p = this.at(i);
      if (this.times[p] <= until) return data[p];
    }
    return NaN;
  }

  /** The first of the moments that are not before `from`. */
  first(from) {
    let low = 0;
    let high = this.size;
    while (low < high) {
      const mid = (low + high) >> 1;
      if (this.times[this.at(mid)] < from) low = mid + 1;
      else high = mid;
    }
    return low;
  }

  /** The moment that is nearest to a time; -1 if there is none. */
  nearest(time) {
    if (this.size === 0) return -1;
    const i = Math.min(this.first(time), this.size - 1);
    if (i === 0) return 0;
    const before = time - this.times[this.at(i - 1)];
    return before < this.times[this.at(i)] - time ? i - 1 : i;
  }
}

// The current time, for running durations. It ticks only while something watches it.

const TICK_MS = 100;

class Clock {
  ms = $state.raw(Date.now());
  #watchers = 0;
  #timer: ReturnType<typeof setInterval> | null = null;

  /** Keeps the clock ticking until the returned function is called. */
  watch(): () => void {
    this.#watchers += 1;
    this.ms = Date.now();
    this.#timer ??= setInterval(() => (this.ms = Date.now()), TICK_MS);
    return () => {
      this.#watchers -= 1;
      if (this.#watchers > 0 || this.#timer === null) return;
      clearInterval(this.#timer);
      this.#timer = null;
    };
  }
}

export const now = new Clock();

// The clock, for what is drawn while time passes. It runs only while someone looks.

const TICK_MS = 100;

class Now {
  ms = $state.raw(Date.now());
  #watchers = 0;
  #timer: ReturnType<typeof setInterval> | null = null;

  /** Lets the clock run until the function returned is called. */
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

export const now = new Now();

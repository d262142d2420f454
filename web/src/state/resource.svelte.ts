// A view of a session that is fetched, and fetched again when the session has moved on. The old value stays until the new one is there, so nothing flickers.

import { Problem } from '../api/client';

export class Resource<T> {
  value = $state.raw<T | null>(null);
  problem = $state.raw<Problem | null>(null);
  loading = $state.raw(true);

  /** `fetch` is called anew whenever what `key` reads has changed; `null` means that there is nothing to fetch. */
  constructor(key: () => string | null, fetch: (signal: AbortSignal) => Promise<T>) {
    let subject: string | null = null;
    $effect(() => {
      const wanted = key();
      if (wanted === null) return;
      const abort = new AbortController();
      const [about] = wanted.split('\n', 1);
      if (about !== subject) {
        // Another thing altogether: its predecessor must not be taken for it.
        subject = about ?? null;
        this.value = null;
      }
      this.loading = true;
      fetch(abort.signal)
        .then((value) => {
          if (abort.signal.aborted) return;
          this.value = value;
          this.problem = null;
        })
        .catch((error: unknown) => {
          if (abort.signal.aborted) return;
          this.problem = error instanceof Problem ? error : new Problem(0, { detail: String(error) });
        })
        .finally(() => {
          if (!abort.signal.aborted) this.loading = false;
        });
      return () => abort.abort();
    });
  }
}

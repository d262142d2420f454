// A value that is fetched, and fetched again when its key changes. The old value stays until the new one has arrived, so nothing flickers.

import { Problem } from '../api/client';

export class Resource<T> {
  value = $state.raw<T | null>(null);
  problem = $state.raw<Problem | null>(null);
  loading = $state.raw(true);

  /** Calls `fetch` whenever the result of `key` changes. The first line of the key names the subject; `null` means that there is nothing to fetch. */
  constructor(key: () => string | null, fetch: (signal: AbortSignal) => Promise<T>) {
    let subject: string | null = null;
    $effect(() => {
      const wanted = key();
      if (wanted === null) return;
      const abort = new AbortController();
      const [name] = wanted.split('\n', 1);
      if (name !== subject) {
        // A value of another subject must not be shown.
        subject = name ?? null;
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

// The list of sessions, newest first, kept in step with the server's stream of changes; and a search in it.

import { api, Problem } from '../api/client';
import { follow, type Link } from '../api/follow';
import type { SessionRow } from '../api/types';

const PAGE = 60;
const TYPING_MS = 150;

class Sessions {
  rows = $state.raw<SessionRow[]>([]);
  found = $state.raw<SessionRow[] | null>(null);
  query = $state.raw('');
  loaded = $state.raw(false);
  more = $state.raw<string | null>(null);
  problem = $state.raw<Problem | null>(null);
  link = $state.raw<Link>('connecting');

  #stop: (() => void) | null = null;
  #typing: ReturnType<typeof setTimeout> | null = null;
  #search: AbortController | null = null;

  start(): void {
    this.#stop?.();
    void this.reload();
    let lost = false;
    this.#stop = follow({
      path: '/v1/changes',
      after: null,
      heard: (kind, data) => this.#heard(kind, data),
      stands: (link) => {
        this.link = link;
        // What changed while nobody listened is in no stream.
        if (link === 'waiting' || link === 'resting') lost = true;
        if (link === 'open' && lost) {
          lost = false;
          void this.reload();
        }
      },
    });
  }

  async reload(): Promise<void> {
    try {
      const page = await api.sessions({ limit: PAGE });
      this.rows = page.sessions;
      this.more = page.next;
      this.problem = null;
    } catch (error) {
      if (error instanceof Problem) this.problem = error;
    } finally {
      this.loaded = true;
    }
  }

  async loadMore(): Promise<void> {
    if (this.more === null) return;
    const page = await api.sessions({ limit: PAGE, cursor: this.more });
    const known = new Set(this.rows.map((row) => row.session));
    this.rows = [...this.rows, ...page.sessions.filter((row) => !known.has(row.session))];
    this.more = page.next;
  }

  search(query: string): void {
    this.query = query;
    if (this.#typing !== null) clearTimeout(this.#typing);
    this.#search?.abort();
    if (query.trim() === '') {
      this.found = null;
      return;
    }
    this.#typing = setTimeout(() => void this.#find(query.trim()), TYPING_MS);
  }

  async #find(query: string): Promise<void> {
    const search = new AbortController();
    this.#search = search;
    try {
      const page = await api.sessions({ search: query, limit: PAGE }, search.signal);
      if (!search.signal.aborted) this.found = page.sessions;
    } catch {
      if (!search.signal.aborted) this.found = [];
    }
  }

  #heard(kind: string, data: unknown): void {
    if (kind === 'session') this.put(data as SessionRow);
    if (kind === 'gone') this.drop((data as { session: string }).session);
  }

  put(row: SessionRow): void {
    const others = this.rows.filter((known) => known.session !== row.session);
    this.rows = [row, ...others].sort((a, b) => b.updated - a.updated);
  }

  drop(session: string): void {
    this.rows = this.rows.filter((row) => row.session !== session);
    this.found = this.found?.filter((row) => row.session !== session) ?? null;
  }
}

export const sessions = new Sessions();

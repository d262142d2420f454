// The list of sessions, newest first, updated from the server's stream of changes, and a search in it.

import { api, Problem } from '../api/client';
import { follow, type ConnectionStatus } from '../api/follow';
import type { SessionListItem } from '../api/types';

const SESSIONS_PER_PAGE = 60;
const SEARCH_DELAY_MS = 150;

class SessionList {
  rows = $state.raw<SessionListItem[]>([]);
  found = $state.raw<SessionListItem[] | null>(null);
  query = $state.raw('');
  loaded = $state.raw(false);
  nextCursor = $state.raw<string | null>(null);
  problem = $state.raw<Problem | null>(null);
  connection = $state.raw<ConnectionStatus>('connecting');

  #stop: (() => void) | null = null;
  #searchTimer: ReturnType<typeof setTimeout> | null = null;
  #search: AbortController | null = null;

  start(): void {
    this.#stop?.();
    void this.reload();
    let missedChanges = false;
    this.#stop = follow({
      session: null,
      after: 0,
      onEvent: (type, data) => this.#receive(type, data),
      onStatus: (status) => {
        this.connection = status;
        // The stream does not repeat changes that happened while it was disconnected.
        if (status === 'waiting' || status === 'paused') missedChanges = true;
        if (status === 'open' && missedChanges) {
          missedChanges = false;
          void this.reload();
        }
      },
    });
  }

  async reload(): Promise<void> {
    try {
      const page = await api.sessions({ limit: SESSIONS_PER_PAGE });
      this.rows = page.sessions;
      this.nextCursor = page.next;
      this.problem = null;
    } catch (error) {
      if (error instanceof Problem) this.problem = error;
    } finally {
      this.loaded = true;
    }
  }

  async loadMore(): Promise<void> {
    if (this.nextCursor === null) return;
    const page = await api.sessions({ limit: SESSIONS_PER_PAGE, cursor: this.nextCursor });
    const known = new Set(this.rows.map((row) => row.session));
    this.rows = [...this.rows, ...page.sessions.filter((row) => !known.has(row.session))];
    this.nextCursor = page.next;
  }

  search(query: string): void {
    this.query = query;
    if (this.#searchTimer !== null) clearTimeout(this.#searchTimer);
    this.#search?.abort();
    if (query.trim() === '') {
      this.found = null;
      return;
    }
    this.#searchTimer = setTimeout(() => void this.#find(query.trim()), SEARCH_DELAY_MS);
  }

  async #find(query: string): Promise<void> {
    const search = new AbortController();
    this.#search = search;
    try {
      const page = await api.sessions({ search: query, limit: SESSIONS_PER_PAGE }, search.signal);
      if (!search.signal.aborted) this.found = page.sessions;
    } catch {
      if (!search.signal.aborted) this.found = [];
    }
  }

  #receive(type: string, data: unknown): void {
    if (type === 'session') this.upsert(data as SessionListItem);
    if (type === 'deleted') this.remove((data as { session: string }).session);
  }

  upsert(row: SessionListItem): void {
    const others = this.rows.filter((known) => known.session !== row.session);
    this.rows = [row, ...others].sort((a, b) => b.updated - a.updated);
  }

  remove(session: string): void {
    this.rows = this.rows.filter((row) => row.session !== session);
    this.found = this.found?.filter((row) => row.session !== session) ?? null;
  }
}

export const sessions = new SessionList();

// Follows any number of sessions, and the list of sessions, over one connection. Browsers open only six connections to a server, for all tabs together.
// Delivers each journal event once and in order to every subscriber. It does not interpret the events, and runs in a page or in a worker.

import { Problem, readProblem, url } from './client';
import { SseParser, type SseEvent } from './sse';

export type ConnectionStatus = 'connecting' | 'open' | 'waiting' | 'paused' | 'ended';

export interface StreamSubscriber {
  /** The session to follow; `null` for changes of the list of sessions. */
  readonly session: string | null;
  /** The sequence number of the last known event of the session. */
  readonly after: number;
  onEvent(type: string, data: unknown): void;
  onStatus(status: ConnectionStatus): void;
  /** Called when reconnecting cannot help: the session does not exist, or a key is required. The subscription has ended. */
  onEnd(problem: Problem): void;
}

/** The server sends a keep-alive comment every 15 seconds. After a longer silence the connection is considered dead. */
const SILENCE_MS_MAX = 40_000;
const BACKOFF_MS_FIRST = 250;
const BACKOFF_MS_MAX = 5_000;
/** Subscriptions that start or end together, as when a page opens, cause one new connection. */
const CHANGE_DELAY_MS = 15;
/** The server accepts no more in one stream. */
const SESSIONS_MAX = 64;

interface Entry {
  readonly subscriber: StreamSubscriber;
  /** The sequence number of the last event that was delivered. */
  cursor: number;
}

export class StreamHub {
  readonly #key: string | null;
  readonly #entries = new Set<Entry>();
  /** Aborts the connection whose events are delivered. */
  #current: AbortController | null = null;
  /** Increases with every attempt to connect; only the newest one counts. */
  #attempt = 0;
  #timer: ReturnType<typeof setTimeout> | null = null;
  #backoffMs = BACKOFF_MS_FIRST;

  constructor(key: string | null) {
    this.#key = key;
    globalThis.addEventListener('online', () => this.#connectAfter(0));
  }

  /** Starts a subscription. The returned function ends it. */
  subscribe(subscriber: StreamSubscriber): () => void {
    const entry: Entry = { subscriber, cursor: subscriber.after };
    this.#entries.add(entry);
    subscriber.onStatus('connecting');
    this.#connectAfter(CHANGE_DELAY_MS);
    return () => {
      if (this.#entries.delete(entry)) this.#connectAfter(CHANGE_DELAY_MS);
    };
  }

  #connectAfter(ms: number): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#timer = null;
      void this.#connect();
    }, ms);
  }

  /** Opens a connection for the current subscriptions. Only when it is open does it replace the previous one, so that no change is missed. */
  async #connect(): Promise<void> {
    this.#attempt += 1;
    const attempt = this.#attempt;
    if (this.#entries.size === 0) {
      this.#current?.abort();
      this.#current = null;
      return;
    }
    const connection = new AbortController();
    try {
      const response = await fetch(url('/v1/stream', this.#query()), { headers: this.#headers(), signal: connection.signal, cache: 'no-store' });
      if (attempt !== this.#attempt) return;
      if (!response.ok || !response.body) {
        await this.#handleErrorResponse(response);
        return;
      }
      this.#current?.abort();
      this.#current = connection;
      this.#setStatus('open');
      await this.#read(response.body, connection);
    } catch {
      // The connection was aborted or lost.
    } finally {
      connection.abort();
      const lost = this.#current === connection;
      if (lost) this.#current = null;
      if (attempt === this.#attempt && this.#current === null && this.#timer === null && this.#entries.size > 0) this.#retry(null);
    }
  }

  #retry(waitMs: number | null): void {
    this.#setStatus('waiting');
    this.#connectAfter(waitMs ?? this.#backoffMs * (0.75 + Math.random() / 2));
    this.#backoffMs = Math.min(BACKOFF_MS_MAX, this.#backoffMs * 2);
  }

  #query(): Record<string, string | null> {
    const cursors = new Map<string, number>();
    for (const { subscriber, cursor } of this.#entries) {
      if (subscriber.session === null) continue;
      cursors.set(subscriber.session, Math.min(cursor, cursors.get(subscriber.session) ?? cursor));
    }
    const newest = [...cursors].slice(-SESSIONS_MAX).map(([session, cursor]) => `${session}:${cursor}`);
    const changes = [...this.#entries].some(({ subscriber }) => subscriber.session === null);
    return { changes: changes ? 'true' : null, sessions: newest.length > 0 ? newest.join(',') : null };
  }

  #headers(): Record<string, string> {
    const accept = { accept: 'text/event-stream' };
    return this.#key === null ? accept : { ...accept, authorization: `Bearer ${this.#key}` };
  }

  async #handleErrorResponse(response: Response): Promise<void> {
    const problem = await readProblem(response);
    if (problem.status === 429 || problem.status >= 500) {
      const seconds = Number(response.headers.get('retry-after'));
      this.#retry(seconds > 0 ? seconds * 1000 : null);
      return;
    }
    this.#end(() => true, problem);
  }

  async #read(body: ReadableStream<Uint8Array<ArrayBuffer>>, connection: AbortController): Promise<void> {
    const parser = new SseParser();
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let silence = setTimeout(() => connection.abort(), SILENCE_MS_MAX);
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(silence);
        silence = setTimeout(() => connection.abort(), SILENCE_MS_MAX);
        this.#backoffMs = BACKOFF_MS_FIRST;
        for (const event of parser.push(value)) {
          // Another connection has taken over, which delivers everything from its start.
          if (this.#current !== connection) return;
          if (!this.#deliver(event)) return;
        }
      }
    } finally {
      clearTimeout(silence);
    }
  }

  /** Delivers one event. Returns whether the connection can still be used. */
  #deliver(event: SseEvent): boolean {
    const { session, data } = JSON.parse(event.data) as { session: string | null; data: unknown };
    if (event.type === 'reconnect') return false;
    const concerns = (entry: Entry) => entry.subscriber.session === session;
    if (event.type === 'problem') {
      const problem = new Problem((data as { status?: number }).status ?? 500, data as object);
      if (problem.status >= 500 || problem.status === 429) return false;
      this.#end(concerns, problem);
      return true;
    }
    for (const entry of [...this.#entries].filter(concerns)) {
      if (event.type === 'event') {
        const { seq } = data as { seq: number };
        if (seq <= entry.cursor) continue;
        // Some events are missing. A new connection fetches them.
        if (seq > entry.cursor + 1) return false;
        entry.cursor = seq;
      }
      entry.subscriber.onEvent(event.type, data);
    }
    return true;
  }

  #end(concerns: (entry: Entry) => boolean, problem: Problem): void {
    for (const entry of [...this.#entries].filter(concerns)) {
      this.#entries.delete(entry);
      entry.subscriber.onStatus('ended');
      entry.subscriber.onEnd(problem);
    }
  }

  #setStatus(status: ConnectionStatus): void {
    for (const { subscriber } of this.#entries) subscriber.onStatus(status);
  }
}

// Follows an event stream: connects, reconnects, and delivers each journal event once and in order. It does not interpret the events.

import { headers, Problem, readProblem, url, type Query } from './client';
import { SseParser, type SseEvent } from './sse';

export type ConnectionStatus = 'connecting' | 'open' | 'waiting' | 'paused' | 'ended';

export interface FollowOptions {
  path: string;
  query?: Query;
  /** The sequence number of the last known event; `null` for a stream without sequence numbers. */
  after: number | null;
  onEvent: (type: string, data: unknown) => void;
  onStatus?: (status: ConnectionStatus) => void;
  /** Called when reconnecting cannot help: the session was deleted, or a key is required. */
  onEnd?: (problem: Problem) => void;
}

/** The server sends a keep-alive comment every 15 seconds. After a longer silence the connection is considered dead. */
const SILENCE_MS_MAX = 40_000;
const BACKOFF_MS_FIRST = 250;
const BACKOFF_MS_MAX = 5_000;
/** Browsers allow few connections to one server, so a hidden tab closes its own after this time. */
const HIDDEN_MS_MAX = 30_000;

/** Starts following. The returned function stops it. */
export function follow(options: FollowOptions): () => void {
  const stop = new AbortController();
  void run(options, stop.signal);
  return () => stop.abort();
}

async function run(options: FollowOptions, stopped: AbortSignal): Promise<void> {
  const cursor: Cursor = { seq: options.after };
  let backoff = BACKOFF_MS_FIRST;
  while (!stopped.aborted) {
    options.onStatus?.('connecting');
    const end = await connect(options, cursor, stopped, () => (backoff = BACKOFF_MS_FIRST));
    if (stopped.aborted) return;
    if (end.type === 'failed') {
      options.onStatus?.('ended');
      options.onEnd?.(end.problem);
      return;
    }
    if (end.type === 'hidden') {
      options.onStatus?.('paused');
      await untilVisible(stopped);
      continue;
    }
    options.onStatus?.('waiting');
    await delay(end.waitMs ?? backoff * (0.75 + Math.random() / 2), stopped);
    backoff = Math.min(BACKOFF_MS_MAX, backoff * 2);
  }
}

/** The sequence number of the last event that was delivered. */
interface Cursor {
  seq: number | null;
}

/** Why a connection ended, and so what to do next. */
type ConnectionEnd = { type: 'reconnect'; waitMs: number | null } | { type: 'hidden' } | { type: 'failed'; problem: Problem };

async function connect(options: FollowOptions, cursor: Cursor, stopped: AbortSignal, onData: () => void): Promise<ConnectionEnd> {
  const inner = new AbortController();
  const abort = () => inner.abort();
  stopped.addEventListener('abort', abort);
  const watch = new ConnectionWatch(abort);
  try {
    const response = await fetch(url(options.path, { ...options.query, after: cursor.seq }), {
      headers: headers(cursor.seq === null ? { accept: 'text/event-stream' } : { accept: 'text/event-stream', 'last-event-id': String(cursor.seq) }),
      signal: inner.signal,
      cache: 'no-store',
    });
    if (!response.ok || !response.body) return await handleErrorResponse(response);
    options.onStatus?.('open');
    const parser = new SseParser();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return { type: 'reconnect', waitMs: parser.retryMs };
      watch.alive();
      onData();
      for (const event of parser.push(value)) {
        const end = deliver(event, options, cursor);
        if (end) return end;
      }
    }
  } catch {
    return watch.hidden ? { type: 'hidden' } : { type: 'reconnect', waitMs: null };
  } finally {
    watch.end();
    stopped.removeEventListener('abort', abort);
    inner.abort();
  }
}

async function handleErrorResponse(response: Response): Promise<ConnectionEnd> {
  const problem = await readProblem(response);
  const transient = problem.status === 429 || problem.status >= 500;
  if (!transient) return { type: 'failed', problem };
  const seconds = Number(response.headers.get('retry-after'));
  return { type: 'reconnect', waitMs: seconds > 0 ? seconds * 1000 : null };
}

/** Delivers one event unless it was delivered before. After a gap it reconnects to fetch the missing events. */
function deliver(event: SseEvent, options: FollowOptions, cursor: Cursor): ConnectionEnd | null {
  const data: unknown = JSON.parse(event.data);
  if (event.type === 'reconnect') return { type: 'reconnect', waitMs: null };
  if (event.type === 'problem') {
    const problem = new Problem((data as { status?: number }).status ?? 500, data as object);
    return problem.status >= 500 || problem.status === 429 ? { type: 'reconnect', waitMs: null } : { type: 'failed', problem };
  }
  if (event.type === 'event' && cursor.seq !== null) {
    const seq = (data as { seq: number }).seq;
    if (seq <= cursor.seq) return null;
    if (seq > cursor.seq + 1) return { type: 'reconnect', waitMs: null };
    cursor.seq = seq;
  }
  options.onEvent(event.type, data);
  return null;
}

/** Aborts a connection that has gone silent or whose tab is hidden. */
class ConnectionWatch {
  hidden = false;
  #abort: () => void;
  #silenceTimer: ReturnType<typeof setTimeout>;
  #hiddenTimer: ReturnType<typeof setTimeout> | null = null;

  constructor(abort: () => void) {
    this.#abort = abort;
    this.#silenceTimer = setTimeout(abort, SILENCE_MS_MAX);
    document.addEventListener('visibilitychange', this.#checkVisibility);
    window.addEventListener('online', abort);
    this.#checkVisibility();
  }

  alive(): void {
    clearTimeout(this.#silenceTimer);
    this.#silenceTimer = setTimeout(this.#abort, SILENCE_MS_MAX);
  }

  end(): void {
    clearTimeout(this.#silenceTimer);
    if (this.#hiddenTimer !== null) clearTimeout(this.#hiddenTimer);
    document.removeEventListener('visibilitychange', this.#checkVisibility);
    window.removeEventListener('online', this.#abort);
  }

  #checkVisibility = (): void => {
    if (this.#hiddenTimer !== null) clearTimeout(this.#hiddenTimer);
    this.#hiddenTimer = null;
    if (document.visibilityState !== 'hidden') return;
    this.#hiddenTimer = setTimeout(() => {
      this.hidden = true;
      this.#abort();
    }, HIDDEN_MS_MAX);
  };
}

function untilVisible(stopped: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const check = () => {
      if (document.visibilityState === 'hidden' && !stopped.aborted) return;
      document.removeEventListener('visibilitychange', check);
      stopped.removeEventListener('abort', check);
      resolve();
    };
    document.addEventListener('visibilitychange', check);
    stopped.addEventListener('abort', check);
    check();
  });
}

function delay(ms: number, stopped: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      stopped.removeEventListener('abort', done);
      window.removeEventListener('online', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    stopped.addEventListener('abort', done);
    window.addEventListener('online', done);
  });
}

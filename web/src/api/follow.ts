// Follows a stream for as long as it is wanted: connects, connects again, and passes on every journal event once and in order.
// What an event means is not decided here.

import { Problem, headers, problemOf, url, type Query } from './client';
import { StreamReader, type StreamEvent } from './sse';

/** How the connection stands, for telling people. */
export type Link = 'connecting' | 'open' | 'waiting' | 'resting' | 'ended';

export interface Following {
  /** The path of the stream. */
  path: string;
  query?: Query;
  /** Events up to here are known already; nothing where places do not matter. */
  after: number | null;
  /** A piece of news: its kind, and its data as sent. */
  heard: (kind: string, data: unknown) => void;
  /** The connection changed. */
  stands?: (link: Link) => void;
  /** It cannot go on: the session is gone, or a key is needed. */
  ended?: (problem: Problem) => void;
}

/** The server sends a comment every 15 seconds; silence longer than this means that the connection is dead. */
const SILENCE_MS_MAX = 40_000;
const BACKOFF_MS_FIRST = 250;
const BACKOFF_MS_MAX = 5_000;
/** Browsers allow few connections to one server, so a tab nobody looks at gives its own back after a while. */
const HIDDEN_MS_MAX = 30_000;

/** Starts following; the function returned stops it. */
export function follow(wish: Following): () => void {
  const stop = new AbortController();
  void run(wish, stop.signal);
  return () => stop.abort();
}

async function run(wish: Following, stopped: AbortSignal): Promise<void> {
  const place = { last: wish.after };
  let backoff = BACKOFF_MS_FIRST;
  while (!stopped.aborted) {
    wish.stands?.('connecting');
    const end = await connect(wish, place, stopped, () => (backoff = BACKOFF_MS_FIRST));
    if (stopped.aborted) return;
    if (end.is === 'over') {
      wish.stands?.('ended');
      wish.ended?.(end.problem);
      return;
    }
    if (end.is === 'hidden') {
      wish.stands?.('resting');
      await visible(stopped);
      continue;
    }
    wish.stands?.('waiting');
    await pause(end.waitMs ?? backoff * (0.75 + Math.random() / 2), stopped);
    backoff = Math.min(BACKOFF_MS_MAX, backoff * 2);
  }
}

type End = { is: 'again'; waitMs: number | null } | { is: 'hidden' } | { is: 'over'; problem: Problem };

async function connect(wish: Following, place: { last: number | null }, stopped: AbortSignal, works: () => void): Promise<End> {
  const inner = new AbortController();
  const abort = () => inner.abort();
  stopped.addEventListener('abort', abort);
  const watch = new Watch(abort);
  try {
    const answer = await fetch(url(wish.path, { ...wish.query, after: place.last }), {
      headers: headers(place.last === null ? { accept: 'text/event-stream' } : { accept: 'text/event-stream', 'last-event-id': String(place.last) }),
      signal: inner.signal,
      cache: 'no-store',
    });
    if (!answer.ok || !answer.body) return await refused(answer);
    wish.stands?.('open');
    const reader = new StreamReader();
    const pieces = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await pieces.read();
      if (done) return { is: 'again', waitMs: reader.retryMs };
      watch.alive();
      works();
      for (const event of reader.push(value)) {
        const end = pass(event, wish, place);
        if (end) return end;
      }
    }
  } catch {
    return watch.hidden ? { is: 'hidden' } : { is: 'again', waitMs: null };
  } finally {
    watch.end();
    stopped.removeEventListener('abort', abort);
    inner.abort();
  }
}

async function refused(answer: Response): Promise<End> {
  const problem = await problemOf(answer);
  const transient = problem.status === 429 || problem.status >= 500;
  if (!transient) return { is: 'over', problem };
  const seconds = Number(answer.headers.get('retry-after'));
  return { is: 'again', waitMs: seconds > 0 ? seconds * 1000 : null };
}

/** Passes one event on, unless it is known already; a gap is never passed over, but asked for again. */
function pass(event: StreamEvent, wish: Following, place: { last: number | null }): End | null {
  const data: unknown = JSON.parse(event.data);
  if (event.kind === 'reconnect') return { is: 'again', waitMs: null };
  if (event.kind === 'problem') {
    const problem = new Problem((data as { status?: number }).status ?? 500, data as object);
    return problem.status >= 500 || problem.status === 429 ? { is: 'again', waitMs: null } : { is: 'over', problem };
  }
  if (event.kind === 'event' && place.last !== null) {
    const seq = (data as { seq: number }).seq;
    if (seq <= place.last) return null;
    if (seq > place.last + 1) return { is: 'again', waitMs: null };
    place.last = seq;
  }
  wish.heard(event.kind, data);
  return null;
}

/** Ends a connection that has gone silent, or that belongs to a tab nobody looks at. */
class Watch {
  hidden = false;
  #abort: () => void;
  #silence: ReturnType<typeof setTimeout>;
  #away: ReturnType<typeof setTimeout> | null = null;

  constructor(abort: () => void) {
    this.#abort = abort;
    this.#silence = setTimeout(abort, SILENCE_MS_MAX);
    document.addEventListener('visibilitychange', this.#look);
    window.addEventListener('online', abort);
    this.#look();
  }

  alive(): void {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(this.#abort, SILENCE_MS_MAX);
  }

  end(): void {
    clearTimeout(this.#silence);
    if (this.#away !== null) clearTimeout(this.#away);
    document.removeEventListener('visibilitychange', this.#look);
    window.removeEventListener('online', this.#abort);
  }

  #look = (): void => {
    if (this.#away !== null) clearTimeout(this.#away);
    this.#away = null;
    if (document.visibilityState !== 'hidden') return;
    this.#away = setTimeout(() => {
      this.hidden = true;
      this.#abort();
    }, HIDDEN_MS_MAX);
  };
}

function visible(stopped: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const look = () => {
      if (document.visibilityState === 'hidden' && !stopped.aborted) return;
      document.removeEventListener('visibilitychange', look);
      stopped.removeEventListener('abort', look);
      resolve();
    };
    document.addEventListener('visibilitychange', look);
    stopped.addEventListener('abort', look);
    look();
  });
}

function pause(ms: number, stopped: AbortSignal): Promise<void> {
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

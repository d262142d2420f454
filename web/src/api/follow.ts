// Follows a session or the list of sessions while the page is in use. The connection is shared with all other pages of the studio in this browser.

import { currentKey, Problem } from './client';
import { StreamHub, type ConnectionStatus, type StreamSubscriber } from './hub';
import { ALIVE_MS, type PageMessage, type WorkerMessage } from './stream-messages';

export type { ConnectionStatus } from './hub';

export interface FollowOptions {
  /** The session to follow; `null` for changes of the list of sessions. */
  session: string | null;
  /** The sequence number of the last known event of the session. */
  after: number;
  onEvent: (type: string, data: unknown) => void;
  onStatus?: (status: ConnectionStatus) => void;
  /** Called when reconnecting cannot help: the session was deleted, or a key is required. */
  onEnd?: (problem: Problem) => void;
}

/** A hidden page ends its subscriptions after this time. */
const HIDDEN_MS_MAX = 30_000;

/** Starts following. The returned function stops it. A page that is hidden or frozen is paused, and continues where it was when it is shown again. */
export function follow(options: FollowOptions): () => void {
  let after = options.after;
  let stop: (() => void) | null = null;
  let hiddenTimer: ReturnType<typeof setTimeout> | null = null;
  const start = () => {
    if (hiddenTimer !== null) clearTimeout(hiddenTimer);
    hiddenTimer = null;
    stop ??= subscribe({
      session: options.session,
      after,
      onEvent: (type, data) => {
        if (type === 'event') after = (data as { seq: number }).seq;
        options.onEvent(type, data);
      },
      onStatus: (status) => options.onStatus?.(status),
      onEnd: (problem) => {
        end();
        options.onEnd?.(problem);
      },
    });
  };
  const pause = () => {
    if (stop === null) return;
    stop();
    stop = null;
    options.onStatus?.('paused');
  };
  const checkVisibility = () => {
    if (document.visibilityState === 'visible') start();
    else hiddenTimer ??= setTimeout(pause, HIDDEN_MS_MAX);
  };
  const end = () => {
    if (hiddenTimer !== null) clearTimeout(hiddenTimer);
    document.removeEventListener('visibilitychange', checkVisibility);
    window.removeEventListener('pagehide', pause);
    window.removeEventListener('pageshow', checkVisibility);
    stop?.();
    stop = null;
  };
  document.addEventListener('visibilitychange', checkVisibility);
  // A page in the back/forward cache is frozen: it must not keep a connection.
  window.addEventListener('pagehide', pause);
  window.addEventListener('pageshow', checkVisibility);
  start();
  checkVisibility();
  return end;
}

/** The subscriptions of this page. */
const subscribers = new Map<number, StreamSubscriber & { cursor: number }>();
let nextId = 1;
let port: MessagePort | null = null;
/** Used if the browser has no shared workers. */
let ownHub: { key: string | null; hub: StreamHub } | null = null;

function subscribe(subscriber: StreamSubscriber): () => void {
  const worker = connectWorker();
  if (worker === null) return localHub().subscribe(subscriber);
  const id = nextId;
  nextId += 1;
  subscribers.set(id, { ...subscriber, cursor: subscriber.after });
  post(worker, { type: 'subscribe', id, key: currentKey(), session: subscriber.session, after: subscriber.after });
  return () => {
    if (subscribers.delete(id)) post(worker, { type: 'unsubscribe', id });
  };
}

function localHub(): StreamHub {
  const key = currentKey();
  if (ownHub?.key !== key) ownHub = { key, hub: new StreamHub(key) };
  return ownHub.hub;
}

function connectWorker(): MessagePort | null {
  if (port !== null || typeof SharedWorker === 'undefined') return port;
  const worker = new SharedWorker(new URL('./stream-worker.ts', import.meta.url), { type: 'module', name: 'segue-stream' });
  port = worker.port;
  port.onmessage = ({ data }: MessageEvent<WorkerMessage>) => receive(data);
  setInterval(() => port && post(port, { type: 'alive' }), ALIVE_MS);
  return port;
}

function post(worker: MessagePort, message: PageMessage): void {
  worker.postMessage(message);
}

function receive(message: WorkerMessage): void {
  if (message.type === 'dropped') {
    for (const [id, { session, cursor }] of subscribers) {
      if (port) post(port, { type: 'subscribe', id, key: currentKey(), session, after: cursor });
    }
    return;
  }
  const subscriber = subscribers.get(message.id);
  // The subscription has ended meanwhile.
  if (!subscriber) return;
  if (message.type === 'status') subscriber.onStatus(message.status);
  else if (message.type === 'end') {
    subscribers.delete(message.id);
    subscriber.onEnd(new Problem(message.status, message.details));
  } else {
    if (message.event === 'event') subscriber.cursor = (message.data as { seq: number }).seq;
    subscriber.onEvent(message.event, message.data);
  }
}

// Requests to the server. Decides how an answer becomes a value or a `Problem`, and where a key is kept; knows no route's meaning beyond its path.

import type {
  Card,
  Diff,
  Exhibit,
  EventLine,
  Flow,
  Graph,
  Handover,
  Image,
  Ledger,
  Call,
  ProblemDetails,
  Prompt,
  Receipt,
  Recomputed,
  Seq,
  Server,
  Session,
  SessionRow,
  Thread,
  Turn,
  Turns,
} from './types';

/** An answer that is no success; `code` is stable, `message` is for people. */
export class Problem extends Error {
  readonly code: string;
  readonly status: number;
  readonly details: Partial<ProblemDetails>;

  constructor(status: number, details: Partial<ProblemDetails>) {
    super(details.detail ?? details.title ?? `the server answered ${status}`);
    this.status = status;
    this.code = details.code ?? 'unknown';
    this.details = details;
  }
}

/** The server could not be reached at all. */
export class Unreachable extends Problem {
  constructor() {
    super(0, { code: 'unreachable', detail: 'the server cannot be reached' });
  }
}

export type Query = Record<string, string | number | boolean | null | undefined>;

const KEY_SLOT = 'segue.key';
let key: string | null = readKey();

function readKey(): string | null {
  try {
    return sessionStorage.getItem(KEY_SLOT) ?? localStorage.getItem(KEY_SLOT);
  } catch {
    return null;
  }
}

/** Uses `value` from now on; kept until the tab is closed, or on this device. */
export function setKey(value: string | null, keep: 'tab' | 'device'): void {
  key = value;
  try {
    sessionStorage.removeItem(KEY_SLOT);
    localStorage.removeItem(KEY_SLOT);
    if (value !== null) (keep === 'tab' ? sessionStorage : localStorage).setItem(KEY_SLOT, value);
  } catch {
    // Without storage the key lasts as long as the page.
  }
}

export function headers(more: Record<string, string> = {}): Record<string, string> {
  return key === null ? more : { ...more, authorization: `Bearer ${key}` };
}

export function url(path: string, query: Query = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
  return search.size > 0 ? `${path}?${search}` : path;
}

/** Makes the problem that an answer stands for. */
export async function problemOf(answer: Response): Promise<Problem> {
  try {
    return new Problem(answer.status, (await answer.json()) as ProblemDetails);
  } catch {
    return new Problem(answer.status, { detail: `the server answered ${answer.status} ${answer.statusText}`.trim() });
  }
}

async function ask<T>(method: string, path: string, query: Query, body: unknown, signal?: AbortSignal): Promise<T> {
  const init: RequestInit = { method, headers: headers({ accept: 'application/json' }) };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = headers({ accept: 'application/json', 'content-type': 'application/json' });
  }
  if (signal) init.signal = signal;
  let answer: Response;
  try {
    answer = await fetch(url(path, query), init);
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new Unreachable();
  }
  if (!answer.ok) throw await problemOf(answer);
  return (answer.status === 204 ? undefined : await answer.json()) as T;
}

const get = <T>(path: string, query: Query = {}, signal?: AbortSignal) => ask<T>('GET', path, query, undefined, signal);
const post = <T>(path: string, body: unknown = {}, signal?: AbortSignal) => ask<T>('POST', path, {}, body, signal);

export const sessionPath = (name: string, rest = '') => `/v1/sessions/${encodeURIComponent(name)}${rest}`;

/** Everything of one session is asked for here; `at` shows it as it was right after that event. */
export const api = {
  server: () => get<Server>('/v1/server'),
  flows: async () => (await get<{ flows: Flow[] }>('/v1/flows')).flows,
  flow: (name: string) => get<Flow>(`/v1/flows/${encodeURIComponent(name)}`),
  cards: () => get<{ default: string; models: Card[] }>('/v1/model-cards'),

  sessions: (query: { search?: string | undefined; flow?: string; limit?: number; cursor?: string | undefined }, signal?: AbortSignal) =>
    get<{ sessions: SessionRow[]; next: string | null }>('/v1/sessions', query, signal),
  open: (wish: { session?: string; flow?: string; title?: string; settings?: unknown; models?: Record<string, string> }) =>
    post<Session>('/v1/sessions', wish),
  rename: (name: string, title: string) => ask<Session>('PATCH', sessionPath(name), {}, { title }),
  close: (name: string) => post<Session>(sessionPath(name, '/close')),
  erase: (name: string) => ask<void>('DELETE', sessionPath(name), {}, undefined),
  fork: (name: string, wish: { at?: Seq | string; session?: string; title?: string }) =>
    post<Session>(sessionPath(name, '/fork'), wish),
  forget: (name: string, role: string) => post<Session>(sessionPath(name, '/forget'), { role }),
  send: (name: string, text: string, messageKey: string, images: readonly Image[]) =>
    post<{ session: string; message: string; after: Seq }>(sessionPath(name, '/messages'), { text, key: messageKey, wait: false, ...(images.length > 0 ? { images } : {}) }),
  text: async (name: string, body: string): Promise<string> => {
    const answer = await fetch(sessionPath(name, `/texts/${encodeURIComponent(body)}`), { headers: headers() });
    if (!answer.ok) throw await problemOf(answer);
    return answer.text();
  },
  retry: (name: string) => post<Session>(sessionPath(name, '/retry')),
  command: (name: string, command: string, given: unknown) =>
    post<Session>(sessionPath(name, `/commands/${encodeURIComponent(command)}`), { arguments: given }),
  cancel: (name: string) => post<Session>(sessionPath(name, '/cancel')),
  propose: (name: string, wish: { to: string; reason?: string; graph?: string; of?: string }) =>
    post<Graph>(sessionPath(name, '/phases/propose'), wish),
  grant: (name: string, wish: { to: string; graph?: string; of?: string }) => post<Graph>(sessionPath(name, '/phases/grant'), wish),
  rollback: (name: string, wish: { visit: number; graph?: string; of?: string }) =>
    post<Graph>(sessionPath(name, '/phases/rollback'), wish),

  session: (name: string, at?: Seq | null, signal?: AbortSignal) => get<Session>(sessionPath(name), { at }, signal),
  turns: (name: string, query: { limit: number; before?: string | undefined; at?: Seq | null }, signal?: AbortSignal) =>
    get<Turns>(sessionPath(name, '/turns'), query, signal),
  turn: (name: string, turn: string, at?: Seq | null) => get<Turn>(sessionPath(name, `/turns/${turn}`), { at }),
  calls: (name: string, query: { turn?: string; thread?: string; limit?: number; after?: string | undefined; at?: Seq | null }, signal?: AbortSignal) =>
    get<{ calls: Call[]; next: string | null }>(sessionPath(name, '/calls'), query, signal),
  receipt: (name: string, call: string, at?: Seq | null, signal?: AbortSignal, texts?: false) =>
    get<Receipt>(sessionPath(name, `/calls/${call}`), { at, texts }, signal),
  prompt: (name: string, call: string) => get<Prompt>(sessionPath(name, `/calls/${call}/prompt`)),
  diff: (name: string, call: string, other?: string) => get<Diff>(sessionPath(name, `/calls/${call}/diff`), { with: other }),
  recompute: (name: string, call: string, wish: { model?: string; settings?: unknown }) =>
    post<Recomputed>(sessionPath(name, `/calls/${call}/recompute`), wish),
  resolve: (name: string, call: string, how: 'retry' | 'fail') => post<Session>(sessionPath(name, `/calls/${call}/resolve`), { how }),
  threads: async (name: string, at?: Seq | null, signal?: AbortSignal) =>
    (await get<{ threads: Thread[] }>(sessionPath(name, '/threads'), { at }, signal)).threads,
  phases: async (name: string, at?: Seq | null, signal?: AbortSignal) =>
    (await get<{ graphs: Graph[] }>(sessionPath(name, '/phases'), { at }, signal)).graphs,
  handovers: async (name: string, at?: Seq | null, signal?: AbortSignal) =>
    (await get<{ handovers: Handover[] }>(sessionPath(name, '/handovers'), { at }, signal)).handovers,
  exhibits: async (name: string, at?: Seq | null, signal?: AbortSignal) =>
    (await get<{ exhibits: Exhibit[] }>(sessionPath(name, '/exhibits'), { at }, signal)).exhibits,
  ledger: (name: string, at?: Seq | null, signal?: AbortSignal) => get<Ledger>(sessionPath(name, '/ledger'), { at }, signal),
  events: (name: string, query: { after: Seq; limit: number; texts?: 'said' | 'all' | 'none' }, signal?: AbortSignal) =>
    get<{ events: EventLine[]; last: Seq; more: boolean }>(sessionPath(name, '/events'), query, signal),
};

// The HTTP client: sends requests, turns error responses into `Problem`s, and stores the API key.

import type {
  Artifact,
  Call,
  CallReceipt,
  EventView,
  Flow,
  Handover,
  InlineImage,
  Ledger,
  ModelCard,
  PhaseGraphStatus,
  ProblemDetails,
  Prompt,
  PromptDiff,
  Recomputation,
  Seq,
  ServerInfo,
  Session,
  SessionListItem,
  Thread,
  Turn,
  TurnsPage,
} from './types';

/** An error response. `code` is stable; `message` is for people. */
export class Problem extends Error {
  readonly code: string;
  readonly status: number;
  readonly details: Partial<ProblemDetails>;

  constructor(status: number, details: Partial<ProblemDetails>) {
    super(details.detail ?? details.title ?? `the server responded with ${status}`);
    this.status = status;
    this.code = details.code ?? 'unknown';
    this.details = details;
  }
}

/** The server could not be reached. */
export class Unreachable extends Problem {
  constructor() {
    super(0, { code: 'unreachable', detail: 'the server cannot be reached' });
  }
}

export type Query = Record<string, string | number | boolean | null | undefined>;

const KEY_STORAGE_KEY = 'segue.key';
let apiKey: string | null = readKey();

function readKey(): string | null {
  try {
    return sessionStorage.getItem(KEY_STORAGE_KEY) ?? localStorage.getItem(KEY_STORAGE_KEY);
  } catch {
    return null;
  }
}

/** Sets the API key and stores it until the tab is closed, or permanently on this device. */
export function setKey(value: string | null, storage: 'tab' | 'device'): void {
  apiKey = value;
  try {
    sessionStorage.removeItem(KEY_STORAGE_KEY);
    localStorage.removeItem(KEY_STORAGE_KEY);
    if (value !== null) (storage === 'tab' ? sessionStorage : localStorage).setItem(KEY_STORAGE_KEY, value);
  } catch {
    // Without storage the key is lost when the page is closed.
  }
}

export function currentKey(): string | null {
  return apiKey;
}

/** The headers of a request, with the API key if there is one. */
export function headers(extra: Record<string, string> = {}): Record<string, string> {
  return apiKey === null ? extra : { ...extra, authorization: `Bearer ${apiKey}` };
}

export function url(path: string, query: Query = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
  return search.size > 0 ? `${path}?${search}` : path;
}

/** Reads the problem details of an error response. */
export async function readProblem(response: Response): Promise<Problem> {
  try {
    return new Problem(response.status, (await response.json()) as ProblemDetails);
  } catch {
    return new Problem(response.status, { detail: `the server responded with ${response.status} ${response.statusText}`.trim() });
  }
}

async function request<T>(method: string, path: string, query: Query, body: unknown, signal?: AbortSignal): Promise<T> {
  const init: RequestInit = { method, headers: headers({ accept: 'application/json' }) };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = headers({ accept: 'application/json', 'content-type': 'application/json' });
  }
  if (signal) init.signal = signal;
  let response: Response;
  try {
    response = await fetch(url(path, query), init);
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new Unreachable();
  }
  if (!response.ok) throw await readProblem(response);
  return (response.status === 204 ? undefined : await response.json()) as T;
}

const get = <T>(path: string, query: Query = {}, signal?: AbortSignal) => request<T>('GET', path, query, undefined, signal);
const post = <T>(path: string, body: unknown = {}, signal?: AbortSignal) => request<T>('POST', path, {}, body, signal);

export const sessionPath = (name: string, rest = '') => `/v1/sessions/${encodeURIComponent(name)}${rest}`;

/** The API's endpoints. With `at`, a view shows the session as it was after that event. */
export const api = {
  server: () => get<ServerInfo>('/v1/server'),
  flows: async () => (await get<{ flows: Flow[] }>('/v1/flows')).flows,
  flow: (name: string) => get<Flow>(`/v1/flows/${encodeURIComponent(name)}`),
  modelCards: () => get<{ default: string; models: ModelCard[] }>('/v1/model-cards'),

  sessions: (query: { search?: string | undefined; flow?: string; limit?: number; cursor?: string | undefined }, signal?: AbortSignal) =>
    get<{ sessions: SessionListItem[]; next: string | null }>('/v1/sessions', query, signal),
  createSession: (options: { session?: string; flow?: string; title?: string; settings?: unknown; models?: Record<string, string> }) =>
    post<Session>('/v1/sessions', options),
  rename: (name: string, title: string) => request<Session>('PATCH', sessionPath(name), {}, { title }),
  close: (name: string) => post<Session>(sessionPath(name, '/close')),
  deleteSession: (name: string) => request<void>('DELETE', sessionPath(name), {}, undefined),
  fork: (name: string, options: { at?: Seq | string; session?: string; title?: string }) =>
    post<Session>(sessionPath(name, '/fork'), options),
  forget: (name: string, role: string) => post<Session>(sessionPath(name, '/forget'), { role }),
  send: (name: string, text: string, messageKey: string, images: readonly InlineImage[]) =>
    post<{ session: string; message: string; after: Seq }>(sessionPath(name, '/messages'), { text, key: messageKey, wait: false, ...(images.length > 0 ? { images } : {}) }),
  text: async (name: string, body: string): Promise<string> => {
    const response = await fetch(sessionPath(name, `/texts/${encodeURIComponent(body)}`), { headers: headers() });
    if (!response.ok) throw await readProblem(response);
    return response.text();
  },
  retry: (name: string, turn: string) => post<Session>(sessionPath(name, '/retry'), { turn }),
  command: (name: string, command: string, values: unknown) =>
    post<Session>(sessionPath(name, `/commands/${encodeURIComponent(command)}`), { arguments: values }),
  cancel: (name: string, turn: string) => post<Session>(sessionPath(name, '/cancel'), { turn }),
  propose: (name: string, options: { to: string; reason?: string; graph?: string; participant?: string }) =>
    post<PhaseGraphStatus>(sessionPath(name, '/phases/propose'), options),
  grant: (name: string, options: { to: string; graph?: string; participant?: string }) => post<PhaseGraphStatus>(sessionPath(name, '/phases/grant'), options),
  rollback: (name: string, options: { visit: number; graph?: string; participant?: string }) =>
    post<PhaseGraphStatus>(sessionPath(name, '/phases/rollback'), options),

  session: (name: string, at?: Seq | null, signal?: AbortSignal) => get<Session>(sessionPath(name), { at }, signal),
  turns: (name: string, query: { limit: number; before?: string | undefined; at?: Seq | null }, signal?: AbortSignal) =>
    get<TurnsPage>(sessionPath(name, '/turns'), query, signal),
  turn: (name: string, turn: string, at?: Seq | null) => get<Turn>(sessionPath(name, `/turns/${turn}`), { at }),
  calls: (name: string, query: { turn?: string; thread?: string; limit?: number; after?: string | undefined; at?: Seq | null }, signal?: AbortSignal) =>
    get<{ calls: Call[]; next: string | null }>(sessionPath(name, '/calls'), query, signal),
  receipt: (name: string, call: string, at?: Seq | null, signal?: AbortSignal, texts?: false) =>
    get<CallReceipt>(sessionPath(name, `/calls/${call}`), { at, texts }, signal),
  prompt: (name: string, call: string) => get<Prompt>(sessionPath(name, `/calls/${call}/prompt`)),
  diff: (name: string, call: string, other?: string) => get<PromptDiff>(sessionPath(name, `/calls/${call}/diff`), { with: other }),
  recompute: (name: string, call: string, options: { model?: string; settings?: unknown }) =>
    post<Recomputation>(sessionPath(name, `/calls/${call}/recompute`), options),
  approve: (name: string, run: string, remember: boolean) => post<Session>(sessionPath(name, `/tool-runs/${run}/approve`), { remember }),
  deny: (name: string, run: string, reason: string) => post<Session>(sessionPath(name, `/tool-runs/${run}/deny`), { reason }),
  resolveToolRun: (name: string, run: string, action: 'run_again' | 'fail' | 'done', text: string | null) =>
    post<Session>(sessionPath(name, `/tool-runs/${run}/resolve`), { action, text }),
  resolve: (name: string, call: string, action: 'retry' | 'fail') => post<Session>(sessionPath(name, `/calls/${call}/resolve`), { action }),
  threads: async (name: string, at?: Seq | null, signal?: AbortSignal) =>
    (await get<{ threads: Thread[] }>(sessionPath(name, '/threads'), { at }, signal)).threads,
  phases: async (name: string, at?: Seq | null, signal?: AbortSignal) =>
    (await get<{ graphs: PhaseGraphStatus[] }>(sessionPath(name, '/phases'), { at }, signal)).graphs,
  handovers: async (name: string, at?: Seq | null, signal?: AbortSignal) =>
    (await get<{ handovers: Handover[] }>(sessionPath(name, '/handovers'), { at }, signal)).handovers,
  artifacts: async (name: string, at?: Seq | null, signal?: AbortSignal) =>
    (await get<{ artifacts: Artifact[] }>(sessionPath(name, '/artifacts'), { at }, signal)).artifacts,
  ledger: (name: string, at?: Seq | null, signal?: AbortSignal) => get<Ledger>(sessionPath(name, '/ledger'), { at }, signal),
  events: (name: string, query: { after: Seq; limit: number; texts?: 'conversation' | 'all' | 'none' }, signal?: AbortSignal) =>
    get<{ events: EventView[]; last_seq: Seq; has_more: boolean }>(sessionPath(name, '/events'), query, signal),
};

// Parses and formats the studio's URLs. Every view has one.

/** What the side panel shows. */
export type Detail = { type: 'call' | 'turn' | 'handover' | 'thread'; id: string };

export type View =
  | { type: 'conversation' | 'timeline' | 'threads' | 'phases' | 'handovers' | 'ledger' | 'journal' }
  | { type: 'artifact'; name: string }
  | { type: 'compare'; calls: string[] };

export type Route =
  | { page: 'home' }
  | { page: 'session'; session: string; view: View; detail: Detail | null; at: number | null }
  | { page: 'not_found'; path: string };

export type SessionRoute = Extract<Route, { page: 'session' }>;

const PLAIN_VIEWS = ['timeline', 'threads', 'phases', 'handovers', 'ledger', 'journal'] as const;
const DETAIL_BY_PREFIX: Record<string, Detail['type']> = { c: 'call', t: 'turn', h: 'handover', th: 'thread' };
const DETAIL_PREFIX: Record<Detail['type'], string> = { call: 'c', turn: 't', handover: 'h', thread: 'th' };

export const CONVERSATION: View = { type: 'conversation' };

export function parseRoute(path: string, search: string): Route {
  const parts = path.split('/').filter((part) => part !== '');
  if (parts.length === 0) return { page: 'home' };
  if (parts[0] !== 's' || parts[1] === undefined) return { page: 'not_found', path };
  const session = decode(parts[1]);
  const rest = parts.slice(2).map(decode);
  const view = parseView(rest);
  const detail = parseDetail(rest);
  if (rest.length > 0) return { page: 'not_found', path };
  return { page: 'session', session, view, detail, at: parseEvent(search) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function parseView(rest: string[]): View {
  const [first, second] = rest;
  const plain = PLAIN_VIEWS.find((view) => view === first);
  if (plain !== undefined) {
    rest.splice(0, 1);
    return { type: plain };
  }
  if (first === 'artifacts' && second !== undefined) {
    rest.splice(0, 2);
    return { type: 'artifact', name: second };
  }
  if (first === 'compare') {
    const calls = rest.splice(0).slice(1).map((call) => normalizeId('c', call));
    return { type: 'compare', calls };
  }
  return CONVERSATION;
}

function parseDetail(rest: string[]): Detail | null {
  const [letter, value] = rest;
  const type = letter === undefined ? undefined : DETAIL_BY_PREFIX[letter];
  if (type === undefined || value === undefined || letter === undefined) return null;
  rest.splice(0, 2);
  return { type, id: normalizeId(letter, value) };
}

/** Completes a bare number: `1` becomes `c1`. */
function normalizeId(letter: string, value: string): string {
  return /^\d+$/.test(value) ? letter + value : value;
}

function parseEvent(search: string): number | null {
  const value = new URLSearchParams(search).get('at');
  return value !== null && /^[1-9]\d*$/.test(value) ? Number(value) : null;
}

export function routeUrl(route: Route): string {
  if (route.page === 'home') return '/';
  if (route.page === 'not_found') return route.path;
  const parts = ['s', route.session];
  const { view, detail } = route;
  if (view.type === 'artifact') parts.push('artifacts', view.name);
  else if (view.type === 'compare') parts.push('compare', ...view.calls);
  else if (view.type !== 'conversation') parts.push(view.type);
  if (detail) parts.push(DETAIL_PREFIX[detail.type], detail.id);
  const path = `/${parts.map(encodeURIComponent).join('/')}`;
  return route.at === null ? path : `${path}?at=${route.at}`;
}

export function sessionRoute(session: string, change: Partial<Pick<SessionRoute, 'view' | 'detail' | 'at'>> = {}): SessionRoute {
  return { page: 'session', session, view: CONVERSATION, detail: null, at: null, ...change };
}

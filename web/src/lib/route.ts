// Addresses of the studio, both ways. Everything that can be looked at has one.

/** What is opened beside a view. */
export type Detail = { is: 'call' | 'turn' | 'handover' | 'thread'; id: string };

export type View =
  | { is: 'conversation' | 'timeline' | 'threads' | 'phases' | 'handovers' | 'ledger' | 'journal' }
  | { is: 'exhibit'; name: string }
  | { is: 'compare'; calls: string[] };

export type Route =
  | { page: 'home' }
  | { page: 'session'; session: string; view: View; detail: Detail | null; at: number | null }
  | { page: 'lost'; path: string };

export type SessionRoute = Extract<Route, { page: 'session' }>;

const PLAIN_VIEWS = ['timeline', 'threads', 'phases', 'handovers', 'ledger', 'journal'] as const;
const DETAIL_LETTER: Record<string, Detail['is']> = { c: 'call', t: 'turn', h: 'handover', th: 'thread' };
const LETTER: Record<Detail['is'], string> = { call: 'c', turn: 't', handover: 'h', thread: 'th' };

export const CONVERSATION: View = { is: 'conversation' };

export function parse(path: string, search: string): Route {
  const parts = path.split('/').filter((part) => part !== '');
  if (parts.length === 0) return { page: 'home' };
  if (parts[0] !== 's' || parts[1] === undefined) return { page: 'lost', path };
  const session = decode(parts[1]);
  const rest = parts.slice(2).map(decode);
  const view = takeView(rest);
  const detail = takeDetail(rest);
  if (rest.length > 0) return { page: 'lost', path };
  return { page: 'session', session, view, detail, at: place(search) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function takeView(rest: string[]): View {
  const [first, second] = rest;
  const plain = PLAIN_VIEWS.find((view) => view === first);
  if (plain !== undefined) {
    rest.splice(0, 1);
    return { is: plain };
  }
  if (first === 'x' && second !== undefined) {
    rest.splice(0, 2);
    return { is: 'exhibit', name: second };
  }
  if (first === 'compare') {
    const calls = rest.splice(0).slice(1).map((call) => id('c', call));
    return { is: 'compare', calls };
  }
  return CONVERSATION;
}

function takeDetail(rest: string[]): Detail | null {
  const [letter, value] = rest;
  const is = letter === undefined ? undefined : DETAIL_LETTER[letter];
  if (is === undefined || value === undefined || letter === undefined) return null;
  rest.splice(0, 2);
  return { is, id: id(letter, value) };
}

/** `c1` and `1` mean the same. */
function id(letter: string, value: string): string {
  return /^\d+$/.test(value) ? letter + value : value;
}

function place(search: string): number | null {
  const value = new URLSearchParams(search).get('at');
  return value !== null && /^[1-9]\d*$/.test(value) ? Number(value) : null;
}

export function address(route: Route): string {
  if (route.page === 'home') return '/';
  if (route.page === 'lost') return route.path;
  const parts = ['s', route.session];
  const { view, detail } = route;
  if (view.is === 'exhibit') parts.push('x', view.name);
  else if (view.is === 'compare') parts.push('compare', ...view.calls);
  else if (view.is !== 'conversation') parts.push(view.is);
  if (detail) parts.push(LETTER[detail.is], detail.id);
  const path = `/${parts.map(encodeURIComponent).join('/')}`;
  return route.at === null ? path : `${path}?at=${route.at}`;
}

/** The same place with something else in it. */
export function within(route: SessionRoute, change: Partial<Pick<SessionRoute, 'view' | 'detail' | 'at'>>): SessionRoute {
  return { ...route, ...change };
}

export function sessionRoute(session: string, change: Partial<Pick<SessionRoute, 'view' | 'detail' | 'at'>> = {}): SessionRoute {
  return { page: 'session', session, view: CONVERSATION, detail: null, at: null, ...change };
}

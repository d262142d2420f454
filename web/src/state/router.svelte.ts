// Where the studio is, kept in step with the address bar.

import { address, parse, type Detail, type Route, type SessionRoute, type View } from '../lib/route';

class Router {
  route = $state.raw<Route>(parse(location.pathname, location.search));

  constructor() {
    window.addEventListener('popstate', () => {
      this.route = parse(location.pathname, location.search);
    });
    document.addEventListener('click', (event) => this.#click(event));
  }

  go(route: Route, how: 'push' | 'replace' = 'push'): void {
    const to = address(route);
    if (to === location.pathname + location.search) {
      this.route = route;
      return;
    }
    if (how === 'push') history.pushState(null, '', to);
    else history.replaceState(null, '', to);
    this.route = route;
  }

  /** The session's route, while a session is shown. */
  get here(): SessionRoute | null {
    return this.route.page === 'session' ? this.route : null;
  }

  view(view: View): void {
    if (this.here) this.go({ ...this.here, view, detail: null });
  }

  detail(detail: Detail | null): void {
    if (this.here) this.go({ ...this.here, detail });
  }

  at(at: number | null, how: 'push' | 'replace' = 'push'): void {
    if (this.here) this.go({ ...this.here, at }, how);
  }

  /** Ordinary links within the studio do not load the page anew. */
  #click(event: MouseEvent): void {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest('a') : null;
    if (!link || link.target !== '' || link.hasAttribute('download') || link.origin !== location.origin) return;
    if (link.pathname !== '/' && !link.pathname.startsWith('/s/')) return;
    event.preventDefault();
    this.go(parse(link.pathname, link.search));
  }
}

export const router = new Router();

// The current route, synchronized with the address bar.

import { parseRoute, routeUrl, type Detail, type Route, type SessionRoute, type View } from '../lib/route';

class Router {
  route = $state.raw<Route>(parseRoute(location.pathname, location.search));

  constructor() {
    window.addEventListener('popstate', () => {
      this.route = parseRoute(location.pathname, location.search);
    });
    document.addEventListener('click', (event) => this.#handleClick(event));
  }

  go(route: Route, mode: 'push' | 'replace' = 'push'): void {
    const to = routeUrl(route);
    if (to === location.pathname + location.search) {
      this.route = route;
      return;
    }
    if (mode === 'push') history.pushState(null, '', to);
    else history.replaceState(null, '', to);
    this.route = route;
  }

  /** The current route, if it is a session's. */
  get sessionRoute(): SessionRoute | null {
    return this.route.page === 'session' ? this.route : null;
  }

  showView(view: View): void {
    if (this.sessionRoute) this.go({ ...this.sessionRoute, view, detail: null });
  }

  showDetail(detail: Detail | null): void {
    if (this.sessionRoute) this.go({ ...this.sessionRoute, detail });
  }

  showEvent(at: number | null, mode: 'push' | 'replace' = 'push'): void {
    if (this.sessionRoute) this.go({ ...this.sessionRoute, at }, mode);
  }

  /** Handles links within the studio without reloading the page. */
  #handleClick(event: MouseEvent): void {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest('a') : null;
    if (!link || link.target !== '' || link.hasAttribute('download') || link.origin !== location.origin) return;
    if (link.pathname !== '/' && !link.pathname.startsWith('/s/')) return;
    event.preventDefault();
    this.go(parseRoute(link.pathname, link.search));
  }
}

export const router = new Router();

// Routes in the address bar by the History API, so that every view has an address that can be sent to a colleague.

import { parentOf, parseRoute, type Route } from './routes';

class Router {
  route = $state.raw<Route>(parseRoute(location.pathname, location.search));
  path = $state.raw(location.pathname);

  start(): void {
    window.addEventListener('popstate', () => this.sync());
    document.addEventListener('click', (event) => this.follow(event));
  }

  go(to: string): void {
    if (to === location.pathname + location.search) return;
    history.pushState({ inside: true }, '', to);
    this.sync();
    window.scrollTo(0, 0);
  }

  /** Changes the query in place: a filter is no step to go back over. */
  setQuery(values: Record<string, string | null>): void {
    const query = new URLSearchParams(location.search);
    for (const [key, value] of Object.entries(values)) {
      if (value) query.set(key, value);
      else query.delete(key);
    }
    const text = query.toString();
    history.replaceState(history.state, '', location.pathname + (text ? `?${text}` : ''));
    this.sync();
  }

  /** Another address for the same page: no step to go back over. */
  replace(to: string): void {
    history.replaceState(history.state, '', to);
    this.sync();
  }

  back(): void {
    if ((history.state as { inside?: boolean } | null)?.inside) history.back();
    else this.go(parentOf(this.route));
  }

  private sync(): void {
    this.route = parseRoute(location.pathname, location.search);
    this.path = location.pathname;
  }

  private follow(event: MouseEvent): void {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const link = (event.target as Element | null)?.closest('a');
    if (!link || link.target || link.origin !== location.origin || link.hash) return;
    event.preventDefault();
    this.go(link.pathname + link.search);
  }
}

export const router = new Router();

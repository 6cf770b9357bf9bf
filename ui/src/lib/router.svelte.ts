// Routes in the address bar by the History API, so that every view has an address that can be sent to a colleague.

export type PageName =
  | 'overview'
  | 'map'
  | 'jobs'
  | 'job'
  | 'nodes'
  | 'node'
  | 'queues'
  | 'queue'
  | 'health'
  | 'bill'
  | 'audit'
  | 'submit'
  | 'missing';

export interface Route {
  page: PageName;
  /** The job, the node or the queue of a detail page. */
  name: string;
  query: URLSearchParams;
}

const LISTS: Record<string, PageName> = {
  '': 'overview',
  map: 'map',
  jobs: 'jobs',
  nodes: 'nodes',
  queues: 'queues',
  health: 'health',
  bill: 'bill',
  audit: 'audit',
  submit: 'submit',
};
const DETAILS: Record<string, PageName> = { jobs: 'job', nodes: 'node', queues: 'queue' };

export function parseRoute(path: string, search: string): Route {
  const query = new URLSearchParams(search);
  const [first = '', second, ...rest] = path.replace(/^\/|\/$/g, '').split('/');
  if (second === undefined) return { page: LISTS[first] ?? 'missing', name: '', query };
  const page = DETAILS[first];
  // Queue names may hold slashes.
  const name = [second, ...rest].map(decodeURIComponent).join('/');
  return page ? { page, name, query } : { page: 'missing', name: '', query };
}

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

function parentOf(route: Route): string {
  if (route.page === 'job') return '/jobs';
  if (route.page === 'node') return '/nodes';
  if (route.page === 'queue') return '/queues';
  return '/';
}

export const router = new Router();

export const jobPath = (job: number | string): string => `/jobs/${encodeURIComponent(job)}`;
export const nodePath = (node: string): string => `/nodes/${encodeURIComponent(node)}`;
export const queuePath = (queue: string): string => `/queues/${encodeURIComponent(queue)}`;

// Addresses of pages and what they mean. Pure functions: the address bar is in `router.svelte.ts`.

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
  | 'what-if'
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
  'what-if': 'what-if',
};
const DETAILS: Record<string, PageName> = { jobs: 'job', nodes: 'node', queues: 'queue' };

export function parseRoute(path: string, search: string): Route {
  const query = new URLSearchParams(search);
  const [first = '', second, ...rest] = path.replace(/^\/|\/$/g, '').split('/');
  if (second === undefined) return { page: LISTS[first] ?? 'missing', name: '', query };
  const page = DETAILS[first];
  // Queue names may hold slashes.
  const name = [second, ...rest].map(decode).join('/');
  return page ? { page, name, query } : { page: 'missing', name: '', query };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The page above a detail page. */
export function parentOf(route: Route): string {
  if (route.page === 'job') return '/jobs';
  if (route.page === 'node') return '/nodes';
  if (route.page === 'queue') return '/queues';
  return '/';
}

/** Dots are escaped too: the server takes a last part with a dot for the name of a file. */
const part = (name: number | string): string => encodeURIComponent(name).replaceAll('.', '%2E');

export const jobPath = (job: number | string): string => `/jobs/${part(job)}`;
export const nodePath = (node: string): string => `/nodes/${part(node)}`;
export const queuePath = (queue: string): string => `/queues/${part(queue)}`;

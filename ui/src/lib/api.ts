// The one place that talks to the server: the token, errors, conditional reads and event streams.
import type { Problem } from './types';

const TOKEN_KEY = 'phalanx-token';

let token: string | null = null;
let onRefused: () => void = () => {};

/** Takes the token out of the address, so that it is in no bookmark and in no screenshot. */
export function readToken(): boolean {
  const match = /^#token=(.+)$/.exec(location.hash);
  if (match?.[1]) {
    sessionStorage.setItem(TOKEN_KEY, decodeURIComponent(match[1]));
    history.replaceState(null, '', location.pathname + location.search);
  }
  token = sessionStorage.getItem(TOKEN_KEY);
  return token !== null;
}

export function setToken(value: string): void {
  token = value;
  sessionStorage.setItem(TOKEN_KEY, value);
}

export function forgetToken(): void {
  token = null;
  sessionStorage.removeItem(TOKEN_KEY);
}

export function whenRefused(callback: () => void): void {
  onRefused = callback;
}

export class ApiError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail);
  }
}

export interface Answer<T> {
  /** undefined: the document has not changed. */
  data?: T;
  etag: string | null;
}

async function problemOf(answer: Response): Promise<Problem> {
  const fallback = { title: answer.statusText, status: answer.status, detail: `the server answered ${answer.status}` };
  try {
    const body = (await answer.json()) as Partial<Problem>;
    return { ...fallback, ...body, status: answer.status };
  } catch {
    return fallback;
  }
}

async function send(path: string, init: RequestInit): Promise<Response> {
  const headers = new Headers(init.headers);
  if (token) headers.set('Authorization', `Bearer ${token}`);
  let answer: Response;
  try {
    answer = await fetch(`/v1${path}`, { ...init, headers, cache: 'no-store', credentials: 'omit' });
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiError({
      title: 'Unreachable',
      status: 0,
      code: 'unreachable',
      detail: 'the daemon does not answer',
      hint: 'start it with `phalanx up`; this page reconnects by itself',
    });
  }
  if (answer.ok || answer.status === 304) return answer;
  const problem = await problemOf(answer);
  if (answer.status === 401) onRefused();
  throw new ApiError(problem);
}

/** Reads a document; with the tag of the last read the server may answer that nothing has changed. */
export async function read<T>(path: string, etag: string | null = null): Promise<Answer<T>> {
  const answer = await send(path, { headers: etag ? { 'If-None-Match': etag } : {} });
  if (answer.status === 304) return { etag };
  return { data: (await answer.json()) as T, etag: answer.headers.get('ETag') };
}

export async function write<T>(
  method: 'POST' | 'DELETE',
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
  signal: AbortSignal | null = null,
): Promise<T> {
  const init: RequestInit = { method, headers: { ...headers }, signal };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { ...headers, 'Content-Type': 'application/json' };
  }
  const answer = await send(path, init);
  return (await answer.json()) as T;
}

export interface ServerEvent {
  id: string | null;
  event: string;
  data: string;
}

/**
 * Reads a text/event-stream with fetch: EventSource cannot send the token.
 * Ends when the server closes the stream; throws when the stream breaks.
 */
export async function* events(
  path: string,
  signal: AbortSignal,
  lastId: string | null = null,
): AsyncGenerator<ServerEvent | 'open' | 'beat'> {
  const headers: Record<string, string> = { Accept: 'text/event-stream' };
  if (lastId) headers['Last-Event-ID'] = lastId;
  const answer = await send(path, { headers, signal });
  if (!answer.body) return;
  yield 'open';
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split(/\r?\n\r?\n/);
    text = blocks.pop() ?? '';
    for (const block of blocks) yield parseBlock(block);
  }
}

/** One block of an event stream; a block of comments only is a heartbeat. */
export function parseBlock(block: string): ServerEvent | 'beat' {
  let id: string | null = null;
  let event = 'message';
  const data: string[] = [];
  for (const line of block.split(/\r?\n/)) {
    const colon = line.indexOf(':');
    if (colon === 0) continue;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'id') id = value;
    else if (field === 'event') event = value;
    else if (field === 'data') data.push(value);
  }
  if (data.length === 0 && event === 'message') return 'beat';
  return { id, event, data: data.join('\n') };
}

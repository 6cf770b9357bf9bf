// Documents of the API that pages show: read once, shared, and read again when a change concerns them.
import { ApiError, read } from './api';
import { stream } from './stream.svelte';
import type { Change, Problem } from './types';

/** Changes that come in a burst lead to one read. */
const GAP_MS = 300;
const POLL_MS = 5000;
const KEPT_MAX = 40;

export interface Options {
  /** What the document depends on: `job`, `job:7`, `node`, `node:gpu-1`, `queues`. */
  topics?: string[];
  /** Values without changes in the stream, such as the use of GPUs: read every 5 s. Else only while the stream is down. */
  poll?: boolean;
}

export function topicsOf(change: Change): string[] {
  const topics: string[] = [change.kind];
  if (change.job !== undefined) topics.push(`job:${change.job}`);
  if (change.node !== undefined) topics.push(`node:${change.node}`);
  return topics;
}

class Doc {
  data = $state.raw<unknown>(undefined);
  problem = $state.raw<Problem | undefined>(undefined);
  /** Milliseconds from the answer's first byte to the parsed document; the map shows it to its test. */
  users = 0;
  topics = new Set<string>();
  poll = false;
  private etag: string | null = null;
  private isBusy = false;
  private isDirty = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readAt = 0;
  private tookMs = 0;

  constructor(readonly path: string) {}

  invalidate(): void {
    this.isDirty = true;
    if (this.users === 0 || this.isBusy || this.timer !== undefined) return;
    // A large document must not keep the page busy: wait for four times as long as the last read took.
    const gap = Math.max(GAP_MS, 4 * this.tookMs);
    const wait = Math.max(0, this.readAt + gap - Date.now());
    this.timer = setTimeout(() => void this.refresh(), wait);
  }

  async refresh(): Promise<void> {
    clearTimeout(this.timer);
    this.timer = undefined;
    if (this.isBusy) {
      this.isDirty = true;
      return;
    }
    this.isBusy = true;
    this.isDirty = false;
    const begun = Date.now();
    try {
      const answer = await read<unknown>(this.path, this.etag);
      if (answer.data !== undefined) this.data = answer.data;
      this.etag = answer.etag;
      this.problem = undefined;
    } catch (error) {
      this.problem = error instanceof ApiError ? error.problem : undefined;
      // A document that is gone must not be shown as if it were there.
      if (this.problem?.status === 404) this.data = undefined;
    }
    this.isBusy = false;
    this.readAt = Date.now();
    this.tookMs = this.readAt - begun;
    if (this.isDirty) this.invalidate();
  }

  isOlderThan(ms: number): boolean {
    return Date.now() - this.readAt >= ms;
  }
}

class Documents {
  private docs = new Map<string, Doc>();

  constructor() {
    stream.onChange((change) => this.take(change));
    setInterval(() => this.tick(), 1000);
    document.addEventListener('visibilitychange', () => this.tick());
  }

  open(path: string, options: Options): Doc {
    const doc = this.docs.get(path) ?? new Doc(path);
    this.docs.delete(path);
    this.docs.set(path, doc);
    for (const topic of options.topics ?? []) doc.topics.add(topic);
    doc.poll ||= options.poll ?? false;
    doc.users += 1;
    if (doc.users === 1) void doc.refresh();
    this.trim();
    return doc;
  }

  close(doc: Doc): void {
    doc.users -= 1;
  }

  clear(): void {
    this.docs.clear();
  }

  /** After an action of the user: the answer should be visible at once. */
  touch(...topics: string[]): void {
    for (const doc of this.docs.values()) if (topics.some((topic) => doc.topics.has(topic))) doc.invalidate();
  }

  private take(change: Change | null): void {
    const topics = change ? topicsOf(change) : null;
    for (const doc of this.docs.values()) {
      if (topics === null || topics.some((topic) => doc.topics.has(topic))) doc.invalidate();
    }
  }

  private tick(): void {
    if (document.hidden) return;
    const isDown = stream.live.state !== 'live';
    for (const doc of this.docs.values()) {
      if (doc.users > 0 && (doc.poll || isDown || doc.problem) && doc.isOlderThan(POLL_MS)) doc.invalidate();
    }
  }

  private trim(): void {
    for (const [path, doc] of this.docs) {
      if (this.docs.size <= KEPT_MAX) return;
      if (doc.users === 0) this.docs.delete(path);
    }
  }
}

export const documents = new Documents();

export interface Live<T> {
  readonly data: T | undefined;
  readonly problem: Problem | undefined;
  readonly isFirst: boolean;
}

/** A document for as long as the component lives. While the address changes, the last document stays on screen. */
export function live<T>(path: () => string | null, options: () => Options = () => ({})): Live<T> {
  let current = $state.raw<Doc | null>(null);
  let last = $state.raw<T | undefined>(undefined);
  $effect(() => {
    const at = path();
    const doc = at === null ? null : documents.open(at, options());
    current = doc;
    return () => {
      if (doc) documents.close(doc);
    };
  });
  $effect(() => {
    const data = current?.data as T | undefined;
    if (data !== undefined) last = data;
    else if (current?.problem) last = undefined;
  });
  return {
    get data() {
      return (current?.data as T | undefined) ?? last;
    },
    get problem() {
      return current?.problem;
    },
    get isFirst() {
      return current?.data === undefined && last === undefined && !current?.problem;
    },
  };
}

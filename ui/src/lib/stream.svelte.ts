// The stream of changes: one connection for the whole page, resumed where it broke.
import { ApiError, events } from './api';
import type { Change, Problem } from './types';

const BACKOFF_MS = [500, 1000, 2000, 5000, 10000];
/** The server sends a heartbeat every 15 s; a stream that is silent for longer is dead. */
const SILENCE_MS = 40_000;

export type Live = { state: 'connecting' } | { state: 'live' } | { state: 'reconnecting'; since: number };

class Stream {
  live = $state.raw<Live>({ state: 'connecting' });
  private lastId: string | null = null;
  private stop: AbortController | null = null;
  private tries = 0;
  private listeners = new Set<(change: Change | null) => void>();

  /** `null` means: everything may have changed. */
  onChange(listener: (change: Change | null) => void): void {
    this.listeners.add(listener);
  }

  start(): void {
    if (!this.stop) void this.run((this.stop = new AbortController()));
  }

  end(): void {
    this.stop?.abort();
    this.stop = null;
    this.lastId = null;
    this.live = { state: 'connecting' };
  }

  private async run(stop: AbortController): Promise<void> {
    while (!stop.signal.aborted) {
      try {
        await this.readOnce(stop.signal);
      } catch (error) {
        if (stop.signal.aborted) return;
        if (error instanceof ApiError && error.problem.status === 401) return this.end();
      }
      if (stop.signal.aborted) return;
      if (this.live.state !== 'reconnecting') this.live = { state: 'reconnecting', since: Date.now() };
      const wait = BACKOFF_MS[Math.min(this.tries, BACKOFF_MS.length - 1)] ?? 1000;
      this.tries += 1;
      await new Promise((done) => setTimeout(done, wait * (0.75 + Math.random() / 2)));
    }
  }

  private async readOnce(outer: AbortSignal): Promise<void> {
    const silence = new AbortController();
    let timer = setTimeout(() => silence.abort(), SILENCE_MS);
    const signal = AbortSignal.any([outer, silence.signal]);
    try {
      for await (const event of events('/stream', signal, this.lastId)) {
        clearTimeout(timer);
        timer = setTimeout(() => silence.abort(), SILENCE_MS);
        if (event === 'open') this.opened();
        else if (event !== 'beat') this.take(event.id, event.event, event.data);
      }
    } finally {
      clearTimeout(timer);
    }
  }

  private opened(): void {
    // Without a place to resume from, changes between the last read and now are lost: read again.
    if (this.live.state === 'reconnecting' && this.lastId === null) this.emit(null);
    this.tries = 0;
    this.live = { state: 'live' };
  }

  private take(id: string | null, event: string, data: string): void {
    if (id) this.lastId = id;
    if (event === 'reset') this.emit(null);
    if (event === 'problem') throw new ApiError(JSON.parse(data) as Problem);
    if (event !== 'change') return;
    try {
      this.emit(JSON.parse(data) as Change);
    } catch {
      this.emit(null);
    }
  }

  private emit(change: Change | null): void {
    for (const listener of this.listeners) listener(change);
  }
}

export const stream = new Stream();

// The phases of a job, from its events: how long it waited, started, ran and stopped.
import type { JobView, Ms } from './types';

export interface Phase {
  state: string;
  from: Ms;
  to: Ms;
}

/** Words of events after which a job is in another phase. */
const BEGINS: Record<string, string> = {
  submitted: 'pending',
  pending: 'pending',
  requeued: 'pending',
  preempted: 'stopping',
  evicted: 'stopping',
  starting: 'starting',
  running: 'running',
  stopping: 'stopping',
};

export function phases(job: JobView, events: { at: Ms; what: string }[], now: Ms): Phase[] {
  const list: Phase[] = [];
  for (const event of events) {
    const state = BEGINS[event.what];
    const last = list.at(-1);
    if (!state || last?.state === state) continue;
    if (last) last.to = event.at;
    list.push({ state, from: event.at, to: event.at });
  }
  const last = list.at(-1);
  if (last) last.to = Math.max(last.from, job.finished_at ?? now);
  return list.filter((phase) => phase.to > phase.from);
}

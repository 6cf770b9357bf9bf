// Numbers, times and masks as text. Pure functions: no state, no DOM.
import type { Gang, HealthLine, JobView, Mask, Ms } from './types';

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86_400;

/** A length of time in its two largest units: `3h 05m`, `12s`. */
export function duration(ms: number): string {
  const s = Math.max(0, Math.round(ms / 1000));
  const two = (value: number): string => String(value).padStart(2, '0');
  if (s < MINUTE) return `${s}s`;
  if (s < HOUR) return `${Math.floor(s / MINUTE)}m ${two(s % MINUTE)}s`;
  if (s < DAY) return `${Math.floor(s / HOUR)}h ${two(Math.floor((s % HOUR) / MINUTE))}m`;
  return `${Math.floor(s / DAY)}d ${two(Math.floor((s % DAY) / HOUR))}h`;
}

export function age(now: Ms, then: Ms): string {
  return `${duration(now - then)} ago`;
}

/** `in 3h 05m`, or how long ago. */
export function until(now: Ms, at: Ms): string {
  return at > now ? `in ${duration(at - now)}` : age(now, at);
}

const dateTime = new Intl.DateTimeFormat('sv-SE', { dateStyle: 'short', timeStyle: 'medium' });
const timeOnly = new Intl.DateTimeFormat('sv-SE', { timeStyle: 'medium' });

/** In the time zone of the reader: `2026-11-30 02:49:06`. */
export const moment = (at: Ms): string => dateTime.format(at);
export const clockTime = (at: Ms): string => timeOnly.format(at);

const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat('en-US', { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const cents = new Intl.NumberFormat('en-US', { minimumFractionDigits: 2, maximumFractionDigits: 2 });

export const count = (n: number): string => whole.format(n);
export const money = (micro: number): string => cents.format(micro / 1e6);

/** `1 node`, `2 nodes`. */
export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

export function percent(part: number, all: number): string {
  return all === 0 ? '0%' : `${whole.format((100 * part) / all)}%`;
}

/** Thousandths of a device, as queues count them. */
export function devices(milli: number): string {
  const n = milli / 1000;
  return Number.isInteger(n) ? count(n) : fine.format(n);
}

export function gpuHours(us: number): string {
  const hours = us / 3.6e9;
  if (hours === 0) return '0';
  if (hours < 0.01) return '<0.01';
  if (hours < 0.1) return cents.format(hours);
  return fine.format(hours);
}

export function bytes(n: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let value = n;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value >= 100 || Number.isInteger(value) ? whole.format(value) : fine.format(value)} ${units[unit]}`;
}

export function micros(us: number): string {
  if (us < 1000) return `${count(us)} µs`;
  if (us < 1e6) return `${fine.format(us / 1000)} ms`;
  return us < 6e7 ? `${fine.format(us / 1e6)} s` : duration(us / 1000);
}

/** Whether bit `i` is set. By division, since masks may have more than 32 bits. */
export function hasBit(mask: Mask, i: number): boolean {
  return Math.floor(mask / 2 ** i) % 2 === 1;
}

export function bits(mask: Mask): number[] {
  const set: number[] = [];
  for (let i = 0; 2 ** i <= mask; i++) if (hasBit(mask, i)) set.push(i);
  return set;
}

/** `0-3,6` for a list of numbers in order. */
export function ranges(numbers: number[]): string {
  const parts: string[] = [];
  for (let i = 0; i < numbers.length; ) {
    let j = i;
    while (j + 1 < numbers.length && numbers[j + 1] === (numbers[j] ?? 0) + 1) j += 1;
    parts.push(i === j ? `${numbers[i]}` : `${numbers[i]}-${numbers[j]}`);
    i = j + 1;
  }
  return parts.join(',');
}

export const maskText = (mask: Mask): string => ranges(bits(mask));

export function gangDevices(gang: Gang): number {
  const roles = gang.roles ?? [];
  return roles.reduce((sum, role) => sum + role.size * role.devices_per_member, gang.size * gang.devices_per_member);
}

/** GPUs of all gangs. All tasks of an array request the same, and a view lists only a part of them. */
export function jobDevices(job: JobView): number {
  const first = job.gangs[0];
  if (job.array && first) return job.array.tasks * gangDevices(first);
  return job.gangs.reduce((sum, gang) => sum + gangDevices(gang), 0);
}

/** The nodes of a job, in rank order, without repetition. */
export function jobNodes(job: JobView): string[] {
  const slots = job.gangs.flatMap((gang) => gang.placement?.slots ?? []);
  return [...new Set(slots.map((slot) => slot.node))];
}

/** The first start among its pending gangs, if one is known. */
export function estimatedStart(job: JobView): Ms | null {
  const starts = job.gangs.map((gang) => gang.estimated_start).filter((at) => at !== null);
  return starts.length > 0 ? Math.min(...starts) : null;
}

const ENDED = new Set(['pending', 'starting', 'running', 'stopping']);
export const isEnded = (state: string): boolean => !ENDED.has(state);

/** `drain_after_job` as people read it. */
export const words = (text: string): string => text.replaceAll('_', ' ');

/** `WaitingInQueue` as people read it. A gang that no scheduling cycle has considered has the reason `None`. */
export function reasonWords(reason: string): string {
  if (reason.toLowerCase() === 'none') return 'New';
  const text = words(reason).replace(/([a-z])([A-Z])/g, '$1 $2');
  return text.charAt(0).toUpperCase() + text.slice(1).toLowerCase();
}

/** As the command line says it. */
export const hardware = (node: string, device: number | null): string =>
  device === null ? `node ${node}` : `GPU ${node}:${device}`;

const NEXT: Record<string, string> = {
  nothing: 'nothing to do',
  held: 'held by the circuit breaker',
  when_free: 'returns on probation when free and quiet',
  when_quiet: 'returns on probation when the fault is gone for a while',
  when_reset: 'returns on probation when free and reset',
  when_rebooted: 'returns on probation after a reboot of the node',
  when_it_answers: 'returns on probation when the device answers',
  when_cleared: 'closed until an operator clears the fault',
};

export function nextWords(next: HealthLine['next'], now: Ms): string {
  if (typeof next === 'string') return NEXT[next] ?? words(next);
  return `ok again ${until(now, next.ok_at)}`;
}

/** Terminal colours and other escape sequences make no sense in a page. */
// eslint-disable-next-line no-control-regex
export const plain = (line: string): string => line.replace(/\u001b\[[0-9;?]*[ -/]*[@-~]|\u001b\][^\u0007]*\u0007|\r/g, '');

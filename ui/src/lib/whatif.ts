// What would change: the changes of the what-if page in its address and in its request, and its answer in words. Pure functions.
import { count, duration, plural } from './format';
import type { Ms, NodeView } from './types';

export interface Added {
  count: number;
  domain: string;
}

export interface Changes {
  drain: string[];
  /** `PATH=VALUE` of the queue file. */
  set: string[];
  add: Added[];
  /** The text of a job file. */
  job: string;
  /** Empty for the default of the server. */
  horizon: string;
}

export interface Course {
  job: string;
  queue: string;
  devices: number;
  basis: string;
  is_running: boolean;
  waits?: { reason: string; sentence: string };
  starts: { at: Ms; nodes: string[] }[];
  stops: { at: Ms; why: string; eviction?: unknown }[];
  ends_at?: Ms;
  ending?: string;
  held_device_ms: number;
}

export interface QueueCourse {
  name: string;
  depth: number;
  weight_milli: number;
  /** In thousandths of a device, as `due`, `used` and `capacity`. */
  guaranteed: number;
  due: number | null;
  used: number;
  capacity: number;
  held_device_ms: number;
}

export interface GangRow {
  gang: { job: number; index: number };
  /** Empty if nothing changes. */
  change: string;
  as_is?: Course;
  then?: Course;
}

export interface QueueRow {
  as_is?: QueueCourse;
  then?: QueueCourse;
}

export interface WhatIf {
  version: string;
  from: Ms;
  horizon_ms: number;
  changes: string[];
  assumptions: string[];
  gangs: GangRow[];
  queues: QueueRow[];
}

export const NO_CHANGES: Changes = { drain: [], set: [], add: [], job: '', horizon: '' };
export const HORIZONS = ['1h', '6h', '24h', '3d', '7d', '30d'];
/** Characters of a job file in an address: servers and chats cut longer addresses. */
export const ADDRESS_JOB_MAX = 4000;
/** What differs by less is the same, as in the simulator. */
const SAME_MS = 60_000;
/** Starts and stops that are told of one gang. */
const TURNS_MAX = 6;

export function hasChanges(of: Changes): boolean {
  return of.drain.length + of.set.length + of.add.length > 0 || of.job.trim() !== '';
}

/** `16:leaf-9`, or nothing if this is no group of nodes. */
export function readAdded(text: string): Added | null {
  const match = /^(\d{1,9}):(.+)$/.exec(text);
  return match?.[1] && match[2] ? { count: Number(match[1]), domain: match[2] } : null;
}

export function fromQuery(query: URLSearchParams): Changes {
  return {
    drain: query.getAll('drain').filter(Boolean),
    set: query.getAll('set').filter((text) => text.indexOf('=') > 0),
    add: query.getAll('add').map(readAdded).filter((one) => one !== null),
    job: query.get('job') ?? '',
    horizon: query.get('horizon') ?? '',
  };
}

/** The query of the address; a job file that is too long for an address is left out. */
export function toQuery(of: Changes): string {
  const query = new URLSearchParams();
  for (const node of of.drain) query.append('drain', node);
  for (const text of of.set) query.append('set', text);
  for (const { count, domain } of of.add) query.append('add', `${count}:${domain}`);
  if (of.job.trim() && of.job.length <= ADDRESS_JOB_MAX) query.set('job', of.job);
  if (of.horizon) query.set('horizon', of.horizon);
  return query.toString();
}

export const whatIfPath = (of: Partial<Changes>): string => {
  const query = toQuery({ ...NO_CHANGES, ...of });
  return query ? `/what-if?${query}` : '/what-if';
};

/** The body of the request. */
export function toBody(of: Changes): Record<string, unknown> {
  const body: Record<string, unknown> = {};
  if (of.drain.length > 0) body.drain = of.drain;
  if (of.set.length > 0) body.set = of.set;
  if (of.add.length > 0) body.add_nodes = of.add;
  if (of.job.trim()) body.job = of.job;
  if (of.horizon) body.horizon = of.horizon;
  return body;
}

const QUEUE_WORDS: Record<string, string> = {
  weight: 'weight',
  'guaranteed.gpus': 'guarantee, GPUs',
  'limit.gpus': 'limit, GPUs',
};
/** Fields of a queue that the page offers, by their path. */
export const QUEUE_FIELDS = Object.entries(QUEUE_WORDS).map(([path, label]) => ({ path, label }));

/** `queues.research.weight=2` as people read it: `research: weight 2`. */
export function settingWords(text: string): string {
  const at = text.indexOf('=');
  const [path, value] = [text.slice(0, at), text.slice(at + 1)];
  for (const { path: field } of QUEUE_FIELDS) {
    if (path.startsWith('queues.') && path.endsWith(`.${field}`)) {
      const queue = path.slice('queues.'.length, -field.length - 1);
      const [word, unit] = (QUEUE_WORDS[field] ?? field).split(', ');
      return `${queue}: ${word} ${value}${unit ? ` ${unit}` : ''}`;
    }
  }
  return `${path}: ${value}`;
}

/** The domains that hold nodes, each by the shortest name that no other has. */
export function domainsOf(nodes: NodeView[]): string[] {
  const paths = [...new Set(nodes.map((node) => node.path.join('/')))].filter(Boolean);
  const last = (path: string): string => path.split('/').at(-1) ?? path;
  const names = paths.map(last);
  return paths.map((path, i) => (names.filter((name) => name === names[i]).length === 1 ? last(path) : path)).sort();
}

export interface Sums {
  displaced: number;
  sooner: number[];
  later: number[];
  /** Gangs that start within the horizon with the changes alone, and without them alone. */
  gained: number;
  lost: number;
  /** Gangs of submitted jobs that do not start within the horizon. */
  stuck: number;
  /** Gangs that are the same. */
  same: number;
}

export function sumUp(view: WhatIf): Sums {
  const sums: Sums = { displaced: 0, sooner: [], later: [], gained: 0, lost: 0, stuck: 0, same: 0 };
  for (const { as_is, then, change } of view.gangs) {
    if (!change) sums.same += 1;
    if (!as_is && then?.starts.length === 0) sums.stuck += 1;
    if (!as_is || !then) continue;
    if (then.stops.length > as_is.stops.length) sums.displaced += 1;
    if (as_is.is_running) continue;
    const [before, after] = [as_is.starts[0]?.at, then.starts[0]?.at];
    if (before === undefined && after !== undefined) sums.gained += 1;
    else if (before !== undefined && after === undefined) sums.lost += 1;
    else if (before !== undefined && after !== undefined && before - after >= SAME_MS) sums.sooner.push(before - after);
    else if (before !== undefined && after !== undefined && after - before >= SAME_MS) sums.later.push(after - before);
  }
  return sums;
}

/** The jobs that the changes submit, with the first start of each. */
function newJobs(view: WhatIf): { name: string; at: Ms | null }[] {
  const jobs = new Map<number, { name: string; at: Ms | null }>();
  for (const { gang, as_is, then } of view.gangs) {
    if (as_is || !then) continue;
    const at = then.starts[0]?.at ?? null;
    const before = jobs.get(gang.job)?.at ?? null;
    jobs.set(gang.job, { name: then.job, at: at === null || before === null ? (at ?? before) : Math.min(at, before) });
  }
  return [...jobs.values()];
}

const mean = (all: number[]): number => all.reduce((sum, one) => sum + one, 0) / Math.max(1, all.length);

/** What to expect without changes. */
function forecast(view: WhatIf): string {
  const courses = view.gangs.map((row) => row.as_is).filter((course) => course !== undefined);
  if (courses.length === 0) return 'No gang is pending or running.';
  const pending = courses.filter((course) => !course.is_running);
  if (pending.length === 0) return `No gang is pending; ${courses.length === 1 ? 'one gang runs' : `${count(courses.length)} gangs run`}.`;
  const starts = pending.flatMap((course) => course.starts.slice(0, 1)).map((start) => start.at);
  const all = pending.length === 1 ? 'The pending gang' : `${count(starts.length)} of ${count(pending.length)} pending gangs`;
  const within = `within ${span(view.horizon_ms)}`;
  if (starts.length === 0) return pending.length === 1 ? `${all} never starts ${within}.` : `None of ${count(pending.length)} pending gangs starts ${within}.`;
  const next = ahead(view.from, Math.min(...starts));
  if (pending.length === 1) return `${all} starts ${next}.`;
  return `${all} ${starts.length === 1 ? 'starts' : 'start'} ${within}, the first ${next}.`;
}

/** The answer in one sentence. */
export function sentence(view: WhatIf): string {
  if (view.changes.length === 0) return forecast(view);
  const sums = sumUp(view);
  const within = `within ${span(view.horizon_ms)}`;
  const parts: string[] = [];
  const say = (n: number, one: string, many: string): void => {
    if (n > 0) parts.push(`${count(n)} ${n === 1 ? `gang ${one}` : `gangs ${many}`}`);
  };
  for (const { name, at } of newJobs(view)) {
    parts.push(at === null ? `${name} never starts ${within}` : `${name} starts ${ahead(view.from, at)}`);
  }
  say(sums.displaced, 'is preempted or moved', 'are preempted or moved');
  say(sums.sooner.length, `starts sooner (by ${duration(mean(sums.sooner))})`, `start sooner (by ${duration(mean(sums.sooner))} on average)`);
  say(sums.later.length, `starts later (by ${duration(mean(sums.later))})`, `start later (by ${duration(mean(sums.later))} on average)`);
  say(sums.gained, `starts ${within} that would not`, `start ${within} that would not`);
  say(sums.lost, `never starts ${within}`, `never start ${within}`);
  if (parts.length === 0) {
    const others = view.gangs.length - sums.same;
    if (others > 0) return `No start changes ${within}; ${plural(others, 'gang')} ${others === 1 ? 'ends' : 'end'} at another time.`;
    return view.gangs.length === 0 ? `No gang is pending or running.` : `Nothing changes ${within} for ${view.gangs.length === 1 ? 'the one gang' : `any of the ${count(view.gangs.length)} gangs`}.`;
  }
  const last = parts.pop() ?? '';
  return `${parts.length > 0 ? `${parts.join(', ')} and ${last}` : last}.`;
}

/** A whole length of time in one unit: `24h`, `7d`. */
export function span(ms: number): string {
  if (ms % 86_400_000 === 0 && ms > 86_400_000) return `${ms / 86_400_000} days`;
  if (ms % 3_600_000 === 0) return plural(ms / 3_600_000, 'hour');
  return duration(ms);
}

/** `now`, or `in 3h 05m`, which no line break divides. */
const ahead = (from: Ms, at: Ms): string => (at <= from ? 'now' : `in\u00a0${duration(at - from).replace(' ', '\u00a0')}`);

/** What a gang does, in short parts: `starts in 3h 05m`, `ends in 5h 00m`. */
export function courseWords(course: Course | undefined, view: WhatIf): string[] {
  if (!course) return [];
  const { from } = view;
  const parts: string[] = [];
  const turns = [
    ...course.stops.map(({ at, eviction }) => ({ at, word: eviction ? 'preempted' : 'moved' })),
    ...course.starts.map(({ at }, i) => ({ at, word: i > 0 || course.is_running ? 'starts again' : 'starts' })),
  ].sort((a, b) => a.at - b.at);
  // It was told to stop before the snapshot.
  if (course.is_running && course.stops.length === 0) parts.push(course.starts.length > 0 ? 'stops' : 'keeps running');
  if (!course.is_running && turns.length === 0 && !course.ending) parts.push(`never starts within ${span(view.horizon_ms)}`);
  for (const { at, word } of turns.slice(0, TURNS_MAX)) parts.push(`${word} ${ahead(from, at)}`);
  if (turns.length > TURNS_MAX) parts.push(`and so on, ${plural(course.stops.length, 'stop')} in all`);
  if (course.ends_at !== undefined && course.ending) {
    const word = course.ending === 'succeeded' || course.ending === 'time_limit' ? 'ends' : course.ending;
    parts.push(`${word} ${ahead(from, course.ends_at)}`);
  }
  return parts;
}

/** The parts of a change, each with the tone of its mark. */
export function changeMarks(change: string): { text: string; tone: string }[] {
  const tone = (text: string): string => {
    if (/^(preempted|does not|is no longer)/.test(text)) return 'bad';
    if (/moved|later/.test(text)) return 'warm';
    if (text === 'new') return 'info';
    return 'ok';
  };
  const words = change.split(', ').filter(Boolean);
  return words.map((text) => ({ text, tone: tone(text) }));
}

// The documents of the API, as docs and the daemon's own types give them. Field names are those of the JSON.
// Only the fields that the pages read are listed; the API may send more.

export type * from './types-hardware';

/** Unix time in milliseconds. */
export type Ms = number;
/** Bit i is device i. */
export type Mask = number;

export interface Problem {
  title: string;
  status: number;
  code?: string;
  detail: string;
  hint?: string;
  /** The fields that the server does not accept. */
  errors?: { field: string; detail: string }[];
}

export interface Items<T> {
  items: T[];
  next: string | null;
}

export type Role = 'viewer' | 'user' | 'operator' | 'admin';

export interface WhoAmI {
  user: string;
  uid: number;
  role: Role;
  now: Ms;
}

export type State =
  | 'pending'
  | 'starting'
  | 'running'
  | 'stopping'
  | 'succeeded'
  | 'failed'
  | 'cancelled'
  | 'time_limit'
  | string;

export interface Overview {
  now: Ms;
  version: string;
  nodes: { open: number; cordoned: number; draining: number; broken: number };
  devices: {
    total: number;
    held: number;
    free: number;
    closed: number;
    broken: number;
    foreign: number;
    unknown: number;
    /** null if the use of no GPU can be read. */
    busy_percent: number | null;
    idle_held: number;
  };
  jobs: { pending: number; starting: number; running: number; stopping: number };
  waiting: WaitingReason[];
  queues: QueueView[];
  warnings: string[];
}

export interface WaitingReason {
  reason: string;
  jobs: number;
  devices: number;
  job: number;
  name: string;
  detail: string;
}

export type Grade = 'ok' | 'suspect' | 'drain_after_job' | 'drain_now' | 'broken';
export type Admin = 'open' | 'cordoned' | 'draining';

export interface MapJob {
  id: number;
  name: string;
  owner: string;
  queue: string;
  state: State;
}

export interface MapNode {
  name: string;
  /** One domain for each of the levels, outermost first. */
  path: string[];
  model: string;
  admin: Admin;
  grade: Grade;
  /** Job number, null free, -1 held by others, -2 closed. */
  devices: (number | null)[];
  /** Percent; absent if the use of no device of the node can be read. */
  busy?: (number | null)[] | null;
  /** Absent if all devices are ok. */
  grades?: Grade[] | null;
}

export interface MapDoc {
  levels: string[];
  jobs: MapJob[];
  nodes: MapNode[];
}

export interface Slot {
  rank: number;
  node: string;
  devices: Mask;
}

export interface Placement {
  slots: Slot[];
  level: string;
}

export interface Predicted {
  step_us: number;
  communication_us: number;
  bandwidth_bytes_per_s: number;
  sentence: string;
}

export interface ProgressView {
  step?: number;
  of?: number;
  told_at?: Ms;
  step_us?: number;
  ends_at?: Ms;
  stalled_since?: Ms;
  behind?: number[];
  stragglers?: { rank: number; work_us: number; median_us: number }[];
  checkpoint?: { takes_ms: number; loss_every_ms: number; every_ms: number };
  unread?: string;
}

export interface Member {
  rank: number;
  node: string;
  devices: Mask;
  state: string;
  exit_code: number | null;
  detail: string;
}

export interface Gang {
  id: { job: number; index: number };
  task?: number;
  size: number;
  devices_per_member: number;
  roles?: { name: string; size: number; devices_per_member: number }[];
  phase: Record<string, unknown> | null;
  attempt: number;
  failures: number;
  placement: Placement | null;
  usage?: { busy_percent: number; idle_since?: Ms };
  progress?: ProgressView;
  members: Member[];
  estimated_start: Ms | null;
  reserved?: { placement: Placement; at: Ms | null; evicts?: boolean; made_at: Ms };
  evictions?: number;
  checkpointed_at?: Ms;
  predicted: Predicted | null;
}

export interface JobEvent {
  at: Ms;
  what: string;
  detail: string;
}

export interface HistoryEvent extends JobEvent {
  job: number;
  name: string;
}

export interface JobView {
  id: number;
  name: string;
  owner: string;
  uid: number;
  queue: string;
  priority: number;
  class: string;
  state: State;
  reason: string;
  detail: string;
  submitted_at: Ms;
  started_at: Ms | null;
  finished_at: Ms | null;
  exit_code: number | null;
  gangs: Gang[];
  array?: {
    numbers: unknown;
    tasks: number;
    running_max?: number;
    progress: Record<'pending' | 'starting' | 'running' | 'stopping' | 'succeeded' | 'failed', number>;
    left_out: number;
  };
  service?: { wanted: number; running: number; min: number; max: number };
  job: JobFile | null;
  events: JobEvent[];
  spot?: { device_ms: number; list_micro: number; spot_micro: number };
}

/** The submission as the daemon keeps it; only what the job page shows. */
export interface JobFile {
  gangs: {
    needs?: { devices: number; cpu_milli: number; memory_bytes: number };
    topology?: { required?: string | null; preferred?: string | null };
    program?: { launch: string; argv: string[]; workdir: string; checkpoint_dir?: string | null };
  }[];
  policy?: { time_limit_ms?: number | null; retry?: { max: number } };
}

export interface LevelCount {
  level: string;
  domain: string;
  fits: number;
  asked: number;
  free_devices: number;
  devices: number;
}

export interface Report {
  levels: LevelCount[];
  position: number;
  of: number;
  estimated_start: { at: Ms; confidence: string } | null;
  nearest: Placement | null;
}

export interface Why {
  job: JobView;
  reports: Report[];
  sentences: string[];
  now: Ms;
}

export interface DryRun {
  rejected: unknown | null;
  sentences: string[];
  reports: Report[];
  predicted: (Predicted | null)[];
}

export interface ResourceReport {
  resource: string;
  used: number;
  wanted: number;
  guaranteed: number;
  limit: number | null;
  /** The fair share; for devices only. In thousandths of a device, as all amounts of devices here. */
  due: number | null;
  capacity: number;
}

export interface QueueView {
  name: string;
  pending: number;
  running: number;
  devices_held: number;
  devices_wanted: number;
  report?: {
    queue: { name: string; parent?: string; weight_milli: number };
    depth: number;
    goods: ResourceReport[];
    /** In millionths of the cluster. */
    share: number;
    past: number;
  };
  budget?: {
    amount_micro: number;
    per: 'day' | 'week' | 'month';
    warn_milli: number;
    holds: boolean;
    spent_micro: number;
    begins_at: Ms;
    renews_at: Ms;
  };
}

export interface WaitingGang {
  gang: { job: number; index: number };
  name: string;
  owner: string;
  queue: string;
  class: string;
  priority: number;
  position: number;
  devices: number;
  waits_since: Ms;
  evictions: number;
  reason: string;
  detail: string;
  estimated_start: Ms | null;
}

export interface QueueDetail {
  queue: QueueView;
  waiting: WaitingGang[];
  more: number;
}

export interface WindowView {
  kind: 'maintenance' | 'block' | 'drain' | 'spot_notice';
  nodes: string[];
  begins_at: Ms;
  ends_at: Ms | null;
  held_for?: string;
  is_declared?: boolean;
}

export interface AuditLine {
  at: Ms;
  uid: number;
  user: string;
  /** The name by which the issuer of the token knows the user, where that is another one. */
  login?: string;
  verb: string;
  target: string;
  detail: string;
  refused?: string;
}

export interface BillLine {
  of: string[];
  /** Microseconds of one device by state. */
  device_us: Record<string, number>;
  cost_micro: number;
  list_cost_micro?: number;
}

export interface BillView {
  by: string[];
  until: Ms;
  lines: BillLine[];
  is_cut?: boolean;
}

export interface Change {
  at: Ms;
  kind: 'job' | 'node' | 'queues';
  job?: number;
  node?: string;
  what: string;
}

export interface LogLine {
  task: number | null;
  rank: number;
  attempt: number;
  at: Ms | null;
  line: string;
}

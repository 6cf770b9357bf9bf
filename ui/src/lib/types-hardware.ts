// Documents about nodes, devices and their health.
import type { Admin, Grade, Mask, Ms } from './types';

export interface Held {
  job: number;
  name: string;
  devices: Mask;
}

export interface Graded {
  grade: Grade;
  detail: string;
}

export interface NodeView {
  name: string;
  path: string[];
  origin: 'found' | 'declared';
  admin: Admin;
  address: string;
  model: string;
  devices: number;
  free: Mask;
  foreign: Mask;
  unknown?: Mask;
  cpu_milli: number;
  cpu_free_milli: number;
  memory_bytes: number;
  memory_free_bytes: number;
  held: Held[];
  spot?: { price_micro_per_device_hour: number; notice_ms: number };
  is_spare?: boolean;
  health?: { node?: Graded; devices?: Record<string, Graded> };
  closed_by?: { user: string; at: Ms; reason?: string };
  /** What the calendar says of it: the window that is on now, or else the next. */
  window?: NodeWindow;
}

export interface NodeWindow {
  kind: 'maintenance' | 'block' | 'drain' | 'spot_notice';
  begins_at: Ms;
  ends_at: Ms | null;
  held_for?: string;
}

export interface NodesView {
  nodes: NodeView[];
  /** How many nodes match the filter; `nodes` has the first of them. */
  matching: number;
  next: string | null;
  isolation: string;
  notes: string[];
  warnings: string[];
}

export interface Machine {
  devices: { name: string; model: string; pci_address: string | null; numa: number | null; memory_bytes: number }[];
  nics: { name: string; alias: string | null; numa: number | null; bytes_per_s: number | null }[];
}

export interface NodeDetail {
  node: NodeView;
  machine: Machine;
  levels: string[];
  health: HealthView;
  /** Short words as in `nvidia-smi topo -m`, devices first, then NICs. */
  links: string[][];
  link_names: string[];
}

export interface HealthLine {
  node: string;
  device: number | null;
  grade: Grade;
  held: Grade | null;
  is_automatic?: boolean;
  since: Ms;
  detail: string;
  repair: 'none' | 'reset' | 'reboot' | 'service';
  next: string | { ok_at: Ms };
  probation_until: Ms | null;
  failed_jobs: number;
  drains: number;
  evidence: { at: Ms; what: string; times: number }[];
}

export interface Sample {
  node: string;
  device: number;
  at: Ms;
  vitals: {
    is_lost: boolean;
    busy_percent: number | null;
    memory_used_bytes: number | null;
    temperature_c: number | null;
    power_mw: number | null;
    sm_clock_mhz: number | null;
    ecc_corrected?: number | null;
    ecc_uncorrected?: number | null;
  };
}

export interface PortSample {
  node: string;
  at: Ms;
  port: {
    name: string;
    state: 'up' | 'down' | 'gone';
    bytes_per_s: number | null;
    downed?: number | null;
    recoveries?: number | null;
    symbol_errors?: number | null;
    receive_errors?: number | null;
    send_discards?: number | null;
  };
}

export interface Stalls {
  some: { avg10_hundredths: number; avg60_hundredths: number; avg300_hundredths: number };
}

export interface HealthView {
  lines: HealthLine[];
  samples: Sample[];
  ports?: PortSample[];
  pressure?: { node: string; at: Ms; pressure: Record<'cpu' | 'memory' | 'io', Stalls | null> }[];
  devices: number;
  sources: string[];
  missing: string[];
  breaker?: string;
}

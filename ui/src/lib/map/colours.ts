// Colours of the map: one packed number for each device, by what the map is coloured by.
import type { Grade, MapDoc } from '../types';

export type By = 'job' | 'queue' | 'use' | 'health';

/** As a little-endian canvas has it: alpha, blue, green, red. */
export const pack = (r: number, g: number, b: number): number => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;

export function css(colour: number): string {
  return `rgb(${colour & 255} ${(colour >> 8) & 255} ${(colour >> 16) & 255})`;
}

/** Whether dark text can be read on it better than white text. */
export function isLight(colour: number): boolean {
  return 0.299 * (colour & 255) + 0.587 * ((colour >> 8) & 255) + 0.114 * ((colour >> 16) & 255) > 140;
}

function hex(text: string): number {
  const n = parseInt(text.slice(1), 16);
  return pack((n >> 16) & 255, (n >> 8) & 255, n & 255);
}

export function mix(a: number, b: number, part: number): number {
  const one = (shift: number): number =>
    Math.round(((a >> shift) & 255) * (1 - part) + ((b >> shift) & 255) * part);
  return pack(one(0), one(8), one(16));
}

export interface Tones {
  page: number;
  /** Boxes of domains by depth. */
  boxes: number[];
  line: number;
  node: number;
  free: number;
  foreign: number;
  closed: number;
  broken: number;
  unknown: number;
  text: string;
  muted: string;
  accent: string;
  pill: string;
}

const LIGHT: Tones = {
  page: hex('#f6f7f9'),
  boxes: [hex('#ffffff'), hex('#f3f5f8'), hex('#ffffff'), hex('#f3f5f8')],
  line: hex('#dde1e7'),
  node: hex('#eaedf2'),
  free: hex('#d0d7e0'),
  foreign: hex('#4b5461'),
  closed: hex('#959fac'),
  broken: hex('#d43a4d'),
  unknown: hex('#aeb6c1'),
  text: '#14181f',
  muted: '#566070',
  accent: '#14181f',
  pill: 'rgb(255 255 255 / 88%)',
};

const DARK: Tones = {
  page: hex('#0d1015'),
  boxes: [hex('#141920'), hex('#191f28'), hex('#141920'), hex('#191f28')],
  line: hex('#29313c'),
  node: hex('#232b36'),
  free: hex('#39434f'),
  foreign: hex('#98a2b0'),
  closed: hex('#59636f'),
  broken: hex('#e4566a'),
  unknown: hex('#4a5461'),
  text: '#e7eaef',
  muted: '#9aa5b4',
  accent: '#ffffff',
  pill: 'rgb(13 16 21 / 85%)',
};

export const tones = (isDark: boolean): Tones => (isDark ? DARK : LIGHT);

/** A colour of OKLCH: equal lightness looks equally light in every hue, which HSL does not give. */
function oklch(l: number, c: number, hue: number): number {
  const a = c * Math.cos((hue * Math.PI) / 180);
  const b = c * Math.sin((hue * Math.PI) / 180);
  const [x, y, z] = [
    (l + 0.3963377774 * a + 0.2158037573 * b) ** 3,
    (l - 0.1055613458 * a - 0.0638541728 * b) ** 3,
    (l - 0.0894841775 * a - 1.291485548 * b) ** 3,
  ];
  const channel = (linear: number): number => {
    const v = Math.max(0, Math.min(1, linear));
    return Math.round(255 * (v <= 0.0031308 ? 12.92 * v : 1.055 * v ** (1 / 2.4) - 0.055));
  };
  return pack(
    channel(4.0767416621 * x - 3.3077115913 * y + 0.2309699292 * z),
    channel(-1.2684380046 * x + 2.6097574011 * y - 0.3413193965 * z),
    channel(-0.0041960863 * x - 0.7034186147 * y + 1.707614701 * z),
  );
}

/** Neighbouring numbers get hues that are far apart. Red is left out: it means broken. */
export function seriesColour(index: number, isDark: boolean): number {
  const hue = 48 + ((212 + index * 119.4) % 312);
  const ring = Math.floor(index / 7) % 3;
  const l = isDark ? [0.72, 0.6, 0.8][ring] : [0.64, 0.52, 0.74][ring];
  return oklch(l ?? 0.64, 0.135, hue);
}

/** From nothing to all of the time. */
export function useColour(percent: number, isDark: boolean): number {
  const low = isDark ? hex('#3a3357') : hex('#e8def8');
  const high = isDark ? hex('#5fe0b4') : hex('#0b7a5b');
  return mix(low, high, Math.max(0, Math.min(100, percent)) / 100);
}

export const GRADES: Grade[] = ['ok', 'suspect', 'drain_after_job', 'drain_now', 'broken'];

export function gradeColour(grade: Grade, isDark: boolean): number {
  const light = ['#a9d5bc', '#e0a52f', '#e07b39', '#cf4f2f', '#c2203a'];
  const dark = ['#285a41', '#d9a441', '#e08a4f', '#e0603f', '#f0455f'];
  return hex((isDark ? dark : light)[GRADES.indexOf(grade)] ?? '#888888');
}

export interface Painter {
  by: By;
  isDark: boolean;
  /** A job that is lit up, while all else is dimmed. */
  job: number | null;
}

export function queuesOf(doc: MapDoc): string[] {
  return [...new Set(doc.jobs.map((job) => job.queue))].sort();
}

/** Fills `out` with the colour of each device, in the order of the document. */
export function paint(doc: MapDoc, painter: Painter, out: Uint32Array): void {
  const { by, isDark } = painter;
  const tone = tones(isDark);
  const queues = new Map(queuesOf(doc).map((queue, i) => [queue, seriesColour(i, isDark)]));
  const jobs = new Map<number, number>();
  doc.jobs.forEach((job) => {
    jobs.set(job.id, by === 'queue' ? (queues.get(job.queue) ?? tone.unknown) : seriesColour(job.id, isDark));
  });
  const uses = Array.from({ length: 101 }, (_, percent) => useColour(percent, isDark));
  const grades = new Map(GRADES.map((grade) => [grade, gradeColour(grade, isDark)]));
  const dim = dimmer(tone.node);
  const isByHolder = by === 'job' || by === 'queue';
  const held = (holder: number | null, grade: Grade): number => {
    if (holder === null) return tone.free;
    if (holder === -1) return tone.foreign;
    if (holder === -2) return grade === 'broken' ? tone.broken : tone.closed;
    return jobs.get(holder) ?? seriesColour(holder, isDark);
  };
  const used = (busy: number | null | undefined): number =>
    busy === null || busy === undefined ? tone.unknown : (uses[Math.round(busy)] ?? tone.unknown);
  let k = 0;
  let last: number | null | undefined;
  let same = 0;
  for (const node of doc.nodes) {
    for (let i = 0; i < node.devices.length; i++) {
      const holder = node.devices[i] ?? null;
      // Neighbours mostly have one holder, and then one colour.
      if (isByHolder && holder === last && holder !== -2) {
        out[k++] = same;
        continue;
      }
      const grade = node.grades?.[i] ?? node.grade;
      const colour =
        by === 'health' ? (grades.get(grade) ?? tone.unknown) : by === 'use' ? used(node.busy?.[i]) : held(holder, grade);
      same = painter.job !== null && holder !== painter.job ? dim(colour) : colour;
      last = holder;
      out[k++] = same;
    }
  }
}

/** There are few colours and many devices. */
function dimmer(ground: number): (colour: number) => number {
  const known = new Map<number, number>();
  return (colour) => {
    let dimmed = known.get(colour);
    if (dimmed === undefined) known.set(colour, (dimmed = mix(colour, ground, 0.82)));
    return dimmed;
  };
}

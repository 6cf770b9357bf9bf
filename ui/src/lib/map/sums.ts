// Sums over all devices of the map, in one pass: a document has a hundred thousand of them.
import type { Grade, MapDoc } from '../types';

export interface Size {
  gpus: number;
  nodes: number;
}

export interface Sums {
  devices: number;
  jobs: Map<number, Size>;
  free: number;
  foreign: number;
  closed: number;
  broken: number;
  /** Devices whose use is not known. */
  unsampled: number;
  grades: Map<Grade, number>;
}

export function sumUp(doc: MapDoc): Sums {
  const sums: Sums = {
    devices: 0, jobs: new Map(), free: 0, foreign: 0, closed: 0, broken: 0, unsampled: 0, grades: new Map(),
  };
  const grade = (of: Grade, n: number): void => void sums.grades.set(of, (sums.grades.get(of) ?? 0) + n);
  for (const node of doc.nodes) {
    const { devices, grades, busy } = node;
    sums.devices += devices.length;
    if (grades) for (const one of grades) grade(one, 1);
    else grade(node.grade, devices.length);
    if (busy) for (const one of busy) sums.unsampled += one === null ? 1 : 0;
    else sums.unsampled += devices.length;
    // Neighbouring devices mostly have the same holder: look it up once for all of them.
    for (let i = 0; i < devices.length; ) {
      const holder = devices[i] ?? null;
      let j = i + 1;
      while (j < devices.length && devices[j] === holder) j += 1;
      if (holder === null) sums.free += j - i;
      else if (holder === -1) sums.foreign += j - i;
      else if (holder === -2) for (let k = i; k < j; k++) sums[(grades?.[k] ?? node.grade) === 'broken' ? 'broken' : 'closed'] += 1;
      else {
        const size = sums.jobs.get(holder) ?? { gpus: 0, nodes: 0 };
        size.gpus += j - i;
        if (devices.indexOf(holder) === i) size.nodes += 1;
        sums.jobs.set(holder, size);
      }
      i = j;
    }
  }
  return sums;
}

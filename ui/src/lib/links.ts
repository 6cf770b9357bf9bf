// Kinds of links as `nvidia-smi topo -m` names them, best first, and where to draw their ends.

export interface Kind {
  id: string;
  label: string;
}

export const KINDS: Kind[] = [
  { id: 'nv', label: 'NV#: NVLinks' },
  { id: 'xgmi', label: 'XGMI' },
  { id: 'pix', label: 'PIX: one PCIe bridge' },
  { id: 'pxb', label: 'PXB: several PCIe bridges' },
  { id: 'phb', label: 'PHB: PCIe host bridge' },
  { id: 'node', label: 'NODE: within a NUMA node' },
  { id: 'sys', label: 'SYS: between sockets' },
];

export function kindOf(word: string): string {
  const text = word.toUpperCase();
  if (text.startsWith('NV')) return 'nv';
  const id = text === 'SOC' ? 'sys' : text.toLowerCase();
  return KINDS.some((kind) => kind.id === id) ? id : 'none';
}

/** How many NVLinks are bonded: `NV18` is 18. */
export const strength = (word: string): number => Number(/^NV(\d+)$/i.exec(word)?.[1] ?? 1);

export interface Point {
  x: number;
  y: number;
}

export interface Edge {
  from: number;
  to: number;
  kind: string;
  word: string;
}

/** GPUs on an ellipse, so that no three are on a line and every link can be seen. */
export function places(gpus: number, width: number, height: number, margin: number): Point[] {
  return Array.from({ length: gpus }, (_, i) => {
    const turn = (2 * Math.PI * (i + 0.5)) / gpus - Math.PI / 2;
    return {
      x: width / 2 + (width / 2 - margin) * Math.cos(turn),
      y: height / 2 + (height / 2 - margin) * Math.sin(turn),
    };
  });
}

/** Links between GPUs that are worth a line: those of the two best kinds that the node has, and never SYS alone. */
export function gpuEdges(links: string[][], gpus: number): Edge[] {
  const all: Edge[] = [];
  for (let from = 0; from < gpus; from++) {
    for (let to = from + 1; to < gpus; to++) {
      const word = links[from]?.[to] ?? '';
      all.push({ from, to, kind: kindOf(word), word });
    }
  }
  const isBest = (kind: string): boolean => kind === 'nv' || kind === 'xgmi';
  if (all.some((edge) => isBest(edge.kind))) return all.filter((edge) => isBest(edge.kind));
  return all.filter((edge) => edge.kind === 'pix' || edge.kind === 'pxb' || edge.kind === 'phb');
}

/** The adapters next to each GPU: those that it reaches by PIX, else by PXB. */
export function nearNics(links: string[][], gpus: number): Edge[] {
  const edges: Edge[] = [];
  for (let from = 0; from < gpus; from++) {
    const row = links[from] ?? [];
    for (const kind of ['pix', 'pxb']) {
      const near = row.map((word, to) => ({ from, to, kind: kindOf(word), word })).filter((edge) => edge.to >= gpus && edge.kind === kind);
      edges.push(...near);
      if (near.length > 0) break;
    }
  }
  return edges;
}

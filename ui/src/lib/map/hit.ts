// What is under the pointer. Boxes are nested and nodes are in grids, so a few steps find it among any number.
import { CELL, cellPitch, NODE_HEAD, NODE_PAD, nodeGap, boxHead, boxPad, type Box, type Layout } from './layout';

export interface Hit {
  /** Domains from outside in. */
  boxes: Box[];
  /** -1: none. */
  node: number;
  device: number;
}

const isIn = (box: Box, x: number, y: number): boolean => x >= box.x && y >= box.y && x < box.x + box.w && y < box.y + box.h;

export function hit(layout: Layout, x: number, y: number): Hit | null {
  const boxes: Box[] = [];
  let among = layout.roots;
  for (;;) {
    const inside = among.find((box) => isIn(box, x, y));
    if (!inside) break;
    boxes.push(inside);
    among = inside.children;
  }
  const last = boxes.at(-1);
  if (!last) return null;
  const node = last.children.length === 0 ? nodeAt(layout, last, x, y) : -1;
  return { boxes, node, device: node < 0 ? -1 : deviceAt(layout, node, x, y) };
}

function nodeAt(layout: Layout, box: Box, x: number, y: number): number {
  const column = Math.floor((x - box.x - boxPad) / (box.cellW + nodeGap));
  const row = Math.floor((y - box.y - boxPad - boxHead) / (box.cellH + nodeGap));
  if (column < 0 || row < 0 || column >= box.columns) return -1;
  const node = box.nodes[row * box.columns + column];
  if (node === undefined) return -1;
  const dx = x - (layout.x[node] ?? 0);
  const dy = y - (layout.y[node] ?? 0);
  return dx <= (layout.nodeW[node] ?? 0) && dy <= (layout.nodeH[node] ?? 0) ? node : -1;
}

function deviceAt(layout: Layout, node: number, x: number, y: number): number {
  const dx = x - (layout.x[node] ?? 0) - NODE_PAD;
  const dy = y - (layout.y[node] ?? 0) - NODE_PAD - NODE_HEAD;
  const columns = layout.columns[node] ?? 1;
  const column = Math.floor(dx / cellPitch);
  const row = Math.floor(dy / cellPitch);
  if (column < 0 || row < 0 || column >= columns) return -1;
  if (dx - column * cellPitch > CELL || dy - row * cellPitch > CELL) return -1;
  const device = row * columns + column;
  return device < (layout.first[node + 1] ?? 0) - (layout.first[node] ?? 0) ? device : -1;
}

// Where everything on the map is, in units of its own. It depends on names and sizes alone, so that colours can change
// often and positions do not.
import type { MapDoc, MapNode } from '../types';

export const CELL = 10;
export const CELL_GAP = 2;
const PITCH = CELL + CELL_GAP;
export const NODE_PAD = 4;
export const NODE_HEAD = 9;
const NODE_GAP = 6;
const BOX_PAD = 8;
const BOX_HEAD = 15;
const BOX_GAP = 10;
const ASPECT = 1.7;

export interface Box {
  name: string;
  /** The names of its domains joined, unique. */
  id: string;
  depth: number;
  x: number;
  y: number;
  w: number;
  h: number;
  children: Box[];
  /** Of an innermost domain: its nodes by their number in the document, in a grid. */
  nodes: number[];
  columns: number;
  cellW: number;
  cellH: number;
}

export interface Layout {
  roots: Box[];
  /** The outermost depth with more than one domain: its names are shown at every zoom. */
  namedDepth: number;
  /** Parents before children. */
  boxes: Box[];
  w: number;
  h: number;
  x: Float32Array;
  y: Float32Array;
  nodeW: Float32Array;
  nodeH: Float32Array;
  columns: Uint8Array;
  /** The number of the first device of each node, and at the end of all devices. */
  first: Uint32Array;
}

export function gridColumns(devices: number): number {
  if (devices <= 1) return 1;
  if (devices <= 4) return 2;
  return devices <= 16 ? 4 : 8;
}

function nodeSize(devices: number): { w: number; h: number; columns: number } {
  const columns = gridColumns(devices);
  const rows = Math.max(1, Math.ceil(devices / columns));
  const side = (cells: number): number => cells * PITCH - CELL_GAP + 2 * NODE_PAD;
  return { w: Math.max(side(columns), side(2)), h: side(rows) + NODE_HEAD, columns };
}

interface Tree {
  name: string;
  children: Map<string, Tree>;
  nodes: number[];
}

function treeOf(nodes: MapNode[]): Tree {
  const root: Tree = { name: '', children: new Map(), nodes: [] };
  nodes.forEach((node, i) => {
    let at = root;
    for (const name of node.path) {
      let next = at.children.get(name);
      if (!next) at.children.set(name, (next = { name, children: new Map(), nodes: [] }));
      at = next;
    }
    at.nodes.push(i);
  });
  return root;
}

/** Puts boxes into rows from left to right, so that all together have the shape of a screen. */
function shelve(boxes: Box[]): { w: number; h: number } {
  const area = boxes.reduce((sum, box) => sum + (box.w + BOX_GAP) * (box.h + BOX_GAP), 0);
  const widest = boxes.reduce((max, box) => Math.max(max, box.w), 0);
  const target = Math.max(widest, Math.sqrt(area * ASPECT));
  let x = 0;
  let y = 0;
  let row = 0;
  let w = 0;
  for (const box of boxes) {
    if (x > 0 && x + box.w > target + 1) {
      y += row + BOX_GAP;
      x = 0;
      row = 0;
    }
    box.x = x;
    box.y = y;
    x += box.w + BOX_GAP;
    row = Math.max(row, box.h);
    w = Math.max(w, x - BOX_GAP);
  }
  return { w, h: y + row };
}

function boxOf(tree: Tree, parent: string, depth: number, sizes: { w: number; h: number }[]): Box {
  const id = parent ? `${parent}/${tree.name}` : tree.name;
  const box: Box = {
    name: tree.name, id, depth, x: 0, y: 0, w: 0, h: 0, children: [], nodes: tree.nodes, columns: 1, cellW: 0, cellH: 0,
  };
  box.children = [...tree.children.values()].map((child) => boxOf(child, id, depth + 1, sizes));
  let inside: { w: number; h: number };
  if (box.children.length > 0) {
    inside = shelve(box.children);
  } else {
    for (const i of tree.nodes) {
      box.cellW = Math.max(box.cellW, sizes[i]?.w ?? 0);
      box.cellH = Math.max(box.cellH, sizes[i]?.h ?? 0);
    }
    const shape = (ASPECT * (box.cellH + NODE_GAP)) / (box.cellW + NODE_GAP);
    box.columns = Math.max(1, Math.min(tree.nodes.length, Math.round(Math.sqrt(tree.nodes.length * shape))));
    const rows = Math.ceil(tree.nodes.length / box.columns);
    inside = { w: box.columns * (box.cellW + NODE_GAP) - NODE_GAP, h: rows * (box.cellH + NODE_GAP) - NODE_GAP };
  }
  box.w = inside.w + 2 * BOX_PAD;
  box.h = inside.h + 2 * BOX_PAD + BOX_HEAD;
  return box;
}

/** Positions inside a parent become positions on the map. */
function settle(box: Box, x: number, y: number, out: Layout): void {
  box.x += x;
  box.y += y;
  out.boxes.push(box);
  const left = box.x + BOX_PAD;
  const top = box.y + BOX_PAD + BOX_HEAD;
  for (const child of box.children) settle(child, left, top, out);
  if (box.children.length > 0) return;
  box.nodes.forEach((node, k) => {
    out.x[node] = left + (k % box.columns) * (box.cellW + NODE_GAP);
    out.y[node] = top + Math.floor(k / box.columns) * (box.cellH + NODE_GAP);
  });
}

export function layOut(doc: MapDoc): Layout {
  const count = doc.nodes.length;
  const sizes = doc.nodes.map((node) => nodeSize(node.devices.length));
  const out: Layout = {
    roots: [], namedDepth: 0, boxes: [], w: 0, h: 0,
    x: new Float32Array(count),
    y: new Float32Array(count),
    nodeW: Float32Array.from(sizes, (size) => size.w),
    nodeH: Float32Array.from(sizes, (size) => size.h),
    columns: Uint8Array.from(sizes, (size) => size.columns),
    first: new Uint32Array(count + 1),
  };
  doc.nodes.forEach((node, i) => (out.first[i + 1] = (out.first[i] ?? 0) + node.devices.length));
  const tree = treeOf(doc.nodes);
  // Nodes outside every domain get a box of their own.
  if (tree.nodes.length > 0) tree.children.set('', { name: 'nodes', children: new Map(), nodes: tree.nodes });
  out.roots = [...tree.children.values()].map((child) => boxOf(child, '', 0, sizes));
  Object.assign(out, shelve(out.roots));
  for (const root of out.roots) settle(root, 0, 0, out);
  for (let level = out.roots; level.length === 1 && level[0]?.children.length; level = level[0].children) out.namedDepth += 1;
  return out;
}

/** Whether two documents have the same nodes at the same places. */
export function isSameShape(a: MapDoc, b: MapDoc): boolean {
  if (a.nodes.length !== b.nodes.length) return false;
  return a.nodes.every((node, i) => {
    const other = b.nodes[i];
    return (
      other !== undefined &&
      node.name === other.name &&
      node.devices.length === other.devices.length &&
      node.path.length === other.path.length &&
      node.path.every((name, k) => name === other.path[k])
    );
  });
}

export const cellPitch = PITCH;
export const nodeGap = NODE_GAP;
export const boxHead = BOX_HEAD;
export const boxPad = BOX_PAD;

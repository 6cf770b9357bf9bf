// Draws the map. Rectangles are written into a buffer of pixels: a frame costs as much as the pixels that are visible,
// however many GPUs there are. Text goes on top with the canvas.
import type { MapDoc } from '../types';
import { isLight, type Tones } from './colours';
import { boxHead, CELL, cellPitch, NODE_HEAD, NODE_PAD, type Box, type Layout } from './layout';

export interface View {
  /** The point of the map at the upper left corner, and pixels of the screen per unit of the map. */
  x: number;
  y: number;
  scale: number;
}

export interface Scene {
  doc: MapDoc;
  layout: Layout;
  colours: Uint32Array;
  tones: Tones;
  /** A node with a frame. */
  node: number;
}

/** Below so many pixels a GPU is no square of its own: a node is drawn as strips of its colours. */
const CELL_MIN = 2;
const LABELS_MAX = 700;
/** From so many pixels on a GPU has room for the number of its job. */
const NUMBER_MIN = 24;

export class Surface {
  private image: ImageData | null = null;
  private pixels = new Uint32Array(0);
  private w = 0;
  private h = 0;

  begin(ctx: CanvasRenderingContext2D, w: number, h: number, colour: number): void {
    if (this.image?.width !== w || this.image.height !== h) {
      this.image = ctx.createImageData(w, h);
      this.pixels = new Uint32Array(this.image.data.buffer);
      this.w = w;
      this.h = h;
    }
    this.pixels.fill(colour);
  }

  rect(x: number, y: number, w: number, h: number, colour: number): void {
    const x0 = Math.max(0, x);
    const y0 = Math.max(0, y);
    const x1 = Math.min(this.w, x + w);
    const y1 = Math.min(this.h, y + h);
    if (x1 <= x0) return;
    for (let row = y0; row < y1; row++) {
      const start = row * this.w;
      if (x1 - x0 > 12) this.pixels.fill(colour, start + x0, start + x1);
      else for (let i = start + x0; i < start + x1; i++) this.pixels[i] = colour;
    }
  }

  frame(x: number, y: number, w: number, h: number, t: number, colour: number): void {
    this.rect(x, y, w, t, colour);
    this.rect(x, y + h - t, w, t, colour);
    this.rect(x, y, t, h, colour);
    this.rect(x + w - t, y, t, h, colour);
  }

  end(ctx: CanvasRenderingContext2D): void {
    if (this.image) ctx.putImageData(this.image, 0, 0);
  }
}

interface Frame {
  surface: Surface;
  scene: Scene;
  view: View;
  /** Pixels of the canvas per unit of the map. */
  scale: number;
  ratio: number;
  w: number;
  h: number;
}

const px = (frame: Frame, x: number): number => Math.round((x - frame.view.x) * frame.scale);
const py = (frame: Frame, y: number): number => Math.round((y - frame.view.y) * frame.scale);

function isVisible(frame: Frame, x: number, y: number, w: number, h: number): boolean {
  const { view, scale } = frame;
  return x + w > view.x && y + h > view.y && x < view.x + frame.w / scale && y < view.y + frame.h / scale;
}

export function draw(canvas: HTMLCanvasElement, surface: Surface, scene: Scene, view: View, ratio: number): void {
  const ctx = canvas.getContext('2d', { alpha: false });
  if (!ctx) return;
  const frame: Frame = { surface, scene, view, scale: view.scale * ratio, ratio, w: canvas.width, h: canvas.height };
  surface.begin(ctx, canvas.width, canvas.height, scene.tones.page);
  const visible: Box[] = [];
  for (const root of scene.layout.roots) drawBox(frame, root, visible);
  if (scene.node >= 0) drawMark(frame, scene.node);
  surface.end(ctx);
  drawLabels(ctx, frame, visible);
}

function drawBox(frame: Frame, box: Box, visible: Box[]): void {
  if (!isVisible(frame, box.x, box.y, box.w, box.h)) return;
  visible.push(box);
  const { surface, scene } = frame;
  const x = px(frame, box.x);
  const y = py(frame, box.y);
  const w = px(frame, box.x + box.w) - x;
  const h = py(frame, box.y + box.h) - y;
  surface.rect(x, y, w, h, scene.tones.boxes[box.depth % scene.tones.boxes.length] ?? scene.tones.page);
  if (w > 6) surface.frame(x, y, w, h, Math.max(1, Math.round(frame.ratio)), scene.tones.line);
  for (const child of box.children) drawBox(frame, child, visible);
  if (box.children.length > 0) return;
  for (const node of box.nodes) drawNode(frame, node);
}

function drawNode(frame: Frame, node: number): void {
  const { layout, tones } = frame.scene;
  const left = layout.x[node] ?? 0;
  const top = layout.y[node] ?? 0;
  const width = layout.nodeW[node] ?? 0;
  const height = layout.nodeH[node] ?? 0;
  if (!isVisible(frame, left, top, width, height)) return;
  const x = px(frame, left);
  const y = py(frame, top);
  const cell = CELL * frame.scale;
  if (cell < CELL_MIN) {
    drawStrips(frame, node, x, y, Math.max(1, Math.round(width * frame.scale)), Math.max(1, Math.round(height * frame.scale)));
    return;
  }
  frame.surface.rect(x, y, Math.round(width * frame.scale), Math.round(height * frame.scale), tones.node);
  drawCells(frame, node, x, y, cell);
}

function drawCells(frame: Frame, node: number, x: number, y: number, cell: number): void {
  const { layout, colours } = frame.scene;
  const columns = layout.columns[node] ?? 1;
  const first = layout.first[node] ?? 0;
  const count = (layout.first[node + 1] ?? first) - first;
  const side = Math.max(2, Math.round(cell));
  for (let i = 0; i < count; i++) {
    const dx = Math.round((NODE_PAD + (i % columns) * cellPitch) * frame.scale);
    const dy = Math.round((NODE_PAD + NODE_HEAD + Math.floor(i / columns) * cellPitch) * frame.scale);
    frame.surface.rect(x + dx, y + dy, side, side, colours[first + i] ?? 0);
  }
}

/** A small node: strips from left to right, each as wide as its part of the devices. */
function drawStrips(frame: Frame, node: number, x: number, y: number, w: number, h: number): void {
  const { layout, colours, tones } = frame.scene;
  const first = layout.first[node] ?? 0;
  const end = layout.first[node + 1] ?? first;
  if (first === end) return frame.surface.rect(x, y, w, h, tones.node);
  for (let i = first; i < end; ) {
    let j = i + 1;
    while (j < end && colours[j] === colours[i]) j += 1;
    const from = Math.round(((i - first) * w) / (end - first));
    const to = Math.round(((j - first) * w) / (end - first));
    frame.surface.rect(x + from, y, to - from, h, colours[i] ?? 0);
    i = j;
  }
}

function drawMark(frame: Frame, node: number): void {
  const { layout } = frame.scene;
  const margin = 2 * frame.ratio;
  const x = px(frame, layout.x[node] ?? 0) - margin;
  const y = py(frame, layout.y[node] ?? 0) - margin;
  const w = Math.max(8, Math.round((layout.nodeW[node] ?? 0) * frame.scale)) + 2 * margin;
  const h = Math.max(8, Math.round((layout.nodeH[node] ?? 0) * frame.scale)) + 2 * margin;
  frame.surface.frame(Math.round(x), Math.round(y), Math.round(w), Math.round(h), Math.round(2 * frame.ratio), 0xffd4552f);
}

function drawLabels(ctx: CanvasRenderingContext2D, frame: Frame, visible: Box[]): void {
  const { scene, view, ratio } = frame;
  ctx.save();
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.textBaseline = 'middle';
  const head = boxHead * view.scale;
  let left = LABELS_MAX;
  for (const box of visible) {
    const x = (box.x - view.x) * view.scale;
    const y = (box.y - view.y) * view.scale;
    const w = box.w * view.scale;
    if (left <= 0) break;
    if (head >= 8) {
      ctx.font = `600 ${Math.min(14, head * 0.78)}px system-ui, sans-serif`;
      ctx.fillStyle = scene.tones.muted;
      clipText(ctx, box.name, x + 8 * view.scale, y + 4 * view.scale + head / 2, w - 16 * view.scale);
      left -= 1;
    } else if (box.depth === scene.layout.namedDepth && w > 44) {
      drawPill(ctx, box.name, x + 3, y + 3, w - 6, scene.tones);
      left -= 1;
    }
  }
  if (NODE_HEAD * view.scale >= 9) for (const box of visible) left = drawNodeLabels(ctx, frame, box, left);
  ctx.restore();
}

function drawNodeLabels(ctx: CanvasRenderingContext2D, frame: Frame, box: Box, left: number): number {
  const { scene, view } = frame;
  const { layout, doc } = scene;
  if (box.children.length > 0) return left;
  const size = Math.min(13, NODE_HEAD * view.scale * 0.72);
  for (const node of box.nodes) {
    const x = layout.x[node] ?? 0;
    const y = layout.y[node] ?? 0;
    const w = layout.nodeW[node] ?? 0;
    if (left <= 0) return left;
    if (!isVisible(frame, x, y, w, layout.nodeH[node] ?? 0)) continue;
    const of = doc.nodes[node];
    ctx.font = `500 ${size}px system-ui, sans-serif`;
    ctx.fillStyle = of?.admin === 'open' ? scene.tones.text : scene.tones.muted;
    const label = of?.admin === 'open' ? of.name : `${of?.name} (${of?.admin})`;
    clipText(ctx, label, (x + NODE_PAD - view.x) * view.scale, (y + NODE_PAD / 2 + NODE_HEAD / 2 + 1 - view.y) * view.scale, (w - 2 * NODE_PAD) * view.scale);
    left -= 1;
    left -= drawHolders(ctx, frame, node);
  }
  return left;
}

/** The number of the job in each GPU that is large enough for it. */
function drawHolders(ctx: CanvasRenderingContext2D, frame: Frame, node: number): number {
  const { scene, view } = frame;
  const { layout, doc, colours } = scene;
  const cell = CELL * view.scale;
  if (cell < NUMBER_MIN) return 0;
  const columns = layout.columns[node] ?? 1;
  const first = layout.first[node] ?? 0;
  let drawn = 0;
  ctx.font = `500 ${Math.min(15, cell * 0.36)}px system-ui, sans-serif`;
  ctx.textAlign = 'center';
  doc.nodes[node]?.devices.forEach((holder, i) => {
    if (holder === null || holder < 0) return;
    const x = (layout.x[node] ?? 0) + NODE_PAD + (i % columns) * cellPitch + CELL / 2;
    const y = (layout.y[node] ?? 0) + NODE_PAD + NODE_HEAD + Math.floor(i / columns) * cellPitch + CELL / 2;
    ctx.fillStyle = isLight(colours[first + i] ?? 0) ? '#10141a' : '#ffffff';
    ctx.fillText(String(holder), (x - view.x) * view.scale, (y - view.y) * view.scale + 0.5, cell - 2);
    drawn += 1;
  });
  ctx.textAlign = 'left';
  return drawn;
}

function clipText(ctx: CanvasRenderingContext2D, text: string, x: number, y: number, w: number): void {
  if (w < 12) return;
  let shown = text;
  if (ctx.measureText(shown).width > w) {
    const fits = Math.max(1, Math.floor((shown.length * w) / ctx.measureText(shown).width) - 1);
    shown = `${shown.slice(0, fits)}…`;
  }
  ctx.fillText(shown, x, y);
}

/** The name of a domain that is too small for a line of its own. */
function drawPill(ctx: CanvasRenderingContext2D, text: string, x: number, y: number, w: number, tones: Tones): void {
  ctx.font = '600 10px system-ui, sans-serif';
  const width = Math.min(w, ctx.measureText(text).width + 8);
  ctx.fillStyle = tones.pill;
  ctx.fillRect(x, y, width, 14);
  ctx.fillStyle = tones.text;
  clipText(ctx, text, x + 4, y + 7.5, width - 6);
}


// The canvas of the map: its view, its input, and when it is drawn. Svelte hears of what the user points at and chooses.
import type { MapDoc } from '../types';
import { paint, tones, type Painter } from './colours';
import { draw, Surface, type Scene, type View } from './draw';
import { hit, type Hit } from './hit';
import { isSameShape, layOut, type Box } from './layout';

const SCALE_MAX = 9;
const MARGIN = 16;
/** From here on GPUs are easy to tell apart. */
const SCALE_READ = 0.9;
const CLICK_PX = 5;

export interface Listener {
  /** Where the pointer is, in pixels of the canvas, and what is there. */
  hover(hit: Hit | null, x: number, y: number): void;
  click(hit: Hit | null): void;
}

export class MapView {
  private scene: Scene | null = null;
  private surface = new Surface();
  private view: View = { x: 0, y: 0, scale: 1 };
  private fitScale = 1;
  private isFitted = true;
  private frame = 0;
  private ratio = 1;
  private width = 0;
  private height = 0;
  private pointers = new Map<number, { x: number; y: number }>();
  private moved = 0;
  private stop = new AbortController();
  private observer: ResizeObserver;

  constructor(
    private canvas: HTMLCanvasElement,
    private listener: Listener,
  ) {
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(canvas);
    const on = <K extends keyof HTMLElementEventMap>(
      type: K,
      run: (event: HTMLElementEventMap[K]) => void,
      options: AddEventListenerOptions = {},
    ): void => canvas.addEventListener(type, run, { ...options, signal: this.stop.signal });
    on('wheel', (event) => this.onWheel(event), { passive: false });
    on('pointerdown', (event) => this.onDown(event));
    on('pointermove', (event) => this.onMove(event));
    on('pointerup', (event) => this.onUp(event));
    on('pointercancel', (event) => void this.pointers.delete(event.pointerId));
    on('pointerleave', () => this.listener.hover(null, 0, 0));
    on('dblclick', (event) => this.zoomAt(event.offsetX, event.offsetY, 2));
    on('keydown', (event) => this.onKey(event));
  }

  destroy(): void {
    this.stop.abort();
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
  }

  /** Takes a new document. Positions are kept where only colours change. */
  update(doc: MapDoc, painter: Painter): void {
    const begun = performance.now();
    const isSame = this.scene !== null && isSameShape(this.scene.doc, doc);
    if (this.scene && isSame) {
      this.scene.doc = doc;
    } else {
      const layout = layOut(doc);
      const colours = new Uint32Array(layout.first[doc.nodes.length] ?? 0);
      this.scene = { doc, layout, colours, tones: tones(painter.isDark), node: -1 };
    }
    this.scene.tones = tones(painter.isDark);
    paint(doc, painter, this.scene.colours);
    if (!isSame) this.fit();
    this.canvas.dataset.applyMs = (performance.now() - begun).toFixed(2);
    this.redraw();
  }

  mark(name: string | null): void {
    if (!this.scene) return;
    this.scene.node = name === null ? -1 : this.scene.doc.nodes.findIndex((node) => node.name === name);
    if (this.scene.node >= 0) this.showNode(this.scene.node);
    this.redraw();
  }

  /** Shows all of the map. */
  fit(): void {
    const layout = this.scene?.layout;
    if (!layout || this.width === 0) return;
    this.show({ x: 0, y: 0, w: layout.w, h: layout.h });
    this.fitScale = this.view.scale;
    this.isFitted = true;
  }

  showBox(box: Box): void {
    this.show(box);
  }

  zoom(factor: number): void {
    this.zoomAt(this.width / 2, this.height / 2, factor);
  }

  isSmall(): boolean {
    return this.view.scale < SCALE_READ;
  }

  private isOnScreen(node: number): boolean {
    const layout = this.scene?.layout;
    const x = ((layout?.x[node] ?? 0) - this.view.x) * this.view.scale;
    const y = ((layout?.y[node] ?? 0) - this.view.y) * this.view.scale;
    return x > 0 && y > 0 && x < this.width - 40 && y < this.height - 40;
  }

  private showNode(node: number): void {
    const layout = this.scene?.layout;
    if (!layout) return;
    const w = layout.nodeW[node] ?? 0;
    const h = layout.nodeH[node] ?? 0;
    // A node that can be seen well stays where it is.
    if (this.view.scale >= SCALE_READ && this.isOnScreen(node)) return;
    const around = 4;
    this.show({
      x: (layout.x[node] ?? 0) - around * w,
      y: (layout.y[node] ?? 0) - around * h,
      w: w * (1 + 2 * around),
      h: h * (1 + 2 * around),
    });
  }

  private show(area: { x: number; y: number; w: number; h: number }): void {
    const fits = Math.min((this.width - 2 * MARGIN) / area.w, (this.height - 2 * MARGIN) / area.h);
    const scale = Math.min(4, Math.max(0.001, fits));
    this.view = {
      scale,
      x: area.x + area.w / 2 - this.width / 2 / scale,
      y: area.y + area.h / 2 - this.height / 2 / scale,
    };
    this.isFitted = false;
    this.redraw();
  }

  private zoomAt(x: number, y: number, factor: number): void {
    const { view } = this;
    const scale = Math.min(SCALE_MAX, Math.max(this.fitScale * 0.5, view.scale * factor));
    this.view = { scale, x: view.x + x / view.scale - x / scale, y: view.y + y / view.scale - y / scale };
    this.isFitted = false;
    this.redraw();
  }

  private pan(dx: number, dy: number): void {
    this.view = { ...this.view, x: this.view.x - dx / this.view.scale, y: this.view.y - dy / this.view.scale };
    this.isFitted = false;
    this.redraw();
  }

  private resize(): void {
    this.ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.width * this.ratio);
    this.canvas.height = Math.round(this.height * this.ratio);
    if (this.isFitted) this.fit();
    this.drawNow();
  }

  private redraw(): void {
    this.frame ||= requestAnimationFrame(() => this.drawNow());
  }

  private drawNow(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (!this.scene || this.width === 0) return;
    const begun = performance.now();
    draw(this.canvas, this.surface, this.scene, this.view, this.ratio);
    this.canvas.dataset.frameMs = (performance.now() - begun).toFixed(2);
    this.canvas.dataset.frames = String(Number(this.canvas.dataset.frames ?? 0) + 1);
    this.canvas.dataset.scale = this.view.scale.toFixed(4);
  }

  private at(x: number, y: number): Hit | null {
    if (!this.scene) return null;
    return hit(this.scene.layout, this.view.x + x / this.view.scale, this.view.y + y / this.view.scale);
  }

  private onWheel(event: WheelEvent): void {
    event.preventDefault();
    const step = event.deltaMode === 1 ? event.deltaY * 16 : event.deltaY;
    this.zoomAt(event.offsetX, event.offsetY, Math.exp(-Math.max(-120, Math.min(120, step)) * 0.003));
  }

  private onDown(event: PointerEvent): void {
    if (event.button !== 0) return;
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    this.moved = 0;
    this.canvas.setPointerCapture(event.pointerId);
  }

  private onMove(event: PointerEvent): void {
    const last = this.pointers.get(event.pointerId);
    if (!last) {
      this.listener.hover(this.at(event.offsetX, event.offsetY), event.offsetX, event.offsetY);
      return;
    }
    const dx = event.offsetX - last.x;
    const dy = event.offsetY - last.y;
    this.moved += Math.abs(dx) + Math.abs(dy);
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      const before = Math.hypot(last.x - other.x, last.y - other.y);
      const after = Math.hypot(event.offsetX - other.x, event.offsetY - other.y);
      if (before > 0) this.zoomAt((event.offsetX + other.x) / 2, (event.offsetY + other.y) / 2, after / before);
    } else if (this.moved > CLICK_PX) {
      this.pan(dx, dy);
      this.listener.hover(null, 0, 0);
    }
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
  }

  private onUp(event: PointerEvent): void {
    const wasDown = this.pointers.delete(event.pointerId);
    if (wasDown && this.moved <= CLICK_PX) this.listener.click(this.at(event.offsetX, event.offsetY));
  }

  private onKey(event: KeyboardEvent): void {
    const step = 60;
    const moves: Record<string, () => void> = {
      '+': () => this.zoom(1.4),
      '=': () => this.zoom(1.4),
      '-': () => this.zoom(1 / 1.4),
      '0': () => this.fit(),
      ArrowLeft: () => this.pan(step, 0),
      ArrowRight: () => this.pan(-step, 0),
      ArrowUp: () => this.pan(0, step),
      ArrowDown: () => this.pan(0, -step),
    };
    const move = moves[event.key];
    if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    move();
  }
}

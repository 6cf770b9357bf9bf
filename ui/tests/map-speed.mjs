// Measures the map with 12,800 nodes and 102,400 GPUs that a document made here has.
//   node ui/tests/map-speed.mjs BASE_URL TOKEN [SHOTS_DIR]
// Fails below 30 frames/s while zooming, or if an update takes more than 50 ms of the page's thread.
import { mkdirSync } from 'node:fs';
import { assert, Checks, launch, until } from './lib.mjs';

const [base, token, shots] = process.argv.slice(2);
if (!base || !token) {
  console.error('usage: node ui/tests/map-speed.mjs BASE_URL TOKEN [SHOTS_DIR]');
  process.exit(2);
}
const BLOCKS = 40;
const LEAVES = 20;
const NODES = 16;
const FPS_MIN = 30;
const UPDATE_MS_MAX = 50;

/** Jobs of many sizes over all nodes; `turn` moves them, so that each answer differs. */
function document(turn) {
  const nodes = [];
  const jobs = [];
  let left = 0;
  let job = 0;
  for (let i = 0; i < BLOCKS * LEAVES * NODES; i++) {
    if (left === 0) {
      job += 1;
      left = 1 + ((job * 7919 + turn) % 48);
      jobs.push({ id: job + turn, name: `train-${job}`, owner: 'ann', queue: `team-${job % 6}`, state: 'running' });
    }
    left -= 1;
    const devices = Array.from({ length: 8 }, (_, k) => ((i + turn) % 37 === 0 ? null : (i % 97 === 5 && k > 5 ? -2 : job + turn)));
    nodes.push({
      name: `gpu-${String(i).padStart(5, '0')}`,
      path: [`block-${Math.floor(i / LEAVES / NODES)}`, `leaf-${Math.floor(i / NODES) % LEAVES}`],
      model: '8 × NVIDIA H100',
      admin: 'open',
      grade: 'ok',
      devices,
      busy: devices.map((_, k) => (i * 8 + k + turn) % 101),
      grades: null,
    });
  }
  return JSON.stringify({ levels: ['block', 'leaf'], jobs, nodes });
}

const checks = new Checks();
const browser = await launch();
const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
const page = await context.newPage();
const bodies = Array.from({ length: 6 }, (_, turn) => document(turn));
let turn = 0;
await page.route('**/v1/map', (route) => {
  const body = bodies[turn % bodies.length];
  return route.fulfill({ status: 200, contentType: 'application/json', headers: { ETag: `"${turn}"` }, body });
});
await page.addInitScript(() => {
  window.longest = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) window.longest.push(entry.duration);
  }).observe({ type: 'longtask', buffered: true });
});
await page.goto(`${base}/#token=${token}`);
await page.waitForSelector('[data-live="live"]', { state: 'attached' });
await page.goto(`${base}/map`);
await page.waitForSelector('canvas[data-frame-ms]');
await page.waitForTimeout(800);
if (shots) {
  mkdirSync(shots, { recursive: true });
  await page.screenshot({ path: `${shots}/map-12800.png` });
}

const box = await page.locator('canvas').boundingBox();
const middle = { x: box.x + box.width * 0.42, y: box.y + box.height * 0.45 };

/** Zooms with the wheel for some seconds, and counts the frames that the page shows and draws. */
async function zoom(seconds) {
  await page.mouse.move(middle.x, middle.y);
  return page.evaluate(
    async ({ seconds, x, y }) => {
      const canvas = window.document.querySelector('canvas');
      const drawn = [];
      let frames = 0;
      const begun = performance.now();
      let now = begun;
      while (now - begun < seconds * 1000) {
        const isIn = Math.floor((now - begun) / 1500) % 2 === 0;
        canvas.dispatchEvent(
          new WheelEvent('wheel', { deltaY: isIn ? -28 : 28, clientX: x, clientY: y, bubbles: true, cancelable: true }),
        );
        now = await new Promise(requestAnimationFrame);
        frames += 1;
        drawn.push(Number(canvas.dataset.frameMs));
      }
      drawn.sort((a, b) => a - b);
      return {
        fps: (1000 * frames) / (now - begun),
        median: drawn[Math.floor(drawn.length / 2)],
        worst: drawn.at(-1),
        scale: canvas.dataset.scale,
      };
    },
    { seconds, ...middle },
  );
}

await checks.run(`at least ${FPS_MIN} frames/s while zooming over 102,400 GPUs`, async () => {
  const got = await zoom(6);
  console.log(`      ${got.fps.toFixed(1)} frames/s; a frame takes ${got.median} ms in the median, ${got.worst} ms at most`);
  assert(got.fps >= FPS_MIN, `${got.fps.toFixed(1)} frames/s`);
});

await checks.run(`an update takes at most ${UPDATE_MS_MAX} ms`, async () => {
  await page.keyboard.press('Escape');
  await page.goto(`${base}/map`);
  await page.waitForSelector('canvas[data-frame-ms]');
  await page.waitForTimeout(1000);
  const updates = [];
  for (let i = 0; i < 6; i++) {
    await page.evaluate(() => (window.longest = []));
    const before = Number(await page.getAttribute('canvas', 'data-frames'));
    turn += 1;
    // The page reads the map again every 5 s also without changes.
    await until('an update', async () => Number(await page.getAttribute('canvas', 'data-frames')) > before, 12_000);
    await page.waitForTimeout(300);
    updates.push(
      await page.evaluate(() => {
        const canvas = window.document.querySelector('canvas');
        return {
          apply: Number(canvas.dataset.applyMs),
          frame: Number(canvas.dataset.frameMs),
          longest: Math.max(0, ...window.longest),
        };
      }),
    );
  }
  const parse = await page.evaluate((text) => {
    const begun = performance.now();
    JSON.parse(text);
    return performance.now() - begun;
  }, bodies[1]);
  const worst = (field) => Math.max(...updates.map((update) => update[field])).toFixed(1);
  console.log(
    `      apply ${worst('apply')} ms, draw ${worst('frame')} ms, parse ${parse.toFixed(1)} ms, ` +
      `longest task of the page ${worst('longest')} ms (worst of ${updates.length})`,
  );
  const median = updates.map((update) => update.longest).sort((a, b) => a - b)[Math.floor(updates.length / 2)];
  console.log(`      longest task in the median ${median.toFixed(1)} ms`);
  const total = Number(worst('apply')) + Number(worst('frame'));
  assert(total + parse <= UPDATE_MS_MAX, `${(total + parse).toFixed(1)} ms`);
});

await browser.close();
checks.end();

// What the tests in the browser share: the browser, the list of checks, and requests to the API beside the page.
import { chromium } from 'playwright-core';

export const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

export function launch() {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: FLAGS });
}

/** Runs checks one after the other and remembers which failed. */
export class Checks {
  failed = [];

  async run(name, check) {
    try {
      await check();
      console.log(`ok    ${name}`);
    } catch (error) {
      this.failed.push(name);
      console.log(`FAIL  ${name}\n      ${String(error.message ?? error).split('\n').slice(0, 6).join('\n      ')}`);
    }
  }

  end() {
    if (this.failed.length > 0) console.log(`${this.failed.length} checks failed`);
    else console.log('all checks passed');
    process.exitCode = this.failed.length > 0 ? 1 : 0;
  }
}

export function assert(holds, message) {
  if (!holds) throw new Error(message);
}

/** How long something may take before it counts as never, in milliseconds: no measure of speed. */
export const PATIENCE = 60_000;

/** Asks until an answer is true; the error says what was waited for. */
export async function until(what, ask, ms = PATIENCE) {
  const end = Date.now() + ms;
  for (;;) {
    if (await ask()) return;
    if (Date.now() > end) throw new Error(`${what} did not happen within ${ms / 1000} s`);
    await new Promise((done) => setTimeout(done, 150));
  }
}

export class Api {
  constructor(base, token) {
    this.base = base;
    this.token = token;
  }

  async call(method, path, body) {
    const answer = await fetch(`${this.base}/v1${path}`, {
      method,
      headers: { Authorization: `Bearer ${this.token}`, ...(body ? { 'Content-Type': 'application/json' } : {}) },
      body: body ? JSON.stringify(body) : undefined,
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text.slice(0, 400)}`);
    return JSON.parse(text);
  }

  get(path) {
    return this.call('GET', path);
  }
}

/** Collects what must not happen on a page: errors, violations of the content policy, requests to other origins. */
export function watch(page, base) {
  const bad = [];
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') bad.push(`console ${message.type()}: ${message.text()}`);
  });
  page.on('pageerror', (error) => bad.push(`error: ${error.message}`));
  page.on('request', (request) => {
    const url = request.url();
    if (!url.startsWith(base) && !url.startsWith('data:') && !url.startsWith('blob:')) bad.push(`request to ${url}`);
  });
  return bad;
}

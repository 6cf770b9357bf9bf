// Opens every page against a running daemon and looks at what a person would see.
//   node ui/tests/browser.mjs BASE_URL TOKEN [SHOTS_DIR]
// The token must be of a user who may submit jobs. The test submits jobs of its own and cancels them at the end.
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { Api, assert, Checks, launch, PATIENCE, until, watch } from './lib.mjs';

const [base, token, shots] = process.argv.slice(2);
if (!base || !token) {
  console.error('usage: node ui/tests/browser.mjs BASE_URL TOKEN [SHOTS_DIR]');
  process.exit(2);
}
if (shots) mkdirSync(shots, { recursive: true });
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

const api = new Api(base.replace(/\/$/, ''), token);
const origin = new URL(base).origin;
const checks = new Checks();
const browser = await launch();
const stamp = Date.now().toString(36);
const LOGGED = `line-of-${stamp}`;

/** A job that runs and prints until it is cancelled. */
const running = {
  name: `ui-run-${stamp}`,
  resources: { gpus: 1 },
  run: `i=0; while true; do i=$((i+1)); echo ${LOGGED} $i; sleep 0.5; done`,
};

async function newPage(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...options });
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  return { page, bad: watch(page, origin) };
}

async function signIn(page, to = '/') {
  await page.goto(`${origin}${to}#token=${token}`);
  await page.waitForSelector('[data-live="live"]', { state: 'attached' });
}

/** Goes to a page by the router, as a click does. */
async function open(page, path) {
  await page.goto(`${origin}${path}`);
  await page.waitForSelector('main h1');
  await page.waitForFunction(() => !document.querySelector('[aria-busy="true"], .skeleton'));
}

const heading = (page) => page.textContent('main h1');

async function queueForJobs() {
  const queues = (await api.get('/queues')).items;
  const parents = new Set(queues.map((queue) => queue.report?.queue.parent).filter(Boolean));
  return queues.find((queue) => !parents.has(queue.name))?.name;
}

const queue = await queueForJobs();
if (queue) running.queue = queue;
const job = (await api.call('POST', '/jobs', running)).job;
const held = (await api.call('POST', '/jobs', { ...running, name: `ui-held-${stamp}`, hold: true })).job;
const { page, bad } = await newPage();

await checks.run('without a token the sign-in page shows', async () => {
  const { page: fresh, bad: badFresh } = await newPage();
  await fresh.goto(`${origin}/jobs`);
  await fresh.waitForSelector('text=phalanx dashboard');
  await fresh.fill('#token', 'wrong');
  await fresh.click('text=Sign in >> nth=-1');
  await fresh.waitForSelector('[role="alert"]');
  await fresh.fill('#token', token);
  await fresh.press('#token', 'Enter');
  await fresh.waitForSelector('h1:has-text("Jobs")');
  // The browser itself logs the refused request.
  const others = badFresh.filter((line) => !line.includes('401'));
  assert(others.length === 0, others.join('; '));
  await fresh.context().close();
});

await checks.run('the token leaves the address bar, and the page is live', async () => {
  await signIn(page);
  assert(!page.url().includes('token'), page.url());
});

await checks.run('the page paints', async () => {
  await page.goto(`${origin}/`);
  await page.waitForSelector('main h1');
  const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0);
  // Printed and not judged: this machine may be busy.
  console.log(`      first contentful paint ${Math.round(paint)} ms`);
  assert(paint > 0, 'no paint');
});

await checks.run(`job ${job} starts`, () =>
  until('the start', async () => (await api.get(`/jobs/${job}`)).state === 'running'),
);
const view = await api.get(`/jobs/${job}`);
const node = view.gangs[0]?.placement?.slots[0]?.node ?? (await api.get('/nodes')).nodes[0].name;

await checks.run('overview: the numbers are those of the API', async () => {
  await open(page, '/');
  assert((await heading(page)) === 'Overview', await heading(page));
  const overview = await api.get('/overview');
  const text = await page.textContent('main');
  assert(text.includes(`of ${overview.devices.total.toLocaleString('en-US')}`), 'the number of GPUs');
  await page.waitForSelector(`text=ui-held-${stamp}`);
});

await checks.run('jobs: the row of the job with its state, and the filter', async () => {
  await open(page, '/jobs');
  const row = page.locator(`tr[data-job="${job}"]`);
  assert((await row.textContent()).includes(`ui-run-${stamp}`), 'the name');
  assert((await row.textContent()).includes('running'), 'the state');
  await page.keyboard.press('/');
  await page.keyboard.type(`ui-held-${stamp}`);
  await until('the filter', async () => (await page.locator('tr[data-job]').count()) === 1);
});

await checks.run('jobs: a job that is submitted elsewhere appears without a reload', async () => {
  await open(page, '/jobs');
  const late = (await api.call('POST', '/jobs', { ...running, name: `ui-late-${stamp}`, hold: true })).job;
  await page.waitForSelector(`tr[data-job="${late}"]`, { timeout: PATIENCE });
  await api.call('DELETE', `/jobs/${late}`);
  await page.waitForSelector(`tr[data-job="${late}"]`, { state: 'detached', timeout: PATIENCE });
});

await checks.run('job: ranks, placement, and a log line that appears live', async () => {
  await open(page, `/jobs/${job}`);
  assert((await heading(page)) === `ui-run-${stamp}`, await heading(page));
  await page.waitForSelector(`table a:has-text("${node}")`);
  const last = async () => Number((await page.locator('.log .line').last().textContent({ timeout: PATIENCE })).split(' ').at(-1));
  await page.waitForSelector(`.log >> text=${LOGGED}`, { timeout: PATIENCE });
  const before = await last();
  await until('another line', async () => (await last()) > before + 1);
  await page.waitForSelector('[data-log-state="live"]');
});

await checks.run('job: a scroll of the output that is reported after its page is gone is no error', async () => {
  await open(page, `/jobs/${job}`);
  await until('output to scroll', async () => page.locator('.log').evaluate((log) => log.scrollHeight > log.clientHeight + 50));
  const before = bad.length;
  await page.evaluate(() => {
    document.querySelector('.log').scrollTop = 0;
    document.querySelector('nav a[href="/jobs"]').click();
  });
  await page.waitForSelector('tr[data-job]');
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  assert(bad.length === before, bad.slice(before).join('; '));
});

await checks.run('job: a pending job says why, and can be released and held', async () => {
  await open(page, `/jobs/${held}`);
  await page.waitForSelector('h2:has-text("Why it is pending")');
  const why = await api.get(`/jobs/${held}/why`);
  await page.waitForSelector(`.sentences >> text=${why.sentences[0]}`);
  await page.waitForSelector('[data-action="release"]');
});

await checks.run('job: an array lists its tasks', async () => {
  const array = (await api.call('POST', '/jobs', { ...running, name: `ui-array-${stamp}`, array: '5%1', hold: true })).job;
  await open(page, `/jobs/${array}`);
  await page.waitForSelector('h2:has-text("Tasks")');
  await page.waitForSelector('text=5 tasks, at most 1 run at once');
  await api.call('DELETE', `/jobs/${array}`);
});

await checks.run('nodes: every node has a row; node: GPUs, links and actions', async () => {
  await open(page, '/nodes');
  const nodes = (await api.get('/nodes')).nodes;
  await until('the rows', async () => (await page.locator('tr[data-node]').count()) === Math.min(200, nodes.length));
  await open(page, `/nodes/${encodeURIComponent(node)}`);
  assert((await heading(page)) === node, await heading(page));
  await page.waitForSelector(`td a:has-text("ui-run-${stamp}")`);
  const detail = await api.get(`/nodes/${encodeURIComponent(node)}`);
  if (detail.link_names.length > 1) {
    assert((await page.locator('.matrix tbody tr').count()) === detail.link_names.length, 'the rows of the matrix');
  }
});

await checks.run('node: a cordon through the page, with its reason, and back', async () => {
  const role = (await api.get('/whoami')).role;
  if (role !== 'operator' && role !== 'admin') return;
  await open(page, `/nodes/${encodeURIComponent(node)}`);
  await page.click('[data-action="cordon"]');
  await page.fill('#confirm-reason', `test ${stamp}`);
  await page.click('[data-confirm]');
  await page.waitForSelector(`text=test ${stamp}`);
  await page.click('[data-action="uncordon"]');
  await page.click('[data-confirm]');
  await page.waitForSelector('[data-action="cordon"]');
});

await checks.run('queues and queue: rows with the numbers of the API', async () => {
  await open(page, '/queues');
  const items = (await api.get('/queues')).items;
  assert((await page.locator('tr[data-queue]').count()) === items.length, 'the number of rows');
  if (!queue) return;
  await open(page, `/queues/${encodeURIComponent(queue)}`);
  assert((await heading(page)) === queue, await heading(page));
  await page.waitForSelector(`text=ui-held-${stamp}`);
});

await checks.run('health, bill and audit show their tables', async () => {
  await open(page, '/health');
  await page.waitForSelector('h2:has-text("Sources")');
  await open(page, '/bill?by=queue,user,job');
  await page.waitForSelector('th:has-text("GPU-hours")');
  await page.waitForSelector('tfoot >> text=Total');
  await open(page, '/audit');
  await page.waitForSelector('tbody tr, p.title');
});

await checks.run('map: the canvas is drawn, its mirror has the nodes, and a job lights up', async () => {
  await open(page, `/map?job=${job}`);
  await page.waitForSelector('canvas[data-frame-ms]');
  await page.waitForSelector(`section[aria-label="Chosen job"] >> text=ui-run-${stamp}`);
  const mirror = await page.textContent('[data-mirror]');
  assert(mirror.includes((await api.get('/nodes')).nodes[0].name), 'the first node is not in the mirror');
  await page.keyboard.press('/');
  await page.keyboard.type(node);
  await page.keyboard.press('Enter');
  await until('the node in the address', () => page.url().includes(`node=${encodeURIComponent(node)}`));
  await page.click('text=Show as a table');
  await page.waitForSelector('h2:has-text("Domains")');
});

await checks.run('keys: g and a letter, the jump box, the help, and back', async () => {
  await open(page, '/');
  await page.keyboard.press('g');
  await page.keyboard.press('n');
  await page.waitForSelector('h1:has-text("Nodes")');
  await page.keyboard.press(':');
  await page.keyboard.type(`ui-run-${stamp}`);
  await page.waitForSelector(`[role="option"]:has-text("ui-run-${stamp}")`);
  await page.keyboard.press('Enter');
  await page.waitForSelector(`h1:has-text("ui-run-${stamp}")`);
  await page.keyboard.press('?');
  await page.waitForSelector('dialog >> text=Everywhere');
  await page.keyboard.press('Escape');
  await page.waitForSelector('dialog', { state: 'detached' });
  await page.keyboard.press('Escape');
  await page.waitForSelector('h1:has-text("Nodes")');
});

await checks.run('what if: a node is drained through the form, and the address is the question', async () => {
  await open(page, '/what-if');
  await page.waitForSelector('text=Nothing is simulated yet');
  await page.fill('[data-drain]', node);
  await page.keyboard.press('Enter');
  await page.waitForSelector(`ul[aria-label="Nodes to drain"] >> text=${node}`);
  await page.click('[data-run]');
  await page.waitForSelector('[data-sentence]', { timeout: PATIENCE });
  assert(/moved/.test(await page.textContent('[data-sentence]')), await page.textContent('[data-sentence]'));
  const row = page.locator(`tr[data-gang="${job}"]`);
  assert((await row.textContent()).includes('keeps running'), await row.textContent());
  assert((await row.locator('.difference').textContent()).includes('moved'), await row.textContent());
  assert(page.url().endsWith(`/what-if?drain=${encodeURIComponent(node)}`), page.url());
  assert((await api.get(`/nodes/${encodeURIComponent(node)}`)).node.admin === 'open', 'the node was drained');
  await page.click(`button[aria-label="Remove ${node}"]`);
  await page.waitForSelector('text=The changes were edited after this answer');
});

await checks.run('what if: links of other pages ask at once', async () => {
  await open(page, `/nodes/${encodeURIComponent(node)}`);
  await page.click('a:has-text("What if it is drained?")');
  await page.waitForSelector('[data-sentence]', { timeout: PATIENCE });
  await open(page, '/submit');
  await page.fill('#f-run', 'sleep 300');
  await page.fill('#f-name', `ui-if-${stamp}`);
  await page.click('[data-what-if]');
  await page.waitForSelector(`tr[data-gang] >> text=ui-if-${stamp}`, { timeout: PATIENCE });
  assert((await page.inputValue('[data-job]')).includes(`ui-if-${stamp}`), 'the job file');
  await page.click('nav a[href="/what-if"]');
  await page.waitForSelector('text=Nothing is simulated yet');
});

await checks.run('what if: a queue and nodes by the keyboard, and what is wrong beside its field', async () => {
  await open(page, '/what-if');
  if (queue) {
    await page.selectOption('[data-queue]', queue);
    await page.fill('[data-value]', '3');
    await page.press('[data-value]', 'Enter');
    await page.waitForSelector(`ul[aria-label="Values of queues"] >> text=${queue}: weight 3`);
    await page.click('[data-run]');
    // A queue that no queue file has takes no weight, and the error says so.
    await page.waitForSelector('[data-sentence], #wrong-set', { timeout: PATIENCE });
    await page.click(`button[aria-label="Remove ${queue}: weight 3"]`);
  }
  await page.fill('[data-drain]', 'nowhere');
  // What was typed and not added counts too.
  await page.click('[data-run]');
  await page.waitForSelector('#wrong-drain:has-text("there is no node")', { timeout: PATIENCE });
  await page.fill('[data-job]', 'gpu: 8');
  await page.click('button[aria-label="Remove nowhere"]');
  await page.click('[data-run]');
  await page.waitForSelector('#wrong-job', { timeout: PATIENCE });
  await page.click('text=Clear');
  await page.click('[data-run]');
  await page.waitForSelector('h2:has-text("What to expect")', { timeout: PATIENCE });
});

await checks.run('submit: a dry run beside the form, an error at the form, and the page of the new job', async () => {
  await open(page, '/submit');
  await page.fill('#f-run', 'sleep 300');
  await page.fill('#f-name', `ui-form-${stamp}`);
  if (queue) await page.selectOption('#f-queue', queue);
  await page.waitForSelector('[data-dry-run] li', { timeout: PATIENCE });
  await page.fill('#f-gpus', 'many');
  await page.waitForSelector('[role="alert"], [data-dry-run].bad', { timeout: PATIENCE });
  await page.fill('#f-gpus', '1');
  await page.waitForSelector('[data-dry-run]:not(.bad) li', { timeout: PATIENCE });
  await page.click('[data-submit]');
  await page.waitForSelector(`h1:has-text("ui-form-${stamp}")`);
});

await checks.run('a job that is cancelled through the page ends', async () => {
  await until('the buttons', async () => (await page.locator('[data-action="cancel"]').count()) === 1);
  const id = page.url().split('/').at(-1);
  await page.click('[data-action="cancel"]');
  await page.click('[data-confirm]');
  await until('the end', async () => (await api.get(`/jobs/${id}`)).state === 'cancelled');
  await page.waitForSelector('main >> text=cancelled', { timeout: PATIENCE });
});

await checks.run('a page that does not exist, and a job that does not exist, say so', async () => {
  await open(page, '/nowhere');
  await page.waitForSelector('h1:has-text("No such page")');
  await page.goto(`${origin}/jobs/999999999`);
  await page.waitForSelector('[role="alert"]');
});

await checks.run('no error in the console, no violation of the content policy, no other origin', () => {
  // The browser logs refused requests itself: those that the checks provoke are no errors of the page.
  const others = bad.filter((line) => !/status of (400|404|409|422)/.test(line));
  assert(others.length === 0, others.join('\n'));
});

await checks.run('a broken stream is shown, and the page reconnects', async () => {
  const { page: cut } = await newPage();
  let isCut = true;
  await cut.route('**/v1/stream', (route) => (isCut ? route.abort() : route.continue()));
  await cut.goto(`${origin}/#token=${token}`);
  await cut.waitForSelector('[data-live="reconnecting"]:has-text("Reconnecting since")');
  isCut = false;
  await cut.waitForSelector('[data-live="live"]', { timeout: PATIENCE });
  await cut.context().close();
});

if (process.env.VIEWER_TOKEN) {
  await checks.run('a viewer sees the job and no action', async () => {
    const { page: viewer } = await newPage();
    await viewer.goto(`${origin}/#token=${process.env.VIEWER_TOKEN}`);
    await viewer.waitForSelector('text=viewer');
    await open(viewer, `/jobs/${job}`);
    assert((await viewer.locator('[data-action]').count()) === 0, 'an action is there');
    assert((await viewer.locator('a[href="/submit"]').count()) === 0, 'the submit button is there');
    await open(viewer, `/nodes/${encodeURIComponent(node)}`);
    assert((await viewer.locator('[data-action]').count()) === 0, 'an action of the node is there');
    await viewer.context().close();
  });
}

const whatIfJob = JSON.stringify({ name: 'ui-if', resources: { gpus: 8 }, run: 'true', time_limit: '2h', ...(queue ? { queue } : {}) });
const PAGES = {
  overview: '/',
  map: '/map',
  jobs: '/jobs?ended=1',
  job: `/jobs/${job}`,
  pending: `/jobs/${held}`,
  nodes: '/nodes',
  node: `/nodes/${encodeURIComponent(node)}`,
  queues: '/queues',
  ...(queue ? { queue: `/queues/${encodeURIComponent(queue)}` } : {}),
  health: '/health',
  bill: '/bill?by=queue,user,job',
  audit: '/audit',
  submit: '/submit',
  'what-if-empty': '/what-if',
  'what-if': `/what-if?${new URLSearchParams({ drain: node, job: whatIfJob })}`,
  'what-if-wrong': '/what-if?drain=nowhere',
};

async function seriousViolations(page) {
  // The page's own policy forbids injected scripts; the debugger may still evaluate.
  await page.evaluate(axe);
  const results = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  return results.violations
    .filter((one) => one.impact === 'serious' || one.impact === 'critical')
    .map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => `${node.target} ${node.any[0]?.message ?? ''}`).join(' | ')}`);
}

for (const colorScheme of ['light', 'dark']) {
  const { page: looked } = await newPage({ colorScheme });
  await signIn(looked);
  for (const [name, path] of Object.entries(PAGES)) {
    await checks.run(`axe: ${name}, ${colorScheme}`, async () => {
      await open(looked, path);
      await looked.waitForTimeout(250);
      if (shots) await looked.screenshot({ path: `${shots}/${name}-${colorScheme}.png` });
      const found = await seriousViolations(looked);
      assert(found.length === 0, found.join('\n'));
    });
  }
  await looked.context().close();
}

const { page: phone } = await newPage({ viewport: { width: 360, height: 740 } });
await signIn(phone);
for (const [name, path] of Object.entries(PAGES)) {
  await checks.run(`360 px: ${name} does not scroll sideways`, async () => {
    await open(phone, path);
    await phone.waitForTimeout(150);
    if (shots) await phone.screenshot({ path: `${shots}/${name}-360.png`, fullPage: true });
    const over = await phone.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    assert(over <= 0, `the body is ${over} px too wide`);
  });
}

for (const id of [job, held]) await api.call('DELETE', `/jobs/${id}`).catch(() => {});
await browser.close();
checks.end();

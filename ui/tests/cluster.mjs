// Opens the pages against a running server of a Kubernetes cluster, which only reads.
//   node ui/tests/cluster.mjs BASE_URL TOKEN RUNNING_JOB PENDING_JOB NODE
import { Api, assert, Checks, launch, PATIENCE, until, watch } from './lib.mjs';

const [base, token, running, pending, node] = process.argv.slice(2);
if (!node) {
  console.error('usage: node ui/tests/cluster.mjs BASE_URL TOKEN RUNNING_JOB PENDING_JOB NODE');
  process.exit(2);
}
const api = new Api(base.replace(/\/$/, ''), token);
const origin = new URL(base).origin;
const checks = new Checks();
const browser = await launch();
const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
context.setDefaultTimeout(PATIENCE);
const page = await context.newPage();
const bad = watch(page, origin);

async function open(path) {
  await page.goto(`${origin}${path}`);
  await page.waitForSelector('main h1');
  await page.waitForFunction(() => !document.querySelector('[aria-busy="true"], .skeleton'));
}

const heading = () => page.textContent('main h1');
const jobPath = (name) => `/jobs/${encodeURIComponent(name)}`;

await checks.run('a token of the cluster signs in, and the page is live', async () => {
  await page.goto(`${origin}/#token=${token}`);
  await page.waitForSelector('[data-live="live"]', { state: 'attached' });
  assert(!page.url().includes('token'), page.url());
  assert((await page.locator('a[href="/submit"]').count()) === 0, 'nothing is submitted here');
});

await checks.run('overview: the numbers are those of the API', async () => {
  await open('/');
  const overview = await api.get('/overview');
  const text = await page.textContent('main');
  assert(text.includes(`of ${overview.devices.total.toLocaleString('en-US')}`), 'the number of GPUs');
  await page.waitForSelector(`text=${pending}`);
});

await checks.run('jobs: a row of each, and the page of one by its name', async () => {
  await open('/jobs');
  const { id } = await api.get(jobPath(running));
  assert((await page.locator(`tr[data-job="${id}"]`).textContent()).includes(running), 'the name');
  await open(jobPath(running));
  assert((await heading()) === running, await heading());
  const member = (await api.get(jobPath(running))).gangs[0].members[0];
  await page.waitForSelector(`table a:has-text("${member.node}")`);
  assert((await page.locator('[data-action]').count()) === 0, 'a viewer has no actions');
});

await checks.run('job: a pending one says why', async () => {
  await open(jobPath(pending));
  await page.waitForSelector('h2:has-text("Why it is pending")');
});

await checks.run('nodes, map, queues and health are there', async () => {
  await open('/nodes');
  const { nodes } = await api.get('/nodes');
  await until('the rows', async () => (await page.locator('tr[data-node]').count()) === nodes.length);
  await open(`/nodes/${encodeURIComponent(node)}`);
  assert((await heading()) === node, await heading());
  await open('/queues');
  assert((await page.locator('tr[data-queue]').count()) > 0, 'queues');
  for (const path of ['/map', '/health']) {
    await open(path);
    assert((await page.locator('main [role="alert"]').count()) === 0, await page.textContent('main'));
  }
});

await checks.run('pages without documents here say which command has them', async () => {
  await open('/audit');
  await page.waitForSelector('text=audit log of the API server');
});

await checks.run('nothing else went wrong', async () => {
  // The browser logs each request that is refused.
  const others = bad.filter((line) => !line.includes('422'));
  assert(others.length === 0, others.join('; '));
});

await browser.close();
checks.end();

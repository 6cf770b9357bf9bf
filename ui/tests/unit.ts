// Tests of the modules without a page. `npm test` bundles them, since Node 20 reads no TypeScript.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseBlock } from '../src/lib/api';
import * as format from '../src/lib/format';
import { parse, toFile, toForm, EMPTY } from '../src/lib/jobfile';
import { gpuEdges, kindOf, nearNics, strength } from '../src/lib/links';
import { mix, pack, paint } from '../src/lib/map/colours';
import { hit } from '../src/lib/map/hit';
import { isSameShape, layOut, NODE_HEAD, NODE_PAD } from '../src/lib/map/layout';
import { sumUp } from '../src/lib/map/sums';
import { phases } from '../src/lib/phases';
import { jobPath, nodePath, parseRoute, queuePath } from '../src/lib/routes';
import type { JobView, MapDoc, NodeView } from '../src/lib/types';
import {
  changeMarks, courseWords, domainsOf, fromQuery, NO_CHANGES, sentence, settingWords, toBody, toQuery, whatIfPath,
  type Course, type GangRow, type WhatIf,
} from '../src/lib/whatif';

test('lengths of time have two units', () => {
  assert.equal(format.duration(0), '0s');
  assert.equal(format.duration(59_400), '59s');
  assert.equal(format.duration(61_000), '1m 01s');
  assert.equal(format.duration(3 * 3_600_000 + 5 * 60_000), '3h 05m');
  assert.equal(format.duration(2 * 86_400_000), '2d 00h');
  assert.equal(format.until(1000, 6000), 'in 5s');
  assert.equal(format.until(6000, 1000), '5s ago');
});

test('masks with more than 32 devices are read', () => {
  assert.equal(format.maskText(255), '0-7');
  assert.equal(format.maskText(0b1011), '0-1,3');
  assert.equal(format.maskText(0), '');
  assert.equal(format.maskText(2 ** 40 + 2 ** 41 + 1), '0,40-41');
  assert.equal(format.hasBit(2 ** 40, 40), true);
});

test('amounts', () => {
  assert.equal(format.devices(16_000), '16');
  assert.equal(format.devices(500), '0.5');
  assert.equal(format.gpuHours(3.6e9), '1.0');
  assert.equal(format.gpuHours(1), '<0.01');
  assert.equal(format.bytes(768e9), '768 GB');
  assert.equal(format.micros(86_903), '86.9 ms');
  assert.equal(format.money(1_234_560_000), '1,234.56');
  assert.equal(format.reasonWords('WaitingInQueue'), 'Waiting in queue');
  assert.equal(format.plain('\u001b[31mred\u001b[0m\r'), 'red');
});

test('blocks of an event stream', () => {
  assert.equal(parseBlock(': heartbeat'), 'beat');
  assert.deepEqual(parseBlock('id: 7\nevent: change\ndata: {"a":1}'), { id: '7', event: 'change', data: '{"a":1}' });
  assert.deepEqual(parseBlock('event: reset'), { id: null, event: 'reset', data: '' });
  assert.deepEqual(parseBlock('data: a\ndata: b'), { id: null, event: 'message', data: 'a\nb' });
});

test('a job file goes through the form without a loss', () => {
  const file = { name: 'x', resources: { gpus: 8, memory: '64GB' }, run: 'true', retry: { max: 3 }, nodes: 2 };
  assert.deepEqual(toFile(toForm(file), file), file);
  const named = { command: ['a', 'b'], resources: { gpus: 1 }, nodes: ['n1', 'n2'] };
  assert.deepEqual(toFile(toForm(named), named), named);
  assert.deepEqual(toFile({ ...EMPTY, gpus: '', run: 'true' }, {}), { run: 'true' });
  assert.deepEqual(toFile({ ...EMPTY, level: 'leaf', mode: 'required' }, {}).topology, { level: 'leaf', mode: 'required' });
  assert.ok('error' in parse('[1]'));
  assert.ok('error' in parse('{'));
});

const LINKS = [
  ['X', 'NV18', 'PIX', 'SYS'],
  ['NV18', 'X', 'SYS', 'PXB'],
  ['PIX', 'SYS', 'X', 'SYS'],
  ['SYS', 'PXB', 'SYS', 'X'],
];

test('links of a node', () => {
  assert.equal(kindOf('NV18'), 'nv');
  assert.equal(kindOf('SOC'), 'sys');
  assert.equal(kindOf('X'), 'none');
  assert.equal(strength('NV18'), 18);
  assert.deepEqual(gpuEdges(LINKS, 2).map((edge) => edge.word), ['NV18']);
  assert.deepEqual(nearNics(LINKS, 2).map((edge) => [edge.from, edge.to]), [[0, 2], [1, 3]]);
});

function mapDoc(): MapDoc {
  const nodes = Array.from({ length: 24 }, (_, i) => ({
    name: `n${i}`,
    path: [`b${Math.floor(i / 12)}`, `l${Math.floor(i / 4)}`],
    model: '', admin: 'open' as const, grade: 'ok' as const,
    devices: [7, 7, null, -1, -2, 7, null, 9], busy: null, grades: null,
  }));
  const job = (id: number) => ({ id, name: `j${id}`, owner: 'ann', queue: 'q', state: 'running' });
  return { levels: ['block', 'leaf'], jobs: [job(7), job(9)], nodes };
}

test('every node of the map is found where it is drawn, and boxes do not overlap', () => {
  const doc = mapDoc();
  const layout = layOut(doc);
  doc.nodes.forEach((node, i) => {
    const found = hit(layout, layout.x[i]! + NODE_PAD + 1, layout.y[i]! + NODE_HEAD + NODE_PAD + 1);
    assert.equal(found?.node, i);
    assert.equal(found?.device, 0);
    assert.deepEqual(found?.boxes.map((box) => box.name), node.path);
  });
  const leaves = layout.boxes.filter((box) => box.children.length === 0);
  for (const a of leaves) for (const b of leaves) {
    if (a !== b) assert.ok(a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y || b.y + b.h <= a.y);
  }
  assert.equal(hit(layout, -5, -5), null);
});

test('the shape of the map is the same if holders change, and another if nodes do', () => {
  const other = mapDoc();
  other.nodes[0]!.devices[0] = null;
  assert.ok(isSameShape(mapDoc(), other));
  other.nodes[0]!.name = 'else';
  assert.ok(!isSameShape(mapDoc(), other));
});

test('sums of the map count every device once', () => {
  const sums = sumUp(mapDoc());
  assert.equal(sums.devices, 192);
  assert.deepEqual(sums.jobs.get(7), { gpus: 72, nodes: 24 });
  assert.deepEqual(sums.jobs.get(9), { gpus: 24, nodes: 24 });
  assert.deepEqual([sums.free, sums.foreign, sums.closed, sums.broken], [48, 24, 24, 0]);
});

test('a chosen job keeps its colour, and the others are dimmed', () => {
  const doc = mapDoc();
  const all = new Uint32Array(192);
  const one = new Uint32Array(192);
  paint(doc, { by: 'job', isDark: false, job: null }, all);
  paint(doc, { by: 'job', isDark: false, job: 7 }, one);
  assert.equal(one[0], all[0]);
  assert.notEqual(one[7], all[7]);
  assert.equal(mix(pack(0, 0, 0), pack(200, 100, 50), 0.5), pack(100, 50, 25));
});

test('phases follow the events of a job', () => {
  const events = [[0, 'submitted'], [10, 'pending'], [50, 'starting'], [60, 'running']].map(([at, what]) => ({ at: at as number, what: what as string }));
  const job = { finished_at: null } as JobView;
  assert.deepEqual(phases(job, events, 100), [
    { state: 'pending', from: 0, to: 50 },
    { state: 'starting', from: 50, to: 60 },
    { state: 'running', from: 60, to: 100 },
  ]);
});

test('addresses lead back to the names they are made of', () => {
  for (const name of ['gpu-1', 'gpu-1.example.com', 'a b', 'ü%', 'team/a']) {
    assert.equal(parseRoute(nodePath(name), '').name, name);
    assert.equal(parseRoute(queuePath(name), '').name, name);
    assert.ok(!nodePath(name).includes('.'), 'the server takes a dot for a file');
  }
  assert.deepEqual([parseRoute(jobPath('7.3'), '').page, parseRoute(jobPath('7.3'), '').name], ['job', '7.3']);
  assert.equal(parseRoute('/', '').page, 'overview');
  assert.equal(parseRoute('/jobs/', '').page, 'jobs');
  assert.equal(parseRoute('/else/x', '').page, 'missing');
  assert.equal(parseRoute('/jobs/%E0%A4%A', '').name, '%E0%A4%A');
});

const course = (more: Partial<Course>): Course => ({
  job: 'a', queue: 'q', devices: 8, basis: 'limit', is_running: false, starts: [], stops: [], held_device_ms: 0, ...more,
});
const HOUR = 3_600_000;
const start = (at: number) => ({ at, nodes: ['n1'] });

test('the changes of a what-if go through the address without a loss', () => {
  const changes = {
    drain: ['n1', 'a&b'],
    set: ['queues.research.weight=2'],
    add: [{ count: 16, domain: 'b-1/leaf:9' }],
    job: 'run: |\n  echo "a+b"',
    horizon: '7d',
  };
  assert.deepEqual(fromQuery(new URLSearchParams(toQuery(changes))), changes);
  assert.equal(whatIfPath({}), '/what-if');
  assert.equal(whatIfPath({ drain: ['n1'] }), '/what-if?drain=n1');
  assert.equal(whatIfPath({ job: 'x'.repeat(5000) }), '/what-if');
  assert.deepEqual(fromQuery(new URLSearchParams('add=nine:leaf&add=3&set=weight&drain=')), { ...NO_CHANGES });
  assert.deepEqual(toBody(NO_CHANGES), {});
  assert.deepEqual(toBody({ ...changes, job: ' ', horizon: '' }), {
    drain: changes.drain, set: changes.set, add_nodes: changes.add,
  });
  assert.equal(settingWords('queues.research.guaranteed.gpus=8'), 'research: guarantee 8 GPUs');
  assert.equal(settingWords('half_life=3d'), 'half_life: 3d');
  assert.equal(parseRoute('/what-if', '').page, 'what-if');
});

test('the answer of a what-if in words', () => {
  const view = (gangs: GangRow[]): WhatIf => ({
    version: '1', from: 0, horizon_ms: 24 * HOUR, changes: ['n1 is drained'], assumptions: [], queues: [], gangs,
  });
  const row = (job: number, change: string, as_is?: Course, then?: Course): GangRow => ({
    gang: { job, index: 0 }, change, ...(as_is && { as_is }), ...(then && { then }),
  });
  const mixed = view([
    row(1, 'moved', course({ is_running: true }), course({ is_running: true, stops: [{ at: 0, why: 'drained' }], starts: [start(60_000)] })),
    row(2, 'starts 1h sooner', course({ starts: [start(2 * HOUR)] }), course({ starts: [start(HOUR)] })),
    row(3, 'starts 2h later', course({ starts: [start(HOUR)] }), course({ starts: [start(3 * HOUR)] })),
    row(4, 'does not start within 24h', course({ starts: [start(HOUR)] }), course({})),
    row(5, 'new', undefined, course({ starts: [start(0)] })),
    row(6, '', course({}), course({})),
  ]);
  assert.equal(
    sentence(mixed),
    'a starts now, 1 gang is preempted or moved, 1 gang starts sooner (by 1h 00m), 1 gang starts later (by 2h 00m) and ' +
      '1 gang never starts within 24 hours.',
  );
  assert.deepEqual(courseWords(mixed.gangs[0]?.then, mixed), ['moved now', 'starts again in\u00a01m\u00a000s']);
  assert.deepEqual(courseWords(mixed.gangs[3]?.then, mixed), ['never starts within 24 hours']);
  assert.deepEqual(courseWords(course({ starts: [start(0)], ends_at: HOUR, ending: 'time_limit' }), mixed), ['starts now', 'ends in\u00a01h\u00a000m']);
  assert.equal(sentence(view([row(6, '', course({}), course({}))])), 'Nothing changes within 24 hours for the one gang.');
  assert.equal(sentence(view([])), 'No gang is pending or running.');
  const expected = { ...view([row(1, '', course({ is_running: true }), course({})), row(2, '', course({ starts: [start(HOUR)] }), course({}))]), changes: [] };
  assert.equal(sentence(expected), 'The pending gang starts in\u00a01h\u00a000m.');
  const marks = changeMarks('preempted, starts 2h later');
  assert.deepEqual(marks, [{ text: 'preempted', tone: 'bad' }, { text: 'starts 2h later', tone: 'warm' }]);
  const node = (path: string[]) => ({ path }) as NodeView;
  assert.deepEqual(domainsOf([node(['a', 'leaf-1']), node(['b', 'leaf-1']), node(['b', 'leaf-2'])]), ['a/leaf-1', 'b/leaf-1', 'leaf-2']);
});

// The page's requests for tiles, to a simulated server.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Points } from '../src/decode';
import { LiveTiles, type Shown } from '../src/live';
import { answer, encode } from './tile';

const MIAMI = { west: -80.2, south: 25.7, east: -80.1, north: 25.8 };
const OF_MIAMI = ['10/283/435', '10/284/435', '10/283/436', '10/284/436'];
const PARIS = { west: 2.3, south: 48.8, east: 2.4, north: 48.9 };

/** Requests without an answer, oldest first. */
let waiting: { of: string[]; group: string | null; signal: AbortSignal; answer(body: ArrayBuffer): void; fail(error: Error): void }[];
let shown: Shown;
let tiles: LiveTiles;

beforeEach(() => {
  waiting = [];
  tiles = new LiveTiles((now) => (shown = now));
  vi.stubGlobal('fetch', (url: string, { signal }: { signal: AbortSignal }) =>
    new Promise((resolve, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason as Error));
      waiting.push({
        of: new URL(url, 'http://localhost').searchParams.get('of')!.split(','),
        group: new URL(url, 'http://localhost').searchParams.get('group'),
        signal,
        answer: (body) => resolve(new Response(body)),
        fail: reject,
      });
    }),
  );
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

/** Long, because a machine may be busy. */
const SOON = { timeout: 60_000 };

const tile = (name: string, version: bigint, ...ids: string[]) => {
  const [z, x, y] = name.split('/').map(Number);
  return { z, x, y, version, body: encode('points', ids.map((id) => ({ lat: 25, lng: -80, ts: 1, id }))) };
};
/** Ids of the drivers that are shown. */
const ids = () => shown.points.flatMap((points: Points) => points.ids).sort();
const settled = () => new Promise((resolve) => setTimeout(resolve));
const nextRequest = async () => {
  await vi.waitUntil(() => waiting.length > 0, SOON);
  return waiting.shift()!;
};

test('a view is one request, and later only changed tiles are sent', async () => {
  tiles.setView(MIAMI, 10);
  const first = await nextRequest();
  expect(first.of).toEqual(OF_MIAMI);
  const big = 2n ** 64n - 1n;
  first.answer(answer(tile(OF_MIAMI[0], big, 'a'), tile(OF_MIAMI[1], 7n, 'b'), tile(OF_MIAMI[2], 1n), tile(OF_MIAMI[3], 1n)));
  await vi.waitUntil(() => ids().length === 2, SOON);

  tiles.refresh();
  const second = await nextRequest();
  expect(second.of).toEqual([`${OF_MIAMI[0]}:${big}`, `${OF_MIAMI[1]}:7`, `${OF_MIAMI[2]}:1`, `${OF_MIAMI[3]}:1`]);
  second.answer(answer(tile(OF_MIAMI[1], 8n, 'c')));
  await vi.waitUntil(() => ids().includes('c'), SOON);
  expect(ids()).toEqual(['a', 'c']);
});

test('refreshes during a request lead to one request after it', async () => {
  tiles.setView(MIAMI, 10);
  const first = await nextRequest();
  tiles.refresh();
  tiles.refresh();
  expect(waiting).toEqual([]);
  first.answer(answer(tile(OF_MIAMI[0], 1n, 'a')));
  const second = await nextRequest();
  expect(second.of[0]).toBe(`${OF_MIAMI[0]}:1`);
  second.answer(answer());
  tiles.refresh();
  await nextRequest();
  expect(waiting).toEqual([]);
});

test('moving the view aborts a request for tiles outside it', async () => {
  tiles.setView(MIAMI, 10);
  const first = await nextRequest();
  tiles.setView({ ...MIAMI, east: -80 }, 10);
  expect(first.signal.aborted).toBe(false);
  tiles.setView(PARIS, 10);
  expect(first.signal.aborted).toBe(true);
  const second = await nextRequest();
  expect(second.of).toEqual(['10/518/352']);
  second.answer(answer(tile('10/518/352', 1n, 'p'), tile(OF_MIAMI[0], 1n, 'not here')));
  await vi.waitUntil(() => ids().length > 0, SOON);
  expect(ids()).toEqual(['p']);
});

test('a failed request is repeated once at the next tick', async () => {
  tiles.setView(PARIS, 10);
  tiles.tick(7, true);
  (await nextRequest()).answer(answer());
  (await nextRequest()).answer(answer());
  await settled();
  tiles.setView(MIAMI, 10);
  (await nextRequest()).fail(new TypeError('fetch failed'));
  await settled();
  expect(waiting).toEqual([]);
  tiles.tick(7, false);
  (await nextRequest()).answer(answer(...OF_MIAMI.map((name) => tile(name, 1n, name))));
  await vi.waitUntil(() => ids().length === 4, SOON);
  tiles.tick(7, false);
  expect(waiting).toEqual([]);
  // A failed request for new data is repeated as well.
  tiles.tick(8, false);
  (await nextRequest()).fail(new TypeError('fetch failed'));
  await settled();
  tiles.tick(8, false);
  (await nextRequest()).answer(answer(tile(OF_MIAMI[0], 2n, 'a')));
  await vi.waitUntil(() => ids().includes('a'), SOON);
  tiles.tick(8, false);
  expect(waiting).toEqual([]);
});

test('a request without an answer for 20 s is sent again at the next tick', async () => {
  vi.useFakeTimers();
  tiles.setView(MIAMI, 10);
  const hung = waiting.shift()!;
  await vi.advanceTimersByTimeAsync(19_000);
  tiles.tick(1, false);
  expect([hung.signal.aborted, waiting]).toEqual([false, []]);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(hung.signal.aborted).toBe(true);
  tiles.tick(1, false);
  expect(waiting.map(({ of }) => of)).toEqual([OF_MIAMI]);
});

test('the first tick of a stream requests tiles of any generation again', async () => {
  tiles.setView(MIAMI, 10);
  (await nextRequest()).answer(answer(...OF_MIAMI.map((name) => tile(name, 1n, name))));
  await vi.waitUntil(() => ids().length === 4, SOON);
  tiles.tick(1, true);
  const hung = await nextRequest();
  tiles.tick(1, false);
  expect([hung.signal.aborted, waiting]).toEqual([false, []]);
  tiles.tick(1, true);
  expect(hung.signal.aborted).toBe(true);
  (await nextRequest()).answer(answer(tile(OF_MIAMI[0], 2n, 'a')));
  await vi.waitUntil(() => ids().includes('a'), SOON);
});

test('a view of more tiles than a request may have needs several requests', async () => {
  tiles.setView({ west: -180, south: -85, east: 180, north: 85 }, 4);
  const first = await nextRequest();
  expect(first.of.length).toBe(128);
  first.answer(answer(tile('4/0/0', 1n, 'a')));
  const second = await nextRequest();
  expect(second.of.length).toBe(128);
  expect(second.of).not.toContain('4/0/0');
  second.answer(answer(tile('4/15/15', 1n, 'b')));
  await vi.waitUntil(() => ids().length === 2, SOON);
});

test('another group drops the drivers on the map and the request for them', async () => {
  tiles.setView(MIAMI, 10);
  (await nextRequest()).answer(answer(...OF_MIAMI.map((name, i) => tile(name, 1n, `d${i}`))));
  await vi.waitUntil(() => ids().length === 4, SOON);
  tiles.refresh();
  const old = await nextRequest();
  tiles.filter({ states: '', group: 'north' });
  const next = await nextRequest();
  expect([old.signal.aborted, next.of, next.group]).toEqual([true, OF_MIAMI, 'north']);
  next.answer(answer(...OF_MIAMI.map((name, i) => tile(name, 2n, ...(i === 0 ? ['d0'] : [])))));
  await vi.waitUntil(() => ids().length === 1, SOON);
});

test('other drivers are requested once, and the same ones not again', async () => {
  tiles.setView(MIAMI, 10);
  (await nextRequest()).answer(answer(...OF_MIAMI.map((name) => tile(name, 1n, name))));
  await vi.waitUntil(() => ids().length === 4, SOON);
  await settled();
  tiles.filter({ states: '', group: '' });
  expect(waiting).toEqual([]);
  tiles.filter({ states: '', group: 'north' });
  const next = await nextRequest();
  await settled();
  expect([next.group, next.signal.aborted, waiting]).toEqual(['north', false, []]);
  tiles.filter({ states: '', group: 'north' });
  await settled();
  expect([next.signal.aborted, waiting]).toEqual([false, []]);
});

test('an answer of the group before, read as the group changes, is not shown', async () => {
  tiles.setView(MIAMI, 10);
  (await nextRequest()).answer(answer(...OF_MIAMI.map((name) => tile(name, 1n, name))));
  tiles.filter({ states: '', group: 'north' });
  expect((await nextRequest()).group).toBe('north');
  expect(ids()).toEqual([]);
});

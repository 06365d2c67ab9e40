// The area of the fleet that the map moves to, from a simulated server.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { areaFor } from '../src/whereabouts';
import { answer, encode } from './tile';

let view: { lng: number; zoom: number };
let group: string;
/** Paths of the requests. */
let requests: string[];
/** Called before an answer. */
let waiting: () => void;
let ids: string[];
const map = { getCenter: () => ({ toArray: () => [view.lng, 0] }), getZoom: () => view.zoom };
const area = () => areaFor(map as never, () => group);

beforeEach(() => {
  [view, group, requests, waiting, ids] = [{ lng: 0, zoom: 2 }, '', [], () => {}, ['a', 'b']];
  vi.stubGlobal('fetch', async (path: string) => {
    requests.push(path);
    waiting();
    return new Response(answer({ z: 0, x: 0, y: 0, version: 1n, body: encode('points', ids.map((id, i) => ({ lat: 25, lng: i, ts: 1, id }))) }));
  });
});
afterEach(() => vi.unstubAllGlobals());

test('the area is that of the group that is chosen', async () => {
  group = 'north';
  expect(await area()).toMatchObject({ south: 25, north: 25 });
  expect(requests[0]).toContain('group=north');
});

test('a map that the viewer has moved stays, as does one of another group', async () => {
  waiting = () => (view.lng += 1);
  expect(await area()).toBe('moved');
  waiting = () => (group = 'south');
  expect(await area()).toBe('moved');
});

test('without drivers or an answer there is no area', async () => {
  ids = [];
  expect(await area()).toBe('none');
  waiting = () => {
    throw new TypeError('fetch failed');
  };
  expect(await area()).toBe('none');
});

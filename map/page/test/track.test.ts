// A track across 180°, where longitudes jump and the map ends.
import { afterEach, expect, test, vi } from 'vitest';
import { track as fetchTrack, type Track } from '../src/api';
import { area, cut, spotAt, type Line } from '../src/track';
import { trackLayers } from '../src/track-layers';

afterEach(() => vi.unstubAllGlobals());

/** Returns a track as the page has it after it has loaded it from a simulated server. */
async function loadedTrack(lng: number[], episodes: Track['episodes'] = []): Promise<Track> {
  const points = { ts: lng.map((_, i) => i * 10_000), lat: lng.map((_, i) => i * 0.01), lng, speed: lng.map(() => 10) };
  vi.stubGlobal('fetch', () => Promise.resolve(Response.json({ driver_id: 'a', from: 0, to: 60_000, sql: '', truncated: false, points, episodes })));
  return fetchTrack('a', 0, 60_000, 5, new AbortController().signal);
}

test('a driver between fixes on both sides of 180° is drawn between them', async () => {
  for (const [lng, heading] of [[[179.99, -179.99, -179.97], 63], [[-179.99, 179.99, 179.97], 297]] as const) {
    const track = await loadedTrack([...lng]);
    expect(Math.abs(spotAt(track, 5_000)!.lng)).toBeCloseTo(180, 9);
    for (const ms of [5_000, 15_000]) expect(spotAt(track, ms)!.heading).toBeCloseTo(heading, 0);
  }
});

test('the area of a track across 180° is small, not the whole world', async () => {
  expect(area((await loadedTrack([179.99, -179.99, -179.9])).points)).toEqual({ west: 179.99, south: 0, east: expect.closeTo(180.1, 9) as number, north: 0.02 });
  expect(area((await loadedTrack([-179.99, 179.9])).points)).toEqual({ west: expect.closeTo(179.9, 9) as number, south: 0, east: expect.closeTo(180.01, 9) as number, north: 0.01 });
  expect(area((await loadedTrack([10, 12, 11])).points)).toEqual({ west: 10, south: 0, east: 12, north: 0.02 });
});

test('a line is cut at the edges of the map, and only there', () => {
  const inside = { path: [[179, 1], [180, 2]] as [number, number][], colours: ['a', 'b'] };
  expect(cut(inside)[0]).toBe(inside);
  expect(cut({ path: [[179, 1], [181, 3], [182, 3], [178, 7]], colours: ['a', 'b', 'c', 'd'] })).toEqual([
    { path: [[179, 1], [180, 2]], colours: ['a', 'b'] },
    { path: [[-180, 2], [-179, 3], [-178, 3], [-180, 5]], colours: ['b', 'b', 'c', 'd'] },
    { path: [[180, 5], [178, 7]], colours: ['d', 'd'] },
  ]);
});

test('all lines of a track stay on the map, and none runs across it', async () => {
  const gap = { kind: 'gap' as const, from: 20_000, to: 30_000, lat: 0, lng: 0, distance_m: 0 };
  const track = await loadedTrack([179.98, 179.99, -179.99, 179.99, -179.98, -179.97], [gap]);
  for (let ms = 0; ms <= 50_000; ms += 2_500) {
    const drawn = trackLayers({ track, ms }, 'dark', 1);
    const data = (id: string) => drawn.find((layer) => layer.id === id)!.props.data as Line<unknown>[];
    for (const { path } of ['track-casing', 'track-ahead', 'track-past', 'track-gaps'].flatMap(data)) {
      const lngs = path.map(([lng]) => lng);
      expect(Math.max(...lngs.map(Math.abs))).toBeLessThanOrEqual(180);
      expect(Math.max(...lngs) - Math.min(...lngs)).toBeLessThan(1);
    }
    const [x] = (drawn.at(-1)!.props.data as unknown as { anchor: [number, number] }).anchor;
    expect(Math.min(x, 1 - x)).toBeLessThan(0.001);
    expect(Math.min(x, 1 - x)).toBeGreaterThanOrEqual(0);
  }
});

// The map continues at 180°: a fleet, its discs and its fences lie on both sides of it.
import type { MultiPolygon, Position } from 'geojson';
import { describe, expect, test } from 'vitest';
import { cutRing, joinRings } from '../src/antimeridian';
import { cluster, join } from '../src/cells';
import type { Points } from '../src/decode';
import { Brush } from '../src/dots';
import { driverData } from '../src/driver-layer';
import { Fleet } from '../src/fleet';
import { isInside, placeName } from '../src/places';
import type { Fence } from '../src/rings';
import { around, inView, mercator } from '../src/tiles';
import { extent } from '../src/whereabouts';

const points = (...lngs: number[]): Points => ({
  kind: 'points',
  now: 0,
  n: lngs.length,
  ids: lngs.map((_, i) => `d${i}`),
  lat: new Float64Array(lngs.length).fill(-17),
  lng: Float64Array.from(lngs),
  ts: new Float64Array(lngs.length).fill(1_000),
  speed: new Float32Array(lngs.length),
  heading: new Float32Array(lngs.length),
});
const square: Position[] = [[179, 0], [181, 0], [181, 2], [179, 2], [179, 0]];
const geometry = (coordinates: MultiPolygon['coordinates']): MultiPolygon => ({ type: 'MultiPolygon', coordinates });
/**
 * Returns the corners of a ring in its direction, from the same corner wherever the ring begins.
 */
const normalised = (ring: Position[]) => {
  const corners = ring.slice(0, -1).map(([lng, lat]) => [Number(lng.toFixed(9)), Number(lat.toFixed(9))]);
  const first = corners.map(String).sort()[0];
  const at = corners.findIndex((corner) => String(corner) === first);
  return [...corners.slice(at), ...corners.slice(0, at)];
};

describe('an outline', () => {
  test('that crosses 180° is cut there into outlines on the map', () => {
    expect(cutRing(square).map(([ring]) => normalised(ring))).toEqual([
      [[179, 0], [180, 0], [180, 2], [179, 2]],
      [[-179, 0], [-179, 2], [-180, 2], [-180, 0]],
    ]);
  });

  test('that lies on one side is moved onto the map, and not cut', () => {
    expect(cutRing([[10, 0], [11, 0], [11, 1], [10, 0]])).toEqual([[[[10, 0], [11, 0], [11, 1], [10, 0]]]]);
    expect(cutRing([[181, 0], [182, 0], [182, 1], [181, 0]])).toEqual([[[[-179, 0], [-178, 0], [-178, 1], [-179, 0]]]]);
    expect(cutRing([[-181, 0], [-179, 0], [-179, 1], [-181, 1], [-181, 0]])).toHaveLength(2);
    expect(cutRing([[179, 0], [180, 0], [180, 1], [179, 0]])).toHaveLength(1);
  });

  test.each([
    ['a square', square],
    ['in the other direction', square.toReversed()],
    ['a triangle', [[179.5, -17], [180.3, -16.2], [179.9, -15], [179.5, -17]]],
    ['a C open to the east', [[178, 0], [182, 0], [182, 1], [179, 1], [179, 2], [182, 2], [182, 3], [178, 3], [178, 0]]],
    ['a C open to the west', [[182, 0], [178, 0], [178, 1], [181, 1], [181, 2], [178, 2], [178, 3], [182, 3], [182, 0]]],
  ])('is the same after it was stored and read: %s', (_, ring) => {
    const stored = geometry(cutRing(ring));
    for (const [part] of stored.coordinates) for (const [lng] of part) expect(Math.abs(lng)).toBeLessThanOrEqual(180);
    const read = joinRings(stored);
    expect(read.coordinates).toHaveLength(1);
    expect(normalised(read.coordinates[0][0])).toEqual(normalised(ring));
    for (const [lng, lat] of [[180.5, 0.5], [179.5, 0.5], [179.5, 1.5], [180.5, 1.5], [180.1, -16.2], [179.9, -16.2]]) {
      const wrapped = lng > 180 ? lng - 360 : lng;
      const isStored = stored.coordinates.some(([part]) => isInside(part, wrapped, lat));
      expect(isStored, `${lng}, ${lat}`).toBe(isInside(ring, lng, lat));
      expect(isInside(read.coordinates[0][0], wrapped, lat)).toBe(isStored);
    }
  });

  test('with a hole, or with parts that do not match at 180°, is unchanged', () => {
    const west: Position[] = [[179, 0], [180, 0], [180, 2], [179, 2], [179, 0]];
    const east = (from: number): Position[] => [[-180, from], [-179, from], [-179, 2], [-180, 2], [-180, from]];
    for (const parts of [[[west], [east(1)]], [[west, [[179.4, 0.5], [179.5, 0.5], [179.5, 0.6], [179.4, 0.5]]], [east(0)]], [[west]]]) {
      expect(joinRings(geometry(parts))).toEqual(geometry(parts));
    }
    expect(joinRings(geometry([[west], [east(0)]])).coordinates).toHaveLength(1);
  });

  test('keeps a corner at 180° that a viewer has set', () => {
    const bent: Position[] = [[179, 0], [180, 0.5], [181, 0], [181, 2], [179, 2], [179, 0]];
    const read = joinRings(geometry(cutRing(bent)));
    expect(normalised(read.coordinates[0][0])).toEqual(normalised(bent));
  });
});

test('a place beyond 180° is in the fence or near it', () => {
  const fence = { type: 'Feature', geometry: geometry([[square]]), properties: { name: 'Port', valid_from: 0 } } as Fence;
  expect(placeName([fence], -179.5, 1)).toBe('Port');
  expect(placeName([fence], 179.5, 1)).toBe('Port');
  expect(placeName([fence], -178.9985, 1)).toMatch(/^\d+ m from Port$/);
  expect(placeName([fence], -170, 1)).toBe('');
});

test('a view across 180° has the tiles of both edges, and each once', () => {
  const view = { ...around(-181, -179), south: -18, north: -16 };
  expect(view).toEqual({ west: 179, east: 181, south: -18, north: -16 });
  const xs = [...new Set(inView(view, 8).map(({ x }) => x))];
  expect(xs).toEqual([255, 0]);
  const whole = inView({ ...around(-200, 300), south: -80, north: 80 }, 3);
  expect(new Set(whole.map(({ x, y }) => `${x}/${y}`)).size).toBe(whole.length);
  expect(new Set(whole.map(({ x }) => x)).size).toBe(8);
});

test('a fleet on both sides of 180° is close together', () => {
  expect(extent([points(178.4, 179.9, -179.9)])).toMatchObject({ west: 178.4, east: 180.1 });
  expect(extent([points(-80, 13)])).toMatchObject({ west: -80, east: 13 });
});

test('two drivers near 180° are one disc there', () => {
  const { discs } = cluster([points(179.99, -179.99, 100)], 36 / 4096);
  expect(discs).toHaveLength(1);
  expect(Math.abs(discs[0].lng)).toBeCloseTo(180, 6);
  const cells = { kind: 'cells' as const, now: 0, n: 2, lat: Float64Array.of(0, 0), lng: Float64Array.of(-179.9, 179.9), ts: Float64Array.of(1, 1), count: Float64Array.of(3, 1), speed: Float32Array.of(0, 0) };
  const [disc, ...others] = join([cells], 48 / 4096);
  expect(others).toEqual([]);
  expect(disc.lng).toBeCloseTo(-179.95, 6);
});

test('a driver that crosses 180° moves on, the short way', () => {
  const fleet = new Fleet();
  fleet.replace([points(179.9999)], 0);
  fleet.replace([{ ...points(-179.9999), ts: Float64Array.of(1_002) }], 10);
  const [before] = fleet.at(0, 10);
  expect(before).toBeCloseTo(-180.0001, 6);
  expect(fleet.nearest(179.9999, -17, 1e-4, 1e-4, 10)).toBe(0);
  expect(fleet.at(0, 20)[0]).toBe(-179.9999);
});

test('drivers on both sides of 180° are painted beside each other', () => {
  const lngs = Float64Array.of(179.9, -179.9);
  const none = new Float32Array(2);
  const data = driverData({ n: 2, lat: new Float64Array(2), lng: lngs, dLat: none, dLng: none, start: none, duration: none, headings: new Float32Array(2).fill(-1), colours: new Uint8ClampedArray(8).fill(255) });
  expect(Math.abs(data.attributes.places.value[2])).toBeLessThan(0.001);
  const world = 512 * 2 ** 9;
  for (const centre of [179.95, -179.95]) {
    const image = { width: 512, height: 64, pixels: new Uint32Array(512 * 64) };
    const [x] = mercator(0, centre);
    new Brush(3, false, 0, 512).paint(image, data, { now: 0, rim: [0, 0, 0, 0] }, { world, left: (data.anchor[0] - x) * world + 256, top: 32 });
    const row = Array.from(image.pixels.slice(32 * 512, 33 * 512), (pixel) => pixel !== 0);
    const pixel = (lng: number) => Math.floor((((lng - centre + 540) % 360) - 180) / 360 * world + 256);
    expect([179.9, -179.9].map((lng) => row[pixel(lng)])).toEqual([true, true]);
  }
});

// The map that the page draws without a tile server: land and sea are right, and no edge runs
// across the world.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Position } from 'geojson';
import { describe, expect, test } from 'vitest';
import { land, type Atlas } from '../land';
import { outlines } from '../src/outlines';

/**
 * Counts edges that run across the map. Edges along the pole are half a world long, and do not
 * count.
 */
const jumps = (lines: Position[][]) => lines.flatMap((line) => line.slice(1).filter(([lng], i) => Math.abs(lng - line[i][0]) > 181)).length;

/** Returns whether a point is inside, by the parity of the number of edges to its east. */
const isIn = (rings: Position[][], lng: number, lat: number) =>
  rings.reduce((odd, ring) => ring.slice(1).reduce((inside, [x, y], i) => {
    const [fromX, fromY] = ring[i];
    return fromY > lat !== y > lat && lng < fromX + ((x - fromX) * (lat - fromY)) / (y - fromY) ? !inside : inside;
  }, odd), false);

describe.each(['110m', '50m', '10m'])('outlines of %s', (level) => {
  const atlas = JSON.parse(readFileSync(join(import.meta.dirname, `../node_modules/world-atlas/countries-${level}.json`), 'utf8')) as Atlas;
  const made = outlines(land(atlas));
  const polygons = made.land.coordinates;
  test('no edge jumps over 180°, and every ring is closed', () => {
    for (const lines of [polygons.flat(), made.coast.coordinates, made.borders.coordinates]) expect(jumps(lines)).toBe(0);
    for (const ring of polygons.flat()) expect(ring[0]).toEqual(ring.at(-1));
  });
  test('no coast is drawn along 180°, where land is only cut', () => {
    const along = made.coast.coordinates.flatMap((line) => line.slice(1).filter(([lng], i) => Math.abs(lng) > 179.999 && Math.abs(line[i][0]) > 179.999));
    expect(along).toEqual([]);
  });
  test.each<[string, number, number, boolean]>([
    ['the North Atlantic', -40, 40, false],
    ['the South Pacific', -120, -40, false],
    ['the Arctic Ocean', 0, 84.5, false],
    ['the Bering Sea', -179, 58, false],
    ['Norway', 9, 61.5, true],
    ['Kansas', -98, 38, true],
    ['Chukotka west of 180°', 178, 67.5, true],
    ['Chukotka east of 180°', -177, 67, true],
    ['Antarctica', 0, -80, true],
    ['Antarctica at 180°', 179.9, -84.8, true],
  ])('%s', (_, lng, lat, expected) => {
    // The polygons do not overlap. So a place is inside if the number of edges to its east, over
    // all polygons, is odd.
    expect(isIn(polygons.flat(), lng, lat)).toBe(expected);
  });
});

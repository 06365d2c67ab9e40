// Converts land and borders of a world-atlas file for a flat map, when the page is built. The atlas
// joins outlines across 180°, for globes. On a flat map such an edge would run across the whole map
// and swap land and sea, so this module cuts the outlines there.
import { feature, mesh } from 'topojson-client';
import type { MultiPolygon, Position } from 'geojson';
import type { GeometryCollection, Topology } from 'topojson-specification';
import type { Land } from './src/outlines';

export type Atlas = Topology<{ land: GeometryCollection; countries: GeometryCollection }>;

export function land(atlas: Atlas): Land {
  const { scale, translate } = atlas.transform!;
  const packed = (line: Position[]) => {
    let before = [0, 0];
    return line.flatMap((point) => {
      const grid = point.map((degrees, axis) => Math.round((degrees - translate[axis]) / scale[axis]));
      const step = grid.map((value, axis) => value - before[axis]);
      before = grid;
      return step;
    });
  };
  const [whole] = feature(atlas, atlas.objects.land).features;
  return {
    scale,
    translate,
    land: (whole.geometry as MultiPolygon).coordinates.flatMap(cut).map((polygon) => polygon.map(packed)),
    borders: mesh(atlas, atlas.objects.countries, (a, b) => a !== b).coordinates.map(packed),
  };
}

/** Cuts a polygon into polygons that do not cross 180°. */
export function cut([outline, ...holes]: Position[][]): Position[][][] {
  const inside = holes.flatMap(cutRing);
  return cutRing(outline).map((ring) => [ring, ...inside.filter((hole) => isInBox(ring, hole[0]))]);
}

function cutRing(ring: Position[]): Position[][] {
  const flat = unrolled(ring);
  const lngs = flat.map(([lng]) => lng);
  const [first, last] = [Math.min(...extremes(lngs)), Math.max(...extremes(lngs))].map((lng) => Math.floor((lng + 180) / 360));
  const pieces: Position[][] = [];
  for (let world = first; world <= last; world++) {
    const [west, east] = [world * 360 - 180, world * 360 + 180];
    const piece = clip(clip(flat, (lng) => lng - west), (lng) => east - lng).map(([lng, lat]) => [lng - world * 360, lat]);
    // A piece that only touches 180° is a line, not an area.
    if (piece.some(([lng]) => lng !== piece[0][0])) pieces.push(piece);
  }
  return pieces;
}

/**
 * Returns a ring whose longitudes continue beyond 180°. A ring around a pole does not close then,
 * so it is closed over the pole.
 */
function unrolled(ring: Position[]): Position[] {
  let [[lng]] = ring;
  const flat = ring.map(([next, lat]) => {
    lng += ((((next - lng + 180) % 360) + 360) % 360) - 180;
    return [lng, lat];
  });
  const [begin] = flat;
  if (Math.abs(lng - begin[0]) < 180) return flat;
  const pole = begin[1] < 0 ? -90 : 90;
  return [...flat, [lng, pole], [(lng + begin[0]) / 2, pole], [begin[0], pole], begin];
}

/**
 * Returns the part of a closed ring where `inside` is not negative (Sutherland–Hodgman clipping).
 */
function clip(ring: Position[], inside: (lng: number) => number): Position[] {
  const kept: Position[] = [];
  for (let i = 1; i < ring.length; i++) {
    const [[a, aLat], [b, bLat]] = [ring[i - 1], ring[i]];
    const [left, right] = [inside(a), inside(b)];
    if (left * right < 0) kept.push([a + ((b - a) * left) / (left - right), aLat + ((bLat - aLat) * left) / (left - right)]);
    if (right >= 0) kept.push(ring[i]);
  }
  return kept.length > 0 ? [...kept, kept[0]] : kept;
}

const extremes = (values: number[]): [number, number] => values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);

/** Returns whether a point is in the bounding box of a ring. */
function isInBox(ring: Position[], point: Position): boolean {
  return [0, 1].every((axis) => {
    const [low, high] = extremes(ring.map((corner) => corner[axis]));
    return low <= point[axis] && point[axis] <= high;
  });
}

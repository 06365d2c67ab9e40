// Draws many drivers as one disc with a count. The server's cells are small, so those close to each
// other are joined for display.
import type { Cells, Points } from './decode';
import { mercator, shorterX, unmercator } from './tiles';

export interface Disc {
  lng: number;
  lat: number;
  count: number;
  /** Mean, m/s, NaN if unknown. */
  speed: number;
  /** Unix seconds of the newest fix. */
  ts: number;
}

/** A disc with its place on the Web Mercator map, 0..1. */
interface Group extends Disc {
  x: number;
  y: number;
  /** Drivers whose speed is known. */
  known: number;
}

/**
 * Joins cells until no two discs are closer to each other than `reach`, where the world is 1 wide.
 * Means are weighted by count.
 */
export function join(tiles: readonly Cells[], reach: number): Disc[] {
  let groups = tiles.flatMap((tile) => Array.from(tile.count, (count, i): Group => {
    const [x, y] = mercator(tile.lat[i], tile.lng[i]);
    const isKnown = !Number.isNaN(tile.speed[i]);
    return { x, y, lng: 0, lat: 0, count, speed: isKnown ? tile.speed[i] : 0, ts: tile.ts[i], known: isKnown ? count : 0 };
  }));
  for (let before = Infinity; groups.length < before; ) {
    before = groups.length;
    groups = joinOnce(groups, reach);
  }
  return groups.map(({ x, y, count, speed, ts, known }) => ({ ...unmercator(x, y), count, speed: known ? speed : NaN, ts }));
}

/**
 * Joins drivers closer to each other than `reach`, where the world is 1 wide, to discs; the others
 * stay points.
 */
export function cluster(tiles: readonly Points[], reach: number): { discs: Disc[]; singles: Points[] } {
  const sources = new Map<Group, [tile: Points, i: number]>();
  let groups = tiles.flatMap((tile) =>
    tile.ids.map((_, i): Group => {
      const [x, y] = mercator(tile.lat[i], tile.lng[i]);
      const isKnown = !Number.isNaN(tile.speed[i]);
      const group = { x, y, lng: 0, lat: 0, count: 1, speed: isKnown ? tile.speed[i] : 0, ts: tile.ts[i], known: isKnown ? 1 : 0 };
      sources.set(group, [tile, i]);
      return group;
    }),
  );
  for (let before = Infinity; groups.length < before; ) {
    before = groups.length;
    groups = joinOnce(groups, reach);
  }
  const alone = groups.filter(({ count }) => count === 1).map((group) => sources.get(group)!);
  const discs = groups.filter(({ count }) => count > 1).map(({ x, y, count, speed, ts, known }) => ({ ...unmercator(x, y), count, speed: known ? speed : NaN, ts }));
  const column = (name: 'lat' | 'lng' | 'ts' | 'speed' | 'heading') => alone.map(([tile, i]) => tile[name][i]);
  const singles: Points = {
    kind: 'points',
    now: tiles[0]?.now ?? 0,
    n: alone.length,
    lat: Float64Array.from(column('lat')),
    lng: Float64Array.from(column('lng')),
    ts: Float64Array.from(column('ts')),
    speed: Float32Array.from(column('speed')),
    heading: Float32Array.from(column('heading')),
    ids: alone.map(([tile, i]) => tile.ids[i]),
  };
  return { discs, singles: [singles] };
}

/**
 * Adds each group to the nearest earlier one within reach. The earlier group then moves, so one
 * round may leave two groups close to each other.
 */
function joinOnce(groups: Group[], reach: number): Group[] {
  // Use a whole number of columns, because the first column is next to the last, at 180°.
  const side = Math.max(1, Math.floor(1 / reach));
  const squares = new Map<number, Group[]>();
  const found: Group[] = [];
  for (const group of groups) {
    const [column, row] = [Math.min(side - 1, Math.floor(group.x * side)), Math.floor(group.y * side)];
    let nearest: Group | undefined;
    let least = reach;
    for (let y = row - 1; y <= row + 1; y++) {
      for (let x = column - 1; x <= column + 1; x++) {
        for (const other of squares.get(y * side + ((x + side) % side)) ?? []) {
          const distance = Math.hypot(shorterX(other.x - group.x), other.y - group.y);
          if (distance < least) [nearest, least] = [other, distance];
        }
      }
    }
    if (nearest) add(nearest, group);
    else {
      found.push(group);
      const square = row * side + column;
      const others = squares.get(square);
      if (others) others.push(group);
      else squares.set(square, [group]);
    }
  }
  return found;
}

function add(group: Group, { x, y, count, speed, ts, known }: Group): void {
  const sum = group.count + count;
  group.x += (shorterX(x - group.x) * count) / sum;
  group.x -= Math.floor(group.x);
  group.y += ((y - group.y) * count) / sum;
  group.count = sum;
  group.ts = Math.max(group.ts, ts);
  if (known) group.speed += ((speed - group.speed) * known) / (group.known + known);
  group.known += known;
}

/**
 * Radius of a disc, in pixels. It grows with the logarithm of the count: a disc of a million does
 * not cover its neighbours. One driver is a dot.
 */
export function radius(count: number): number {
  return count > 1 ? Math.min(26, 9 + 3.4 * Math.log10(count)) : 5;
}

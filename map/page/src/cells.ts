// Cells: many drivers as one disc with a count. The server's cells are small; those close to each other are joined for display.
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
interface Heap extends Disc {
  x: number;
  y: number;
  /** Drivers whose speed is known. */
  known: number;
}

/** Joins cells until no two discs are closer to each other than `reach`, where the world is 1 wide. Means are weighted by count. */
export function join(tiles: readonly Cells[], reach: number): Disc[] {
  let heaps = tiles.flatMap((tile) => Array.from(tile.count, (count, i): Heap => {
    const [x, y] = mercator(tile.lat[i], tile.lng[i]);
    const isKnown = !Number.isNaN(tile.speed[i]);
    return { x, y, lng: 0, lat: 0, count, speed: isKnown ? tile.speed[i] : 0, ts: tile.ts[i], known: isKnown ? count : 0 };
  }));
  for (let before = Infinity; heaps.length < before; ) {
    before = heaps.length;
    heaps = joinOnce(heaps, reach);
  }
  return heaps.map(({ x, y, count, speed, ts, known }) => ({ ...unmercator(x, y), count, speed: known ? speed : NaN, ts }));
}

/** Joins drivers closer to each other than `reach`, where the world is 1 wide, to discs; the others stay points. */
export function cluster(tiles: readonly Points[], reach: number): { discs: Disc[]; singles: Points[] } {
  const sources = new Map<Heap, [tile: Points, i: number]>();
  let heaps = tiles.flatMap((tile) =>
    tile.ids.map((_, i): Heap => {
      const [x, y] = mercator(tile.lat[i], tile.lng[i]);
      const isKnown = !Number.isNaN(tile.speed[i]);
      const heap = { x, y, lng: 0, lat: 0, count: 1, speed: isKnown ? tile.speed[i] : 0, ts: tile.ts[i], known: isKnown ? 1 : 0 };
      sources.set(heap, [tile, i]);
      return heap;
    }),
  );
  for (let before = Infinity; heaps.length < before; ) {
    before = heaps.length;
    heaps = joinOnce(heaps, reach);
  }
  const alone = heaps.filter(({ count }) => count === 1).map((heap) => sources.get(heap)!);
  const discs = heaps.filter(({ count }) => count > 1).map(({ x, y, count, speed, ts, known }) => ({ ...unmercator(x, y), count, speed: known ? speed : NaN, ts }));
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

/** Adds each heap to the nearest earlier one within reach. The earlier heap then moves, so one round may leave two heaps close to each other. */
function joinOnce(heaps: Heap[], reach: number): Heap[] {
  // A whole number of columns: the first is next to the last, at 180°.
  const side = Math.max(1, Math.floor(1 / reach));
  const squares = new Map<number, Heap[]>();
  const found: Heap[] = [];
  for (const heap of heaps) {
    const [column, row] = [Math.min(side - 1, Math.floor(heap.x * side)), Math.floor(heap.y * side)];
    let nearest: Heap | undefined;
    let least = reach;
    for (let y = row - 1; y <= row + 1; y++) {
      for (let x = column - 1; x <= column + 1; x++) {
        for (const other of squares.get(y * side + ((x + side) % side)) ?? []) {
          const far = Math.hypot(shorterX(other.x - heap.x), other.y - heap.y);
          if (far < least) [nearest, least] = [other, far];
        }
      }
    }
    if (nearest) add(nearest, heap);
    else {
      found.push(heap);
      const square = row * side + column;
      const others = squares.get(square);
      if (others) others.push(heap);
      else squares.set(square, [heap]);
    }
  }
  return found;
}

function add(heap: Heap, { x, y, count, speed, ts, known }: Heap): void {
  const sum = heap.count + count;
  heap.x += (shorterX(x - heap.x) * count) / sum;
  heap.x -= Math.floor(heap.x);
  heap.y += ((y - heap.y) * count) / sum;
  heap.count = sum;
  heap.ts = Math.max(heap.ts, ts);
  if (known) heap.speed += ((speed - heap.speed) * known) / (heap.known + known);
  heap.known += known;
}

/** Radius of a disc, in pixels. It grows with the logarithm of the count: a disc of a million does not cover its neighbours. One driver is a dot. */
export function radius(count: number): number {
  return count > 1 ? Math.min(26, 9 + 3.4 * Math.log10(count)) : 5;
}

// Where the fleet is: the area that the map shows first, and on request for all drivers.
import { liveTiles } from './api';
import type { Cells, Points } from './decode';
import { around, inView, ZOOM_MAX, type Bounds } from './tiles';

/** Share of the drivers that may lie outside on each side: one device at 0°, 0° must not zoom the map out. */
const OUTSIDE = 0.005;
const ROUNDS = 4;

/** Returns the area of the fleet; null: there are no drivers. A cell has only one place, so finer cells are requested until they are small compared with the area. */
export async function whereabouts(signal: AbortSignal): Promise<Bounds | null> {
  let found: Bounds | null = null;
  let zoom = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const area: Bounds = found ?? { west: -180, south: -85, east: 180, north: 85 };
    const tiles = (await liveTiles(inView(area, zoom), new Map(), signal)).map(({ data }) => data);
    const inside = extent(tiles);
    if (!inside) return found;
    const cell = tiles.some((tile) => tile.kind === 'cells') ? 360 / 2 ** zoom / 32 : 0;
    found = pad(inside, cell / 2);
    const size = Math.max(found.east - found.west, found.north - found.south, 0.001);
    const closer = Math.min(ZOOM_MAX, Math.floor(Math.log2(360 / size)));
    if (cell === 0 || closer <= zoom) return found;
    zoom = closer;
  }
  return found;
}

export function extent(tiles: readonly (Points | Cells)[]): Bounds | null {
  const places = tiles.flatMap((tile) => Array.from(tile.lat, (lat, i) => ({ lat, lng: tile.lng[i], count: tile.kind === 'cells' ? tile.count[i] : 1 })));
  if (places.length === 0) return null;
  const [south, north] = middle(places.map(({ lat, count }) => [lat, count]));
  // A fleet on both sides of 180° is close together if longitudes continue beyond 180°, and a world apart otherwise.
  const [[west, east], [beyond, end]] = [(lng: number) => lng, (lng: number) => (lng < 0 ? lng + 360 : lng)].map((on) => middle(places.map(({ lng, count }) => [on(lng), count])));
  return end - beyond < east - west ? { west: beyond, south, east: end, north } : { west, south, east, north };
}

/** Returns the least and the greatest value, without the outermost ones. */
function middle(weighted: [value: number, count: number][]): [number, number] {
  weighted.sort(([a], [b]) => a - b);
  const skipped = weighted.reduce((sum, [, count]) => sum + count, 0) * OUTSIDE;
  const first = (order: [number, number][]) => {
    let passed = 0;
    return order.find(([, count]) => (passed += count) > skipped)![0];
  };
  return [first(weighted), first(weighted.toReversed())];
}

function pad({ west, south, east, north }: Bounds, by: number): Bounds {
  return {
    ...around(west - by, east + by),
    south: Math.max(-85, south - by),
    north: Math.min(85, north + by),
  };
}

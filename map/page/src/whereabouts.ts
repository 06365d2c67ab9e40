// Finds the area of the fleet, which the map shows first, and whenever the viewer wants to see all
// drivers.
import type { Map as MapLibre } from 'maplibre-gl';
import { liveTiles } from './api';
import type { Cells, Points } from './decode';
import { around, inView, ZOOM_MAX, type Bounds } from './tiles';

/**
 * Share of the drivers that may lie outside the area on each side, so that one device at 0°, 0°
 * does not zoom the map out.
 */
const OUTSIDE = 0.005;
/** Maximum time to find the area. */
const TIMEOUT_MS = 10_000;
/** Maximum number of requests. */
const ROUNDS = 4;

/**
 * Finds the area of a group for a map that is to show all of it. 'none': there are no drivers, or
 * the server does not answer. 'moved': before the answer the viewer has moved the map or chosen
 * another group.
 */
export async function areaFor(map: Pick<MapLibre, 'getCenter' | 'getZoom'>, group: () => string): Promise<Bounds | 'none' | 'moved'> {
  const view = () => [...map.getCenter().toArray(), map.getZoom(), group()].join();
  const before = view();
  const found = await whereabouts(AbortSignal.timeout(TIMEOUT_MS), group()).catch(() => null);
  return view() === before ? (found ?? 'none') : 'moved';
}

/**
 * Returns the area of the fleet, or of a group of it; null: there are no drivers. All drivers of a
 * cell count as at one place, so finer cells are requested until a cell is small compared with the
 * area.
 */
async function whereabouts(signal: AbortSignal, group: string): Promise<Bounds | null> {
  let found: Bounds | null = null;
  let zoom = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const area: Bounds = found ?? { west: -180, south: -85, east: 180, north: 85 };
    const tiles = (await liveTiles(inView(area, zoom), new Map(), signal, { states: '', group })).map(({ data }) => data);
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

/** Returns the area of the drivers in tiles, without the outermost ones; null: there are none. */
export function extent(tiles: readonly (Points | Cells)[]): Bounds | null {
  const places = tiles.flatMap((tile) => Array.from(tile.lat, (lat, i) => ({ lat, lng: tile.lng[i], count: tile.kind === 'cells' ? tile.count[i] : 1 })));
  if (places.length === 0) return null;
  const [south, north] = trimmedRange(places.map(({ lat, count }) => [lat, count]));
  // Computes the range of longitudes from -180 to 180 and from 0 to 360. For a fleet on both sides
  // of 180° the second one is narrow.
  const [[west, east], [west360, east360]] = [(lng: number) => lng, (lng: number) => (lng < 0 ? lng + 360 : lng)].map((unwrap) => trimmedRange(places.map(({ lng, count }) => [unwrap(lng), count])));
  return east360 - west360 < east - west ? { west: west360, south, east: east360, north } : { west, south, east, north };
}

/** Returns the least and the greatest value, without a share of `OUTSIDE` at each end. */
function trimmedRange(weighted: [value: number, count: number][]): [number, number] {
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

// Cells: many drivers as one disc with a count. The server's cells are small; for display neighbours are joined.
import type { Cells } from './decode';
import { mercator, unmercator } from './tiles';

export interface Disc {
  lng: number;
  lat: number;
  count: number;
  /** Mean, m/s, NaN if unknown. */
  speed: number;
  /** Unix seconds of the newest fix. */
  ts: number;
}

/** How far a disc may be from the middle of its square, in squares: two neighbours must not cover each other. */
const OFF_CENTRE = 0.25;

/** Joins cells into a grid of `side`×`side` squares over the world. Means are weighted by count. */
export function join(tiles: readonly Cells[], side: number): Disc[] {
  const squares = new Map<number, Disc & { known: number }>();
  for (const tile of tiles) {
    for (let i = 0; i < tile.n; i++) {
      const [x, y] = mercator(tile.lat[i], tile.lng[i]);
      const square = Math.floor(y * side) * side + Math.floor(x * side);
      const count = tile.count[i];
      const known = Number.isNaN(tile.speed[i]) ? 0 : count;
      const speed = known ? tile.speed[i] : 0;
      const disc = squares.get(square);
      if (!disc) {
        squares.set(square, { lng: tile.lng[i], lat: tile.lat[i], count, speed, ts: tile.ts[i], known });
        continue;
      }
      const sum = disc.count + count;
      disc.lng += ((tile.lng[i] - disc.lng) * count) / sum;
      disc.lat += ((tile.lat[i] - disc.lat) * count) / sum;
      if (known) disc.speed += ((speed - disc.speed) * known) / (disc.known + known);
      disc.known += known;
      disc.count = sum;
      disc.ts = Math.max(disc.ts, tile.ts[i]);
    }
  }
  return [...squares].map(([square, { known, ...disc }]) => ({ ...disc, ...apart(disc, square, side), speed: known ? disc.speed : NaN }));
}

function apart(disc: Disc, square: number, side: number): { lat: number; lng: number } {
  const [x, y] = mercator(disc.lat, disc.lng);
  const near = (place: number, index: number) => (index + 0.5 + Math.min(OFF_CENTRE, Math.max(-OFF_CENTRE, place * side - index - 0.5))) / side;
  return unmercator(near(x, square % side), near(y, Math.floor(square / side)));
}

/** Pixels. Area grows with the logarithm: one driver is still seen, a million does not cover its neighbours. */
export function radius(count: number): number {
  return Math.min(26, 7 + 3.4 * Math.log10(Math.max(1, count)));
}

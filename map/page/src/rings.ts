// Rings of a fence's outline, and changes of its rules. Pure.
import type { Feature, MultiPolygon, Position } from 'geojson';

/** Rules of a fence that `milepost events` applies; null or omitted: no such rule. */
export interface Rules {
  speed_limit_kmh?: number | null;
  stay_max_s?: number | null;
  silent_for_s?: number | null;
  hours?: string | null;
  hours_zone?: string | null;
  /** Driver ids; empty: all drivers. Omitted: this viewer may not see them. */
  drivers?: string[];
}

export type Fence = Feature<MultiPolygon, { name: string; valid_from: number; valid_until?: number; /** Changes with the outline. */ outline?: string } & Rules>;

export const hasOneRing = ({ coordinates }: MultiPolygon): boolean => coordinates.length === 1 && coordinates[0].length === 1;

/**
 * Returns the rules that the viewer has changed. A request with only these rules does not overwrite
 * changes that another user makes meanwhile.
 */
export function changedRules(before: Rules, after: Rules): Rules {
  const isSame = (key: keyof Rules) => JSON.stringify(before[key] ?? null) === JSON.stringify(after[key] ?? null);
  const keys = (Object.keys(after) as (keyof Rules)[]).filter((key) => !isSame(key));
  // Send the zone with the hours, which mean nothing without it.
  if (after.hours && keys.includes('hours') && !keys.includes('hours_zone')) keys.push('hours_zone');
  return Object.fromEntries(keys.map((key) => [key, after[key]]));
}

/** Returns the longitude on the copy of the world that is nearest to the longitude `to`. */
export const nearestCopy = (lng: number, to: number): number => lng + 360 * Math.round((to - lng) / 360);

/**
 * Returns the corners of the first ring, each once, whether or not the ring repeats its first point
 * at its end.
 */
export function corners({ coordinates }: MultiPolygon): Position[] {
  const ring = coordinates[0][0];
  const [first, last] = [ring[0], ring[ring.length - 1]];
  return ring.length > 1 && first[0] === last[0] && first[1] === last[1] ? ring.slice(0, -1) : ring;
}

/**
 * Returns the index in a ring of corners at which a new corner makes the outline longer by the
 * least, and by how much, in the unit of the corners.
 */
export function insertion(ring: readonly { x: number; y: number }[], corner: { x: number; y: number }): { index: number; added: number } {
  const length = (a: { x: number; y: number }, b: { x: number; y: number }) => Math.hypot(a.x - b.x, a.y - b.y);
  let best = { index: ring.length, added: Infinity };
  ring.forEach((from, i) => {
    const to = ring[(i + 1) % ring.length];
    const added = length(from, corner) + length(corner, to) - length(from, to);
    if (added < best.added) best = { index: i + 1, added };
  });
  return best;
}

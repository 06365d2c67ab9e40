// The fleet at a moment of a replay. Pure.
import type { Past } from './api';
import type { Points } from './decode';
import { silentAfter, stateOf, STATES, type DriverState } from './states';
import { STANDING_MPS } from './words';

/**
 * A driver is shown for this many steps after a fix, but at least until the driver counts as
 * silent. Otherwise drivers would vanish in a short span, whose steps are shorter than the time
 * between two fixes.
 */
const STEPS_KEPT = 10;
/**
 * A moving driver that has no further fix in the area for that long has left the area. Such a
 * driver is shown for only this many steps.
 */
const STEPS_LEAVING = 2;

/**
 * Returns each driver's newest fix before `ms`, unless it is too old, or the driver has left the
 * area. The last fix before the span counts as one at its begin: no later one is known.
 */
export function driversAt({ from, to, step, truncated, ids, driver, ts, lat, lng, speed }: Past, ms: number): Points {
  const silentMs = silentAfter() * 1000;
  const keptMs = Math.max(STEPS_KEPT * step, silentMs);
  const seenAt = (row: number) => Math.max(ts[row], from);
  const newest = new Map<number, number>();
  const next = new Map<number, number>();
  for (let i = 0; i < ts.length; i++) {
    if (Math.abs(seenAt(i) - ms) > keptMs) continue;
    const other = newest.get(driver[i]);
    if (ts[i] >= ms) next.set(driver[i], Math.min(ts[i], next.get(driver[i]) ?? Infinity));
    else if (other === undefined || ts[other] <= ts[i]) newest.set(driver[i], i);
  }
  // Fixes after this moment are unknown.
  const end = truncated ? ts[ts.length - 1] : to;
  const hasLeft = (row: number) =>
    (speed[row] ?? 0) >= STANDING_MPS &&
    from - ts[row] < silentMs &&
    seenAt(row) < ms - STEPS_LEAVING * step &&
    (next.get(driver[row]) ?? end) > seenAt(row) + keptMs;
  const rows = [...newest.values()].filter((row) => !hasLeft(row));
  const column = <T>(values: readonly T[]) => rows.map((row) => values[row]);
  return {
    kind: 'points',
    now: ms,
    n: rows.length,
    ids: rows.map((row) => ids[driver[row]]),
    lat: Float64Array.from(column(lat)),
    lng: Float64Array.from(column(lng)),
    ts: Float64Array.from(column(ts), (value) => value / 1000),
    speed: Float32Array.from(column(speed), (value) => value ?? NaN),
    heading: new Float32Array(rows.length).fill(NaN),
  };
}

/** Counts the drivers in each state. */
export function countStates({ n, now, ts, speed }: Points): Record<DriverState, number> {
  const counts = Object.fromEntries(STATES.map((state) => [state, 0])) as Record<DriverState, number>;
  for (let i = 0; i < n; i++) counts[stateOf(speed[i], now / 1000 - ts[i])]++;
  return counts;
}

/** Returns only the drivers in these states. */
export function inStates(points: Points, shown: ReadonlySet<DriverState>): Points {
  const { now, ids, lat, lng, ts, speed, heading } = points;
  const isShown = ids.map((_, i) => shown.has(stateOf(speed[i], now / 1000 - ts[i])));
  const doubles = (column: Float64Array) => column.filter((_, i) => isShown[i]);
  const floats = (column: Float32Array) => column.filter((_, i) => isShown[i]);
  const kept = ids.filter((_, i) => isShown[i]);
  return { kind: 'points', now, n: kept.length, ids: kept, lat: doubles(lat), lng: doubles(lng), ts: doubles(ts), speed: floats(speed), heading: floats(heading) };
}

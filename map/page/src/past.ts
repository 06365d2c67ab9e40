// The fleet at a moment of a replay. Pure.
import type { Past } from './api';
import type { Points } from './decode';
import { silentAfter, stateOf, STATES, type DriverState } from './states';
import { shorter } from './tiles';
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
/** A move shorter than this has no direction, in metres. */
const MOVED_M = 1;
const METRES_PER_DEGREE = 111_320;

/**
 * Returns each driver's newest fix before `ms`, unless it is too old, or the driver has left the
 * area. The last fix before the span counts as one at its begin: no later one is known.
 */
export function driversAt({ from, to, step, truncated, ids, driver, ts, lat, lng, speed }: Past, ms: number): Points {
  const silentMs = silentAfter() * 1000;
  const keptMs = Math.max(STEPS_KEPT * step, silentMs);
  const seenAt = (row: number) => Math.max(ts[row], from);
  // By driver: rows before, at and after the moment.
  const previous = new Map<number, number>();
  const newest = new Map<number, number>();
  const next = new Map<number, number>();
  for (let i = 0; i < ts.length; i++) {
    if (Math.abs(seenAt(i) - ms) > keptMs) continue;
    const other = newest.get(driver[i]);
    if (ts[i] >= ms) {
      const after = next.get(driver[i]);
      if (after === undefined || ts[i] < ts[after]) next.set(driver[i], i);
    } else if (other === undefined || ts[other] <= ts[i]) {
      if (other !== undefined) previous.set(driver[i], other);
      newest.set(driver[i], i);
    }
  }
  // Fixes after this moment are unknown.
  const end = truncated ? ts[ts.length - 1] : to;
  const nextMs = (index: number) => {
    const row = next.get(index);
    return row === undefined ? end : ts[row];
  };
  const hasLeft = (row: number) =>
    (speed[row] ?? 0) >= STANDING_MPS &&
    from - ts[row] < silentMs &&
    seenAt(row) < ms - STEPS_LEAVING * step &&
    nextMs(driver[row]) > seenAt(row) + keptMs;
  const rows = [...newest.values()].filter((row) => !hasLeft(row));
  // The direction of the move that is drawn; at the first fix that of the next move.
  const heading = (row: number) => {
    if ((speed[row] ?? 0) < STANDING_MPS) return NaN;
    const [a, b] = previous.has(driver[row]) ? [previous.get(driver[row])!, row] : [row, next.get(driver[row]) ?? row];
    const north = lat[b] - lat[a];
    const east = shorter(lng[b] - lng[a]) * Math.cos((lat[a] * Math.PI) / 180);
    return Math.hypot(north, east) * METRES_PER_DEGREE < MOVED_M ? NaN : ((Math.atan2(east, north) * 180) / Math.PI + 360) % 360;
  };
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
    heading: Float32Array.from(rows, heading),
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

// Numbers as people say them, in the units and the zone that the viewer chose.
import { instant, local, zone } from './zone';

const WINDS = ['north', 'north-east', 'east', 'south-east', 'south', 'south-west', 'west', 'north-west'];
const UNITS: [seconds: number, name: string][] = [
  [86400, 'day'],
  [3600, 'hour'],
  [60, 'minute'],
];

/** Below this speed a driver counts as standing: GPS noise alone reaches it. */
export const STANDING_MPS = 0.5;

export function ago(seconds: number): string {
  if (seconds < 2) return 'just now';
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  return `${span(seconds)} ago`;
}

/** The largest unit that fits: "4 minutes", "2 days". */
export function span(seconds: number): string {
  for (const [unit, name] of UNITS) {
    const count = Math.floor(seconds / unit);
    if (count >= 1) return `${count} ${name}${count > 1 ? 's' : ''}`;
  }
  return `${Math.max(0, Math.round(seconds))} s`;
}

/** Two units where the first alone is too rough: "1 h 20 min". */
export function duration(seconds: number): string {
  const minutes = Math.round(seconds / 60);
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (minutes < 60) return `${minutes} min`;
  const rest = minutes % 60;
  return rest === 0 ? `${Math.floor(minutes / 60)} h` : `${Math.floor(minutes / 60)} h ${rest} min`;
}

export function wind(heading: number): string {
  return WINDS[Math.round((((heading % 360) + 360) % 360) / 45) % 8];
}

export const SPEEDS = { 'km/h': 3.6, mph: 2.236936, knots: 1.943844 } as const;
export type Unit = keyof typeof SPEEDS;
const LENGTHS: Record<Unit, [name: string, metres: number]> = { 'km/h': ['km', 1000], mph: ['mi', 1609.344], knots: ['nmi', 1852] };
let unit: Unit = 'km/h';

export const speedUnit = (): Unit => unit;

/** Sets the unit; an unknown name sets km/h. */
export function setUnit(name: string): void {
  unit = name in SPEEDS ? (name as Unit) : 'km/h';
}

/** A speed in metres per second, from the viewer's unit. */
export const mps = (speed: number): number => speed / SPEEDS[unit];

/** A speed in a unit, the viewer's by default, from km/h. */
export const speedOfKmh = (kmh: number, of: Unit = unit): number => (kmh / 3.6) * SPEEDS[of];

/** A speed in km/h, from a unit; rounded to a thousandth. */
export const kmhOf = (speed: number, of: Unit = unit): number => Math.round((speed / SPEEDS[of]) * 3600) / 1000;

/** A speed in the viewer's unit, from metres per second. */
export function pace(speed: number): string {
  return `${Math.round(speed * SPEEDS[unit])} ${unit}`;
}

/** "Moving at 43 km/h, heading south-west" */
export function motion(speed: number | null, heading: number | null): string {
  const where = heading === null ? '' : `, heading ${wind(heading)}`;
  if (speed === null) return `Speed unknown${where}`;
  if (speed < STANDING_MPS) return 'Standing';
  return `Moving at ${pace(speed)}${where}`;
}

export function distance(metres: number): string {
  const [name, length] = LENGTHS[unit];
  if (metres < 1000) return `${Math.round(metres)} m`;
  return `${(metres / length).toFixed(metres < 10 * length ? 1 : 0)} ${name}`;
}

/** A short count: 999, 1.2k, 12k, 1.2M. */
export function short(count: number): string {
  if (count < 1000) return `${count}`;
  if (count < 10_000) return `${(count / 1000).toFixed(1).replace(/\.0$/, '')}k`;
  if (count < 999_500) return `${Math.round(count / 1000)}k`;
  return `${(count / 1e6).toFixed(count < 9.95e6 ? 1 : 0).replace(/\.0$/, '')}M`;
}

export function whole(count: number): string {
  return Math.round(count).toLocaleString('en');
}

export const clock = (ms: number): string => local(ms).slice(11);
export const clockShort = (ms: number): string => local(ms).slice(11, 16);

/** The time to the minute, with the date unless it is on `day`, such as `2026-11-22`. */
export function minuteOf(ms: number, day: string): string {
  if (isoDay(ms) === day) return clockShort(ms);
  return `${new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', timeZone: zone() }).format(ms)}, ${clockShort(ms)}`;
}

/** The time, with the date unless it is today's. */
export function moment(ms: number, now: number): string {
  if (isoDay(ms) === isoDay(now)) return clock(ms);
  const date = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', year: 'numeric', timeZone: zone() });
  return `${date.format(ms)}, ${clock(ms)}`;
}

/** A day as `<input type="date">` writes it. */
export const isoDay = (ms: number): string => local(ms).slice(0, 10);

/** Returns the beginning of a day and of the next one; null: there is no such day. */
export function daySpan(day: string): { from: number; to: number } | null {
  const noon = Date.parse(`${day}T12:00Z`);
  if (Number.isNaN(noon) || new Date(noon).toISOString().slice(0, 10) !== day) return null;
  // Not 24 hours later: on two days a year the clocks change.
  const next = new Date(noon + 86_400_000).toISOString().slice(0, 10);
  return { from: instant(`${day}T00:00:00`), to: instant(`${next}T00:00:00`) };
}

// Formats numbers and times for people, in the units and the zone that the viewer chose.
import { instant, local, zone } from './zone';

const COMPASS_POINTS = ['north', 'north-east', 'east', 'south-east', 'south', 'south-west', 'west', 'north-west'];
const UNITS: [seconds: number, name: string][] = [
  [86400, 'day'],
  [3600, 'hour'],
  [60, 'minute'],
];

/** Below this speed a driver counts as standing: GPS noise alone can look this fast. */
export const STANDING_MPS = 0.5;

/** Formats an age: "just now", "12 s ago", "4 minutes ago". */
export function ago(seconds: number): string {
  if (seconds < 2) return 'just now';
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  return `${span(seconds)} ago`;
}

/** Formats a duration in its largest unit: "4 minutes", "2 days". */
export function span(seconds: number): string {
  for (const [unit, name] of UNITS) {
    const count = Math.floor(seconds / unit);
    if (count >= 1) return `${count} ${name}${count > 1 ? 's' : ''}`;
  }
  return `${Math.max(0, Math.round(seconds))} s`;
}

/** Formats a duration to the minute: "42 s", "20 min", "1 h 20 min"; from two days on to the hour. */
export function duration(seconds: number): string {
  const minutes = Math.round(seconds / 60);
  const hours = Math.floor(minutes / 60);
  if (seconds < 60) return `${Math.max(0, Math.round(seconds))} s`;
  if (hours < 1) return `${minutes} min`;
  const [whole, rest] = hours < 48 ? [`${hours} h`, minutes % 60 && `${minutes % 60} min`] : [`${Math.floor(hours / 24)} days`, hours % 24 && `${hours % 24} h`];
  return rest === 0 ? whole : `${whole} ${rest}`;
}

/** Makes the first letter small, to continue a sentence: "standing since 14:05". */
export const lowerFirst = (text: string): string => text.slice(0, 1).toLowerCase() + text.slice(1);

/** Makes the first letter a capital, to begin a sentence. */
export const upperFirst = (text: string): string => text.slice(0, 1).toUpperCase() + text.slice(1);

/** Returns the nearest of eight compass points to a heading in degrees. */
export function compassPoint(heading: number): string {
  return COMPASS_POINTS[Math.round((((heading % 360) + 360) % 360) / 45) % 8];
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

/**
 * Converts a limit from the viewer's unit to metres per second, so that a driver at the limit is
 * not above it: speeds are stored in hundredths, and 50 km/h as 13.89.
 */
export const limitMps = (speed: number): number => (Math.round((speed / SPEEDS[unit]) * 100) + 0.5) / 100;

/** Converts a speed from km/h to a unit, by default the viewer's. */
export const speedOfKmh = (kmh: number, of: Unit = unit): number => (kmh / 3.6) * SPEEDS[of];

/** Converts a speed from a unit, by default the viewer's, to km/h, rounded to a thousandth. */
export const kmhOf = (speed: number, of: Unit = unit): number => Math.round((speed / SPEEDS[of]) * 3600) / 1000;

/** Formats a speed in metres per second in the viewer's unit: "43 km/h". */
export function formatSpeed(speed: number): string {
  return `${Math.round(speed * SPEEDS[unit])} ${unit}`;
}

/** Describes a movement: "Moving at 43 km/h, heading south-west". */
export function motion(speed: number | null, heading: number | null): string {
  const where = heading === null ? '' : `, heading ${compassPoint(heading)}`;
  if (speed === null) return `Speed unknown${where}`;
  if (speed < STANDING_MPS) return 'Standing';
  return `Moving at ${formatSpeed(speed)}${where}`;
}

/**
 * Formats a distance in the length unit that belongs to the viewer's speed unit; below a kilometre
 * in metres.
 */
export function distance(metres: number): string {
  const [name, length] = LENGTHS[unit];
  if (metres < 1000) return `${Math.round(metres)} m`;
  return `${(metres / length).toFixed(metres < 10 * length ? 1 : 0)} ${name}`;
}

/** Formats a count in short: 999, 1.2k, 12k, 1.2M. */
export function shortCount(count: number): string {
  if (count < 1000) return `${count}`;
  if (count < 10_000) return `${(count / 1000).toFixed(1).replace(/\.0$/, '')}k`;
  if (count < 999_500) return `${Math.round(count / 1000)}k`;
  return `${(count / 1e6).toFixed(count < 9.95e6 ? 1 : 0).replace(/\.0$/, '')}M`;
}

/** Formats a count with separators of thousands: 12,345. */
export function formatCount(count: number): string {
  return Math.round(count).toLocaleString('en');
}

/** Formats a time as `14:03:22`. */
export const clock = (ms: number): string => local(ms).slice(11);
/** Formats a time as `14:03`. */
export const clockShort = (ms: number): string => local(ms).slice(11, 16);

/** Keeps the formatter of a zone: a replay formats days every frame, and making one is slow. */
function dayFormat(options: Intl.DateTimeFormatOptions): (ms: number) => string {
  let [format, timeZone]: [Intl.DateTimeFormat | null, string] = [null, ''];
  return (ms) => {
    if (!format || timeZone !== zone()) {
      timeZone = zone();
      format = new Intl.DateTimeFormat('en-GB', { ...options, timeZone });
    }
    return format.format(ms);
  };
}

/** Formats the day of a time as `22 Nov`. */
export const dayShort = dayFormat({ day: 'numeric', month: 'short' });
/** Formats the day of a time as `22 Nov 2026`. */
export const dayLong = dayFormat({ day: 'numeric', month: 'short', year: 'numeric' });

/** Formats a time to the minute, with the date unless it is on `day`, such as `2026-11-22`. */
export const minuteOf = (ms: number, day: string): string => (isoDay(ms) === day ? clockShort(ms) : `${dayShort(ms)}, ${clockShort(ms)}`);

/** Formats a time to the second, with day and month unless it is today: `28 Nov, 14:03:22`. */
export const clockWithDay = (ms: number, now: number): string => `${isoDay(ms) === isoDay(now) ? '' : `${dayShort(ms)}, `}${clock(ms)}`;

/** Formats a time to the second, with the date unless it is today. */
export const moment = (ms: number, now: number): string => (isoDay(ms) === isoDay(now) ? clock(ms) : `${dayLong(ms)}, ${clock(ms)}`);

/** Formats the day of a time as `2026-11-22`, the format of `<input type="date">`. */
export const isoDay = (ms: number): string => local(ms).slice(0, 10);

/** Returns the beginning of a day and of the next one; null: there is no such day. */
export function daySpan(day: string): { from: number; to: number } | null {
  const noon = Date.parse(`${day}T12:00Z`);
  if (Number.isNaN(noon) || new Date(noon).toISOString().slice(0, 10) !== day) return null;
  // The next midnight may be 23 or 25 hours later, because the clocks change on two days a year.
  const next = new Date(noon + 86_400_000).toISOString().slice(0, 10);
  const from = instant(`${day}T00:00:00`);
  return Number.isNaN(from) ? null : { from, to: instant(`${next}T00:00:00`) };
}

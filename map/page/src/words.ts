// Numbers as people say them.

const WINDS = ['north', 'north-east', 'east', 'south-east', 'south', 'south-west', 'west', 'north-west'];
const UNITS: [seconds: number, name: string][] = [
  [86400, 'day'],
  [3600, 'hour'],
  [60, 'minute'],
];

/** Below this a driver stands: GPS alone moves that fast. */
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

export function kmh(speed: number): string {
  return `${Math.round(speed * 3.6)} km/h`;
}

/** "Moving at 43 km/h, heading south-west" */
export function motion(speed: number | null, heading: number | null): string {
  const where = heading === null ? '' : `, heading ${wind(heading)}`;
  if (speed === null) return `Speed unknown${where}`;
  if (speed < STANDING_MPS) return 'Standing';
  return `Moving at ${kmh(speed)}${where}`;
}

export function distance(metres: number): string {
  if (metres < 1000) return `${Math.round(metres)} m`;
  return `${(metres / 1000).toFixed(metres < 10_000 ? 1 : 0)} km`;
}

/** 1,234 below ten thousand, then 12k, 1.2M. */
export function short(count: number): string {
  if (count < 1000) return `${count}`;
  if (count < 10_000) return `${(count / 1000).toFixed(1).replace(/\.0$/, '')}k`;
  if (count < 999_500) return `${Math.round(count / 1000)}k`;
  return `${(count / 1e6).toFixed(count < 9.95e6 ? 1 : 0).replace(/\.0$/, '')}M`;
}

export function whole(count: number): string {
  return Math.round(count).toLocaleString('en');
}

const CLOCK = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const CLOCK_SHORT = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
const DATE = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', year: 'numeric' });

export const clock = (ms: number): string => CLOCK.format(ms);
export const clockShort = (ms: number): string => CLOCK_SHORT.format(ms);

/** The time, with the date unless it is today's. */
export function moment(ms: number, now: number): string {
  return DATE.format(ms) === DATE.format(now) ? clock(ms) : `${DATE.format(ms)}, ${clock(ms)}`;
}

/** A day as `<input type="date">` writes it, in the viewer's zone. */
export function isoDay(ms: number): string {
  const day = new Date(ms);
  const two = (value: number) => String(value).padStart(2, '0');
  return `${day.getFullYear()}-${two(day.getMonth() + 1)}-${two(day.getDate())}`;
}

/** Its first and last moment in the viewer's zone; null if it is no day. */
export function daySpan(day: string): { from: number; to: number } | null {
  const parts = /^(\d{4})-(\d{2})-(\d{2})$/.exec(day);
  if (!parts) return null;
  const [year, month, date] = parts.slice(1).map(Number);
  const from = new Date(year, month - 1, date);
  if (from.getMonth() !== month - 1 || from.getDate() !== date) return null;
  // Not 24 hours later: on two days a year that is another day.
  return { from: from.getTime(), to: new Date(year, month - 1, date + 1).getTime() };
}

// Converts between Unix ms and local times in the zone that the viewer chose, by default the
// browser's.
const DAY_MS = 86_400_000;
const MINUTE_MS = 60_000;
/** Times before this are no times of a fix: the viewer has typed only a part of a year. */
const EARLIEST_MS = Date.UTC(1900, 0);

let chosen: string | undefined;
let format = formatter();
let name = format.resolvedOptions().timeZone;

function formatter(): Intl.DateTimeFormat {
  return new Intl.DateTimeFormat('sv-SE', { dateStyle: 'short', timeStyle: 'medium', ...(chosen ? { timeZone: chosen } : {}) });
}

/** Returns the IANA name of the zone. */
export const zone = (): string => name;

/** Sets the zone; an empty or unknown name sets the browser's. */
export function setZone(next: string): void {
  chosen = next || undefined;
  try {
    format = formatter();
    name = format.resolvedOptions().timeZone;
  } catch {
    setZone('');
  }
}

/** Formats a time as `2026-11-22T14:03:22`, in the zone. */
export const local = (ms: number): string => format.format(ms).replace(' ', 'T');

/**
 * Formats a span for fields without seconds. The second field shows the minute after `to`.
 * Otherwise the span would end at the beginning of the minute of `to`, without the newest fixes.
 */
export const minutes = (from: number, to: number): [from: string, to: string] =>
  [local(from).slice(0, 16), local(to + MINUTE_MS).slice(0, 16)];

/**
 * Parses a local time, in the format of `local`, to Unix ms; NaN: it is invalid, or before 1900.
 * If a local time occurs twice, returns the first. If the clocks skip it, returns the time as if they did not
 * change.
 */
export function instant(text: string): number {
  const utc = Date.parse(`${text}Z`);
  if (!(utc >= EARLIEST_MS)) return NaN;
  const ahead = (ms: number) => Date.parse(`${local(ms)}Z`) - Math.floor(ms / 1000) * 1000;
  const [first, last] = [utc - ahead(utc - DAY_MS), utc - ahead(utc + DAY_MS)].sort((a, b) => a - b);
  return first + ahead(first) === utc ? first : last;
}

/** Returns the short name of the zone at a moment: "CET", "UTC", "GMT+5:30". */
export function zoneShort(ms: number): string {
  const parts = new Intl.DateTimeFormat('en-GB', { timeZone: zone(), timeZoneName: 'short' }).formatToParts(ms);
  return parts.find(({ type }) => type === 'timeZoneName')?.value ?? zone();
}

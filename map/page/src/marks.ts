// The marks of the time slider: whole hours of the viewer's zone, or days. Pure.
import { clockShort, dayShort, daySpan, isoDay } from './words';
import { instant } from './zone';

export interface Mark {
  /** Unix ms. */
  ms: number;
  /** "14:00", or "22 Nov" where a day begins. */
  text: string;
}

const MINUTE_MS = 60_000;
const DAY_MINUTES = 1440;
/** Intervals between marks, in minutes: each divides a day, or is a number of whole days. */
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 180, 240, 360, 720, DAY_MINUTES, 2 * DAY_MINUTES, 7 * DAY_MINUTES];

/** Returns the marks of a span, at most `most`. */
export function marks(from: number, to: number, most: number): Mark[] {
  const step = STEPS.find((minutes) => (to - from) / (minutes * MINUTE_MS) <= most) ?? STEPS[STEPS.length - 1];
  const found: Mark[] = [];
  let day = isoDay(from);
  for (let days = 0; found.length < most; days++) {
    const span = daySpan(day);
    if (!span || span.from > to) break;
    if (days % Math.max(1, step / DAY_MINUTES) === 0) add(day, span.from);
    // Noon of the next day, because a day has 23 to 25 hours.
    day = isoDay(span.to + 12 * 60 * MINUTE_MS);
  }
  return found;

  /** Adds the marks of a day. `instant` keeps whole hours whole on a day on which clocks change. */
  function add(day: string, begin: number): void {
    for (let minute = 0; minute < DAY_MINUTES && found.length < most; minute += step) {
      const text = `${day}T${String(Math.floor(minute / 60)).padStart(2, '0')}:${String(minute % 60).padStart(2, '0')}`;
      const ms = minute === 0 ? begin : instant(text);
      if (ms < from || ms > to || ms <= (found.at(-1)?.ms ?? -Infinity)) continue;
      found.push({ ms, text: minute === 0 ? dayShort(ms) : clockShort(ms) });
    }
  }
}

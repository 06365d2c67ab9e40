// The moment of a replay: its counts, the marks of the slider, and the fields of its span.
import { readFileSync } from 'node:fs';
import { afterEach, describe, expect, test } from 'vitest';
import type { Points } from '../src/decode';
import { marks } from '../src/marks';
import type { Past } from '../src/api';
import { countStates, driversAt, inStates } from '../src/past';
import { timeOf } from '../src/when';
import { instant, setZone } from '../src/zone';

afterEach(() => setZone(''));

describe('the fleet at a moment', () => {
  const now = 1_760_000_000_000;
  const drivers: [id: string, ageS: number, speed: number][] = [['drives', 5, 12], ['stands', 5, 0], ['silent', 900, 12], ['unknown', 5, NaN]];
  const points: Points = {
    kind: 'points',
    now,
    n: drivers.length,
    ids: drivers.map(([id]) => id),
    lat: Float64Array.from(drivers, (_, i) => i),
    lng: new Float64Array(drivers.length),
    ts: Float64Array.from(drivers, ([, age]) => now / 1000 - age),
    speed: Float32Array.from(drivers, ([, , speed]) => speed),
    heading: new Float32Array(drivers.length),
  };
  test('has the states of that moment, not of the present', () => expect(countStates(points)).toEqual({ moving: 1, standing: 1, silent: 1, unknown: 1, hidden: 0 }));
  test('is drawn without the states that the viewer hides', () => {
    const shown = inStates(points, new Set(['standing', 'silent'] as const));
    expect([shown.n, shown.ids, [...shown.lat], [...shown.speed]]).toEqual([2, ['stands', 'silent'], [1, 2], [0, 12]]);
  });
});

describe('a driver whose last fix is before the span', () => {
  const from = 1_760_000_000_000;
  const MINUTE_MS = 60_000;
  /** Ten minutes. The fixes are [minutes after the begin, speed]. */
  const past = (...fixes: [minute: number, speed: number | null][]): Past => ({
    from,
    to: from + 10 * MINUTE_MS,
    step: 2500,
    truncated: false,
    ids: ['van'],
    driver: fixes.map(() => 0),
    ts: fixes.map(([minute]) => from + minute * MINUTE_MS),
    lat: fixes.map(([minute]) => minute),
    lng: fixes.map(() => 0),
    speed: fixes.map(([, speed]) => speed),
  });
  /** The place and the state at a minute; empty: the driver is not shown. */
  const at = (replay: Past, minute: number) => {
    const drivers = driversAt(replay, from + minute * MINUTE_MS);
    const states = Object.entries(countStates(drivers)).filter(([, count]) => count > 0);
    return [...drivers.lat, ...states.map(([state]) => state)].join(' ');
  };
  test('is there at its begin in the state of then, however old the fix is', () => {
    expect(at(past([-2, 0]), 0)).toBe('-2 standing');
    expect(at(past([-2, 12]), 0)).toBe('-2 moving');
    expect(at(past([-2, null]), 0)).toBe('-2 unknown');
    expect(at(past([-50, 0]), 0)).toBe('-50 silent');
    expect(at(past([-50, 12]), 0)).toBe('-50 silent');
  });
  test('stays as long as after a fix at the begin, and becomes silent', () => {
    const replay = past([-2, 0]);
    expect([1, 4, 5.1].map((minute) => at(replay, minute))).toEqual(['-2 standing', '-2 silent', '']);
  });
  test('is at the next fix as soon as there is one', () => {
    const replay = past([-50, 0], [3, 12]);
    expect([2.9, 3.01].map((minute) => at(replay, minute))).toEqual(['-50 silent', '3 moving']);
  });
  test('has left the area if it was moving and no fix in the area follows', () => {
    const replay = past([-0.5, 12]);
    expect([0, 1].map((minute) => at(replay, minute))).toEqual(['-0.5 moving', '']);
  });
});

test('a moving driver of a replay points to where it drives', () => {
  const from = 1_760_000_000_000;
  const column = <T>(...values: T[]) => values;
  const replay: Past = {
    from,
    to: from + 600_000,
    step: 2500,
    truncated: false,
    ids: ['north', 'east', 'stands', 'across', 'alone'],
    driver: column(0, 0, 1, 1, 2, 2, 3, 3, 4),
    ts: column(0, 5, 0, 5, 0, 5, 0, 5, 5).map((s) => from + s * 1000),
    lat: column(50, 50.001, 50, 50, 50, 50, 0, 0, 50),
    lng: column(14, 14, 14, 14.001, 14, 14, 179.9995, -179.9995, 14),
    speed: column(12, 12, 12, 12, 0, 0, 12, 12, 12),
  };
  const headings = (second: number) => [...driversAt(replay, from + second * 1000).heading].map(Math.round);
  // Towards the next fix at the begin, then from the one before.
  expect(headings(2)).toEqual([0, 90, NaN, 90]);
  expect(headings(6)).toEqual([0, 90, NaN, 90, NaN]);
});

describe('marks of the slider', () => {
  const texts = (from: string, to: string, most: number) => marks(instant(from), instant(to), most).map(({ text }) => text);
  test('are whole hours of the viewer’s zone, and midnight is the date', () => {
    setZone('Asia/Kolkata');
    expect(texts('2026-11-22T20:10', '2026-11-23T02:10', 12)).toEqual(['20:30', '21:00', '21:30', '22:00', '22:30', '23:00', '23:30', '23 Nov', '00:30', '01:00', '01:30', '02:00']);
    expect(texts('2026-11-22T20:10', '2026-11-23T02:10', 6)).toEqual(['21:00', '22:00', '23:00', '23 Nov', '01:00', '02:00']);
  });
  test('stay whole hours on a day on which clocks change', () => {
    setZone('Europe/Berlin');
    expect(texts('2026-10-25T00:00', '2026-10-25T06:00', 8)).toEqual(['25 Oct', '01:00', '02:00', '03:00', '04:00', '05:00', '06:00']);
    expect(texts('2026-03-29T00:00', '2026-03-29T06:00', 8)).toEqual(['29 Mar', '01:00', '03:00', '04:00', '05:00', '06:00']);
  });
  test('are days in a long span, and few on a narrow screen', () => {
    expect(texts('2026-11-01T00:00', '2026-12-01T00:00', 6)).toEqual(['1 Nov', '8 Nov', '15 Nov', '22 Nov', '29 Nov']);
    for (const most of [1, 2, 3]) expect(texts('2026-11-22T20:10', '2026-11-23T20:10', most).length, String(most)).toBeLessThanOrEqual(most);
    expect(texts('2026-11-22T14:00', '2026-11-22T14:02', 5)).toEqual(['14:00', '14:01', '14:02']);
  });
});

test('a time is read in 24 hours, and also as people of 12 hours write it', () => {
  const read: Record<string, string | null> = { '14:05': '14:05', ' 9:05 ': '09:05', '9.30': '09:30', '0930': '09:30', '7': '07:00', '2:05 pm': '14:05', '12:00 am': '00:00', '12 p.m.': '12:00', '24:00': null, '9:60': null, '13 pm': null, noon: null, '': null };
  expect(Object.keys(read).map(timeOf)).toEqual(Object.values(read));
});

test('the fields of a time have room for 12:05 p.m.', () => {
  const page = readFileSync(new URL('../index.html', import.meta.url), 'utf8');
  const fields = [...page.matchAll(/<input id="\w+-(?:from|to)-time"[^>]* maxlength="(\d+)"/g)].map(([, length]) => Number(length));
  expect(fields).toEqual(Array(4).fill('12:05 p.m.'.length));
});

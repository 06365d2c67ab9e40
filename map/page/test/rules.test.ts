// Rules of a fence, and alerts about them, in words.
import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { Alert } from '../src/api';
import { alertText } from '../src/alerts';
import { changedRules } from '../src/rings';
import { kmhIn, RulesForm, rulesInWords, secondsIn } from '../src/rules';
import { kmhOf, limitMps, setUnit, speedOfKmh, SPEEDS } from '../src/words';
import { page, type Page } from './page';

afterEach(() => setUnit('km/h'));

test('rules are listed in words, in the viewer’s unit', () => {
  const rules = { speed_limit_kmh: 50, stay_max_s: 1800, silent_for_s: 900, hours: 'Mo-Fr 06:00-18:00', hours_zone: 'UTC', drivers: ['d1', 'd2'] };
  expect(rulesInWords(rules)).toBe('50 km/h, at most 30 min, silent after 15 min, Mo-Fr 06:00-18:00, 2 drivers');
  expect(rulesInWords({ silent_for_s: 0, drivers: ['d1'] })).toBe('never silent, 1 driver');
  expect(rulesInWords({ speed_limit_kmh: null, stay_max_s: null, hours: null, drivers: [] })).toBe('');
  setUnit('mph');
  expect(rulesInWords({ speed_limit_kmh: 50 })).toBe('31 mph');
});

test('a speed limit is the same after two conversions', () => {
  for (const unit of ['km/h', 'mph', 'knots']) {
    setUnit(unit);
    expect(kmhOf(speedOfKmh(50))).toBe(50);
  }
});

test('a fence with a small rule of a file can be edited: its fields accept what they show', () => {
  const html = readFileSync(new URL('../index.html', import.meta.url), 'utf8');
  const least = (id: string) => Number(new RegExp(`<input id="${id}"[^>]* min="([^"]*)"`).exec(html)![1]);
  setUnit('mph');
  // Half a minute, and 1 km/h.
  expect(least('fence-stay')).toBeLessThanOrEqual(0.5);
  expect(least('fence-speed')).toBeLessThanOrEqual(speedOfKmh(1));
});

test('a driver at a limit is not faster, although speeds are stored in hundredths of m/s', () => {
  for (const unit of ['km/h', 'mph', 'knots'] as const) {
    setUnit(unit);
    // As a Float32, which ClickHouse compares with a Float64.
    const stored = (speed: number) => Math.fround(Math.round((speed / SPEEDS[unit]) * 100) / 100);
    for (let speed = 1; speed <= 200; speed++) expect([stored(speed) > limitMps(speed), stored(speed + 1) > limitMps(speed)]).toEqual([false, true]);
  }
});

test('a field is read in the unit in which it was shown', () => {
  setUnit('mph');
  expect(kmhIn('50', null, 'km/h')).toBe(50);
  expect(kmhIn('31.1', 50, 'mph')).toBe(50);
  expect(kmhIn('', 50, 'mph')).toBeNull();
});

test('minutes become seconds, and only 0 means never silent', () => {
  expect(['', '0', '30', '1.5', '0.004'].map((text) => secondsIn(text, null))).toEqual([null, 0, 1800, 90, 1]);
  expect(secondsIn('1.7', 100)).toBe(100);
});

test('only changed rules are sent', () => {
  const before = { speed_limit_kmh: 50, stay_max_s: null, hours: 'Mo 06:00-18:00', hours_zone: 'UTC', drivers: ['d1'] };
  expect(changedRules(before, { ...before, silent_for_s: null, drivers: ['d1'] })).toEqual({});
  expect(changedRules(before, { ...before, stay_max_s: 60, drivers: [] })).toEqual({ stay_max_s: 60, drivers: [] });
  expect(changedRules(before, { ...before, hours: 'Tu 06:00-18:00' })).toEqual({ hours: 'Tu 06:00-18:00', hours_zone: 'UTC' });
  expect(changedRules(before, { ...before, hours: null, hours_zone: null })).toEqual({ hours: null, hours_zone: null });
  expect(changedRules({}, { speed_limit_kmh: null })).toEqual({});
});

test('alerts about rules name the fence', () => {
  const alert = (kind: Alert['kind'], speed: number | null, fence = 'Depot'): string => alertText({ driver_id: 'd1', ts: 0, seq: 0, kind, fence, lat: 0, lng: 0, speed, known_at: 0, seen_by: '', seen_at: 0 }, 'Anna');
  expect(alert('overstayed', null)).toBe('Anna stays too long in Depot');
  expect(alert('off_hours', null)).toBe('Anna crossed the border of Depot while it is closed');
  expect(alert('fast', 20)).toBe('Anna is too fast in Depot, 72 km/h');
  expect(alert('fast', 20, '')).toBe('Anna is too fast, 72 km/h');
  expect(alert('slow', 5)).toBe('Anna is slower again in Depot');
});

describe('the drivers of a fence', () => {
  /** Requests for drivers, oldest first. */
  let waiting: { find: string; answer(...ids: string[]): void }[];
  let shown: Page;
  let form: RulesForm;
  const settled = () => new Promise((later) => setTimeout(later, 5));
  const write = async (text: string) => {
    shown.element('fence-driver').value = text;
    shown.element('fence-driver').dispatch('input');
    await settled();
  };
  const enter = async () => {
    shown.element('fence-driver').dispatch('keydown', { key: 'Enter' });
    await settled();
  };
  const answer = async (...ids: string[]) => {
    waiting.shift()!.answer(...ids);
    await settled();
  };
  const chosen = () => form.read().drivers;

  beforeEach(() => {
    waiting = [];
    shown = page();
    vi.stubGlobal('fetch', (url: string, { signal }: { signal: AbortSignal }) =>
      new Promise((resolve, reject) => {
        signal.addEventListener('abort', () => reject(signal.reason as Error));
        waiting.push({ find: new URL(url, 'http://localhost').searchParams.get('find')!, answer: (...ids) => resolve(Response.json({ found: ids.map((driver_id) => ({ driver_id, name: '', group: '' })) })) });
      }),
    );
    form = new RulesForm(String);
    form.open({ drivers: [] });
  });
  afterEach(() => vi.unstubAllGlobals());

  test('Enter adds the only suggestion for what is written', async () => {
    await write('van');
    await answer('van-1');
    await enter();
    expect(chosen()).toEqual(['van-1']);
  });

  test('Enter does not add the suggestion for what was written before', async () => {
    await write('van');
    await answer('van-1');
    await write('bike');
    await enter();
    expect(() => chosen()).toThrow('There is no driver “bike”');
    // The first request was replaced by that of Enter.
    waiting.at(-1)!.answer('bike-7');
    await settled();
    expect(chosen()).toEqual(['bike-7']);
  });

  test('a driver who is added while the rules are saved is a later change', async () => {
    await write('van');
    await answer('van-1');
    await enter();
    const saved = form.read();
    await write('bike');
    await answer('bike-7');
    await enter();
    form.rebase(saved);
    expect(chosen()).toEqual(['van-1', 'bike-7']);
  });

  test('suggestions for one fence are not those of the next', async () => {
    await write('van');
    form.open({ drivers: [] });
    await answer('van-1');
    expect(shown.element('fence-driver-names').children.length).toBe(0);
  });
});

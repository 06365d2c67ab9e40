// Rules of a fence, and alerts about them, in words.
import { afterEach, expect, test } from 'vitest';
import type { Alert } from '../src/api';
import { words } from '../src/alerts';
import { rulesInWords } from '../src/rules';
import { kmhOf, setUnit, speedOfKmh } from '../src/words';

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

test('alerts about rules name the fence', () => {
  const alert = (kind: Alert['kind'], speed: number | null, fence = 'Depot'): string => words({ driver_id: 'd1', ts: 0, seq: 0, kind, fence, lat: 0, lng: 0, speed, known_at: 0, seen_by: '', seen_at: 0 }, 'Anna');
  expect(alert('overstayed', null)).toBe('Anna stays too long in Depot');
  expect(alert('off_hours', null)).toBe('Anna crossed the border of Depot while it is closed');
  expect(alert('fast', 20)).toBe('Anna is too fast in Depot, 72 km/h');
  expect(alert('fast', 20, '')).toBe('Anna is too fast, 72 km/h');
  expect(alert('slow', 5)).toBe('Anna is slower again in Depot');
});

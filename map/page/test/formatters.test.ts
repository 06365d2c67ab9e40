// Formatters of days: each is made once, because a replay writes days every frame.
import { afterEach, expect, test, vi } from 'vitest';
import { dayLong, dayShort, minuteOf } from '../src/words';
import { setZone } from '../src/zone';

afterEach(() => {
  vi.restoreAllMocks();
  setZone('');
});

test('days are formatted in the chosen zone, and a frame makes no formatter', () => {
  const ms = Date.parse('2026-11-22T20:00:00Z');
  const texts = () => [dayShort(ms), dayLong(ms), minuteOf(ms, '2026-11-01')];
  for (const [zone, expected] of Object.entries({ UTC: ['22 Nov', '22 Nov 2026', '22 Nov, 20:00'], 'Asia/Kolkata': ['23 Nov', '23 Nov 2026', '23 Nov, 01:30'] })) {
    setZone(zone);
    expect(texts()).toEqual(expected);
    const resolved = vi.spyOn(Intl.DateTimeFormat.prototype, 'resolvedOptions');
    const made = vi.spyOn(Intl, 'DateTimeFormat');
    expect(texts()).toEqual(expected);
    expect([made.mock.calls, resolved.mock.calls]).toEqual([[], []]);
    vi.restoreAllMocks();
  }
});

// The calendar of a driver, in a simulated page.
import { afterEach, expect, test, vi } from 'vitest';
import { calendar } from '../src/calendar';
import { setZone } from '../src/zone';
import { page } from './page';

afterEach(() => {
  setZone('');
  vi.unstubAllGlobals();
});

test('an open calendar shows the days of the zone that the viewer chooses', async () => {
  const shown = page();
  const zones: (string | null)[] = [];
  vi.stubGlobal('fetch', async (url: string) => {
    zones.push(new URL(url, 'http://localhost').searchParams.get('tz'));
    return Response.json({ days: [] });
  });
  shown.element('calendar').hidden = true;
  Object.assign(shown.element('calendar'), { scrollIntoView() {} });
  setZone('UTC');
  const month = calendar(() => {});
  month.setDriver('a');
  month.redraw();
  expect(zones).toEqual([]);
  shown.element('calendar-open').dispatch('click');
  setZone('Europe/Berlin');
  month.redraw();
  expect(zones.map(String)).toEqual(['UTC', 'Europe/Berlin']);
});

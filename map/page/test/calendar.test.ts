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

test('a month whose days are unknown says why, and not that there are no fixes', async () => {
  const shown = page();
  vi.stubGlobal('fetch', async () => Response.json({ error: 'too many requests' }, { status: 429 }));
  shown.element('calendar').hidden = true;
  Object.assign(shown.element('calendar'), { scrollIntoView() {} });
  calendar(() => {}).setDriver('a');
  shown.element('calendar-open').dispatch('click');
  await vi.waitFor(() => expect(shown.element('calendar-month').textContent).toMatch(/: too many requests$/));
  const days = shown.element('calendar-days').querySelectorAll('button');
  expect(days.map(({ attributes }) => attributes['aria-label']).filter((label) => label.includes('no fixes'))).toEqual([]);
});

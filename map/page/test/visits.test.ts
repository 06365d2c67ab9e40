// The card of one fence, in a simulated page.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { syncClock } from '../src/clock';
import type { Fence } from '../src/rings';
import { Visits, visitsTitle } from '../src/visits';
import { page, type Page } from './page';

const fence = (name: string, speed_limit_kmh: number | null = null): Fence => ({ type: 'Feature', properties: { name, valid_from: 0, speed_limit_kmh }, geometry: { type: 'MultiPolygon', coordinates: [] } });
let shown: Page;
let visits: Visits;
let edited: Fence[];

beforeEach(() => {
  edited = [];
  shown = page();
  vi.stubGlobal('fetch', () => new Promise(() => {}));
  visits = new Visits({ name: String, choose() {}, edit: (fence) => edited.push(fence), back() {}, changed() {} });
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test('the card has the fence as it was loaded last', () => {
  visits.show(fence('Depot'));
  visits.update([fence('Yard', 20), fence('Depot', 50)]);
  shown.element('fence-shown-edit').dispatch('click');
  expect([shown.element('fence-shown-rules').textContent, edited]).toEqual(['50 km/h', [fence('Depot', 50)]]);
});

test('the card of a fence that has ended is closed', () => {
  visits.show(fence('Depot'));
  visits.update([fence('Yard')]);
  expect([visits.fence, shown.element('fence-shown').hidden]).toEqual([null, true]);
  visits.update([fence('Depot')]);
  expect(visits.fence).toBe(null);
});

const NOW = Date.parse('2026-11-28T14:00Z');
const visit = (driver_id: string, entered: number, left_at: number, is_inside: boolean) => ({ driver_id, entered: NOW - entered * 60_000, left_at: NOW - left_at * 60_000, is_inside });
/** What the rows of the card say. */
const lines = () => (shown.element('visits').children as { textContent: string; children: { textContent: string; children?: { textContent: string }[] }[] }[]).map((item) => item.textContent || item.children.map((button) => button.children!.length > 0 ? button.children!.map(({ textContent }) => textContent).join(': ') : button.textContent).join(': '));

test('the card lists first those inside, who came first at the top, then who left', async () => {
  vi.useFakeTimers({ now: NOW, toFake: ['Date'] });
  const all = [visit('new', 5, 0, true), visit('old', 90, 0, true), visit('silent', 60, 40, true), visit('gone', 100, 95, false), visit('away', 150, 120, false), visit('gone', 300, 200, false), visit('gone', 400, 390, false)];
  vi.stubGlobal('window', { setTimeout: () => 0 });
  vi.stubGlobal('fetch', () => Promise.resolve(Response.json({ visits: all })));
  syncClock(NOW);
  visits.show({ ...fence('Depot'), properties: { ...fence('Depot').properties, valid_from: NOW - 3_600_000 } });
  await vi.waitUntil(() => shown.element('visits').children.length > 0);
  expect(lines()).toEqual([
    'Inside', 'old: inside since 12:30 · 1 h 30 min', 'silent: inside since 13:00 · 1 h · last fix at 13:20', 'new: inside since 13:55 · 5 min',
    'Left today', 'gone: left at 12:25 · came at 12:20, 5 min: 2 earlier visits today', 'away: left at 12:00 · came at 11:30, 30 min',
  ]);
  expect(shown.element('visits-title').textContent).toBe('Depot: 3 inside, 2 drivers left today, 4 times');
  expect(shown.element('fence-shown-rules').textContent).toBe('Name and outline are valid since 13:00; any earlier visits are those of a former version.');
  const earlier = () => (shown.element('visits').children as { querySelectorAll(tag: string): { dispatch(name: string): void; attributes: Record<string, string> }[] }[])[5].querySelectorAll('button')[1];
  expect(earlier().attributes['aria-expanded']).toBe('false');
  earlier().dispatch('click');
  expect(lines().slice(5)).toEqual([
    'gone: left at 12:25 · came at 12:20, 5 min: 2 earlier visits today', 'left at 10:40 · came at 09:00, 1 h 40 min', 'left at 07:30 · came at 07:20, 10 min',
    'away: left at 12:00 · came at 11:30, 30 min',
  ]);
  expect(earlier().attributes['aria-expanded']).toBe('true');
  earlier().dispatch('click');
  expect(lines().length).toBe(7);
  visits.close();
});

test('the title counts drivers who left, and how often', () => {
  const left = [visit('a', 9, 8, false), visit('b', 7, 6, false)];
  expect(visitsTitle('Depot', [], left, false)).toBe('Depot: 0 inside, 2 left today');
  expect(visitsTitle('Depot', [], [...left, left[0]], false)).toBe('Depot: 0 inside, 2 drivers left today, 3 times');
  expect(visitsTitle('Depot', [], left, true)).toBe('Depot: 0 inside, 2 drivers left today, more than 2 times');
  // Those inside are more than the server sends.
  expect(visitsTitle('Depot', left, [], true)).toBe('Depot: at least 2 inside');
});

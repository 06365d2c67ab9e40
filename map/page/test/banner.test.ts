// The sentence above the map, in a simulated page.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Tick } from '../src/api';
import { banner } from '../src/banner';
import { page, type Page } from './page';

const NOW = Date.UTC(2026, 10, 28, 12);
const FAILURE = 'Depot was not saved: another user.';
let shown: Page;

beforeEach(() => {
  vi.useFakeTimers();
  shown = page();
  vi.stubGlobal('window', globalThis);
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const tick = (state: Tick['state'], drivers = 1) => ({ state, since: NOW, now: NOW, drivers }) as Tick;
const said = () => [shown.element('banner').textContent, shown.element('banner').dataset.kind];

test('a failure about fences stays until it is withdrawn', () => {
  const warning = banner();
  warning.fences(FAILURE);
  warning.tick(tick('ok'), '');
  vi.advanceTimersByTime(60_000);
  expect(said()).toEqual([FAILURE, 'bad']);
  warning.fences('');
  expect(said()).toEqual(['', '']);
});

test('a failure about fences and an outage are told together', () => {
  const warning = banner();
  warning.lost();
  const [outage] = said();
  warning.fences(FAILURE);
  expect(said()).toEqual([`${FAILURE} ${outage}`, 'bad']);
  warning.tick(tick('ok'), '');
  expect(said()).toEqual([`${FAILURE} Live again.`, 'bad']);
  vi.advanceTimersByTime(5_000);
  expect(said()).toEqual([FAILURE, 'bad']);
});

test('a viewer of some drivers, none of which has sent, reads nothing about devices', () => {
  const warning = banner();
  warning.tick({ ...tick('ok', 0), rate: 0 }, '');
  expect(said()).toEqual([expect.stringMatching(/^No driver yet. Let a device publish/), 'hint']);
  warning.tick({ ...tick('ok', 0), rate: null }, '');
  expect(said()).toEqual(['None of the drivers that you may see has sent a position.', 'hint']);
});

test('a failure about fences alone does not count as an outage that ends', () => {
  const warning = banner();
  warning.fences(FAILURE);
  warning.fences('');
  warning.tick(tick('ok'), '');
  expect(said()).toEqual(['', '']);
});

test('a refusal is told in place of an outage, until the server gives another reason or none', () => {
  const warning = banner();
  warning.lost();
  const outage = said();
  warning.refused('too many pages are open');
  expect(said()).toEqual(['The map’s server refuses this page: too many pages are open.', 'bad']);
  warning.lost();
  expect(said()).toEqual(['The map’s server refuses this page: too many pages are open.', 'bad']);
  warning.refused('');
  warning.lost();
  expect(said()).toEqual(outage);
});

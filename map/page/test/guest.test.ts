// The line that says that a page was opened with a read-only link, in a simulated page.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { syncClock } from '../src/clock';
import { guest } from '../src/guest';
import { setZone } from '../src/zone';
import { page, type Page } from './page';

const NOON = Date.parse('2026-11-28T12:00Z');
const HOUR_MS = 3_600_000;
let shown: Page;

beforeEach(() => {
  vi.useFakeTimers({ now: NOON, toFake: ['Date'] });
  syncClock(NOON);
  setZone('UTC');
  shown = page();
});
afterEach(() => {
  setZone('');
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const line = () => shown.element('guest').textContent;

test('a page of a link says until when the link is valid', () => {
  const note = guest();
  note.open(NOON + 2 * HOUR_MS);
  expect(line()).toBe('Read-only link, until 14:00');
  note.open(NOON + 24 * HOUR_MS);
  expect(line()).toBe('Read-only link, until 29 Nov 2026, 12:00');
});

test('a page of a login has no such line', () => {
  guest().open(null);
  expect(line()).toBe('');
});

test('the time is in the zone that the viewer chooses', () => {
  const note = guest();
  note.open(NOON + 2 * HOUR_MS);
  setZone('Asia/Tokyo');
  note.redraw();
  expect(line()).toBe('Read-only link, until 23:00');
});

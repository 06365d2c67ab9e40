// Since when a driver stands: requests to a simulated server.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Fix } from '../src/api';
import { Stay } from '../src/stay';

const MINUTE = 60_000;
const NOON = Date.parse('2026-11-22T12:00:00Z');
/** Requests without an answer, oldest first. */
let waiting: ((since: number) => void)[];
let at: number;

beforeEach(() => {
  [waiting, at] = [[], 0];
  vi.spyOn(performance, 'now').mockImplementation(() => at);
  vi.stubGlobal('fetch', () => new Promise((resolve) => waiting.push((since) => resolve(Response.json({ ts: NOON, since, is_at_least: false })))));
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

const fix = (minute: number, speed: number, driver_id = 'a'): Fix => ({ driver_id, ts: NOON + minute * MINUTE, speed, heading: null, acc: null, alt: null, received_at: 0, lat: 25, lng: -80 });
const { signal } = new AbortController();

test('an answer counts only if the driver has stood without a break since the request', async () => {
  const stay = new Stay();
  const old = stay.follow(fix(0, 0), signal);
  await stay.follow(fix(1, 12), signal);
  at = 20_000;
  const next = stay.follow(fix(2, 0), signal);
  waiting[0](NOON - 300 * MINUTE);
  await old;
  expect(stay.text(fix(2, 0), NOON, NOON)).toBe('');
  waiting[1](NOON - 2 * MINUTE);
  await next;
  expect(stay.text(fix(2, 0), NOON, NOON)).toContain('(2 min)');
});

test('an answer for a driver who is chosen again is not that of the earlier choice', async () => {
  const stay = new Stay();
  const old = stay.follow(fix(0, 0), signal);
  void stay.follow(fix(0, 0, 'b'), signal);
  const next = stay.follow(fix(9, 0), signal);
  waiting[0](NOON - 300 * MINUTE);
  await old;
  expect(stay.text(fix(9, 0), NOON, NOON)).toBe('');
  waiting[2](NOON - 2 * MINUTE);
  await next;
  expect(stay.text(fix(9, 0), NOON, NOON)).toContain('(2 min)');
});

// Another group in a replay, in a simulated page.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Past } from '../src/api';
import type { Film } from '../src/player';
import { Replay } from '../src/replay';
import { page, type Page } from './page';

const FROM = Date.parse('2026-01-02T10:00Z');
const STEP = 60_000;
const MIAMI = { west: -80.2, south: 25.7, east: -80.1, north: 25.8 };
const PARIS = { west: 2.3, south: 48.8, east: 2.4, north: 48.9 };

/** Requests without an answer, oldest first. */
let waiting: { query: Record<string, string>; signal: AbortSignal; answer(...ids: string[]): void; fail(): void }[];
let shown: Page;
let replay: Replay;
let bounds: typeof MIAMI;
let group: string;
let moment: number | null;
let films: { film: Film; isSame: boolean }[];
/** Ids of the drivers on the map. */
let drivers: string[] | null;

function past(...ids: string[]): Past {
  const column = <T>(value: T) => ids.map(() => value);
  return { from: FROM, to: FROM + 60 * STEP, step: STEP, truncated: false, ids, driver: ids.map((_, i) => i), ts: column(FROM), lat: column(25.75), lng: column(-80.15), speed: column(0) };
}

beforeEach(() => {
  [waiting, films, drivers, bounds, group, moment] = [[], [], null, MIAMI, '', null];
  shown = page();
  vi.stubGlobal('fetch', (url: string, { signal }: { signal: AbortSignal }) =>
    new Promise((resolve, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason as Error));
      const query = Object.fromEntries(new URL(url, 'http://localhost').searchParams);
      waiting.push({ query, signal, answer: (...ids) => resolve(Response.json(past(...ids))), fail: () => reject(new TypeError('fetch failed')) });
    }),
  );
  replay = new Replay({
    opening() {},
    bounds: () => bounds,
    group: () => group,
    moment: () => moment,
    play(film, isSame) {
      films.push({ film, isSame });
      film.moved(film.begin);
    },
    show(points) {
      drivers = points && points.ids;
      return points?.n ?? 0;
    },
    moved() {},
    stop() {},
  });
  replay.toggle();
});
afterEach(() => vi.unstubAllGlobals());

const settled = () => new Promise((resolve) => setTimeout(resolve, 5));
const write = (from: string, to: string) => {
  for (const [name, time] of Object.entries({ from, to })) [shown.element(`replay-${name}-date`).value, shown.element(`replay-${name}-time`).value] = ['2026-01-02', time];
};
const submit = (from: string, to: string) => {
  write(from, to);
  shown.element('replay-form').dispatch('submit');
};

test('a group chosen while the first replay loads is that of the replay', async () => {
  submit('10:00', '11:00');
  group = 'north';
  replay.reload();
  const [old, next] = waiting;
  expect([old.signal.aborted, next.query.group]).toEqual([true, 'north']);
  next.answer('a');
  await settled();
  expect([drivers, films.map(({ isSame }) => isSame)]).toEqual([['a'], [false]]);
});

test('another group plays the same area and span on from the same moment', async () => {
  submit('10:00', '11:00');
  const first = waiting.shift()!;
  first.answer('a', 'b');
  await settled();
  films[0].film.moved(FROM + 5 * STEP);
  bounds = PARIS;
  write('07:00', '07:30');
  group = 'north';
  replay.reload();
  const next = waiting.shift()!;
  expect(next.query).toEqual({ ...first.query, group: 'north' });
  films[0].film.moved(FROM + 6 * STEP);
  next.answer('a');
  await settled();
  expect([films[1].isSame, films[1].film.begin, drivers]).toEqual([true, FROM + 6 * STEP, ['a']]);
});

test('if the drivers of another group cannot be loaded, nobody is shown', async () => {
  submit('10:00', '11:00');
  waiting.shift()!.answer('a', 'b');
  await settled();
  // A failed request for another span leaves the drivers of the same group.
  submit('07:00', '08:00');
  waiting.shift()!.fail();
  await settled();
  expect([drivers, films.length]).toEqual([['a', 'b'], 1]);
  group = 'north';
  replay.reload();
  waiting.shift()!.fail();
  await settled();
  expect([drivers, films[1].isSame, shown.element('replay-said').textContent]).toEqual([[], true, 'The server does not answer.']);
  // The old group again, and the same for a span in which the other group has no fixes.
  group = '';
  replay.reload();
  waiting.shift()!.answer('a', 'b');
  await settled();
  expect(drivers).toEqual(['a', 'b']);
  submit('07:00', '08:00');
  group = 'north';
  replay.reload();
  waiting[1].answer();
  await settled();
  expect([drivers, films.at(-1)!.isSame]).toEqual([[], true]);
});

test('a wrong span does not keep the drivers of the old group on the map', async () => {
  submit('10:00', '11:00');
  waiting.shift()!.answer('a', 'b');
  await settled();
  group = 'north';
  replay.reload();
  submit('10:00', '');
  waiting.shift()!.answer('a');
  await settled();
  expect(drivers).toEqual(['a']);
});

test('a closed replay is not loaded again', () => {
  submit('10:00', '11:00');
  replay.toggle();
  replay.reload();
  expect(waiting.length).toBe(1);
});

test('the form has the minutes around the moment of the track that is shown', () => {
  replay.toggle();
  moment = FROM + 600_000;
  replay.toggle();
  expect(['from', 'to'].map((end) => shown.element(`replay-${end}-time`).value)).toEqual(['10:05', '10:16']);
});

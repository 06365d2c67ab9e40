// Where the keyboard's focus is after a box closes or a list changes, in a simulated page.
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Alerts } from '../src/alerts';
import type { Alert } from '../src/api';
import { calendar } from '../src/calendar';
import { Panel } from '../src/panel';
import { Replay } from '../src/replay';
import { RulesForm } from '../src/rules';
import { isoDay } from '../src/words';
import { page, type Page } from './page';

let shown: Page;
const settled = () => new Promise((later) => setTimeout(later, 5));

beforeEach(() => {
  shown = page();
});
afterEach(() => vi.unstubAllGlobals());

describe('the calendar', () => {
  let chosen: string[];
  beforeEach(async () => {
    chosen = [];
    vi.stubGlobal('fetch', async () => Response.json({ days: [isoDay(Date.now())] }));
    shown.element('calendar').hidden = true;
    Object.assign(shown.element('calendar'), { scrollIntoView() {} });
    calendar((day) => chosen.push(day)).setDriver('a');
    shown.element('calendar-open').dispatch('click');
    await settled();
  });

  test('gives the focus to the name of the driver when a day is chosen', () => {
    const days = shown.element('calendar-days').querySelectorAll('button');
    days.find(({ dataset }) => dataset.day === isoDay(Date.now()))!.dispatch('click');
    expect([chosen, shown.element('calendar').hidden, shown.focused()]).toEqual([[isoDay(Date.now())], true, 'driver-name']);
  });

  test('gives the focus to its button when that closes it', () => {
    shown.element('calendar-open').dispatch('click');
    expect([shown.element('calendar').hidden, shown.focused()]).toEqual([true, 'calendar-open']);
  });
});

describe('a replay', () => {
  let replay: Replay;
  let answer: () => void;
  beforeEach(() => {
    const past = { from: 0, to: 60_000, step: 10_000, truncated: false, ids: ['a'], driver: [0], ts: [1], lat: [0], lng: [0], speed: [0] };
    vi.stubGlobal('fetch', () => new Promise((resolve) => (answer = () => resolve(Response.json(past)))));
    const { box, player } = { box: shown.element('replay-box'), player: shown.element('player') };
    box.hidden = true;
    box.append(...['replay-from-date', 'replay-to-date', 'replay-form'].map((id) => shown.element(id)));
    player.append(shown.element('play'));
    // The browser takes the focus from an element that is hidden.
    const stop = () => player.contains(document.activeElement) && Object.assign(document, { activeElement: null });
    replay = new Replay({ opening() {}, bounds: () => ({ west: 0, south: 0, east: 1, north: 1 }), group: () => '', moment: () => null, play() {}, show: () => 1, moved() {}, stop });
    replay.toggle();
    shown.element('replay-form').dispatch('submit');
  });

  test('gives the focus to Play when it has loaded', async () => {
    answer();
    await settled();
    expect([replay.isPlaying, shown.focused()]).toEqual([true, 'play']);
  });

  test('leaves the focus where the viewer has moved it while it loads', async () => {
    shown.element('replay-form').focus();
    answer();
    await settled();
    expect([replay.isPlaying, shown.focused()]).toEqual([true, 'replay-form']);
  });

  test('on a phone gives the focus of a field that it hides to Play', async () => {
    const field = shown.element('replay-to-date');
    field.focus();
    field.hidden = true; // style.css does it, for data-playing
    answer();
    await settled();
    expect(shown.focused()).toBe('play');
  });

  test('gives the focus back to its button when it closes', async () => {
    answer();
    await settled();
    replay.toggle();
    expect(shown.focused()).toBe('replay');
  });

  test('that closes leaves the focus where it is outside', async () => {
    answer();
    await settled();
    shown.element('find').focus();
    replay.toggle();
    expect(shown.focused()).toBe('find');
  });
});

test('Seen gives the focus to the next Seen, and the last one to the heading', async () => {
  const seen = new Set<string>();
  const alert = (driver_id: string) => ({ driver_id, ts: 1, seq: 0, kind: 'silent', fence: '', lat: 0, lng: 0, speed: null, known_at: 1, seen_by: '', seen_at: seen.has(driver_id) ? 2 : 0 }) as Alert;
  vi.stubGlobal('fetch', async (path: string, init?: RequestInit) => {
    if (init?.method === 'POST') seen.add((JSON.parse(init.body as string) as Alert).driver_id);
    return Response.json(path === 'api/alerts' ? { alerts: ['a', 'b', 'c'].map(alert) } : {});
  });
  const alerts = new Alerts({ on() {} } as never, { opening() {}, writes: true, name: String, group: () => '', groupOf: () => '', go() {} });
  // Without marks, which need a layout.
  alerts.setHidden(true);
  seen.add('b');
  await alerts.tick();
  alerts.toggle();
  const press = async (driver: string) => {
    const button = shown.element('alerts-list').querySelectorAll('button').find(({ attributes }) => attributes['aria-label'] === `Seen: ${driver} fell silent`)!;
    button.focus();
    button.dispatch('click');
    await settled();
  };
  await press('a');
  expect(shown.focused()).toBe('Seen: c fell silent');
  await press('c');
  expect(shown.focused()).toBe('alerts-title');
});

test('the drivers of a fence keep the focus when names arrive', () => {
  const form = new RulesForm(String);
  form.open({ drivers: ['a', 'b'] });
  shown.element('fence-drivers').querySelectorAll('button')[1].focus();
  form.redrawNames();
  expect(shown.focused()).toBe('Not only for b');
});

test('trips keep the focus, and the one that is played its mark, when fences change', async () => {
  const episode = (from: number) => ({ kind: 'trip', from, to: from + 60_000, lat: 0, lng: 0, distance_m: 900 });
  const track = { driver_id: 'a', from: 0, to: 120_000, sql: '', truncated: false, points: { ts: [0, 60_000], lat: [0, 0], lng: [0, 0], speed: [1, 1] }, episodes: [episode(0), episode(60_000)], tail: null };
  vi.stubGlobal('fetch', async (url: string) => {
    if (url.includes('/track?')) return Response.json(track);
    return Response.json({ driver_id: 'a', ts: 1, lat: 0, lng: 0, speed: 1, heading: null, alt: null, acc: null, received_at: 1, attributes: {}, fields: [], card: {} });
  });
  const panel = new Panel({ opening() {}, player: { open() {}, close() {}, seek() {} }, chosen() {}, tracked() {}, played() {}, shared() {}, name: String, place: () => '', makesLinks: false });
  await panel.open('a', 'hour');
  await settled();
  panel.played(70_000);
  const trips = () => shown.element('episodes').querySelectorAll('button');
  for (const change of [() => panel.redrawNames(), () => panel.redraw()]) {
    trips()[0].focus();
    change();
    expect(trips().map((trip) => [trip === (document.activeElement as unknown), trip.attributes['aria-current']])).toEqual([[true, undefined], [false, 'true']]);
  }
});

// Where the keyboard's focus is after a box closes or a list changes, in a simulated page.
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { calendar } from '../src/calendar';
import { Replay } from '../src/replay';
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
    box.append(shown.element('replay-from-date'), shown.element('replay-form'));
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

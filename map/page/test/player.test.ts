// The time slider, in a simulated page.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { syncClock } from '../src/clock';
import { momentText, player, type Film, type Player } from '../src/player';
import { setZone } from '../src/zone';
import { page, type Page } from './page';

let shown: Page;
let slider: Player;
let moments: number[];
const film = (): Film => ({ from: 0, to: 36_000_000, begin: 0, moved: (ms) => moments.push(ms), text: String, draw: () => [] });

beforeEach(() => {
  shown = page();
  moments = [];
  slider = player(() => {});
});
afterEach(() => {
  setZone('');
  vi.unstubAllGlobals();
});

test('a film that replaces the one that is played is moved once a frame', () => {
  for (let i = 0; i < 3; i++) {
    slider.open(film());
    slider.toggle();
  }
  moments = [];
  expect([shown.frame(performance.now() + 16), moments.length]).toEqual([1, 1]);
  slider.toggle();
  expect(shown.frame(performance.now() + 32)).toBe(0);
});

test('the same film with other drivers keeps the pace that the viewer chose', () => {
  const pace = shown.element('pace');
  slider.open(film());
  expect(pace.textContent).toBe('300×');
  pace.dispatch('click');
  slider.open(film(), true);
  expect(pace.textContent).toBe('1000×');
  slider.open(film());
  expect(pace.textContent).toBe('300×');
});

test('only the main button of a mouse holds the slider', () => {
  slider.open(film());
  slider.toggle();
  const moves = (button: number) => {
    shown.element('slider').dispatch('pointerdown', { button });
    moments = [];
    shown.frame(performance.now() + 16);
    return moments.length > 0;
  };
  expect([moves(2), moves(0)]).toEqual([true, false]);
});

test('an arrow key moves by less at a slower pace', () => {
  slider.open(film());
  const press = (key: string) => {
    moments = [];
    shown.element('slider').dispatch('keydown', { key });
    return moments;
  };
  expect([press('ArrowRight'), press('ArrowRight'), press('ArrowLeft'), press('a')]).toEqual([[150_000], [300_000], [150_000], []]);
  const pace = shown.element('pace');
  for (const text of ['1000×', '1×']) {
    pace.dispatch('click');
    expect(pace.textContent).toBe(text);
  }
  expect(press('ArrowRight')).toEqual([151_000]);
});

test('an arrow key with a modifier is left to the browser', () => {
  slider.open(film());
  moments = [];
  let isPrevented = false;
  for (const modifier of ['altKey', 'ctrlKey', 'metaKey']) shown.element('slider').dispatch('keydown', { key: 'ArrowRight', [modifier]: true, preventDefault: () => (isPrevented = true) });
  expect([moments, isPrevented]).toEqual([[], false]);
});

test('the moment is unknown at the end and without a film', () => {
  expect(slider.moment).toBe(null);
  slider.open(film());
  slider.seek(5_000);
  expect(slider.moment).toBe(5_000);
  slider.seek(36_000_000);
  expect(slider.moment).toBe(null);
});

test('the marks are in the zone that the viewer chooses', () => {
  shown.element('marks').clientWidth = 400;
  slider.open(film());
  const marks = () => (shown.element('marks').children as { textContent: string }[]).map(({ textContent }) => textContent);
  setZone('UTC');
  slider.redraw();
  expect(marks()).toEqual(['1 Jan', '02:00', '04:00', '06:00', '08:00', '']);
  setZone('Asia/Kolkata');
  slider.redraw();
  expect(marks()).toEqual(['06:00', '08:00', '10:00', '12:00', '14:00']);
});

test('the moment of a track has its date unless it is today', () => {
  setZone('UTC');
  syncClock(Date.parse('2026-11-29T02:00Z'));
  const at = (text: string) => {
    const ms = Date.parse(text);
    return momentText({ driver_id: 'a', from: ms, to: ms + 1, sql: '', truncated: false, points: { ts: [ms], lat: [0], lng: [0], speed: [10] }, episodes: [] }, ms);
  };
  expect([at('2026-11-29T01:30Z'), at('2026-11-28T23:30Z')]).toEqual(['01:30:00\n36 km/h', '28 Nov, 23:30:00\n36 km/h']);
});

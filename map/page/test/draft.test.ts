// The corners of an outline that is edited, in a simulated page: 10 pixels of the map are 1°.
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import type { Draft } from '../src/draft';
import { page, type Page } from './page';

/** A marker of MapLibre, without a layout. */
class Marker {
  private readonly element: { remove(): void };
  constructor({ element }: { element: { remove(): void } }) {
    this.element = element;
  }
  getElement = () => this.element;
  setLngLat = () => this;
  on() {}
  remove = () => this.element.remove();
  addTo(map: { getContainer(): { append(element: object): void } }) {
    map.getContainer().append(this.element);
    return this;
  }
}

const SQUARE = [[0, 0], [10, 0], [10, 10], [0, 10]];
let shown: Page;
let makeDraft: typeof Draft;
let draft: Draft;
/** The longitude and latitude at the middle of the map. */
let centre: [number, number];
/** Moves of the map, in pixels. */
let pans: [right: number, down: number][];
/** How often the draft has announced a move of the map. */
let announced: number;

beforeAll(async () => {
  // Tests share their modules, so others may have loaded the real library.
  vi.resetModules();
  vi.doMock('maplibre-gl', () => ({ Marker }));
  ({ Draft: makeDraft } = await import('../src/draft'));
});
afterAll(() => {
  vi.doUnmock('maplibre-gl');
  vi.resetModules();
});

beforeEach(() => {
  shown = page();
  [centre, pans, announced] = [[0, 0], [], 0];
  Object.assign(shown.element('map'), { clientWidth: 1280, clientHeight: 800 });
  const map = {
    getContainer: () => shown.element('map'),
    getCenter: () => ({ lng: centre[0], lat: centre[1] }),
    project: ([lng, lat]: [number, number]) => ({ x: 640 + (lng - centre[0]) * 10, y: 400 - (lat - centre[1]) * 10 }),
    unproject: ([x, y]: [number, number]) => ({ lng: centre[0] + (x - 640) / 10, lat: centre[1] - (y - 400) / 10 }),
    panBy([right, down]: [number, number]) {
      pans.push([right, down]);
      centre = [centre[0] + right / 10, centre[1] - down / 10];
    },
  };
  draft = new makeDraft(map as never, { setData() {} } as never, () => announced++);
  draft.open(SQUARE);
});
afterEach(() => vi.unstubAllGlobals());

/** The elements of the corners, in the order of the page, which is that of Tab. */
const elements = () => shown.element('map').children as ReturnType<Page['element']>[];
const names = () => elements().map(({ attributes }) => attributes['aria-label'].replace(/:.*/, ''));
const press = (corner: number, key: string, more = {}) => elements()[corner].dispatch('keydown', { key, ...more });
const said = () => shown.element('fence-corner-said').textContent;

test('a new corner is between its neighbours in the order of Tab', () => {
  draft.insert([10.5, 5], true);
  expect(names()).toEqual([1, 2, 3, 4, 5].map((n) => `Corner ${n} of 5`));
});

test('a double click that removes a corner gives the focus to the next one', () => {
  elements()[1].dispatch('dblclick');
  expect([draft.ring().length, shown.focused()]).toEqual([4, expect.stringMatching(/^Corner 2 of 3/)]);
});

test('a corner beyond 180° is spoken with a longitude of at most 180°', () => {
  centre = [179, 0];
  draft.open([[179.9, 0], [179.95, 0], [179.9, 1]]);
  press(0, 'ArrowRight');
  expect(said()).toBe('Corner 1 of 3: 0.00000, -179.90000');
});

test('arrow keys move a corner at most to the edge of the world', () => {
  centre = [0, 85];
  draft.open([[0, 85], [1, 85], [1, 84]]);
  press(0, 'ArrowUp');
  press(0, 'ArrowUp', { shiftKey: true });
  expect([draft.ring()[0][1], said()]).toEqual([85.05, 'Corner 1 of 3: 85.05000, 0.00000']);
});

test('a corner that keys move under a card moves the map', () => {
  shown.element('fences-box').rect = { left: 12, top: 72, right: 332, bottom: 700 };
  centre = [25, 0];
  press(0, 'ArrowLeft');
  expect(pans).toEqual([]);
  for (let i = 0; i < 20; i++) press(0, 'ArrowLeft');
  expect([pans.length, announced]).toEqual([1, 1]);
  expect(640 + (draft.ring()[0][0] - centre[0]) * 10).toBeGreaterThan(372);
});

test('a held arrow key at the edge of the map moves the map a few times', () => {
  centre = [-50, 0];
  for (let i = 0; i < 200; i++) press(1, 'ArrowRight');
  expect(pans.length).toBeGreaterThan(0);
  expect(pans.length).toBeLessThan(5);
});

// The legend, in a simulated page.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { legend } from '../src/legend';
import { setUnit } from '../src/words';
import { page, type Page } from './page';

let shown: Page;
let colours: ReturnType<typeof legend>;

beforeEach(() => {
  shown = page();
  colours = legend(() => {}, () => {}, () => {});
  colours.draw();
});
afterEach(() => {
  setUnit('');
  vi.unstubAllGlobals();
});

const labels = (id: string) => (shown.element(id).children as { textContent: string }[]).map(({ textContent }) => textContent);
/** Titles and labels of the ramps that are shown. */
const ramps = () => [...(shown.element('ramp-labels').hidden ? [] : [labels('ramp-labels')]), ...(shown.element('track-legend').hidden ? [] : [labels('track-labels')])];
const SPEEDS = ['0', '20', '50', '90', '130+'];
const AGES = ['now', '30 s', '5 min', '1 h', '1 day'];

test('a track’s speeds are explained, however the drivers are coloured', () => {
  expect(ramps()).toEqual([]);
  colours.setTrack(true);
  expect(ramps()).toEqual([SPEEDS]);
  // By speed: one ramp explains both.
  colours.toggle();
  expect(ramps()).toEqual([SPEEDS]);
  colours.toggle();
  expect(ramps()).toEqual([AGES, SPEEDS]);
  colours.setTrack(false);
  expect(ramps()).toEqual([AGES]);
});

test('the speeds of a track are in the unit that the viewer chooses', () => {
  colours.setTrack(true);
  setUnit('mph');
  colours.draw();
  expect(ramps()).toEqual([['0', '12', '31', '56', '81+']]);
  expect(shown.element('track-labels').dataset.unit).toBe('mph');
});

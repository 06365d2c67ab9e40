// The fences of the map, in a simulated page.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Fences, type Fence } from '../src/fences';
import { page, type Page } from './page';

const SQUARE = [[0, 0], [0, 1], [1, 1], [0, 0]];
const fence = (name: string, rings: number): Fence => ({ type: 'Feature', properties: { name, valid_from: 0 }, geometry: { type: 'MultiPolygon', coordinates: Array.from({ length: rings }, () => [SQUARE]) } });
let shown: Page;
let fences: Fences;

beforeEach(async () => {
  shown = page();
  shown.element('fence-form').hidden = true;
  vi.stubGlobal('fetch', (url: string) => (url === 'api/fences' ? Promise.resolve(Response.json({ features: [fence('Islands', 2)] })) : new Promise(() => {})));
  const map = { on() {}, getLayer: () => ({}), setPaintProperty() {}, getSource: () => ({ setData() {} }), getZoom: () => 10, queryRenderedFeatures: () => [{ properties: { name: 'Islands', width: 0.001 } }] };
  fences = new Fences(map as never, 'dark', true, { opening() {}, changed() {}, name: String, choose() {}, seesAll: true });
  await vi.waitUntil(() => fences.all.length > 0);
});
afterEach(() => vi.unstubAllGlobals());

test('while a fence is edited, a click on the map does not find another one', async () => {
  expect([fences.isEditing, fences.at([0, 0], 100)?.properties.name]).toEqual([false, 'Islands']);
  fences.show(fences.all[0]);
  // Opening the card has loaded them again.
  await fences.load();
  shown.element('fence-shown-edit').dispatch('click');
  // An outline of several rings is not drawn, but its form is open.
  expect([fences.isDrawing, fences.isEditing, fences.at([0, 0], 100)]).toEqual([false, true, null]);
  shown.element('fence-cancel').dispatch('click');
  expect([fences.isEditing, fences.at([0, 0], 100)?.properties.name]).toEqual([false, 'Islands']);
});

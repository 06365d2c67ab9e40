// The card of one fence, in a simulated page.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Fence } from '../src/rings';
import { Visits } from '../src/visits';
import { page, type Page } from './page';

const fence = (name: string, speed_limit_kmh: number | null = null): Fence => ({ type: 'Feature', properties: { name, valid_from: 0, speed_limit_kmh }, geometry: { type: 'MultiPolygon', coordinates: [] } });
let shown: Page;
let visits: Visits;
let edited: Fence[];

beforeEach(() => {
  edited = [];
  shown = page();
  vi.stubGlobal('fetch', () => new Promise(() => {}));
  visits = new Visits({ name: String, choose() {}, edit: (fence) => edited.push(fence), back() {}, changed() {} });
});
afterEach(() => vi.unstubAllGlobals());

test('the card has the fence as it was loaded last', () => {
  visits.show(fence('Depot'));
  visits.update([fence('Yard', 20), fence('Depot', 50)]);
  shown.element('fence-shown-edit').dispatch('click');
  expect([shown.element('fence-shown-rules').textContent, edited]).toEqual(['50 km/h', [fence('Depot', 50)]]);
});

test('the card of a fence that has ended is closed', () => {
  visits.show(fence('Depot'));
  visits.update([fence('Yard')]);
  expect([visits.fence, shown.element('fence-shown').hidden]).toEqual([null, true]);
  visits.update([fence('Depot')]);
  expect(visits.fence).toBe(null);
});

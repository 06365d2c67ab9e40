// Fields of moments when the viewer chooses another zone, in a simulated page.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { When } from '../src/when';
import { setZone } from '../src/zone';
import { page, type Page } from './page';

let shown: Page;
let when: When;

beforeEach(() => {
  shown = page();
  setZone('UTC');
  when = new When('replay-from');
});
afterEach(() => {
  setZone('');
  vi.unstubAllGlobals();
});

const fields = () => [shown.element('replay-from-date').value, shown.element('replay-from-time').value];
const write = (name: string, text: string) => {
  shown.element(`replay-from-${name}`).value = text;
  shown.element(`replay-from-${name}`).dispatch('input');
};

test('a moment stays the same in another zone', () => {
  when.value = '2026-11-22T20:10';
  setZone('Asia/Kolkata');
  when.redraw();
  expect([...fields(), when.ms]).toEqual(['2026-11-23', '01:40', Date.parse('2026-11-22T20:10Z')]);
  write('time', '02:40');
  setZone('UTC');
  when.redraw();
  expect(fields()).toEqual(['2026-11-22', '21:10']);
});

test('the second of two equal local times stays the second', () => {
  when.value = '2026-10-25T01:30';
  setZone('Europe/Berlin');
  when.redraw();
  expect([...fields(), when.ms]).toEqual(['2026-10-25', '02:30', Date.parse('2026-10-25T01:30Z')]);
});

test('fields without a moment keep what is written in another zone', () => {
  when.value = '2026-11-22T20:10';
  write('time', '2x');
  setZone('Asia/Kolkata');
  when.redraw();
  expect([...fields(), when.ms]).toEqual(['2026-11-22', '2x', NaN]);
});

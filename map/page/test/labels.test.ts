import { describe, expect, test } from 'vitest';
import { month, monthAfter } from '../src/calendar';
import { cluster } from '../src/cells';
import { decode, type Points } from '../src/decode';
import { place, type Label } from '../src/labels';
import { placeName } from '../src/places';
import { setLimits, shapeOf, SHAPES, stateOf } from '../src/states';
import { encode } from './tile';

const label = (text: string, x: number, y: number, gap = 8): Label => ({ text, x, y, gap, kind: 'driver' });
const measure = (text: string) => 10 * text.length;

describe('labels', () => {
  test('the first label is on the right side, the next one on another side', () => {
    const placed = place([label('aa', 100, 100), label('bb', 104, 113)], measure, 400, 300);
    expect(placed.map(({ left, middle }) => [left, middle])).toEqual([[108, 100], [76, 113]]);
  });
  test('many labels overlap neither each other nor the edge', () => {
    const many = Array.from({ length: 40 }, (_, i) => label(`d${i}`, (i * 137) % 400, (i * 91) % 300));
    const placed = place(many, measure, 400, 300);
    expect(placed.length).toBeGreaterThan(3);
    for (const a of placed) {
      expect(a.left).toBeGreaterThanOrEqual(2);
      expect(a.left + a.width).toBeLessThanOrEqual(398);
      for (const b of placed) if (a !== b) expect(a.left >= b.left + b.width || b.left >= a.left + a.width || Math.abs(a.middle - b.middle) >= 15).toBe(true);
    }
  });
  test('no label is under a card', () => {
    const card = { left: 0, top: 60, right: 130, bottom: 140 };
    const placed = place([label('aa', 120, 100), label('bb', 60, 100)], measure, 400, 300, [card]);
    expect(placed.map(({ text, left }) => [text, left])).toEqual([]);
    expect(place([label('aa', 140, 100)], measure, 400, 300, [card])[0].left).toBe(148);
    expect(place([label('aa', 125, 150, 12)], measure, 400, 300, [card])[0].middle).toBeGreaterThan(147);
  });
  test('a fence’s name does not cover the count of a disc', () => {
    const disc = { left: 85, top: 85, right: 115, bottom: 115 };
    expect(place([label('Depot', 100, 100, 0)], measure, 400, 300, [disc])[0].middle).toBe(74);
  });
  test('no label covers the ring around the chosen driver', () => {
    const chosen: Label = { ...label('Anna', 100, 100, 22), reach: 19, kind: 'chosen' };
    // The walk of a new dispatcher found the name of the depot half under this ring.
    expect(place([chosen, label('Depot', 101, 112, 0)], measure, 400, 300).map(({ text, middle }) => [text, middle])).toEqual([['Anna', 100], ['Depot', 138]]);
  });
  test('a fence with drivers at its middle has its name at an edge', () => {
    const drivers = [70, 100, 130].map((y, i) => label(`d${i}`, 100, y));
    const name: Label = { ...label('Depot', 100, 100, 0), edge: 80 };
    expect(place([name, ...drivers], measure, 400, 300)[0]).toMatchObject({ text: 'Depot', middle: 35 });
    const more = Array.from({ length: 9 }, (_, i) => label(`d${i}`, 100, 20 + i * 20));
    expect(place([name, ...more], measure, 400, 300)[0]).toMatchObject({ text: 'Depot', middle: 195 });
  });
  test('the chosen driver has its name even among many others', () => {
    const crowd = Array.from({ length: 49 }, (_, i) => label(`d${i}`, 70 + (i % 7) * 12, 70 + Math.floor(i / 7) * 12));
    const chosen: Label = { ...label('Anna', 106, 106, 22), reach: 19, kind: 'chosen' };
    expect(place([chosen, ...crowd], measure, 400, 300)[0]).toMatchObject({ text: 'Anna', left: 128 });
  });
  test('letters are larger on a large screen', () => {
    const left = (scale: number) => place([label('aa', 100, 100), label('bb', 100, 125)], measure, 400, 300, [], scale).map((placed) => placed.left);
    expect([left(1), left(2)]).toEqual([[108, 108], [108, 72]]);
  });
  test('no label covers a driver', () => {
    const placed = place([label('aaaa', 100, 100), label('b', 120, 100)], measure, 400, 300);
    expect(placed.find(({ text }) => text === 'aaaa')!.left).toBeLessThan(100);
  });
  test('a fence’s name makes room for a driver that has no name at this zoom', () => {
    const both = place([label('Depot', 100, 100, 0), label('', 96, 100)], measure, 400, 300);
    expect(both.map(({ text, middle }) => [text, middle])).toEqual([['Depot', 74]]);
  });
  test('a fence’s name makes room for a driver at its middle', () => {
    const fence = label('Depot', 100, 100, 0);
    expect(place([fence], measure, 400, 300)[0].middle).toBe(100);
    const both = place([label('anna', 100, 100), fence], measure, 400, 300);
    expect(both.map(({ text, middle }) => [text, middle])).toEqual([['anna', 100], ['Depot', 74]]);
  });
});

test('states depend on age first, then on speed', () => {
  setLimits(300, 86_400);
  expect([stateOf(12, 10), stateOf(0.2, 10), stateOf(NaN, 10), stateOf(12, 300), stateOf(NaN, 86_400)]).toEqual(['moving', 'standing', 'unknown', 'silent', 'hidden']);
  expect([shapeOf('moving', 90), shapeOf('moving', NaN), shapeOf('standing', 90), shapeOf('unknown', 90)]).toEqual([90, SHAPES.disc, SHAPES.square, SHAPES.diamond]);
});

test('drivers near each other are one disc, the others keep their names', () => {
  const row = (lat: number, lng: number, id: string) => ({ lat, lng, ts: 1, speed: 10, heading: 0, id });
  const tile = decode(encode('points', [row(10, 10, 'a'), row(10.001, 10, 'b'), row(40, 40, 'c')], 1000)) as Points;
  const { discs, singles } = cluster([tile], 0.01);
  expect(discs.map(({ count }) => count)).toEqual([2]);
  expect(discs[0].lat).toBeCloseTo(10.0005, 3);
  expect(singles[0].ids).toEqual(['c']);
  expect(singles[0].lat[0]).toBe(40);
});

test('a place is named by the fence it is in, or near', () => {
  const square = [[0, 0], [0.01, 0], [0.01, 0.01], [0, 0.01], [0, 0]];
  const hole = [[0.004, 0.004], [0.006, 0.004], [0.006, 0.006], [0.004, 0.006], [0.004, 0.004]];
  const depot = { type: 'Feature' as const, properties: { name: 'Depot', valid_from: 0 }, geometry: { type: 'MultiPolygon' as const, coordinates: [[square, hole]] } };
  expect(placeName([depot], 0.001, 0.001)).toBe('Depot');
  expect(placeName([depot], 0.012, 0.005)).toBe('220 m from Depot');
  expect(placeName([depot], 0.1, 0.1)).toBe('');
  expect(placeName([], 0, 0)).toBe('');
});

test('months have their days in weeks that begin on Monday', () => {
  expect(month('2026-11')).toMatchObject({ before: 6 });
  expect(month('2026-02').days.length).toBe(28);
  expect([monthAfter('2026-12', 1), monthAfter('2026-01', -1)]).toEqual(['2027-01', '2025-12']);
});

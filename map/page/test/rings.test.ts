import { expect, test } from 'vitest';
import { corners, hasOneRing, nearestCopy } from '../src/rings';

const polygon = (...rings: number[][][]) => ({ type: 'MultiPolygon' as const, coordinates: [rings] });
const square = [[0, 0], [1, 0], [1, 1], [0, 1]];

test('open and closed rings have the same corners', () => {
  expect(corners(polygon(square))).toEqual(square);
  expect(corners(polygon([...square, square[0]]))).toEqual(square);
});

test('a hole and a second outline are more than one ring', () => {
  expect(hasOneRing(polygon(square))).toBe(true);
  expect(hasOneRing(polygon(square, square))).toBe(false);
  expect(hasOneRing({ type: 'MultiPolygon', coordinates: [[square], [square]] })).toBe(false);
});

test('a corner moves to the copy of the world that has the outline', () => {
  expect([13.4, 373.4, -346.6, 179].map((lng) => Math.round(nearestCopy(lng, 13) * 10) / 10)).toEqual([13.4, 13.4, 13.4, 179]);
  // A corner on the same copy keeps its exact place.
  for (const lng of [-180, 180, 13.123456789012345]) expect(nearestCopy(lng, lng)).toBe(lng);
});

import { expect, test } from 'vitest';
import { corners, hasOneRing } from '../src/rings';

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

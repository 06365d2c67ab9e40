// Drivers painted by the CPU: the right pixels in the right colours, and none outside the image.
import { expect, test } from 'vitest';
import { Brush, drawnRatio, type Image } from '../src/dots';
import type { DriverData } from '../src/driver-layer';

const SIDE = 64;
/**
 * Width of the world in pixels, so wide that a driver far outside the image is not on another copy
 * of the world.
 */
const WORLD = 1024;
const GREEN = 0xff00ff00;
const LOOK = { now: 10, rim: [0, 0, 0, 0] as [number, number, number, number] };
const blank = (): Image => ({ width: SIDE, height: SIDE, pixels: new Uint32Array(SIDE * SIDE) });

interface Driver {
  x: number;
  y: number;
  heading?: number;
  /** The driver moves here from a place `west` pixels to the west; times in seconds. */
  move?: { west: number; start: number; duration: number };
}

/** Returns the data of drivers whose places are given in pixels. */
function data(...drivers: Driver[]): DriverData {
  const floats = (size: number, values: number[]) => ({ size, value: Float32Array.from(values) });
  return {
    length: drivers.length,
    anchor: [0, 0],
    attributes: {
      places: floats(2, drivers.flatMap(({ x, y }) => [(x + 0.5) / WORLD, (y + 0.5) / WORLD])),
      moves: floats(2, drivers.flatMap(({ move }) => [-(move?.west ?? 0) / WORLD, 0])),
      times: floats(2, drivers.flatMap(({ move }) => [move?.start ?? 0, move?.duration ?? 0])),
      headings: floats(1, drivers.map(({ heading }) => heading ?? -1)),
      colours: { size: 4, value: new Uint8ClampedArray(Uint32Array.from(drivers, () => GREEN).buffer) },
    },
  };
}

function painted(r: number, showHeadings: boolean, ...drivers: Driver[]): { at(x: number, y: number): number; count: number } {
  const image = blank();
  new Brush(r, showHeadings, 0, SIDE).paint(image, data(...drivers), LOOK, { world: WORLD, left: 0, top: 0 });
  return { at: (x, y) => image.pixels[y * SIDE + x], count: image.pixels.filter((pixel) => pixel !== 0).length };
}

test('a driver is a disc in its colour', () => {
  const { at, count } = painted(4, false, { x: 30, y: 20 });
  expect(at(30, 20)).toBe(GREEN);
  expect(at(33, 20)).toBe(GREEN);
  expect(at(30, 25)).toBe(0);
  expect(count).toBeGreaterThan(Math.PI * 9);
  expect(count).toBeLessThan(Math.PI * 25);
});

test('a nose points to the heading', () => {
  const east = painted(4, true, { x: 30, y: 20, heading: 90 });
  expect(east.at(35, 20)).not.toBe(0);
  expect(east.at(25, 20)).toBe(0);
  const north = painted(4, true, { x: 30, y: 20, heading: 0 });
  expect(north.at(30, 15)).not.toBe(0);
  expect(north.at(30, 25)).toBe(0);
  // 359.9° is rounded to north.
  expect(painted(4, true, { x: 30, y: 20, heading: 359.9 }).at(30, 15)).not.toBe(0);
});

test('a moving driver is drawn between two fixes', () => {
  const { at } = painted(2, false, { x: 40, y: 20, move: { west: 20, start: 9, duration: 2 } });
  expect(at(30, 20)).toBe(GREEN);
  expect(at(40, 20)).toBe(0);
});

test('a driver at an edge does not appear on the opposite side', () => {
  for (const [x, y] of [[-3, 20], [SIDE + 2, 20], [20, -3], [20, SIDE + 2], [0, 0], [SIDE - 1, SIDE - 1], [-1e9, 1e9]]) expect(painted(4, true, { x, y, heading: 45 }).count).toBe(0);
  expect(painted(4, true, { x: 10, y: 10, heading: 45 }).count).toBeGreaterThan(0);
});

test('a rim is darker than the middle; a later driver covers an earlier one', () => {
  const image = blank();
  new Brush(5, false, 1, SIDE).paint(image, data({ x: 20, y: 20 }, { x: 22, y: 20 }), LOOK, { world: WORLD, left: 0, top: 0 });
  expect(image.pixels[20 * SIDE + 22]).toBe(GREEN);
  expect((image.pixels[20 * SIDE + 17] >>> 8) & 0xff).toBeLessThan(200);
  expect(image.pixels[20 * SIDE + 17] >>> 24).toBe(255);
});

test('a CPU draws 1080p at most', () => {
  expect(drawnRatio(3840, 2160, 1)).toBe(0.5);
  expect(drawnRatio(1280, 800, 2)).toBeCloseTo(1.42, 2);
  expect(drawnRatio(1280, 800, 1)).toBe(1);
  expect(drawnRatio(0, 0, 1)).toBe(1);
});

import { expect, test } from 'vitest';
import { decode, type Points } from '../src/decode';
import { Fleet } from '../src/fleet';
import { encode, type Row } from './tile';

const tile = (...rows: Row[]) => decode(encode('points', rows)) as Points;
const A = { lat: 25, lng: -80, ts: 100, id: 'a' };

function drawn(fleet: Fleet, id: string, now: number): [number, number] {
  const [lng, lat] = fleet.at(fleet.slot(id)!, now);
  return [+lng.toFixed(6), +lat.toFixed(6)];
}

test('a driver moves from where it is drawn to its new fix, and stays', () => {
  const fleet = new Fleet();
  fleet.replace([tile(A)], 0);
  expect(fleet.arrivesAt).toBe(0);
  fleet.replace([tile({ ...A, lat: 25.0002, ts: 101 })], 10);
  expect(drawn(fleet, 'a', 10)).toEqual([-80, 25]);
  expect(drawn(fleet, 'a', 10.5)).toEqual([-80, 25.0001]);
  expect(drawn(fleet, 'a', 11)).toEqual([-80, 25.0002]);
  expect(drawn(fleet, 'a', 99)).toEqual([-80, 25.0002]);
  expect(fleet.arrivesAt).toBe(11);
});

test('a fix that arrives during a move changes the move, without a jump', () => {
  const fleet = new Fleet();
  fleet.replace([tile(A)], 0);
  fleet.replace([tile({ ...A, lat: 25.0002, ts: 101 })], 10);
  fleet.replace([tile({ ...A, lat: 25.0004, ts: 102 })], 10.5);
  expect(drawn(fleet, 'a', 10.5)).toEqual([-80, 25.0001]);
  expect(drawn(fleet, 'a', 11.5)).toEqual([-80, 25.0004]);
});

test('the same tile again does not stop a move', () => {
  const fleet = new Fleet();
  fleet.replace([tile(A)], 0);
  const moved = tile({ ...A, lat: 25.0002, ts: 101 });
  fleet.replace([moved], 10);
  fleet.replace([moved], 10.5);
  expect(drawn(fleet, 'a', 10.5)).toEqual([-80, 25.0001]);
  expect(drawn(fleet, 'a', 11)).toEqual([-80, 25.0002]);
});

test('a driver that moved impossibly fast jumps', () => {
  const fleet = new Fleet();
  fleet.replace([tile(A)], 0);
  fleet.replace([tile({ ...A, lat: 26, ts: 101 })], 10);
  expect(drawn(fleet, 'a', 10)).toEqual([-80, 26]);
});

test('a driver in two tiles is drawn once, at the newer fix', () => {
  const fleet = new Fleet();
  const [old, fresh] = [tile(A), tile({ ...A, lat: 25.5, ts: 160 })];
  for (const order of [[old, fresh], [fresh, old]]) {
    const both = new Fleet();
    both.replace(order, 0);
    expect([both.n, both.ts[0], both.lat[0]]).toEqual([1, 160, 25.5]);
  }
  fleet.replace([fresh], 0);
  fleet.replace([], 1);
  expect([fleet.n, fleet.slot('a')]).toEqual([0, undefined]);
});

test('the nearest driver is found only within reach', () => {
  const fleet = new Fleet();
  fleet.replace([tile(A, { ...A, id: 'b', lng: -80.01 })], 0);
  expect(fleet.ids[fleet.nearest(-80.008, 25, 0.005, 0.005, 0)!]).toBe('b');
  expect(fleet.nearest(-80.05, 25, 0.005, 0.005, 0)).toBeUndefined();
});

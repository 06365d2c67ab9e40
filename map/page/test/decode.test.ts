import { expect, test } from 'vitest';
import { decode, parts } from '../src/decode';
import { answer, encode, type Row } from './tile';

// Three rows: each column of one-byte or two-byte values does not end at a multiple of 4 bytes.
const ROWS: Row[] = [
  { lat: 25.7617, lng: -80.1918, ts: 1_700_000_000, speed: 12.4, heading: 271.5, id: 'd7' },
  { lat: -33.8688197, lng: 151.2092955, ts: 4_000_000_000, id: 'lorry-12' },
  { lat: 0, lng: 0, ts: 0, speed: 0, heading: 0, id: 'x' },
];

test('points are decoded as they were encoded', () => {
  const tile = decode(encode('points', ROWS));
  if (tile.kind !== 'points') throw new Error(tile.kind);
  expect(tile).toMatchObject({ n: 3, now: 1_700_000_000_000, ids: ['d7', 'lorry-12', 'x'] });
  expect([...tile.lat]).toEqual([25.7617, -33.8688197, 0]);
  expect([...tile.lng]).toEqual([-80.1918, 151.2092955, 0]);
  expect([...tile.ts]).toEqual([1_700_000_000, 4_000_000_000, 0]);
  expect(tile.speed[0]).toBeCloseTo(12.4);
  expect(tile.heading[0]).toBeCloseTo(271.5);
});

test('unknown values are not decoded as zero', () => {
  const tile = decode(encode('points', ROWS));
  if (tile.kind !== 'points') throw new Error(tile.kind);
  expect([tile.speed[1], tile.heading[1], tile.speed[2], tile.heading[2]]).toEqual([NaN, NaN, 0, 0]);
});

test('ids that are not ASCII are split by their length in bytes', () => {
  const ids = ['Zoë', 'Łódź-1', 'a'];
  const tile = decode(encode('points', ids.map((id) => ({ lat: 1, lng: 1, ts: 1, id }))));
  expect(tile).toMatchObject({ ids });
});

test('cells are decoded as they were encoded', () => {
  const tile = decode(encode('cells', [{ lat: 1.5, lng: 2.5, ts: 9, count: 70_000, speed: 3 }, { lat: 1, lng: 2, ts: 8, count: 1 }]));
  if (tile.kind !== 'cells') throw new Error(tile.kind);
  expect([...tile.count]).toEqual([70_000, 1]);
  expect([...tile.speed]).toEqual([3, NaN]);
});

test('an empty tile is valid', () => {
  expect(decode(encode('points', []))).toMatchObject({ kind: 'points', n: 0, ids: [] });
  expect(decode(encode('cells', []))).toMatchObject({ kind: 'cells', n: 0 });
});

test('a tile that is cut off anywhere is refused', () => {
  const whole = encode('points', ROWS);
  for (let length = 0; length < whole.byteLength; length++) expect(() => decode(whole.slice(0, length)), `${length} bytes`).toThrow();
  const newer = whole.slice(0);
  new Uint8Array(newer)[0] = 2;
  expect(() => decode(newer)).toThrow(/reload/);
});

test('a response of many tiles or none is decoded, and refused if cut off', () => {
  const tiles = [
    { z: 12, x: 2048, y: 1362, version: 2n ** 64n - 1n, body: encode('points', ROWS) },
    { z: 0, x: 0, y: 0, version: 0n, body: encode('cells', []) },
  ];
  const whole = answer(...tiles);
  expect(parts(whole)).toEqual(tiles);
  expect(parts(answer())).toEqual([]);
  for (let length = 1; length < whole.byteLength; length++) {
    if (length !== whole.byteLength - 24 - tiles[1].body.byteLength) expect(() => parts(whole.slice(0, length)), `${length} bytes`).toThrow('cut short');
  }
});

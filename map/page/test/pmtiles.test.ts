import { PMTiles, type RangeResponse, type Source } from 'pmtiles';
import { expect, test } from 'vitest';
import { BUBENEC, pmtiles } from './pmtiles';

test('the test file is read as PMTiles, with a tile where the town is', async () => {
  const bytes = pmtiles();
  const source: Source = {
    getKey: () => 'test',
    getBytes: async (offset, length): Promise<RangeResponse> => ({ data: bytes.slice(offset, offset + length).buffer }),
  };
  const file = new PMTiles(source);
  const header = await file.getHeader();
  expect([header.minZoom, header.maxZoom, header.tileType]).toEqual([6, 15, 1]);
  const n = 2 ** 14;
  const y = Math.floor((0.5 - Math.asinh(Math.tan((BUBENEC.lat * Math.PI) / 180)) / (2 * Math.PI)) * n);
  const tile = await file.getZxy(14, Math.floor(((BUBENEC.lng + 180) / 360) * n), y);
  expect(tile!.data.byteLength).toBeGreaterThan(1_000);
  expect(await file.getZxy(14, 0, 0)).toBeUndefined();
});

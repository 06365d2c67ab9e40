// A small PMTiles file in Protomaps' schema, for tests: streets and buildings of Bubeneč in Prague,
// which the PyPI package momepy 0.11 ships (© OpenStreetMap contributors, ODbL), with made-up
// names. The format is version 3 of the PMTiles specification, uncompressed.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { GeoJSONVT } from '@maplibre/geojson-vt';
import { fromGeojsonVt } from '@maplibre/vt-pbf';
import type { Feature, FeatureCollection, Geometry, Position } from 'geojson';
import { zxyToTileId } from 'pmtiles';

export const BUBENEC = { lng: 14.4037, lat: 50.1045 };
const [MIN_ZOOM, MAX_ZOOM] = [6, 15];
const HEADER_BYTES = 127;
/** All layers of the schema, as in a real file, though most are empty here. */
const LAYERS = ['boundaries', 'buildings', 'earth', 'landcover', 'landuse', 'places', 'pois', 'roads', 'water'];

const feature = (properties: Record<string, unknown>, geometry: Geometry): Feature => ({ type: 'Feature', properties, geometry });
const collection = (features: Feature[]): FeatureCollection => ({ type: 'FeatureCollection', features });

function layers(): Record<string, FeatureCollection> {
  const { streets, buildings } = JSON.parse(readFileSync(join(import.meta.dirname, 'bubenec.json'), 'utf8')) as { streets: Position[][]; buildings: Position[][][] };
  const { lng, lat } = BUBENEC;
  const around: Position[] = [[lng - 2, lat - 1], [lng + 2, lat - 1], [lng + 2, lat + 1], [lng - 2, lat + 1], [lng - 2, lat - 1]];
  return {
    earth: collection([feature({ kind: 'earth' }, { type: 'Polygon', coordinates: [around] })]),
    roads: collection(streets.map((coordinates, i) => feature({ kind: i % 3 === 0 ? 'major_road' : 'minor_road', kind_detail: i % 3 === 0 ? 'secondary' : 'residential', name: `Street ${i + 1}`, min_zoom: 6, sort_rank: 400 }, { type: 'LineString', coordinates }))),
    buildings: collection(buildings.map((coordinates) => feature({ kind: 'building' }, { type: 'Polygon', coordinates }))),
    places: collection([feature({ kind: 'locality', kind_detail: 'city', name: 'Bubeneč', min_zoom: 2, population_rank: 12, sort_rank: 1 }, { type: 'Point', coordinates: [lng, lat] })]),
  };
}

export function pmtiles(): Uint8Array {
  const indexes = Object.entries(layers()).map(([name, data]) => [name, new GeoJSONVT(data, { maxZoom: MAX_ZOOM, indexMaxZoom: 5, tolerance: 1, buffer: 64 })] as const);
  const tiles: { id: number; bytes: Uint8Array }[] = [];
  for (let z = MIN_ZOOM; z <= MAX_ZOOM; z++) {
    const n = 2 ** z;
    const [x0, y0] = [Math.floor(((BUBENEC.lng + 180) / 360) * n), Math.floor((0.5 - Math.asinh(Math.tan((BUBENEC.lat * Math.PI) / 180)) / (2 * Math.PI)) * n)];
    for (let x = x0 - 1; x <= x0 + 1; x++) {
      for (let y = y0 - 1; y <= y0 + 1; y++) {
        const cut = indexes.flatMap(([name, index]) => {
          const tile = index.getTile(z, x, y);
          return tile ? [[name, tile] as const] : [];
        });
        if (cut.length > 0) tiles.push({ id: zxyToTileId(z, x, y), bytes: fromGeojsonVt(Object.fromEntries(cut), { version: 2, extent: 4096 }) });
      }
    }
  }
  tiles.sort((a, b) => a.id - b.id);
  return archive(tiles);
}

function archive(tiles: { id: number; bytes: Uint8Array }[]): Uint8Array {
  const varints: number[] = [];
  const varint = (value: number) => {
    for (; value > 127; value = Math.floor(value / 128)) varints.push((value % 128) | 128);
    varints.push(value);
  };
  varint(tiles.length);
  tiles.forEach(({ id }, i) => varint(id - (i > 0 ? tiles[i - 1].id : 0)));
  tiles.forEach(() => varint(1));
  tiles.forEach(({ bytes }) => varint(bytes.length));
  // 0: directly after the previous tile. The first tile is at offset 0, which is written as 1.
  tiles.forEach((_, i) => varint(i === 0 ? 1 : 0));
  const directory = Uint8Array.from(varints);
  const metadata = new TextEncoder().encode(JSON.stringify({ name: 'test', vector_layers: LAYERS.map((id) => ({ id, fields: {} })) }));
  const data = tiles.reduce((sum, { bytes }) => sum + bytes.length, 0);
  const out = new Uint8Array(HEADER_BYTES + directory.length + metadata.length + data);
  const view = new DataView(out.buffer);
  out.set(new TextEncoder().encode('PMTiles'));
  view.setUint8(7, 3);
  const at = [HEADER_BYTES, directory.length, HEADER_BYTES + directory.length, metadata.length, 0, 0, HEADER_BYTES + directory.length + metadata.length, data, tiles.length, tiles.length, tiles.length];
  at.forEach((value, i) => view.setBigUint64(8 + 8 * i, BigInt(value), true));
  // Clustered; directories and tiles uncompressed; vector tiles.
  [1, 1, 1, 1, MIN_ZOOM, MAX_ZOOM].forEach((value, i) => view.setUint8(96 + i, value));
  const e7 = (degrees: number) => Math.round(degrees * 1e7);
  const { lng, lat } = BUBENEC;
  [e7(lng - 2), e7(lat - 1), e7(lng + 2), e7(lat + 1)].forEach((value, i) => view.setInt32(102 + 4 * i, value, true));
  view.setUint8(118, 14);
  view.setInt32(119, e7(lng), true);
  view.setInt32(123, e7(lat), true);
  out.set(directory, HEADER_BYTES);
  out.set(metadata, HEADER_BYTES + directory.length);
  let offset = HEADER_BYTES + directory.length + metadata.length;
  for (const { bytes } of tiles) {
    out.set(bytes, offset);
    offset += bytes.length;
  }
  return out;
}

// The map under the drivers when no tile server is configured: land, borders and a graticule, from
// Natural Earth (public domain). Nothing is loaded from another host, and places have no names. The
// sea is the background of the page (style.css).
import type { GeoJSONSource, Map as MapLibre, StyleSpecification } from 'maplibre-gl';
import coarse from '../made/land-110m.json?url';
import middle from '../made/land-50m.json?url';
import fine from '../made/land-10m.json?url';
import type { Theme } from './colours';
import { outlines, type Land } from './outlines';

const LEVELS = [
  { zoom: 0, url: coarse },
  { zoom: 2.5, url: middle },
  { zoom: 5.5, url: fine },
];

/**
 * Tolerance of MapLibre's simplification, in pixels. Without it the finest land, seen from afar,
 * has more points than MapLibre draws in a polygon.
 */
const TOLERANCE = 0.5;

const COLOURS = {
  dark: { land: '#172131', coast: '#35465f', border: '#2a3850', graticule: '#1b2738' },
  light: { land: '#f8f8f5', coast: '#a9b8c6', border: '#b9c2cb', graticule: '#dbe3ea' },
} as const;

export function style(theme: Theme): StyleSpecification {
  const colour = COLOURS[theme];
  const empty = { type: 'FeatureCollection' as const, features: [] };
  return {
    version: 8,
    sources: {
      land: { type: 'geojson', data: empty, tolerance: TOLERANCE },
      coast: { type: 'geojson', data: empty, tolerance: TOLERANCE },
      borders: { type: 'geojson', data: empty, tolerance: TOLERANCE },
      graticule: { type: 'geojson', data: empty },
    },
    layers: [
      { id: 'land', type: 'fill', source: 'land', paint: { 'fill-color': colour.land, 'fill-antialias': false } },
      { id: 'graticule', type: 'line', source: 'graticule', paint: { 'line-color': colour.graticule, 'line-width': 1 } },
      { id: 'border', type: 'line', source: 'borders', paint: { 'line-color': colour.border, 'line-width': 1 } },
      { id: 'coast', type: 'line', source: 'coast', paint: { 'line-color': colour.coast, 'line-width': 1 } },
    ],
  };
}

/** Changes the style to the colours of a theme, without loading anything again. */
export function repaint(map: MapLibre, theme: Theme): void {
  for (const layer of style(theme).layers) {
    for (const [name, value] of Object.entries(layer.paint ?? {})) map.setPaintProperty(layer.id, name as 'fill-color', value as string);
  }
}

/** Loads the land in the detail that the zoom needs, now and whenever the viewer zooms in. */
export function keepLand(map: MapLibre): void {
  let level = -1;
  let isLoading = false;
  async function load(): Promise<void> {
    const wanted = LEVELS.findLastIndex(({ zoom }) => map.getZoom() >= zoom);
    if (isLoading || wanted <= level) return;
    isLoading = true;
    // Loads the coarse levels first, even if the zoom needs a finer one: they arrive much earlier.
    const next = level + 1;
    try {
      // The drivers load first, because the finer levels are as large as the rest of the page.
      if (next > 0) await map.once('idle');
      const response = await fetch(LEVELS[next].url);
      const drawn = outlines((await response.json()) as Land);
      for (const [name, geometry] of Object.entries(drawn)) source(map, name)?.setData({ type: 'Feature', properties: {}, geometry });
      level = next;
    } catch {
      // The server does not answer: try again at the next zoom.
      return;
    } finally {
      isLoading = false;
    }
    await load();
  }
  map.on('zoomend', () => void load());
  void load();
}

/** Draws the graticule at intervals that suit the zoom, now and whenever the map has moved. */
export function keepGraticule(map: MapLibre): void {
  let drawn = '';
  function update(): void {
    const step = graticuleStep(map.getZoom());
    const bounds = map.getBounds();
    // The view plus half a block, rounded up to whole blocks, so that a small move draws nothing
    // again.
    const block = step * 8;
    const [west, east] = lines(bounds.getWest(), bounds.getEast(), block);
    const south = Math.max(-80, Math.floor((bounds.getSouth() - block / 2) / block) * block);
    const north = Math.min(80, Math.ceil((bounds.getNorth() + block / 2) / block) * block);
    const name = [step, west, east, south, north].join();
    if (name === drawn) return;
    drawn = name;
    source(map, 'graticule')?.setData({ type: 'Feature', properties: {}, geometry: { type: 'MultiLineString', coordinates: graticule(step, west, south, east, north) } });
  }
  map.on('moveend', update);
  update();
}

/**
 * Returns the first and the last longitude of the lines, in whole blocks; they continue beyond
 * 180°.
 */
function lines(west: number, east: number, block: number): [west: number, east: number] {
  const [from, to] = [Math.floor((west - block / 2) / block) * block, Math.ceil((east + block / 2) / block) * block];
  return to - from >= 360 ? [-180, 180] : [from, to];
}

export function graticuleStep(zoom: number): number {
  // Lines are about 90 to 225 pixels apart.
  const degrees = (180 * 180) / (512 * 2 ** zoom);
  return [30, 20, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002].findLast((step) => step >= degrees) ?? 30;
}

function graticule(step: number, west: number, south: number, east: number, north: number): number[][][] {
  const lines: number[][][] = [];
  // Multiplies instead of adding up, because sums of 0.1 drift.
  for (let i = Math.ceil(west / step); i * step <= east; i++) lines.push([[i * step, Math.max(-85, south)], [i * step, Math.min(85, north)]]);
  for (let i = Math.ceil(south / step); i * step <= north; i++) lines.push([[west, i * step], [east, i * step]]);
  return lines;
}

function source(map: MapLibre, id: string): GeoJSONSource | undefined {
  return map.getSource(id);
}

// The style of a basemap from one PMTiles file in Protomaps' schema, which milepost-map serves in
// ranges. This module is loaded only if `map.basemap` is set.
import { layers, type Flavor } from '@protomaps/basemaps';
import { addProtocol, type LayerSpecification, type Map as MapLibre, type StyleSpecification } from 'maplibre-gl';
import { Protocol } from 'pmtiles';
import inter from '@fontsource-variable/inter/files/inter-latin-wght-normal.woff2?url';
import interExt from '@fontsource-variable/inter/files/inter-latin-ext-wght-normal.woff2?url';
import { style } from './background';
import type { Theme } from './colours';
import { flavorOf } from './flavor';

/** Up to this zoom towns have names. */
const TOWN_ZOOM_MAX = 14;

let isRegistered = false;

/**
 * Returns the style of a theme. It has no glyphs and no sprite: MapLibre draws letters in the
 * page's own font, and `icon` draws the icons.
 */
export function streets(theme: Theme): StyleSpecification {
  if (!isRegistered) {
    addProtocol('pmtiles', new Protocol({ metadata: true }).tile);
    isRegistered = true;
  }
  const flavor = flavorOf(theme);
  const url = new URL('basemap.pmtiles', document.baseURI).href;
  const font = [{ url: inter, 'unicode-range': ['U+0000-00FF', 'U+0131', 'U+2000-206F'] }, { url: interExt, 'unicode-range': ['U+0100-02BA', 'U+1E00-1E9F'] }];
  return {
    version: 8,
    sources: { ...style(theme).sources, streets: { type: 'vector', url: `pmtiles://${url}`, attribution: '<a href="https://www.openstreetmap.org/copyright">© OpenStreetMap</a>' } },
    'font-faces': { 'Noto Sans Regular': font, 'Noto Sans Medium': font, 'Noto Sans Italic': font },
    // Without points of interest, so that drivers are the colourful part of the map.
    layers: withLand(layers('streets', flavor, { lang: navigator.language.slice(0, 2) }), style(theme).layers, flavor),
  };
}

/**
 * Adds the coasts and borders of the world below the tiles, because the file may have only one
 * region.
 */
function withLand(streets: LayerSpecification[], land: LayerSpecification[], flavor: Flavor): LayerSpecification[] {
  const sea: LayerSpecification = { id: 'background', type: 'background', paint: { 'background-color': flavor.water } };
  const coloured = land.filter(({ id }) => id !== 'graticule').map((layer) => (layer.type === 'fill' ? { ...layer, paint: { ...layer.paint, 'fill-color': flavor.earth } } : layer));
  const drawn = streets.filter(({ type }) => type !== 'background');
  // Hide a town's name when the map is zoomed in to a street: the large name would be in the way of
  // drivers and fences.
  return [sea, ...coloured, ...drawn.map((layer) => (layer.id === 'places_locality' ? { ...layer, maxzoom: TOWN_ZOOM_MAX } : layer))];
}

/**
 * Makes the map draw the few icons that the style names: a dot for places, an arrow for one-way
 * streets, a plate for road numbers.
 */
export function keepIcons(map: MapLibre): void {
  map.setMissingStyleImageResolver((id) => {
    if (!map.hasImage(id)) map.addImage(id, icon(id), { pixelRatio: 2 });
  });
}

function icon(id: string): ImageData {
  const size = /shield|char$/.test(id) ? [56, 32] : [20, 20];
  const canvas = new OffscreenCanvas(size[0], size[1]);
  const context = canvas.getContext('2d')!;
  const [width, height] = size;
  context.fillStyle = context.strokeStyle = '#8794a8';
  context.lineWidth = 2;
  if (/shield|char$/.test(id)) {
    context.fillStyle = 'rgba(255,255,255,0.9)';
    context.beginPath();
    context.roundRect(1, 1, width - 2, height - 2, 6);
    context.fill();
    context.stroke();
  } else if (/arrow/.test(id)) {
    context.beginPath();
    context.moveTo(3, 10);
    context.lineTo(17, 10);
    context.moveTo(11, 4);
    context.lineTo(17, 10);
    context.lineTo(11, 16);
    context.stroke();
  } else if (/spot|capital|city|town/.test(id)) {
    context.beginPath();
    context.arc(width / 2, height / 2, 5, 0, 2 * Math.PI);
    context.fill();
  }
  return context.getImageData(0, 0, width, height);
}

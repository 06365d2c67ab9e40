// The layers of fences, and of the outline that is edited.
import type { FeatureCollection } from 'geojson';
import type { ExpressionSpecification, GeoJSONSource, Map as MapLibre, StyleSpecification } from 'maplibre-gl';
import type { Theme } from './colours';

/** Colour of an outline, by theme. The corners of a draft have the same one (style.css). */
export const FENCE_COLOURS: Record<Theme, string> = { dark: '#b06cf0', light: '#7d35c8' };
/** Width of an outline in pixels, and of that of the fence in the card. */
const LINE_PX = 2;
const CHOSEN_PX = 4;
/** The area of a fence wider than this is fainter, because it would colour the whole map. */
const WIDE_PX = 1_000;
/** The outline of a fence narrower than this is not drawn: it would be a speck. */
const SPECK_PX = 8;
const AREA_OPACITY = 0.12;
const ZOOM_MAX = 19;

/** Returns an opacity that depends on the width of a fence in pixels, as of each whole zoom. */
function byWidth(pixels: number, wider: number, narrower: number): ExpressionSpecification {
  const at = (zoom: number): ExpressionSpecification => ['case', ['>', ['get', 'width'], (pixels * 360) / (512 * 2 ** zoom)], wider, narrower];
  return ['step', ['zoom'], at(0), ...Array.from({ length: ZOOM_MAX }, (_, i) => [i + 1, at(i + 1)] as const).flat()] as ExpressionSpecification;
}

/** Copies the page's own sources and layers from the previous style into a new one. */
export function keepOwnLayers(before: StyleSpecification | undefined, after: StyleSpecification): StyleSpecification {
  const own = (name: string) => /^(fence|heat)/.test(name);
  // Both styles have the sources of the land, but only the previous one has their data.
  const sources = Object.entries(before?.sources ?? {}).filter(([name]) => own(name) || /^(land|coast|borders)$/.test(name));
  return { ...after, sources: { ...after.sources, ...Object.fromEntries(sources) }, layers: [...after.layers, ...(before?.layers ?? []).filter(({ id }) => own(id))] };
}

export class FenceLayers {
  constructor(
    private readonly map: MapLibre,
    private theme: Theme,
  ) {}

  /** Draws fences in the colour of a theme. Called before a new style, which copies the layers. */
  setTheme(theme: Theme): void {
    this.theme = theme;
    for (const id of ['fences', 'fence-draft']) {
      if (!this.map.getSource(id)) continue;
      this.map.setPaintProperty(`${id}-area`, 'fill-color', FENCE_COLOURS[theme]);
      this.map.setPaintProperty(`${id}-line`, 'line-color', FENCE_COLOURS[theme]);
    }
  }

  /** Draws the outline of the fence in the card wider; null: of none. */
  choose(name: string | null): void {
    if (this.map.getLayer('fences-line')) this.map.setPaintProperty('fences-line', 'line-width', ['case', ['==', ['get', 'name'], name], CHOSEN_PX, LINE_PX]);
  }

  setData(id: string, data: FeatureCollection): void {
    const source: GeoJSONSource | undefined = this.map.getSource(id);
    if (source) return void source.setData(data);
    this.map.addSource(id, { type: 'geojson', data });
    const colour = FENCE_COLOURS[this.theme];
    const isDraft = id === 'fence-draft';
    this.map.addLayer({ id: `${id}-area`, type: 'fill', source: id, paint: { 'fill-color': colour, 'fill-opacity': isDraft ? AREA_OPACITY : byWidth(WIDE_PX, 0.03, AREA_OPACITY) } });
    this.map.addLayer({ id: `${id}-line`, type: 'line', source: id, paint: { 'line-color': colour, 'line-width': LINE_PX, ...(isDraft ? { 'line-dasharray': [2, 1.5] } : { 'line-opacity': byWidth(SPECK_PX, 1, 0) }) } });
  }
}

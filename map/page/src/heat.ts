// The heatmap of the fixes of a span of time in the area in view. The server counts fixes in cells,
// and MapLibre draws them.
import type { FeatureCollection, Point } from 'geojson';
import type { GeoJSONSource, HeatmapLayerSpecification, Map as MapLibre } from 'maplibre-gl';
import { ApiError, history } from './api';
import { serverNow } from './clock';
import type { Cells } from './decode';
import { byId, make, setPressed, setText } from './dom';
import { formatCount } from './words';
import { bounds } from './view';
import { When, WRITE_TIME } from './when';
import { minutes } from './zone';

const HOUR_MS = 3_600_000;
const PAUSE_MS = 250;

const PAINT: NonNullable<HeatmapLayerSpecification['paint']> = {
  'heatmap-weight': ['get', 'weight'],
  'heatmap-intensity': 0.5,
  // A cell is 8 to 16 pixels wide (see load), so its disc reaches across about two neighbours.
  'heatmap-radius': 26,
  'heatmap-color': [
    'interpolate', ['linear'], ['heatmap-density'],
    0, 'rgba(43,63,140,0)', 0.08, 'rgba(43,63,140,0.55)', 0.3, '#6a3fa0', 0.55, '#c2417c', 0.8, '#f5804f', 1, '#fde58a',
  ],
  'heatmap-opacity': 0.85,
};

interface Options {
  /** Called before the box opens: the other boxes are at the same place. */
  opening(): void;
  changed(on: boolean): void;
  /** Returns the group whose fixes are counted; empty: every group. */
  group(): string;
}

export class Heat {
  on = false;
  private hours: number | null = 1;
  private readonly box = byId('heat-box', HTMLElement);
  private readonly button = byId('heat', HTMLButtonElement);
  private readonly message = byId('heat-said', HTMLElement);
  private readonly scale = byId('heat-labels', HTMLUListElement);
  private readonly from = new When('heat-from', () => this.choose(null));
  private readonly to = new When('heat-to', () => this.choose(null));
  private readonly spans = this.box.querySelectorAll<HTMLButtonElement>('[data-hours]');
  private request: AbortController | null = null;
  private timer = 0;

  constructor(
    private readonly map: MapLibre,
    private readonly options: Options,
  ) {
    this.button.addEventListener('click', () => this.toggle());
    byId('heat-close', HTMLButtonElement).addEventListener('click', () => this.toggle());
    for (const span of this.spans) span.addEventListener('click', () => this.choose(Number(span.dataset.hours)));
    map.on('moveend', () => this.loadSoon());
  }

  toggle(): void {
    if (!this.on) this.options.opening();
    this.on = !this.on;
    setPressed(this.button, this.on);
    this.box.hidden = !this.on;
    this.options.changed(this.on);
    if (this.on) {
      this.choose(this.hours);
    } else {
      clearTimeout(this.timer);
      this.request?.abort();
      if (this.map.getLayer('heat')) this.map.setLayoutProperty('heat', 'visibility', 'none');
      if (this.box.contains(document.activeElement)) this.button.focus();
    }
  }

  private choose(hours: number | null): void {
    this.hours = hours;
    for (const span of this.spans) setPressed(span, Number(span.dataset.hours) === hours);
    void this.load();
  }

  /** Counts again, for other drivers. */
  reload(): void {
    if (this.on) void this.load();
  }

  /** Called when the zone has changed. */
  redraw(): void {
    this.from.redraw();
    this.to.redraw();
  }

  private loadSoon(): void {
    clearTimeout(this.timer);
    if (this.on) this.timer = window.setTimeout(() => void this.load(), PAUSE_MS);
  }

  /** Returns the span in Unix ms; null: the fields do not have a valid one. */
  private span(): [from: number, to: number] | null {
    if (this.hours !== null) {
      const to = Math.floor(serverNow());
      [this.from.value, this.to.value] = minutes(to - this.hours * HOUR_MS, to);
      return [to - this.hours * HOUR_MS, to];
    }
    const [from, to] = [this.from.ms, this.to.ms];
    return from < to ? [from, to] : null;
  }

  private async load(): Promise<void> {
    this.request?.abort();
    const span = this.span();
    if (!span) return setText(this.message, this.from.value && this.to.value ? 'The span must begin before it ends.' : WRITE_TIME);
    const controller = (this.request = new AbortController());
    setText(this.message, 'Counting …');
    try {
      const zoom = Math.max(0, Math.floor(this.map.getZoom())) + 1;
      const { cells, truncated } = await history(bounds(this.map), zoom, ...span, this.options.group(), controller.signal);
      if (controller.signal.aborted) return;
      this.draw(cells);
      const fixes = cells.count.reduce((sum, count) => sum + count, 0);
      this.scale.replaceChildren(...scale(cells).map((count) => make('li', formatCount(count))));
      setText(this.message, `${formatCount(fixes)} fixes in view.${truncated ? ' More than the server counts at once: zoom in, or choose a shorter span.' : ''}`);
    } catch (error) {
      if (controller.signal.aborted) return;
      setText(this.message, error instanceof ApiError ? error.message : 'The server does not answer.');
    }
  }

  private draw(cells: Cells): void {
    const data = features(cells);
    const source: GeoJSONSource | undefined = this.map.getSource('heat');
    if (source) source.setData(data);
    else {
      this.map.addSource('heat', { type: 'geojson', data, tolerance: 0, maxzoom: 18 });
      this.map.addLayer({ id: 'heat', type: 'heatmap', source: 'heat', paint: PAINT });
    }
    this.map.setLayoutProperty('heat', 'visibility', 'visible');
  }
}

/** Returns the numbers of fixes in a cell at the beginning, the middle and the end of the scale. */
export function scale(cells: Cells): number[] {
  const most = cells.count.reduce((max, count) => Math.max(max, count), 1);
  return [...new Set([1, Math.round(Math.expm1(Math.log1p(most) / 2)), most])].filter((count) => count > 0);
}

/**
 * Returns the cells as weighted points. Weights are logarithmic, so that a depot where all drivers
 * stand at night does not outshine the roads.
 */
export function features(cells: Cells): FeatureCollection<Point> {
  const most = Math.log1p(cells.count.reduce((max, count) => Math.max(max, count), 1));
  return {
    type: 'FeatureCollection',
    features: Array.from(cells.count, (count, i) => ({
      type: 'Feature' as const,
      properties: { weight: Math.log1p(count) / most },
      geometry: { type: 'Point' as const, coordinates: [cells.lng[i], cells.lat[i]] },
    })),
  };
}


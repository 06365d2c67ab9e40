// Draws what is above the map: drivers, cells, the chosen driver, its track. It draws a frame only
// when something has changed or moves.
import type { Layer } from '@deck.gl/core';
import { ScatterplotLayer, TextLayer } from '@deck.gl/layers';
import type { MapboxOverlay } from '@deck.gl/mapbox';
import { Marker, type Map as MapLibre } from 'maplibre-gl';
import type { Found } from './api';
import { cluster, join, radius, type Disc } from './cells';
import { seconds, serverNow } from './clock';
import { colour, paint, type ColourBy, type Theme } from './colours';
import { make } from './dom';
import type { Points } from './decode';
import type { Dots } from './dots';
import { driverData, DriverLayer, type DriverData, type DriverLook } from './driver-layer';
import { Fleet } from './fleet';
import type { Shown } from './live';
import { inStates } from './past';
import { trackLayers, type TrackView } from './track-layers';
import { shapeOf, SHOWN, stateOf, type DriverState } from './states';
import { project } from './view';
import { shortCount } from './words';

export interface Chosen {
  id: string;
  /** Place of the last fix, for the case that the driver is drawn as part of a disc. */
  lng: number;
  lat: number;
}

/** Pixels between a dot and the ring of a list around it. */
export const MARK_PX = 5;

const PAUSE_MS_MAX = 250;
/** Below this zoom drivers near each other are one disc. */
export const CLUSTER_ZOOM = 8.5;
const CLUSTER_PX = 36;
/** Colour of a disc before its tint: that of the land. */
const DISC = { dark: [23, 33, 49, 0], light: [248, 248, 245, 0] } as const;
const TEXT = { dark: [235, 241, 250], light: [24, 34, 48] } as const;

/**
 * Returns the radius of a dot, in pixels. Dots are small if there are many drivers, or from far
 * away.
 */
export function dotRadius(drivers: number, zoom: number): number {
  const room = Math.min(7, Math.max(2.5, 2.5 + (zoom - 7) * 0.6));
  if (drivers <= 1_000) return room;
  if (drivers <= 4_000) return Math.min(5.5, room);
  if (drivers <= 10_000) return Math.min(4, room);
  return drivers <= 20_000 ? 3 : 2.2;
}

export class Scene {
  readonly fleet = new Fleet();
  discs: Disc[] = [];
  private zoom = 0;
  private present: Shown | null = null;
  private past: Points | null = null;
  /** States that are drawn; the server leaves out the others of the present, but not all of them. */
  private states: ReadonlySet<DriverState> = new Set(SHOWN);
  theme: Theme;
  colourBy: ColourBy = 'state';
  /** Called after each frame, to write the names beside the drivers. */
  drawn: () => void = () => {};
  private data: DriverData = { length: 0, anchor: [0, 0], attributes: {} };
  private cellLayers: Layer[] = [];
  /** The fleet is hidden, because the heatmap is shown. */
  isFleetHidden = false;
  private chosen: Chosen | null = null;
  private marked: Found[] = [];
  /** Drivers of a list, with rings around them. */
  markedIds: ReadonlySet<string> = new Set();
  private track: TrackView | null = null;
  private readonly ring = new Marker({ element: ringElement(), subpixelPositioning: true });
  /** The layers on the GPU are out of date. */
  private stale = true;
  private frame = 0;
  private nextFrame = 0;
  /** Frames drawn, for the bench. */
  frames = 0;

  constructor(
    private readonly map: MapLibre,
    private readonly overlay: MapboxOverlay,
    /** Paints the drivers with the CPU; null: the graphics card draws them. */
    private readonly dots: Dots | null,
    theme: Theme,
    /** Factor by which symbols are larger, on a large screen. */
    private readonly scale: () => number,
  ) {
    this.theme = theme;
    // Draws in the same frame in which the map moves; otherwise the drivers would lag behind the
    // map.
    if (dots) map.on('render', () => dots.draw(this.isFleetHidden ? null : this.data, this.look(seconds())));
  }

  /**
   * Shows the fleet at a moment of the past; null: the present again. Returns the number of
   * drivers.
   */
  showPast(past: Points | null): number {
    this.past = past && inStates(past, this.states);
    if (this.present) this.show(this.present, this.zoom);
    return this.past?.n ?? 0;
  }

  /** Draws only drivers in these states. */
  setStates(shown: readonly DriverState[]): void {
    this.states = new Set(shown);
    if (this.present) this.show(this.present, this.zoom);
  }

  show(present: Shown, zoom: number): void {
    this.present = present;
    const nothing: Shown = { points: [], cells: [] };
    const { points, cells } = this.past ? { points: [this.past], cells: [] } : this.states.size === 0 ? nothing : present;
    this.zoom = zoom;
    const world = 512 * 2 ** Math.floor(zoom);
    // When zoomed out, dots would cover each other, so drivers are joined to discs. A replay keeps
    // its dots, so that they move.
    const near = zoom < CLUSTER_ZOOM && !this.past ? cluster(points, CLUSTER_PX / world) : { discs: [], singles: points };
    this.fleet.replace(near.singles, seconds());
    // Discs are 48 to 96 pixels apart, so that they and their counts do not cover each other.
    this.discs = [...join(cells, 48 / world), ...near.discs];
    this.restyle();
  }

  restyle(): void {
    this.data = this.attributes();
    this.change();
  }

  choose(chosen: Chosen | null): void {
    this.chosen = chosen;
    this.invalidate();
  }

  showTrack(track: TrackView | null): void {
    this.track = track;
    this.change();
  }

  /** A track is shown, and the live fleet is faint. */
  get hasTrack(): boolean {
    return this.track !== null;
  }

  /** Draws rings around the drivers of a list. */
  mark(found: Found[]): void {
    this.marked = found;
    this.markedIds = new Set(found.map(({ driver_id }) => driver_id));
    this.change();
  }

  setFleetHidden(isFleetHidden: boolean): void {
    this.isFleetHidden = isFleetHidden;
    this.change();
  }

  private change(): void {
    // Creates new layers, because deck.gl does not accept a layer again after it has removed it.
    this.cellLayers = [...this.discLayers(), this.rings()];
    this.stale = true;
    this.invalidate();
  }

  invalidate(): void {
    this.frame ||= requestAnimationFrame(() => this.draw());
  }

  /** Returns the disc that is drawn at this point of the page. */
  discAt(x: number, y: number): Disc | undefined {
    const isAt = ({ lng, lat, count }: Disc) => {
      const place = project(this.map, [lng, lat]);
      return Math.hypot(place.x - x, place.y - y) <= radius(count) * this.scale();
    };
    return this.track ? undefined : this.discs.find(isAt);
  }

  /** Radius of a dot, in pixels. */
  dotSize(): number {
    return dotRadius(this.fleet.n, this.zoom) * this.scale();
  }

  /** Radius of the ring around the chosen driver, in pixels. */
  ringSize(): number {
    return this.dotSize() * 1.9 + 6;
  }

  get isReplay(): boolean {
    return this.past !== null;
  }

  /** Returns the areas of the drawn discs, in pixels of the page. */
  discAreas(): { left: number; top: number; right: number; bottom: number }[] {
    if (this.track || this.isFleetHidden) return [];
    return this.discs.map(({ lng, lat, count }) => {
      const { x, y } = project(this.map, [lng, lat]);
      const reach = radius(count) * this.scale();
      return { left: x - reach, top: y - reach, right: x + reach, bottom: y + reach };
    });
  }

  private draw(): void {
    this.frame = 0;
    this.frames++;
    const now = seconds();
    // While the map moves, its `render` event draws the dots.
    if (this.dots && !this.map.isMoving()) this.dots.draw(this.isFleetHidden ? null : this.data, this.look(now));
    if (!this.dots || this.stale) this.overlay.setProps({ layers: this.layers(now) });
    this.stale = false;
    this.ringChosen(now);
    this.drawn();
    clearTimeout(this.nextFrame);
    if (now < this.fleet.arrivesAt) this.nextFrame = window.setTimeout(() => this.invalidate(), this.pauseMs());
  }

  private look(now: number): DriverLook {
    const radius = this.dotSize();
    return {
      now,
      radius,
      showHeadings: radius >= 4,
      rim: this.theme === 'dark' ? [6, 10, 18, 0.75] : [255, 255, 255, 0.95],
      // The live fleet is faint while a track is shown.
      opacity: this.track ? 0.25 : 1,
    };
  }

  private layers(now: number): Layer[] {
    const track = this.track ? trackLayers(this.track, this.theme, this.scale()) : [];
    if (this.isFleetHidden) return track;
    const drivers = this.dots ? [] : [new DriverLayer({ id: 'drivers', data: this.data, ...this.look(now) })];
    return [...(this.track ? [] : this.cellLayers), ...drivers, ...track];
  }

  /**
   * Returns the time until the fastest driver has moved by a third of a pixel; no frame is needed
   * before that. When the map shows a large area, this time is long, and needless frames would
   * drain a laptop's battery.
   */
  private pauseMs(): number {
    const pixelsPerDegree = (512 * 2 ** this.map.getZoom()) / 360;
    return Math.min(PAUSE_MS_MAX, 333 / (this.fleet.fastest * pixelsPerDegree || 1));
  }

  private attributes(): DriverData {
    const { n, speed, heading, ts } = this.fleet;
    const headings = new Float32Array(n);
    const colours = new Uint8ClampedArray(n * 4);
    const now = (this.past?.now ?? serverNow()) / 1000;
    for (let i = 0; i < n; i++) {
      headings[i] = shapeOf(stateOf(speed[i], now - ts[i]), heading[i]);
      paint(colours, 4 * i, this.colourBy, this.theme, speed[i], now - ts[i]);
    }
    const { lat, lng, dLat, dLng, start, duration } = this.fleet;
    return driverData({ n, lat, lng, dLat, dLng, start, duration, headings, colours });
  }

  private discLayers(): Layer[] {
    const now = serverNow() / 1000;
    const { theme, colourBy } = this;
    const tint = (disc: Disc, alpha: number) => {
      // A disc of several drivers has no single state.
      const [red, green, blue] = colourBy === 'state' && disc.count > 1 ? TEXT[theme] : colour(colourBy, theme, disc.speed, now - disc.ts);
      return [red, green, blue, alpha] as [number, number, number, number];
    };
    // Nearly opaque, so that the outline of a small fence below it does not cross the count.
    const fill = (disc: Disc) => {
      const [red, green, blue] = tint(disc, 255).map((value, i) => DISC[theme][i] + (value - DISC[theme][i]) * 0.22);
      return [red, green, blue, 240] as [number, number, number, number];
    };
    const scale = this.scale();
    const [red, green, blue] = TEXT[theme];
    return [
      new ScatterplotLayer<Disc>({
        id: 'cells',
        data: this.discs,
        getPosition: ({ lng, lat }) => [lng, lat],
        radiusUnits: 'pixels',
        getRadius: ({ count }) => radius(count) * scale,
        // A disc of one driver looks like a dot.
        getFillColor: (disc) => (disc.count === 1 ? tint(disc, 255) : fill(disc)),
        stroked: true,
        lineWidthUnits: 'pixels',
        getLineWidth: 1.5,
        getLineColor: (disc) => tint(disc, 235),
        // The same discs have other colours in another theme.
        updateTriggers: { getFillColor: [theme, colourBy], getLineColor: [theme, colourBy] },
      }),
      new TextLayer<Disc>({
        id: 'counts',
        data: this.discs.filter(({ count }) => count > 1),
        characterSet: '0123456789.kM',
        getPosition: ({ lng, lat }) => [lng, lat],
        getText: ({ count }) => shortCount(count),
        getSize: 11.5 * scale,
        getColor: [red, green, blue, 255],
        fontFamily: '"Inter Variable", system-ui, sans-serif',
        fontWeight: 600,
        fontSettings: { fontSize: 46, buffer: 4 },
      }),
    ];
  }

  private rings(): Layer {
    const [red, green, blue] = this.theme === 'dark' ? [255, 255, 255] : [16, 28, 48];
    const now = seconds();
    return new ScatterplotLayer<Found>({
      id: 'marked',
      data: this.marked,
      getPosition: ({ driver_id, lng, lat }) => {
        const slot = this.fleet.slot(driver_id);
        return slot === undefined ? [lng, lat] : this.fleet.at(slot, now);
      },
      radiusUnits: 'pixels',
      getRadius: this.dotSize() + MARK_PX,
      filled: false,
      stroked: true,
      lineWidthUnits: 'pixels',
      getLineWidth: 2,
      getLineColor: [red, green, blue, 230],
    });
  }

  /**
   * Moves the ring around the chosen driver. The ring is an HTML element, so that its moves do not
   * redraw the layers.
   */
  private ringChosen(now: number): void {
    if (!this.chosen || this.track) return void this.ring.remove();
    const slot = this.fleet.slot(this.chosen.id);
    if (slot === undefined && this.past) return void this.ring.remove();
    const element = this.ring.getElement();
    element.style.setProperty('--size', `${2 * this.ringSize()}px`);
    // If the driver is in a disc, nothing else marks its place.
    element.classList.toggle('alone', slot === undefined);
    this.ring.setLngLat(slot === undefined ? this.chosen : this.fleet.at(slot, now)).addTo(this.map);
  }
}

function ringElement(): HTMLElement {
  const element = make('div');
  element.className = 'ring';
  element.ariaHidden = 'true';
  return element;
}

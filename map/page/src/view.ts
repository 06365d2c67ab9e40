// Sets up MapLibre: flat, north up, with keyboard control, and deck.gl's canvas above it. The map
// continues at 180°, and shows each place only once.
import { MapboxOverlay } from '@deck.gl/mapbox';
import { Map as MapLibre, NavigationControl, ScaleControl, setWorkerUrl, type StyleSpecification } from 'maplibre-gl';
// A separate file instead of a blob: script-src of the CSP is only 'self'.
import workerUrl from 'maplibre-gl/dist/maplibre-gl-worker.mjs?worker&url';
import { keepGraticule, keepLand, style } from './background';
import type { Theme } from './colours';
import { drawnRatio } from './dots';
import type { Place } from './hash';
import { nearestCopy } from './rings';
import { around, type Bounds } from './tiles';

/**
 * Creates the map, and waits until its style has loaded. `ownStyle`: the style of `map.basemap`.
 * `isSoftware`: the CPU draws WebGL. `begun` is called before the style loads.
 */
export async function createMap(container: HTMLElement, styleUrl: string | null, ownStyle: StyleSpecification | null, theme: Theme, place: Place | null, isSoftware: boolean, begun: (map: MapLibre) => void): Promise<{ map: MapLibre; overlay: MapboxOverlay }> {
  setWorkerUrl(workerUrl);
  const ratio = () => drawnRatio(container.clientWidth, container.clientHeight, devicePixelRatio);
  const map = new MapLibre({
    container,
    style: styleUrl ?? ownStyle ?? style(theme),
    // Tiles from other providers require an attribution.
    attributionControl: styleUrl || ownStyle ? { compact: true } : false,
    center: place ? [place.lng, place.lat] : [0, 25],
    zoom: place?.zoom ?? 1.2,
    minZoom: minZoomOf(container.clientWidth),
    maxZoom: 19,
    maxPitch: 0,
    dragRotate: false,
    pitchWithRotate: false,
    touchPitch: false,
    renderWorldCopies: true,
    fadeDuration: 0,
    ...(isSoftware ? { pixelRatio: ratio() } : {}),
    locale: { 'Map.Title': 'Map of the drivers' },
  });
  begun(map);
  map.touchZoomRotate.disableRotation();
  map.keyboard.disableRotation();
  map.addControl(new NavigationControl({ showCompass: false }), 'bottom-right');
  map.addControl(new ScaleControl({ maxWidth: 90 }), 'bottom-right');
  // deck.gl's defaults cost a copy of every frame, and without a graphics card four times the work.
  const overlay = new MapboxOverlay({ interleaved: false, layers: [], useDevicePixels: isSoftware ? ratio() : true, deviceProps: { webgl: { preserveDrawingBuffer: false, antialias: !isSoftware } } });
  map.addControl(overlay);
  if (isSoftware) {
    map.on('resize', () => {
      if (map.getPixelRatio() === ratio()) return;
      map.setPixelRatio(ratio());
      overlay.setProps({ useDevicePixels: ratio() });
    });
  }
  map.on('resize', () => map.setMinZoom(minZoomOf(container.clientWidth)));
  await new Promise<void>((resolve) => map.once('load', () => resolve()));
  if (!styleUrl) keepLand(map);
  if (!styleUrl && !ownStyle) keepGraticule(map);
  // The map's own canvas handles keys and has a name; the canvases above it are hidden from
  // keyboard and screen reader.
  for (const canvas of container.querySelectorAll('canvas')) {
    if (canvas === map.getCanvas()) continue;
    canvas.tabIndex = -1;
    canvas.ariaHidden = 'true';
  }
  return { map, overlay };
}

/** Returns the lowest zoom at which a view of this width shows no place twice. */
const minZoomOf = (width: number): number => Math.max(0, Math.log2(width / 512));

/** Returns a latitude on the map, which ends before the poles. */
export const clampLat = (lat: number): number => Math.max(-85.05, Math.min(85.05, lat));

/** Returns the area in view. If it contains 180°, `east` is above 180. */
export function bounds(map: MapLibre): Bounds {
  const box = map.getBounds();
  return { ...around(box.getWest(), box.getEast()), south: clampLat(box.getSouth()), north: clampLat(box.getNorth()) };
}

/** Returns a place in pixels, on the copy of the world that is in view. */
export const project = (map: MapLibre, [lng, lat]: readonly [lng: number, lat: number]): { x: number; y: number } => map.project([nearestCopy(lng, map.getCenter().lng), lat]);

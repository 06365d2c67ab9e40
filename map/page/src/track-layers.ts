// The deck.gl layers of a track: the route coloured by speed, stops, gaps, and the driver at the
// moment that is played.
import type { Layer } from '@deck.gl/core';
import { LineLayer, PathLayer, ScatterplotLayer } from '@deck.gl/layers';
import type { Episode, Track } from './api';
import { colour, type Theme } from './colours';
import { driverData, DriverLayer } from './driver-layer';
import { cut, indexAt, pieces, spotAt, wrap, type Line } from './track';

export interface TrackView {
  track: Track;
  /** The moment that is played. */
  ms: number;
}

type Rgba = [number, number, number, number];
type Piece = Line<Rgba>;

export const STOP: Record<Theme, Rgba> = { dark: [244, 190, 92, 255], light: [154, 92, 0, 255] };
export const GAP: Record<Theme, Rgba> = { dark: [170, 180, 200, 190], light: [60, 70, 90, 200] };
const CASING: Record<Theme, Rgba> = { dark: [6, 10, 18, 210], light: [255, 255, 255, 235] };
/** Opacity of the route after the moment that is played, 0..255. */
const AHEAD_ALPHA = 90;

export function trackLayers({ track, ms }: TrackView, theme: Theme, scale: number): Layer[] {
  const { whole, cuts, gaps } = parts(track, theme);
  const past = driven(track, whole, ms).flatMap(cut);
  const spot = spotAt(track, ms);
  const line = { widthUnits: 'pixels', capRounded: true, jointRounded: true, getPath: ({ path }: Piece) => path } as const;
  const layers: Layer[] = [
    new PathLayer<Piece>({ id: 'track-casing', data: cuts, ...line, getWidth: 7 * scale, getColor: CASING[theme], updateTriggers: { getColor: theme } }),
    new PathLayer<Piece>({
      id: 'track-ahead',
      data: cuts,
      ...line,
      getWidth: 3.5 * scale,
      getColor: ({ colours }) => colours.map(([r, g, b]) => [r, g, b, AHEAD_ALPHA] as Rgba),
    }),
    new PathLayer<Piece>({ id: 'track-past', data: past, ...line, getWidth: 3.5 * scale, getColor: ({ colours }) => colours }),
    new LineLayer<Line<null>>({
      id: 'track-gaps',
      data: gaps,
      getSourcePosition: ({ path }) => path[0],
      getTargetPosition: ({ path }) => path[1],
      getWidth: 2 * scale,
      getColor: GAP[theme],
      updateTriggers: { getColor: theme },
    }),
    new ScatterplotLayer<Episode>({
      id: 'track-stops',
      data: track.episodes.filter(({ kind }) => kind === 'stop'),
      getPosition: ({ lng, lat }) => [lng, lat],
      radiusUnits: 'pixels',
      // The radius grows with the square root of the duration.
      getRadius: ({ from, to }) => Math.min(14, 5 + Math.sqrt((to - from) / 60_000)) * scale,
      getFillColor: STOP[theme],
      stroked: true,
      lineWidthUnits: 'pixels',
      getLineWidth: 2,
      getLineColor: CASING[theme],
      updateTriggers: { getFillColor: theme, getLineColor: theme },
    }),
  ];
  if (spot) {
    layers.push(
      new DriverLayer({
        id: 'track-driver',
        data: driverData({
          n: 1,
          lat: Float64Array.of(spot.lat),
          lng: Float64Array.of(wrap(spot.lng)),
          dLat: new Float32Array(1),
          dLng: new Float32Array(1),
          start: new Float32Array(1),
          duration: new Float32Array(1),
          headings: Float32Array.of(spot.heading ?? -1),
          colours: new Uint8ClampedArray(theme === 'dark' ? [255, 255, 255, 255] : [16, 28, 48, 255]),
        }),
        radius: 8 * scale,
        showHeadings: true,
        rim: theme === 'dark' ? [6, 10, 18, 0.9] : [255, 255, 255, 1],
      }),
    );
  }
  return layers;
}

interface Parts {
  theme: Theme;
  /** A line per piece of the track; longitudes may continue beyond ±180°. */
  whole: Piece[];
  /** `whole`, cut at ±180°. */
  cuts: Piece[];
  gaps: Line<null>[];
}

const cache = new WeakMap<Track, Parts>();

/**
 * Returns the lines of a track: the same arrays for the same track, because deck.gl uploads each
 * new array.
 */
function parts(track: Track, theme: Theme): Parts {
  const known = cache.get(track);
  if (known?.theme === theme) return known;
  const { lat, lng, speed } = track.points;
  const ranges = pieces(track);
  const whole = ranges.map(([first, last]) => {
    const { path, colours }: Piece = { path: [], colours: [] };
    for (let i = first; i <= last; i++) {
      path.push([lng[i], lat[i]]);
      colours.push(colour('speed', theme, speed[i] ?? NaN, 0));
    }
    return { path, colours };
  });
  const gaps = ranges.slice(1).flatMap(([first], i) => {
    const ends = [ranges[i][1], first];
    return cut({ path: ends.map((end) => [lng[end], lat[end]]), colours: [null, null] });
  });
  const made = { theme, whole, cuts: whole.flatMap(cut), gaps };
  cache.set(track, made);
  return made;
}

/** Returns the part of the route before the moment that is played. */
function driven(track: Track, whole: Piece[], ms: number): Piece[] {
  const now = indexAt(track.points.ts, ms);
  if (now >= track.points.ts.length - 1) return whole;
  const spot = spotAt(track, ms);
  const past: Piece[] = [];
  pieces(track).forEach(([first, last], i) => {
    if (first > now || !spot) return;
    if (last <= now) {
      past.push(whole[i]);
      return;
    }
    const count = now - first + 1;
    const path = [...whole[i].path.slice(0, count), [spot.lng, spot.lat] as [number, number]];
    past.push({ path, colours: whole[i].colours.slice(0, path.length) });
  });
  return past;
}

// Computations on a driver's track, for drawing and playback. Pure.
import type { Episode, Track } from './api';
import { around, type Bounds } from './tiles';


export interface Spot {
  /** May be beyond ±180°, as in the track. */
  lng: number;
  lat: number;
  /** m/s, null if unknown. */
  speed: number | null;
  /** Degrees clockwise from north; null: the driver does not move. */
  heading: number | null;
  kind: Episode['kind'] | null;
}

/** A part of a route with a colour for each point. */
export interface Line<Colour> {
  path: [lng: number, lat: number][];
  colours: Colour[];
}

/**
 * Returns longitudes that continue beyond ±180°, so that each point is reached from the previous
 * one by the shorter way round.
 */
export function unwrap(lng: readonly number[]): number[] {
  let turns = 0;
  return lng.map((here, i) => {
    const step = i === 0 ? 0 : here - lng[i - 1];
    if (Math.abs(step) > 180) turns -= Math.sign(step);
    return here + 360 * turns;
  });
}

/** Returns the number of the world's copy that has this longitude; 0: -180 up to 180. */
const turnsOf = (lng: number): number => Math.floor((lng + 180) / 360);

/** Returns the same longitude between -180 and 180. */
export const wrap = (lng: number): number => (Math.abs(lng) <= 180 ? lng : lng - 360 * turnsOf(lng));

/** Cuts a line at ±180°, where the map ends: the next part begins at the opposite edge. */
export function cut<Colour>(line: Line<Colour>): Line<Colour>[] {
  const { path, colours } = line;
  if (path.every(([lng]) => Math.abs(lng) <= 180)) return [line];
  const cuts: Line<Colour>[] = [];
  path.forEach(([lng, lat], i) => {
    const turns = turnsOf(lng);
    const before = i === 0 ? turns : turnsOf(path[i - 1][0]);
    if (i === 0 || turns !== before) {
      const next: Line<Colour> = { path: [], colours: [] };
      if (i > 0) {
        const [fromLng, fromLat] = path[i - 1];
        const edge = 360 * Math.max(turns, before) - 180;
        const edgeLat = fromLat + ((lat - fromLat) * (edge - fromLng)) / (lng - fromLng);
        add(cuts[cuts.length - 1], edge - 360 * before, edgeLat, colours[i]);
        add(next, edge - 360 * turns, edgeLat, colours[i]);
      }
      cuts.push(next);
    }
    add(cuts[cuts.length - 1], lng - 360 * turns, lat, colours[i]);
  });
  return cuts;
}

function add<Colour>({ path, colours }: Line<Colour>, lng: number, lat: number, colour: Colour): void {
  path.push([lng, lat]);
  colours.push(colour);
}

/** Returns the area of a track. */
export function area({ lat, lng }: Track['points']): Bounds {
  return { ...around(least(lng), most(lng)), south: least(lat), north: most(lat) };
}

const least = (values: number[]): number => values.reduce((a, b) => Math.min(a, b), Infinity);
const most = (values: number[]): number => values.reduce((a, b) => Math.max(a, b), -Infinity);

/** Returns the index of the last point at or before this moment; -1 before the first. */
export function indexAt(ts: readonly number[], ms: number): number {
  let low = 0;
  let high = ts.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ts[middle] <= ms) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

export function episodeAt(episodes: readonly Episode[], ms: number): Episode | null {
  return episodes.find(({ from, to }) => from <= ms && ms < to) ?? null;
}

/**
 * Returns where the driver was at a moment. In a gap the driver stays at the last known place,
 * because the route is unknown.
 */
export function spotAt(track: Track, ms: number): Spot | null {
  const { ts, lat, lng, speed } = track.points;
  if (ts.length === 0) return null;
  const kind = episodeAt(track.episodes, ms)?.kind ?? null;
  const i = Math.max(0, indexAt(ts, ms));
  if (i + 1 >= ts.length || ms <= ts[i] || kind === 'gap') return { lng: lng[i], lat: lat[i], speed: speed[i], heading: null, kind };
  const share = (ms - ts[i]) / (ts[i + 1] - ts[i]);
  const north = lat[i + 1] - lat[i];
  const east = (lng[i + 1] - lng[i]) * Math.cos((lat[i] * Math.PI) / 180);
  const moves = Math.hypot(north, east) > 1e-6;
  return {
    lng: lng[i] + (lng[i + 1] - lng[i]) * share,
    lat: lat[i] + north * share,
    speed: speed[i],
    heading: moves ? ((Math.atan2(east, north) * 180) / Math.PI + 360) % 360 : null,
    kind,
  };
}

/** Returns the pieces of a track between its gaps, as ranges of points. */
export function pieces({ points: { ts }, episodes }: Track): [first: number, last: number][] {
  const found: [number, number][] = [];
  let first = 0;
  for (const gap of episodes) {
    if (gap.kind !== 'gap') continue;
    const last = indexAt(ts, gap.from);
    if (last >= first) found.push([first, last]);
    first = Math.max(first, last + 1);
  }
  if (first < ts.length) found.push([first, ts.length - 1]);
  return found;
}

/**
 * Returns the speed at each of `n` moments of the span, for the curve behind the slider; NaN:
 * unknown.
 */
export function speedCurve(track: Track, from: number, to: number, n: number): Float32Array {
  const { ts, speed } = track.points;
  const curve = new Float32Array(n).fill(NaN);
  for (let i = 0; i < ts.length; i++) {
    const place = Math.floor(((ts[i] - from) / (to - from)) * n);
    const value = speed[i];
    if (place < 0 || place >= n || value === null) continue;
    curve[place] = Number.isNaN(curve[place]) ? value : Math.max(curve[place], value);
  }
  // A simplified track has few points on a straight road: interpolate between two points of one
  // piece.
  for (const [first, last] of pieces(track)) {
    for (let i = first; i < last; i++) fill(curve, track, i, from, to);
  }
  return curve;
}

function fill(curve: Float32Array, { points: { ts, speed } }: Track, i: number, from: number, to: number): void {
  const a = speed[i];
  const b = speed[i + 1];
  if (a === null || b === null) return;
  const scale = curve.length / (to - from);
  const left = Math.max(0, Math.ceil((ts[i] - from) * scale));
  const right = Math.min(curve.length - 1, Math.floor((ts[i + 1] - from) * scale));
  for (let index = left; index <= right; index++) {
    const share = (from + index / scale - ts[i]) / (ts[i + 1] - ts[i]);
    if (Number.isNaN(curve[index])) curve[index] = a + (b - a) * Math.min(1, Math.max(0, share));
  }
}

export interface Summary {
  metres: number;
  movingMs: number;
  stops: number;
  gaps: number;
}

/**
 * Sums the episodes of a track. A trip that begins before the span or ends after it counts with the
 * share of its time that is in the span.
 */
export function summary({ from: begin, to: end, episodes }: Pick<Track, 'from' | 'to' | 'episodes'>): Summary {
  const sum = { metres: 0, movingMs: 0, stops: 0, gaps: 0 };
  for (const { kind, from, to, distance_m } of episodes) {
    if (kind === 'stop') sum.stops++;
    else if (kind === 'gap') sum.gaps++;
    else {
      const insideMs = Math.min(end, to) - Math.max(begin, from);
      // The points include dropped fixes, so the lines between them would be too long.
      sum.metres += to > from ? (distance_m * insideMs) / (to - from) : distance_m;
      sum.movingMs += insideMs;
    }
  }
  return sum;
}

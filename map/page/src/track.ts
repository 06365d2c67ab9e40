// A driver's way through a span of time, as drawn and played. Pure.
import type { Episode, Track } from './api';
import { around, type Bounds } from './tiles';

export interface Spot {
  /** Beyond ±180° where the track is. */
  lng: number;
  lat: number;
  /** m/s, null if unknown. */
  speed: number | null;
  /** Degrees, null where it does not move. */
  heading: number | null;
  kind: Episode['kind'] | null;
}

/** A part of a way, as it is drawn. */
export interface Line<Colour> {
  path: [lng: number, lat: number][];
  colours: Colour[];
}

/** Longitudes that go on beyond ±180° instead of beginning anew: between two of them is the shorter way. */
export function unwrap(lng: readonly number[]): number[] {
  let turns = 0;
  return lng.map((here, i) => {
    const step = i === 0 ? 0 : here - lng[i - 1];
    if (Math.abs(step) > 180) turns -= Math.sign(step);
    return here + 360 * turns;
  });
}

/** How often the world goes round before this longitude. */
const turnsOf = (lng: number): number => Math.floor((lng + 180) / 360);

/** On the map, which has each place once. */
export const wrap = (lng: number): number => (Math.abs(lng) <= 180 ? lng : lng - 360 * turnsOf(lng));

/** The same line on the map, which ends at 180°: the rest begins at the other edge. */
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

/** Where it is. */
export function area({ lat, lng }: Track['points']): Bounds {
  return { ...around(least(lng), most(lng)), south: least(lat), north: most(lat) };
}

const least = (values: number[]): number => values.reduce((a, b) => Math.min(a, b), Infinity);
const most = (values: number[]): number => values.reduce((a, b) => Math.max(a, b), -Infinity);

/** The last point at or before this moment; -1 before the first. */
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

/** Where it was. In a gap it stays where it was last seen: nobody knows the way between. */
export function spotAt(track: Track, ms: number): Spot | null {
  const { ts, lat, lng, speed } = track.points;
  if (ts.length === 0) return null;
  const kind = episodeAt(track.episodes, ms)?.kind ?? null;
  const i = Math.max(0, indexAt(ts, ms));
  if (i + 1 >= ts.length || ms <= ts[i] || kind === 'gap') return { lng: lng[i], lat: lat[i], speed: speed[i], heading: null, kind };
  const part = (ms - ts[i]) / (ts[i + 1] - ts[i]);
  const north = lat[i + 1] - lat[i];
  const east = (lng[i + 1] - lng[i]) * Math.cos((lat[i] * Math.PI) / 180);
  const moves = Math.hypot(north, east) > 1e-6;
  return {
    lng: lng[i] + (lng[i + 1] - lng[i]) * part,
    lat: lat[i] + north * part,
    speed: speed[i],
    heading: moves ? ((Math.atan2(east, north) * 180) / Math.PI + 360) % 360 : null,
    kind,
  };
}

/** Pieces of the way, as ranges of points: a gap parts them. */
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

/** Speed at each of `n` places over the span, for the curve above the slider; NaN where there is nothing. */
export function speedCurve(track: Track, from: number, to: number, n: number): Float32Array {
  const { ts, speed } = track.points;
  const curve = new Float32Array(n).fill(NaN);
  for (let i = 0; i < ts.length; i++) {
    const place = Math.floor(((ts[i] - from) / (to - from)) * n);
    const value = speed[i];
    if (place < 0 || place >= n || value === null) continue;
    curve[place] = Number.isNaN(curve[place]) ? value : Math.max(curve[place], value);
  }
  // A simplified track has few points on a straight road: between two of one piece the line goes on.
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
  for (let place = left; place <= right; place++) {
    const part = (from + place / scale - ts[i]) / (ts[i + 1] - ts[i]);
    if (Number.isNaN(curve[place])) curve[place] = a + (b - a) * Math.min(1, Math.max(0, part));
  }
}

export interface Summary {
  metres: number;
  movingMs: number;
  stops: number;
  gaps: number;
}

export function summary(episodes: readonly Episode[]): Summary {
  const sum = { metres: 0, movingMs: 0, stops: 0, gaps: 0 };
  for (const { kind, from, to, distance_m } of episodes) {
    if (kind === 'stop') sum.stops++;
    else if (kind === 'gap') sum.gaps++;
    else {
      sum.metres += distance_m;
      sum.movingMs += to - from;
    }
  }
  return sum;
}

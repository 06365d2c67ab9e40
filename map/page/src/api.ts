// What the server offers. docs/map.md describes it.
import { decode, parts, type Cells, type Points } from './decode';
import type { Feature, MultiPolygon, Polygon } from 'geojson';
import type { Fence } from './rings';
import { key, type Bounds, type Tile } from './tiles';
import { unwrap } from './track';

export interface Config {
  style_url: string | null;
  points_max: number;
  edits_fences: boolean;
  version: string;
}

/** The server's word, once a second. Times in Unix ms. */
export interface Tick {
  now: number;
  drivers: number;
  seen_1m: number;
  /** Drivers that moved on, a second. */
  rate: number;
  newest: number | null;
  state: 'ok' | 'stale' | 'away';
  since: number;
  generation: number;
}

export interface Fix {
  driver_id: string;
  /** Unix ms. */
  ts: number;
  lat: number;
  lng: number;
  speed: number | null;
  heading: number | null;
  alt: number | null;
  acc: number | null;
  received_at: number | null;
}

export interface Episode {
  kind: 'trip' | 'stop' | 'gap';
  from: number;
  to: number;
  lat: number;
  lng: number;
  distance_m: number;
}

export interface Track {
  driver_id: string;
  from: number;
  to: number;
  sql: string;
  truncated: boolean;
  /** `lng` goes on beyond ±180° where the track does. */
  points: { ts: number[]; lat: number[]; lng: number[]; speed: (number | null)[] };
  episodes: Episode[];
}

/** What the server said is wrong, in its words. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

async function ask(path: string, init: RequestInit = {}): Promise<Response> {
  const response = await fetch(`api/${path}`, { cache: 'no-store', ...init });
  if (response.ok) return response;
  const body: unknown = await response.json().catch(() => null);
  const said = body !== null && typeof body === 'object' && 'error' in body ? String(body.error) : `the server answered ${response.status}`;
  throw new ApiError(response.status, said);
}

async function json<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await ask(path, signal ? { signal } : {})).json() as Promise<T>;
}

export const config = (): Promise<Config> => json('config');

export async function drivers(prefix: string, signal: AbortSignal): Promise<string[]> {
  return (await json<{ drivers: string[] }>(`drivers?${new URLSearchParams({ prefix, limit: '20' })}`, signal)).drivers;
}

export const lastFix = (id: string, signal?: AbortSignal): Promise<Fix> => json(`drivers/${encodeURIComponent(id)}`, signal);

export async function track(id: string, from: number, to: number, simplify: number, signal: AbortSignal): Promise<Track> {
  const span = new URLSearchParams({ from: String(from), to: String(to), simplify: String(simplify) });
  const sent = await json<Track>(`drivers/${encodeURIComponent(id)}/track?${span}`, signal);
  return { ...sent, points: { ...sent.points, lng: unwrap(sent.points.lng) } };
}

/** What the source keeps of the newest fix. */
export const attributes = (id: string, signal: AbortSignal): Promise<{ ts: number; attributes: Record<string, string> }> =>
  json(`drivers/${encodeURIComponent(id)}/attributes`, signal);

export type Found = Pick<Fix, 'driver_id' | 'ts' | 'lat' | 'lng' | 'speed'>;

export const list = (filter: URLSearchParams, signal: AbortSignal): Promise<{ drivers: Found[]; truncated: boolean }> => json(`list?${filter}`, signal);

/** Of everybody, in the order of steps: a row for each driver and step. Times in Unix ms. */
export interface Past {
  from: number;
  to: number;
  step: number;
  truncated: boolean;
  ids: string[];
  /** Index in `ids`. */
  driver: number[];
  ts: number[];
  lat: number[];
  lng: number[];
  speed: (number | null)[];
}

const box = ({ west, south, east, north }: Bounds): string => [west, south, east, north].map((degrees) => degrees.toFixed(5)).join(',');

export const past = (bounds: Bounds, from: number, to: number, signal: AbortSignal): Promise<Past> =>
  json(`past?${new URLSearchParams({ bbox: box(bounds), from: String(from), to: String(to) })}`, signal);

export const fences = (): Promise<{ features: Fence[] }> => json('fences');

/** Begins a new version of the fence; without a geometry the fence ends. */
export async function putFence(feature: Feature<Polygon | MultiPolygon | null>): Promise<void> {
  await ask('fences', { method: 'POST', headers: { 'Content-Type': 'application/geo+json' }, body: JSON.stringify(feature) });
}

/** A tile as the server sent it last. */
export interface Loaded extends Tile {
  /** Of the server; it sends a tile only to who has another. */
  version: bigint;
  data: Points | Cells;
}

/** A request for more is refused. */
const TILES_MAX = 128;

/** Those of the tiles that are not as they were. */
export async function liveTiles(wanted: readonly Tile[], here: ReadonlyMap<string, Loaded>, signal: AbortSignal): Promise<Loaded[]> {
  const changed: Loaded[] = [];
  for (let from = 0; from < wanted.length; from += TILES_MAX) {
    const names = wanted.slice(from, from + TILES_MAX).map(key);
    const of = names.map((name) => (here.has(name) ? `${name}:${here.get(name)!.version}` : name)).join(',');
    const response = await ask(`tiles?of=${of}`, { signal });
    changed.push(...parts(await response.arrayBuffer()).map(({ body, ...part }) => ({ ...part, data: decode(body) })));
  }
  return changed;
}

export async function history(bounds: Bounds, zoom: number, from: number, to: number, signal: AbortSignal): Promise<{ cells: Cells; truncated: boolean }> {
  const query = new URLSearchParams({ bbox: box(bounds), zoom: String(zoom), from: String(from), to: String(to) });
  const response = await ask(`cells?${query}`, { signal });
  const cells = decode(await response.arrayBuffer());
  if (cells.kind !== 'cells') throw new Error('the server sent points for a heatmap');
  return { cells, truncated: response.headers.has('X-Truncated') };
}

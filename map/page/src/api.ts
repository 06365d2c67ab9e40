// What the server offers. docs/map.md describes it.
import { decode, type Cells, type Points } from './decode';
import { key, type Bounds, type Tile } from './tiles';

export interface Config {
  style_url: string | null;
  points_max: number;
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
  if (response.ok || response.status === 304) return response;
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

export function track(id: string, from: number, to: number, simplify: number, signal: AbortSignal): Promise<Track> {
  const span = new URLSearchParams({ from: String(from), to: String(to), simplify: String(simplify) });
  return json(`drivers/${encodeURIComponent(id)}/track?${span}`, signal);
}

/** The tile and its tag; null if it is still the one with this tag. */
export async function liveTile(tile: Tile, etag: string | null, signal: AbortSignal): Promise<{ data: Points | Cells; etag: string | null } | null> {
  const response = await ask(`tiles/${key(tile)}`, { signal, headers: etag ? { 'If-None-Match': etag } : {} });
  if (response.status === 304) return null;
  return { data: decode(await response.arrayBuffer()), etag: response.headers.get('ETag') };
}

export async function history(bounds: Bounds, zoom: number, from: number, to: number, signal: AbortSignal): Promise<{ cells: Cells; truncated: boolean }> {
  const bbox = [bounds.west, bounds.south, bounds.east, bounds.north].map((degrees) => degrees.toFixed(5)).join(',');
  const query = new URLSearchParams({ bbox, zoom: String(zoom), from: String(from), to: String(to) });
  const response = await ask(`cells?${query}`, { signal });
  const cells = decode(await response.arrayBuffer());
  if (cells.kind !== 'cells') throw new Error('the server sent points for a heatmap');
  return { cells, truncated: response.headers.has('X-Truncated') };
}

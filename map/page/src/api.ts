// Client of the server's API, which docs/map.md describes.
import { decode, parts, type Cells, type Points } from './decode';
import type { Feature, MultiPolygon } from 'geojson';
import type { Fence } from './rings';
import type { DriverState } from './states';
import { key, type Bounds, type Tile } from './tiles';
import { unwrap, wrap } from './track';

export interface Config {
  style_url: string | null;
  has_basemap: boolean;
  silent_after_s: number;
  hidden_after_s: number;
  groups: string[];
  /** The viewer's name; null: viewers have no names. */
  name: string | null;
  /** When the read-only link of this page expires, in Unix ms; null: the viewer has a login. */
  link_until: number | null;
  makes_links: boolean;
  /** The viewer sees all drivers, and so the ids of the drivers to which a fence applies. */
  sees_all: boolean;
  /** The viewer may acknowledge alerts and name drivers. */
  writes: boolean;
  points_max: number;
  edits_fences: boolean;
  /** As many pages are open as the server allows: a further one gets no ticks. */
  is_full?: boolean;
  version: string;
}

/** The event that the server sends once a second. Times in Unix ms. */
export interface Tick {
  now: number;
  drivers: number;
  seen_1m: number;
  /** Drivers that moved, per second; null: this viewer sees only a part of the fleet. */
  rate: number | null;
  newest: number | null;
  state: 'ok' | 'stale' | 'away';
  since: number;
  generation: number;
  states?: Record<DriverState, number>;
  /** Changes when names or groups of drivers have changed. */
  names?: number;
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
  /** `lng` continues beyond ±180° where the track crosses it. */
  points: { ts: number[]; lat: number[]; lng: number[]; speed: (number | null)[] };
  episodes: Episode[];
  /** The fixes after the last episode: ClickHouse computes episodes some minutes late. */
  tail?: { from: number; metres: number; moving_ms: number } | null;
}

/** An error response, with the server's message. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/**
 * Deadline of a request that the server answers from memory. Its connection may be dead, which the
 * browser does not notice.
 */
const MEMORY_MS = 20_000;
/** Deadline of any other request: longer than the longest `clickhouse.query_timeout`, two minutes. */
const QUERY_MS = 150_000;

/**
 * Sends a request, and reads the answer.
 *
 * Throws `TypeError` after the deadline, as if the server could not be reached, and an `AbortError`
 * if `init.signal` has aborted.
 */
async function request<T>(path: string, read: (response: Response) => Promise<T>, { signal, ...init }: RequestInit = {}, deadlineMs = QUERY_MS): Promise<T> {
  const controller = new AbortController();
  const abort = () => controller.abort();
  if (signal?.aborted) abort();
  signal?.addEventListener('abort', abort);
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    abort();
  }, deadlineMs);
  try {
    const response = await fetch(`api/${path}`, { cache: 'no-store', ...init, signal: controller.signal });
    if (response.ok) return await read(response);
    const body: unknown = await response.json().catch(() => null);
    const message = body !== null && typeof body === 'object' && 'error' in body ? String(body.error) : `the server answered ${response.status}`;
    throw new ApiError(response.status, message);
  } catch (error) {
    throw isLate ? new TypeError('the server did not answer in time') : error;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', abort);
  }
}

const json = <T>(path: string, signal?: AbortSignal, deadlineMs?: number): Promise<T> => request(path, (response) => response.json() as Promise<T>, signal ? { signal } : {}, deadlineMs);

export const config = (): Promise<Config> => json('config', undefined, MEMORY_MS);

/** A driver's name and group; an empty name: the driver has only an id. */
export interface Named {
  driver_id: string;
  name: string;
  group: string;
}

/** Returns the drivers whose id or name contains the text. */
export async function drivers(find: string, signal: AbortSignal): Promise<Named[]> {
  return (await json<{ found: Named[] }>(`drivers?${new URLSearchParams({ find, limit: '20' })}`, signal, MEMORY_MS)).found;
}

export async function namesOf(ids: readonly string[]): Promise<Named[]> {
  return (await json<{ names: Named[] }>(`names?of=${ids.map(encodeURIComponent).join(',')}`, undefined, MEMORY_MS)).names;
}

export const lastFix = (id: string, signal?: AbortSignal): Promise<Fix> => json(`drivers/${encodeURIComponent(id)}`, signal, MEMORY_MS);

export async function track(id: string, from: number, to: number, simplify: number, signal: AbortSignal): Promise<Track> {
  const span = new URLSearchParams({ from: String(from), to: String(to), simplify: String(simplify) });
  const sent = await json<Track>(`drivers/${encodeURIComponent(id)}/track?${span}`, signal);
  return { ...sent, points: { ...sent.points, lng: unwrap(sent.points.lng) } };
}

/** Since when a driver has stayed at the newest fix. Times in Unix ms. */
export interface Standing {
  /** Time of the newest fix. */
  ts: number;
  since: number;
  /** The stay may have begun earlier. */
  is_at_least: boolean;
}

export const standing = (id: string, signal: AbortSignal): Promise<Standing> => json(`drivers/${encodeURIComponent(id)}/standing`, signal);

export type Card = Record<'name' | 'group' | 'vehicle' | 'phone' | 'note', string>;

/** A column of `[fields.NAME]`. */
export interface Field {
  name: string;
  type: string;
  comment: string;
  unit: string;
  /** Attributes that the value comes from. */
  from: string[];
  /** The value as text, a time in Unix ms; null: unknown. */
  value: string | null;
}

/** The kept attributes of the newest fix, the typed fields from them, and the driver's card. */
export interface Properties {
  ts: number;
  attributes: Record<string, string>;
  fields: Field[];
  card: Card;
}

export const properties = (id: string, signal: AbortSignal): Promise<Properties> =>
  json(`drivers/${encodeURIComponent(id)}/attributes`, signal);

/** Returns the days of a span on which the driver has fixes, such as `2026-11-22`. */
export async function days(id: string, from: number, to: number, tz: string, signal: AbortSignal): Promise<string[]> {
  const query = new URLSearchParams({ from: String(from), to: String(to), tz });
  return (await json<{ days: string[] }>(`drivers/${encodeURIComponent(id)}/days?${query}`, signal)).days;
}

/** Returns the URL of a track as a file. */
export const trackFile = (id: string, from: number, to: number, format: 'csv' | 'gpx'): string => `api/drivers/${encodeURIComponent(id)}/track?${new URLSearchParams({ from: String(from), to: String(to), format })}`;

export interface Visit {
  driver_id: string;
  entered: number;
  left_at: number;
  is_inside: boolean;
}

export async function visits(fence: string, from: number, to: number, signal: AbortSignal): Promise<Visit[]> {
  return (await json<{ visits: Visit[] }>(`visits?${new URLSearchParams({ fence, from: String(from), to: String(to) })}`, signal)).visits;
}

/** An event of `milepost events`; `seen_at` 0: nobody has acknowledged it. */
export interface Alert {
  driver_id: string;
  ts: number;
  seq: number;
  kind: 'entered' | 'overstayed' | 'left' | 'off_hours' | 'silent' | 'heard' | 'fast' | 'slow' | 'jump';
  fence: string;
  lat: number;
  lng: number;
  speed: number | null;
  known_at: number;
  seen_by: string;
  seen_at: number;
}

/**
 * Returns the newest alerts of a day, of a group; empty: of every group. `hint`: why a part of the
 * answer is missing.
 */
export const alerts = (group: string): Promise<{ alerts: Alert[]; hint?: string }> => json(group ? `alerts?${new URLSearchParams({ group })}` : 'alerts');

const post = (path: string, body: unknown): Promise<string> => request(path, (response) => response.text(), { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });

export async function acknowledgeAlert({ driver_id, ts, seq, kind, fence }: Alert): Promise<void> {
  await post('alerts/seen', { driver_id, ts, seq, kind, fence });
}

/**
 * Makes a read-only link that shows drivers or groups; returns the part of the URL after `?link=`.
 */
export async function makeLink(shown: { drivers?: string[]; groups?: string[] }, hours: number): Promise<string> {
  return (JSON.parse(await post('links', { ...shown, hours })) as { link: string }).link;
}

export type Found = Pick<Fix, 'driver_id' | 'ts' | 'lat' | 'lng' | 'speed'> & { name?: string; in_group?: string };

export const list = (filter: URLSearchParams, signal: AbortSignal): Promise<{ drivers: Found[]; truncated: boolean }> => json(`list?${filter}`, signal);

/**
 * The fleet's past, column by column: a row for each driver and step in which it has a fix, ordered
 * by step. Times in Unix ms. The first rows have the last fixes before `from` of those drivers who
 * were then in the area.
 */
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

/** Formats a box for the server: west above east crosses the antimeridian. */
const box = ({ west, south, east, north }: Bounds): string => [west, south, wrap(east), north].map((degrees) => degrees.toFixed(5)).join(',');

/** `group`: only drivers of this group; empty: of every group. */
export const past = (bounds: Bounds, from: number, to: number, group: string, signal: AbortSignal): Promise<Past> =>
  json(`past?${new URLSearchParams({ bbox: box(bounds), from: String(from), to: String(to), group })}`, signal);

export const fences = (): Promise<{ features: Fence[]; hint?: string }> => json('fences');

/**
 * Stores a fence. A change of more than its rules begins a new version. Without `geometry` the
 * outline stays; with null the fence ends.
 */
export async function putFence(feature: Omit<Feature, 'geometry'> & { geometry?: MultiPolygon | null }): Promise<void> {
  await request('fences', (response) => response.text(), { method: 'POST', headers: { 'Content-Type': 'application/geo+json' }, body: JSON.stringify(feature) });
}

/** A tile as the server last sent it. */
export interface Loaded extends Tile {
  /** The server's version of the tile: it sends only tiles whose version differs. */
  version: bigint;
  data: Points | Cells;
}

/** Most tiles in one request. */
const TILES_MAX = 128;

/** The drivers that the viewer chose to see. */
export interface Chosen {
  /** States, separated by commas; empty: all but `hidden`. */
  states: string;
  /** Group; empty: every group. */
  group: string;
}

export const EVERYBODY: Chosen = { states: '', group: '' };

/** Returns the tiles of the chosen drivers whose versions differ from those in `known`. */
export async function liveTiles(wanted: readonly Tile[], known: ReadonlyMap<string, Loaded>, signal: AbortSignal, { states, group }: Chosen = EVERYBODY): Promise<Loaded[]> {
  const changed: Loaded[] = [];
  for (let from = 0; from < wanted.length; from += TILES_MAX) {
    const names = wanted.slice(from, from + TILES_MAX).map(key);
    const of = names.map((name) => (known.has(name) ? `${name}:${known.get(name)!.version}` : name)).join(',');
    const answer = await request(`tiles?of=${of}${states && `&states=${states}`}${group && `&group=${encodeURIComponent(group)}`}`, (response) => response.arrayBuffer(), { signal }, MEMORY_MS);
    changed.push(...parts(answer).map(({ body, ...part }) => ({ ...part, data: decode(body) })));
  }
  return changed;
}

export async function history(bounds: Bounds, zoom: number, from: number, to: number, group: string, signal: AbortSignal): Promise<{ cells: Cells; truncated: boolean }> {
  const query = new URLSearchParams({ bbox: box(bounds), zoom: String(zoom), from: String(from), to: String(to), group });
  const read = async (response: Response) => ({ body: await response.arrayBuffer(), truncated: response.headers.has('X-Truncated') });
  const { body, truncated } = await request(`cells?${query}`, read, { signal });
  const cells = decode(body);
  if (cells.kind !== 'cells') throw new Error('the server sent points for a heatmap');
  return { cells, truncated };
}

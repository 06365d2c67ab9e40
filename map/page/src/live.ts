// Loads the tiles in view: missing ones at once, changed ones when the server has new data.
import { ApiError, EVERYBODY, liveTiles, type Chosen, type Loaded } from './api';
import type { Cells, Points } from './decode';
import { covering, inView, key, type Bounds, type Tile } from './tiles';

export interface Shown {
  points: Points[];
  cells: Cells[];
}

export class LiveTiles {
  private wanted: Tile[] = [];
  private loaded = new Map<string, Loaded>();
  private shown: Loaded[] = [];
  /** One request at a time, for the whole view. */
  private inFlight: { tiles: Tile[]; controller: AbortController } | null = null;
  /** The view or the server's data has changed since the request was sent. */
  private isOutdated = false;
  /** The last request failed or was aborted. */
  private failed = false;
  private generation = -1;
  private chosen = EVERYBODY;

  constructor(private readonly changed: (shown: Shown) => void) {}

  /** Shows an area: drops tiles outside it, and requests those that are missing. */
  setView(bounds: Bounds, zoom: number): void {
    this.wanted = inView(bounds, zoom);
    const keys = this.keys();
    for (const name of this.loaded.keys()) if (!keys.has(name)) this.loaded.delete(name);
    if (!this.inFlight?.tiles.some((tile) => keys.has(key(tile)))) this.inFlight?.controller.abort();
    if (this.wanted.some((tile) => !this.loaded.has(key(tile)))) this.refresh();
    this.show();
  }

  /** Shows only these drivers. */
  filter(chosen: Chosen): void {
    if (chosen.group === this.chosen.group && chosen.states === this.chosen.states) return;
    // Tiles of another group are not shown in place of missing ones.
    if (chosen.group !== this.chosen.group) [this.loaded, this.shown] = [new Map(), []];
    this.chosen = chosen;
    const old = this.inFlight;
    this.refresh();
    // Its answer would have other drivers.
    old?.controller.abort();
  }

  /**
   * Called once a second; returns whether it requests tiles. The first tick of a stream may come
   * from another server, whose generations are counted separately.
   */
  tick(generation: number, isFirst: boolean): boolean {
    // The connection of the request in flight may be dead.
    if (isFirst) this.inFlight?.controller.abort();
    const mustRequest = isFirst || generation !== this.generation || (this.failed && !this.inFlight);
    this.generation = generation;
    if (mustRequest) this.refresh();
    return mustRequest;
  }

  refresh(): void {
    this.isOutdated = true;
    if (!this.inFlight) void this.load();
  }

  private async load(): Promise<void> {
    try {
      while (this.isOutdated) {
        this.isOutdated = false;
        this.failed = true;
        const controller = new AbortController();
        this.inFlight = { tiles: this.wanted, controller };
        const changed = await liveTiles(this.wanted, this.loaded, controller.signal, this.chosen).catch(ignoreUnreachable);
        // An answer that had arrived when its request was aborted is of another group or area.
        if (!changed || controller.signal.aborted) continue;
        this.failed = false;
        const keys = this.keys();
        const seen = changed.filter((tile) => keys.has(key(tile)));
        for (const tile of seen) this.loaded.set(key(tile), tile);
        if (seen.length > 0) this.show();
      }
    } finally {
      this.inFlight = null;
    }
  }

  private keys(): Set<string> {
    return new Set(this.wanted.map(key));
  }

  private show(): void {
    this.shown = covering(this.wanted, this.loaded, this.shown);
    const data = this.shown.map((tile) => tile.data);
    this.changed({ points: data.filter((tile) => tile.kind === 'points'), cells: data.filter((tile) => tile.kind === 'cells') });
  }
}

/**
 * Ignores an aborted request, and one that the server did not answer in time: the banner reports the
 * outage, and the next tick sends the request again.
 */
function ignoreUnreachable(error: unknown): null {
  if (error instanceof ApiError || error instanceof TypeError || (error instanceof Error && error.name === 'AbortError')) return null;
  throw error;
}

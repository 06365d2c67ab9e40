// Keeps the tiles in view loaded: requests those that are missing, and the changed ones when the server has new data.
import { ApiError, liveTiles, type Loaded } from './api';
import type { Cells, Points } from './decode';
import { covering, inView, key, type Bounds, type Tile } from './tiles';

export interface Shown {
  points: Points[];
  cells: Cells[];
}

export class LiveTiles {
  private wanted: Tile[] = [];
  private here = new Map<string, Loaded>();
  private shown: Loaded[] = [];
  /** One request at a time, for the whole view. */
  private inFlight: { tiles: Tile[]; controller: AbortController } | null = null;
  /** The view or the server's data has changed since the request was sent. */
  private again = false;
  /** The last request was not answered. */
  private failed = false;
  private generation = -1;
  private states = '';

  constructor(private readonly changed: (shown: Shown) => void) {}

  look(bounds: Bounds, zoom: number): void {
    this.wanted = inView(bounds, zoom);
    const keys = this.keys();
    for (const name of this.here.keys()) if (!keys.has(name)) this.here.delete(name);
    if (!this.inFlight?.tiles.some((tile) => keys.has(key(tile)))) this.inFlight?.controller.abort();
    if (this.wanted.some((tile) => !this.here.has(key(tile)))) this.refresh();
    this.show();
  }

  /** Shows only drivers in these states; empty: in all but `hidden`. */
  filter(states: string): void {
    this.states = states;
    this.refresh();
  }

  /** Called once a second; returns whether it requests tiles. The first tick of a stream may come from another server, whose generations are counted separately. */
  tick(generation: number, isFirst: boolean): boolean {
    // The connection of the request in flight may be dead.
    if (isFirst) this.inFlight?.controller.abort();
    const asks = isFirst || generation !== this.generation || (this.failed && !this.inFlight);
    this.generation = generation;
    if (asks) this.refresh();
    return asks;
  }

  refresh(): void {
    this.again = true;
    if (!this.inFlight) void this.ask();
  }

  private async ask(): Promise<void> {
    try {
      while (this.again) {
        this.again = false;
        this.failed = true;
        this.inFlight = { tiles: this.wanted, controller: new AbortController() };
        const changed = await liveTiles(this.wanted, this.here, this.inFlight.controller.signal, this.states).catch(unreached);
        if (!changed) continue;
        this.failed = false;
        const keys = this.keys();
        const seen = changed.filter((tile) => keys.has(key(tile)));
        for (const tile of seen) this.here.set(key(tile), tile);
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
    this.shown = covering(this.wanted, this.here, this.shown);
    const data = this.shown.map((tile) => tile.data);
    this.changed({ points: data.filter((tile) => tile.kind === 'points'), cells: data.filter((tile) => tile.kind === 'cells') });
  }
}

/** Aborted, or the server does not answer: the banner reports it, and the next tick sends the request again. */
function unreached(error: unknown): null {
  if (error instanceof ApiError || error instanceof TypeError || (error instanceof Error && error.name === 'AbortError')) return null;
  throw error;
}

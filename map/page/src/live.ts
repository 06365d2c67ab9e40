// Keeps the tiles in view at hand: asks for those that are missing, and for what has changed when the server has something new.
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
  /** One request at a time, for all of the view. */
  private asking: { tiles: Tile[]; controller: AbortController } | null = null;
  /** The view or the server has changed since it was asked. */
  private again = false;
  /** The last request has no answer. */
  private failed = false;
  private generation = -1;
  private states = '';

  constructor(private readonly changed: (shown: Shown) => void) {}

  look(bounds: Bounds, zoom: number): void {
    this.wanted = inView(bounds, zoom);
    const keys = this.keys();
    for (const name of this.here.keys()) if (!keys.has(name)) this.here.delete(name);
    if (!this.asking?.tiles.some((tile) => keys.has(key(tile)))) this.asking?.controller.abort();
    if (this.wanted.some((tile) => !this.here.has(key(tile)))) this.refresh();
    this.show();
  }

  /** Only drivers in these states; empty: all but the long silent ones. */
  filter(states: string): void {
    this.states = states;
    this.refresh();
  }

  /** Once a second; whether it asks. The first of a stream may come from another server: what it counts has another beginning. */
  tick(generation: number, isFirst: boolean): boolean {
    // The connection it was asked on may be dead.
    if (isFirst) this.asking?.controller.abort();
    const asks = isFirst || generation !== this.generation || (this.failed && !this.asking);
    this.generation = generation;
    if (asks) this.refresh();
    return asks;
  }

  refresh(): void {
    this.again = true;
    if (!this.asking) void this.ask();
  }

  private async ask(): Promise<void> {
    try {
      while (this.again) {
        this.again = false;
        this.failed = true;
        this.asking = { tiles: this.wanted, controller: new AbortController() };
        const changed = await liveTiles(this.wanted, this.here, this.asking.controller.signal, this.states).catch(unreached);
        if (!changed) continue;
        this.failed = false;
        const keys = this.keys();
        const seen = changed.filter((tile) => keys.has(key(tile)));
        for (const tile of seen) this.here.set(key(tile), tile);
        if (seen.length > 0) this.show();
      }
    } finally {
      this.asking = null;
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

/** Aborted, or the server is away: the banner says so, and the next tick asks again. */
function unreached(error: unknown): null {
  if (error instanceof ApiError || error instanceof TypeError || (error instanceof Error && error.name === 'AbortError')) return null;
  throw error;
}

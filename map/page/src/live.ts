// Keeps the tiles in view at hand: asks for those that are missing, and for all of them again when the server has something new.
import { ApiError, liveTile } from './api';
import type { Cells, Points } from './decode';
import { covering, inView, key, type Bounds, type Tile } from './tiles';

interface Loaded extends Tile {
  etag: string | null;
  data: Points | Cells;
}

export interface Shown {
  points: Points[];
  cells: Cells[];
}

export class LiveTiles {
  private wanted: Tile[] = [];
  private here = new Map<string, Loaded>();
  private shown: Loaded[] = [];
  private asking = new Map<string, AbortController>();
  /** Asked for again once its answer is here: the answer was under way when the server got something new. */
  private again = new Set<string>();

  constructor(private readonly changed: (shown: Shown) => void) {}

  look(bounds: Bounds, zoom: number): void {
    this.wanted = inView(bounds, zoom);
    const keys = new Set(this.wanted.map(key));
    for (const [name, controller] of this.asking) if (!keys.has(name)) controller.abort();
    for (const name of this.here.keys()) if (!keys.has(name)) this.here.delete(name);
    for (const tile of this.wanted) if (!this.here.has(key(tile))) void this.ask(tile);
    this.show();
  }

  refresh(): void {
    for (const tile of this.wanted) void this.ask(tile);
  }

  private async ask(tile: Tile): Promise<void> {
    const name = key(tile);
    if (this.asking.has(name)) {
      this.again.add(name);
      return;
    }
    const controller = new AbortController();
    this.asking.set(name, controller);
    try {
      const answer = await liveTile(tile, this.here.get(name)?.etag ?? null, controller.signal);
      if (answer && !controller.signal.aborted) {
        this.here.set(name, { ...tile, ...answer });
        this.showSoon();
      }
    } catch (error) {
      // Aborted, or the server is away: the banner says so, and the next tick asks again.
      if (error instanceof Error && error.name !== 'AbortError' && !(error instanceof TypeError) && !(error instanceof ApiError)) throw error;
    } finally {
      this.asking.delete(name);
    }
    const stillWanted = this.wanted.some((other) => key(other) === name);
    if (stillWanted && (this.again.delete(name) || controller.signal.aborted)) void this.ask(tile);
  }

  private pending = 0;

  /** Answers come in a bunch: they are shown together. */
  private showSoon(): void {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      this.show();
    });
  }

  private show(): void {
    this.shown = covering(this.wanted, this.here, this.shown);
    const data = this.shown.map((tile) => tile.data);
    this.changed({ points: data.filter((tile) => tile.kind === 'points'), cells: data.filter((tile) => tile.kind === 'cells') });
  }
}

// The drivers on the screen: where each is drawn, where it moves to, and when it arrives. `now`, in
// seconds, is always a parameter.
import type { Points } from './decode';
import { shorter } from './tiles';

/**
 * The move to a new fix takes as long as the driver took from the previous one, within these
 * bounds, in seconds.
 */
const MOVE_MIN = 0.8;
const MOVE_MAX = 2;
/**
 * Maximum speed of a move, in m/s. A faster move is a jump or another device with the same id, so
 * it is not drawn as a move.
 */
const DRIVEN_MPS = 100;

const METRES_PER_DEGREE = 111_320;

export class Fleet {
  n = 0;
  ids: string[] = [];
  lat = new Float64Array(0);
  lng = new Float64Array(0);
  /** Offset in degrees from (lat, lng) to the place where the move began. */
  dLat = new Float32Array(0);
  dLng = new Float32Array(0);
  start = new Float32Array(0);
  duration = new Float32Array(0);
  ts = new Float64Array(0);
  speed = new Float32Array(0);
  heading = new Float32Array(0);
  /** When the last moving driver arrives, in seconds. */
  arrivesAt = 0;
  /** Speed of the fastest move, in degrees per second. */
  fastest = 0;
  private index = new Map<string, number>();

  /**
   * Replaces the drivers with those of the tiles. If two tiles have a driver, the newer fix wins.
   */
  replace(tiles: readonly Points[], now: number): void {
    const before = this.snapshot();
    const capacity = tiles.reduce((sum, tile) => sum + tile.n, 0);
    this.allocate(capacity);
    for (const tile of tiles) {
      for (let i = 0; i < tile.n; i++) {
        const id = tile.ids[i];
        let slot = this.index.get(id);
        if (slot === undefined) {
          slot = this.n++;
          this.index.set(id, slot);
          this.ids.push(id);
        } else if (tile.ts[i] <= this.ts[slot]) {
          continue;
        }
        this.lat[slot] = tile.lat[i];
        this.lng[slot] = tile.lng[i];
        this.ts[slot] = tile.ts[i];
        this.speed[slot] = tile.speed[i];
        this.heading[slot] = tile.heading[i];
      }
    }
    this.arrivesAt = 0;
    this.fastest = 0;
    for (let slot = 0; slot < this.n; slot++) {
      const old = before.index.get(this.ids[slot]);
      if (old !== undefined) this.move(slot, before, old, now);
    }
  }

  slot(id: string): number | undefined {
    return this.index.get(id);
  }

  /** Returns the place where a driver is drawn. */
  at(slot: number, now: number): [lng: number, lat: number] {
    const share = remaining(this.start[slot], this.duration[slot], now);
    return [this.lng[slot] + this.dLng[slot] * share, this.lat[slot] + this.dLat[slot] * share];
  }

  /**
   * Returns the driver drawn nearest to a point. `reachLng` and `reachLat`: semi-axes in degrees of
   * the ellipse to search, which is a circle on the screen.
   */
  nearest(lng: number, lat: number, reachLng: number, reachLat: number, now: number): number | undefined {
    let best: number | undefined;
    let least = 1;
    for (let slot = 0; slot < this.n; slot++) {
      const [x, y] = this.at(slot, now);
      const distance = (shorter(x - lng) / reachLng) ** 2 + ((y - lat) / reachLat) ** 2;
      if (distance <= least) [best, least] = [slot, distance];
    }
    return best;
  }

  private snapshot(): Fleet {
    return Object.assign(Object.create(Fleet.prototype) as Fleet, this);
  }

  private allocate(capacity: number): void {
    this.n = 0;
    this.ids = [];
    this.index = new Map();
    this.lat = new Float64Array(capacity);
    this.lng = new Float64Array(capacity);
    this.dLat = new Float32Array(capacity);
    this.dLng = new Float32Array(capacity);
    this.start = new Float32Array(capacity);
    this.duration = new Float32Array(capacity);
    this.ts = new Float64Array(capacity);
    this.speed = new Float32Array(capacity);
    this.heading = new Float32Array(capacity);
  }

  private move(slot: number, before: Fleet, old: number, now: number): void {
    if (this.lat[slot] === before.lat[old] && this.lng[slot] === before.lng[old]) {
      // The fix has the same place as before: the move continues.
      this.dLat[slot] = before.dLat[old];
      this.dLng[slot] = before.dLng[old];
      this.start[slot] = before.start[old];
      this.duration[slot] = before.duration[old];
    } else {
      const [lng, lat] = before.at(old, now);
      const seconds = Math.max(1, this.ts[slot] - before.ts[old]);
      const dLng = shorter(lng - this.lng[slot]);
      const east = dLng * Math.cos((this.lat[slot] * Math.PI) / 180);
      const metres = Math.hypot(lat - this.lat[slot], east) * METRES_PER_DEGREE;
      if (metres > DRIVEN_MPS * (seconds + MOVE_MAX)) return;
      this.dLat[slot] = lat - this.lat[slot];
      this.dLng[slot] = dLng;
      this.start[slot] = now;
      this.duration[slot] = Math.min(MOVE_MAX, Math.max(MOVE_MIN, seconds));
    }
    const arrives = this.start[slot] + this.duration[slot];
    if (arrives <= now) return;
    this.arrivesAt = Math.max(this.arrivesAt, arrives);
    this.fastest = Math.max(this.fastest, Math.hypot(this.dLat[slot], this.dLng[slot]) / this.duration[slot]);
  }
}

/**
 * Returns the share of a move that remains, 1 to 0. The shader of driver-layer.ts has the same
 * formula.
 */
export function remaining(start: number, duration: number, now: number): number {
  return duration > 0 ? Math.min(1, Math.max(0, 1 - (now - start) / duration)) : 0;
}

// Since when the driver of the panel stands.
import { standing, type Fix, type Standing } from './api';
import { duration, isoDay, minuteOf, STANDING_MPS } from './words';

/** Minimum interval between requests while the answer is known, and while it is not. */
const REFRESH_MS = 60_000;
const RETRY_MS = 15_000;

/** Describes a stay up to `until`: "Standing since 14:05 (2 h 10 min)", with a date unless today. */
export function stayText({ since, is_at_least }: Standing, until: number, now: number): string {
  const lasted = duration((until - since) / 1000);
  return is_at_least ? `Standing for at least ${lasted}` : `Standing since ${minuteOf(since, isoDay(now))} (${lasted})`;
}

const stands = ({ speed }: Fix): boolean => speed !== null && speed < STANDING_MPS;

export class Stay {
  private driver = '';
  private found: Standing | null = null;
  private requestedAt = -Infinity;
  /** Counts how often the driver moved, or another one was chosen. */
  private breaks = 0;

  /**
   * Returns the stay of a standing driver up to `until` as text; empty: the driver moves, or it is
   * unknown.
   */
  text(fix: Fix, until: number, now: number): string {
    return stands(fix) && this.driver === fix.driver_id && this.found ? stayText(this.found, until, now) : '';
  }

  /** Requests the stay if it is unknown, or again after a newer fix. */
  async follow(fix: Fix, signal: AbortSignal): Promise<void> {
    const isOther = fix.driver_id !== this.driver;
    if (isOther) [this.driver, this.requestedAt] = [fix.driver_id, -Infinity];
    if (isOther || !stands(fix)) [this.found, this.breaks] = [null, this.breaks + 1];
    const pause = this.found ? REFRESH_MS : RETRY_MS;
    if (!stands(fix) || this.found?.ts === fix.ts || performance.now() - this.requestedAt < pause) return;
    this.requestedAt = performance.now();
    const { breaks } = this;
    const found = await standing(fix.driver_id, signal).catch(() => null);
    // The driver may have left the place meanwhile.
    if (this.breaks === breaks && found) this.found = found;
  }
}

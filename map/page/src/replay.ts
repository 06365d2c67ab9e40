// Replays the fleet: loads a span of the area in view once, and plays it like a track.
import { ApiError, past as fetchPast, type Past } from './api';
import { serverNow } from './clock';
import type { Points } from './decode';
import { byId, setPressed, setText, svg } from './dom';
import type { Film } from './player';
import { silentAfter } from './states';
import { moment, STANDING_MPS, formatCount } from './words';
import { instant, minutes } from './zone';
import type { Bounds } from './tiles';

/** Initial span. */
const HOURS = 4;
const HOUR_MS = 3_600_000;
/**
 * A driver is shown for this many steps after a fix, but at least until the driver counts as
 * silent. Otherwise drivers would vanish in a short span, whose steps are shorter than the time
 * between two fixes.
 */
const STEPS_KEPT = 10;
/**
 * A moving driver that has no further fix in the area for that long has left the area. Such a
 * driver is shown for only this many steps.
 */
const STEPS_LEAVING = 2;

interface Options {
  /** Called before the box opens: the other boxes are at the same place. */
  opening(): void;
  bounds(): Bounds;
  play(film: Film): void;
  /** Shows the drivers at a moment; null: the present again. */
  show(drivers: Points | null): void;
  stop(): void;
}

export class Replay {
  isOpen = false;
  /** The player shows the replay, not a driver's track. */
  isPlaying = false;
  private readonly box = byId('replay-box', HTMLElement);
  private readonly button = byId('replay', HTMLButtonElement);
  private readonly message = byId('replay-said', HTMLElement);
  private readonly from = byId('replay-from', HTMLInputElement);
  private readonly to = byId('replay-to', HTMLInputElement);
  private request: AbortController | null = null;
  /** The span in the form was played; it stays when the box opens again. */
  private hasPlayed = false;

  constructor(private readonly options: Options) {
    this.button.addEventListener('click', () => this.toggle());
    byId('replay-close', HTMLButtonElement).addEventListener('click', () => this.toggle());
    byId('replay-form', HTMLFormElement).addEventListener('submit', (event) => {
      event.preventDefault();
      void this.load();
    });
  }

  toggle(): void {
    if (!this.isOpen) this.options.opening();
    this.isOpen = !this.isOpen;
    this.box.hidden = !this.isOpen;
    setPressed(this.button, this.isOpen);
    setText(this.message, '');
    if (this.isOpen) {
      const now = serverNow();
      if (!this.hasPlayed) [this.from.value, this.to.value] = minutes(now - HOURS * HOUR_MS, now);
      this.from.focus();
      return;
    }
    this.request?.abort();
    if (this.isPlaying) {
      this.isPlaying = false;
      this.options.stop();
      this.options.show(null);
    }
    if (this.box.contains(document.activeElement)) this.button.focus();
  }

  private async load(): Promise<void> {
    this.request?.abort();
    const [from, to] = [instant(this.from.value), Math.min(instant(this.to.value), serverNow())];
    if (!(from < to)) return setText(this.message, 'The span must begin before it ends.');
    const controller = (this.request = new AbortController());
    setText(this.message, 'Loading …');
    try {
      const past = await fetchPast(this.options.bounds(), from, to, controller.signal);
      if (controller.signal.aborted) return;
      const truncation = past.truncated ? ' More than the server sends at once: the end is missing. Zoom in, or choose a shorter span.' : '';
      setText(this.message, past.ids.length === 0 ? 'No fixes in this area and span.' : `${formatCount(past.ids.length)} drivers.${truncation}`);
      if (past.ids.length === 0) return;
      [this.isPlaying, this.hasPlayed] = [true, true];
      this.options.play(film(past, (drivers) => this.options.show(drivers)));
    } catch (error) {
      if (controller.signal.aborted) return;
      setText(this.message, error instanceof ApiError ? error.message : 'The server does not answer.');
    }
  }
}

function film(past: Past, show: (drivers: Points) => void): Film {
  let shown = -1;
  let count = 0;
  return {
    from: past.from,
    to: past.to,
    begin: past.from,
    moved(ms) {
      // Between two steps the scene moves the drivers, as it does with live ones.
      const step = Math.floor((ms - past.from) / past.step);
      if (step === shown) return;
      shown = step;
      const drivers = driversAt(past, past.from + (step + 1) * past.step);
      count = drivers.n;
      show(drivers);
    },
    text: (ms) => `${moment(ms, serverNow())}\n${formatCount(count)} drivers`,
    draw(width, height) {
      const steps = Math.ceil((past.to - past.from) / past.step);
      const counts = new Array<number>(steps).fill(0);
      for (const ts of past.ts) counts[Math.min(steps - 1, Math.floor((ts - past.from) / past.step))]++;
      const max = Math.max(...counts, 1);
      const barWidth = width / steps;
      const bar = (fixes: number, i: number) => (fixes ? `M${i * barWidth} ${height}v${(-fixes / max) * (height - 4)}h${barWidth}V${height}Z` : '');
      return [svg('path', { class: 'speed', d: counts.map(bar).join('') })];
    },
  };
}

/**
 * Returns each driver's newest fix before `ms`, unless it is too old, or the driver has left the
 * area.
 */
export function driversAt({ to, step, truncated, ids, driver, ts, lat, lng, speed }: Past, ms: number): Points {
  const keptMs = Math.max(STEPS_KEPT * step, silentAfter() * 1000);
  const newest = new Map<number, number>();
  const next = new Map<number, number>();
  for (let i = 0; i < ts.length; i++) {
    if (Math.abs(ts[i] - ms) > keptMs) continue;
    const other = newest.get(driver[i]);
    if (ts[i] >= ms) next.set(driver[i], Math.min(ts[i], next.get(driver[i]) ?? Infinity));
    else if (other === undefined || ts[other] <= ts[i]) newest.set(driver[i], i);
  }
  // Fixes after this moment are unknown.
  const end = truncated ? ts[ts.length - 1] : to;
  const hasLeft = (row: number) =>
    (speed[row] ?? 0) >= STANDING_MPS && ts[row] < ms - STEPS_LEAVING * step && (next.get(driver[row]) ?? end) > ts[row] + keptMs;
  const rows = [...newest.values()].filter((row) => !hasLeft(row));
  const column = <T>(values: readonly T[]) => rows.map((row) => values[row]);
  return {
    kind: 'points',
    now: ms,
    n: rows.length,
    ids: rows.map((row) => ids[driver[row]]),
    lat: Float64Array.from(column(lat)),
    lng: Float64Array.from(column(lng)),
    ts: Float64Array.from(column(ts), (value) => value / 1000),
    speed: Float32Array.from(column(speed), (value) => value ?? NaN),
    heading: new Float32Array(rows.length).fill(NaN),
  };
}

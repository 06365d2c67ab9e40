// Replays the fleet: loads a span of the area in view once, and plays it like a track.
import { ApiError, past as fetchPast, type Past } from './api';
import { serverNow } from './clock';
import { byId, setPressed, setText, svg } from './dom';
import type { Points } from './decode';
import { countStates, driversAt } from './past';
import type { Film } from './player';
import type { DriverState } from './states';
import { clockWithDay, formatCount } from './words';
import { When, WRITE_TIME } from './when';
import { minutes } from './zone';
import type { Bounds } from './tiles';

/** Initial span, if no track is shown. */
const HOURS = 4;
const HOUR_MS = 3_600_000;
/** Initial span before and after the moment of the track that is shown. */
const AROUND_MS = 5 * 60_000;
/** What a replay shows: an area, and a span in Unix ms. */
interface Scope {
  bounds: Bounds;
  from: number;
  to: number;
}

/** The fleet of a replay at a moment. */
export interface Moment {
  /** Unix ms. */
  ms: number;
  /** Drivers in each state, hidden states included. */
  states: Record<DriverState, number>;
  /** Drivers on the map. */
  shown: number;
  /** Drivers in the whole replay. */
  drivers: number;
}

interface Options {
  /** Called before the box opens: the other boxes are at the same place. */
  opening(): void;
  bounds(): Bounds;
  /** Group that is shown; empty: every group. */
  group(): string;
  /** Returns the moment of the track that is shown, in Unix ms; null: none is, or its end. */
  moment(): number | null;
  /** Plays a film. `isSame`: it is the same span with other drivers, which stays paused if it was. */
  play(film: Film, isSame: boolean): void;
  /** Shows the drivers at a moment, and returns their number; null: the present again. */
  show(drivers: Points | null): number;
  /** Called with the moment on the map; null: it shows the present again. */
  moved(moment: Moment | null): void;
  stop(): void;
}

export class Replay {
  isOpen = false;
  /** The player shows the replay, not a driver's track. */
  isPlaying = false;
  private readonly box = byId('replay-box', HTMLElement);
  private readonly button = byId('replay', HTMLButtonElement);
  private readonly message = byId('replay-said', HTMLElement);
  private readonly from = new When('replay-from');
  private readonly to = new When('replay-to');
  /**
   * The request without an answer. `isSame`: its scope is the one that is played. `focused`: the
   * element that had the focus when the viewer sent the form.
   */
  private request: { controller: AbortController; scope: Scope; isSame: boolean; focused: Element | null } | null = null;
  /** What is played. */
  private played: { past: Past; scope: Scope; group: string } | null = null;
  /** The moment that was shown last. Unix ms. */
  private at = 0;
  /**
   * Fixes were played since the page was opened. From then on the form keeps its span when the box
   * opens again, unless a moment of a track is shown.
   */
  private hasPlayed = false;

  constructor(private readonly options: Options) {
    this.button.addEventListener('click', () => this.toggle());
    byId('replay-close', HTMLButtonElement).addEventListener('click', () => this.toggle());
    byId('replay-span', HTMLButtonElement).addEventListener('click', () => {
      delete this.box.dataset.playing;
      this.from.date.focus();
    });
    byId('replay-form', HTMLFormElement).addEventListener('submit', (event) => {
      event.preventDefault();
      this.submit();
    });
  }

  /** Loads the same area and span again, for other drivers, and plays on from the same moment. */
  reload(): void {
    if (this.request) void this.load(this.request.scope, this.request.isSame, this.request.focused);
    else if (this.isPlaying && this.played) void this.load(this.played.scope, true);
  }

  /** Called when the zone has changed. */
  redraw(): void {
    this.from.redraw();
    this.to.redraw();
  }

  toggle(): void {
    if (!this.isOpen) this.options.opening();
    this.isOpen = !this.isOpen;
    this.box.hidden = !this.isOpen;
    setPressed(this.button, this.isOpen);
    setText(this.message, '');
    if (this.isOpen) {
      const now = serverNow();
      const at = this.options.moment();
      if (at !== null) [this.from.value, this.to.value] = minutes(at - AROUND_MS, Math.min(now, at + AROUND_MS));
      else if (!this.hasPlayed) [this.from.value, this.to.value] = minutes(now - HOURS * HOUR_MS, now);
      this.from.date.focus();
      return;
    }
    const { activeElement } = document;
    const hadFocus = this.box.contains(activeElement) || (this.isPlaying && byId('player', HTMLElement).contains(activeElement));
    this.request?.controller.abort();
    [this.request, this.played] = [null, null];
    delete this.box.dataset.playing;
    if (this.isPlaying) {
      this.isPlaying = false;
      this.options.stop();
      this.options.show(null);
      this.options.moved(null);
    }
    if (hadFocus) this.button.focus();
  }

  private submit(): void {
    const [from, to] = [this.from.ms, Math.min(this.to.ms, serverNow())];
    if (!this.from.value || !this.to.value) return setText(this.message, WRITE_TIME);
    if (!(from < to)) return setText(this.message, 'The span must begin before it ends.');
    void this.load({ bounds: this.options.bounds(), from, to }, false, document.activeElement);
  }

  private async load(scope: Scope, isSame: boolean, focused: Element | null = null): Promise<void> {
    this.request?.controller.abort();
    const controller = new AbortController();
    this.request = { controller, scope, isSame, focused };
    const group = this.options.group();
    setText(this.message, 'Loading …');
    try {
      const past = await fetchPast(scope.bounds, scope.from, scope.to, group, controller.signal);
      if (controller.signal.aborted) return;
      this.request = null;
      const truncation = past.truncated ? ' More than the server sends at once: the end is missing. Zoom in, or choose a shorter span.' : '';
      setText(this.message, past.ids.length === 0 ? 'No fixes in this area and span.' : `${formatCount(past.ids.length)} drivers.${truncation}`);
      if (past.ids.length === 0 && !isSame) return this.hideOthers(group);
      [this.isPlaying, this.hasPlayed] = [true, true];
      // On a phone the box makes room for the map; the warning stays.
      if (!past.truncated) this.box.dataset.playing = '';
      this.play(past, scope, group, isSame);
      const { activeElement } = document;
      const isHidden = activeElement !== null && this.box.contains(activeElement) && !activeElement.checkVisibility();
      // The next Space pauses: a focused button of the form would load the span again.
      if (isHidden || (!isSame && activeElement === focused)) byId('play', HTMLButtonElement).focus();
    } catch (error) {
      if (controller.signal.aborted) return;
      this.request = null;
      setText(this.message, error instanceof ApiError ? error.message : 'The server does not answer.');
      delete this.box.dataset.playing;
      this.hideOthers(group);
    }
  }

  private play(past: Past, scope: Scope, group: string, isSame: boolean): void {
    this.played = { past, scope, group };
    const moved = (moment: Moment) => {
      this.at = moment.ms;
      this.options.moved(moment);
    };
    this.options.play(film(past, isSame ? this.at : 0, this.options.show, moved), isSame);
  }

  /** Shows nobody if the drivers that are played are of another group. */
  private hideOthers(group: string): void {
    if (!this.isPlaying || !this.played || this.played.group === group) return;
    const { past, scope } = this.played;
    this.play({ ...past, ids: [], driver: [], ts: [], lat: [], lng: [], speed: [] }, scope, group, true);
  }
}

function film(past: Past, begin: number, show: (drivers: Points) => number, moved: (moment: Moment) => void): Film {
  let step = -1;
  let states = countStates(driversAt(past, past.from));
  let shown = 0;
  const showStep = (next: number) => {
    step = next;
    const drivers = driversAt(past, past.from + (step + 1) * past.step);
    states = countStates(drivers);
    shown = show(drivers);
  };
  return {
    from: past.from,
    to: past.to,
    begin: Math.min(past.to, Math.max(past.from, begin)),
    moved(ms) {
      // Between two steps the scene moves the drivers, as it does with live ones.
      const next = Math.floor((ms - past.from) / past.step);
      if (next !== step) showStep(next);
      moved({ ms, states, shown, drivers: past.ids.length });
    },
    redraw: () => showStep(step),
    text: (ms) => `${clockWithDay(ms, serverNow())}\n${formatCount(shown)} driver${shown === 1 ? '' : 's'}`,
    draw(width, height) {
      const steps = Math.ceil((past.to - past.from) / past.step);
      const counts = new Array<number>(steps).fill(0);
      // The fixes before the span have no bar.
      for (const ts of past.ts.filter((at) => at >= past.from)) counts[Math.min(steps - 1, Math.floor((ts - past.from) / past.step))]++;
      const max = Math.max(...counts, 1);
      const barWidth = width / steps;
      const bar = (fixes: number, i: number) => (fixes ? `M${i * barWidth} ${height}v${(-fixes / max) * (height - 4)}h${barWidth}V${height}Z` : '');
      return [svg('path', { class: 'speed', d: counts.map(bar).join('') })];
    },
  };
}

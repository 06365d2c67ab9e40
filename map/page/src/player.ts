// The time slider: plays a track, shows its speed, stops and gaps, and describes the moment in
// words.
import type { Track } from './api';
import { serverNow } from './clock';
import { byId, make, setText, svg } from './dom';
import { marks } from './marks';
import { speedCurve, spotAt } from './track';
import { clockWithDay, formatSpeed } from './words';

/** Playback rates; 10 plays ten seconds per second. */
const PACES = [1, 10, 60, 300, 1000];
const FIRST_PACE_MIN = 10;
/**
 * The initial rate is the fastest from `FIRST_PACE_MIN` on at which playback takes at least this
 * long.
 */
const PLAY_S = 60;
/** Size of the picture behind the slider, in units of its viewBox. */
const WIDTH = 1000;
const HEIGHT = 40;
/** Minimum width of a mark with its time, in rem. */
const MARK_REM = 3.5;
/** Direction in which a key moves the slider. */
const ARROWS: Record<string, number> = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 };
/** Number of bars of the speed curve. */
const SAMPLES = 250;

/** A track or the fleet's past, as the player shows it. */
export interface Film {
  /** Unix ms. */
  from: number;
  to: number;
  /** The moment that is shown first. */
  begin: number;
  /** Called with the moment that is shown. */
  moved(ms: number): void;
  /** Called when what the map shows at the same moment has changed. */
  redraw?(): void;
  /** Returns the time of a moment, and on a second line what the map shows. */
  text(ms: number): string;
  /** Draws the picture behind the slider. */
  draw(width: number, height: number): SVGElement[];
}

export interface Player {
  /** `keepsPace`: the film has the same span as the one before. */
  open(film: Film, keepsPace?: boolean): void;
  close(): void;
  /** Shows another moment. If the track is played, it is played on from there. */
  seek(ms: number): void;
  /** Shows the same moment again, after its picture, the units or the zone have changed. */
  redraw(): void;
  /** Does nothing without a track. */
  toggle(): void;
  readonly isOpen: boolean;
  readonly isPlaying: boolean;
  /** The moment that is shown, in Unix ms; null: nothing is, or its end. */
  readonly moment: number | null;
}

export function player(onClose: () => void): Player {
  const box = byId('player', HTMLElement);
  const play = byId('play', HTMLButtonElement);
  const pace = byId('pace', HTMLButtonElement);
  const slider = byId('slider', HTMLInputElement);
  const curve = byId('curve', SVGElement);
  const moment = byId('moment', HTMLOutputElement);
  let film: Film | null = null;
  let ms = 0;
  let rate = 60;
  let playing = false;
  let last = 0;
  /** Id of the requested frame. */
  let frame = 0;
  /** The pointer holds the slider, which must not move away from it. */
  let isHeld = false;
  const scale = byId('marks', HTMLElement);

  slider.addEventListener('input', () => seek(Number(slider.value)));
  slider.addEventListener('keydown', (event) => {
    const by = ARROWS[event.key];
    // The browser's own shortcuts, such as Alt+Left.
    if (!by || !film || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    // By what half a second of playback shows, so that a slower pace also makes finer steps.
    seek(ms + by * Math.max(1000, rate * 500));
  });
  slider.addEventListener('pointerdown', ({ button }) => (isHeld = button === 0));
  for (const end of ['pointerup', 'pointercancel'] as const) addEventListener(end, () => (isHeld = false));
  new ResizeObserver(drawMarks).observe(scale);
  play.addEventListener('click', toggle);
  pace.addEventListener('click', () => setPace(PACES[(PACES.indexOf(rate) + 1) % PACES.length]));
  byId('player-close', HTMLButtonElement).addEventListener('click', () => onClose());

  function drawMarks(): void {
    if (!film) return;
    const { from, to } = film;
    const room = scale.clientWidth / (MARK_REM * parseFloat(getComputedStyle(document.documentElement).fontSize));
    scale.replaceChildren(
      ...marks(from, to, Math.max(1, Math.floor(room))).map(({ ms, text }) => {
        const share = (ms - from) / (to - from);
        // At the end of the band a mark has no room for its time.
        const mark = make('span', (1 - share) * room < 0.9 ? '' : text);
        mark.style.left = `${share * 100}%`;
        return mark;
      }),
    );
  }

  function setPace(next: number): void {
    rate = next;
    setText(pace, `${rate}×`);
    pace.setAttribute('aria-label', `Pace: ${rate} times as fast`);
  }

  function seek(next: number): void {
    if (!film) return;
    ms = Math.min(film.to, Math.max(film.from, next));
    slider.value = String(Math.round(ms));
    film.moved(ms);
    const text = film.text(ms);
    slider.setAttribute('aria-valuetext', text.replace('\n', ', '));
    setText(moment, text);
  }

  function toggle(): void {
    if (!film) return;
    if (playing) return pause();
    if (ms >= film.to) seek(film.from);
    playing = true;
    play.dataset.playing = '';
    play.setAttribute('aria-label', 'Pause');
    last = performance.now();
    frame = requestAnimationFrame(step);
  }

  function pause(): void {
    playing = false;
    cancelAnimationFrame(frame);
    delete play.dataset.playing;
    play.setAttribute('aria-label', 'Play');
  }

  function step(now: number): void {
    if (!playing || !film) return;
    if (!isHeld) seek(ms + (now - last) * rate);
    last = now;
    if (ms >= film.to && !isHeld) pause();
    else frame = requestAnimationFrame(step);
  }

  return {
    get isOpen() {
      return film !== null;
    },
    get moment() {
      return film && ms < film.to ? ms : null;
    },
    get isPlaying() {
      return playing;
    },
    open(next, keepsPace = false) {
      pause();
      film = next;
      slider.min = String(next.from);
      slider.max = String(next.to);
      slider.step = '1000';
      const wanted = (next.to - next.from) / 1000 / PLAY_S;
      if (!keepsPace) setPace(Math.max(FIRST_PACE_MIN, PACES.findLast((other) => other <= wanted * 1.01) ?? FIRST_PACE_MIN));
      curve.replaceChildren(...next.draw(WIDTH, HEIGHT));
      box.hidden = false;
      drawMarks();
      seek(next.begin);
    },
    close() {
      pause();
      film = null;
      box.hidden = true;
    },
    seek,
    redraw() {
      drawMarks();
      film?.redraw?.();
      seek(ms);
    },
    toggle,
  };
}

export const trackFilm = (track: Track, moved: (ms: number) => void): Film => ({
  from: track.from,
  to: track.to,
  begin: track.to,
  moved,
  text: (ms) => momentText(track, ms),
  draw: () => draw(track),
});

/** "14:03:22", with the date unless it is today, and on a second line what the driver did. */
export function momentText(track: Track, ms: number): string {
  const spot = spotAt(track, ms);
  const when = clockWithDay(ms, serverNow());
  if (!spot) return `${when}\n–`;
  if (spot.kind === 'gap') return `${when}\nno fixes`;
  if (spot.kind === 'stop') return `${when}\nstop`;
  return `${when}\n${spot.speed === null ? 'speed unknown' : formatSpeed(spot.speed)}`;
}

function draw(track: Track): SVGElement[] {
  const place = (ms: number) => Math.min(WIDTH, Math.max(0, ((ms - track.from) / (track.to - track.from)) * WIDTH));
  const hatch = svg('pattern', { id: 'hatch', width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' });
  hatch.append(svg('line', { x1: 0, y1: 0, x2: 0, y2: 6, class: 'hatch' }));
  const bands = track.episodes.map(({ kind, from, to }) =>
    svg('rect', { class: kind, x: place(from), width: Math.max(1, place(to) - place(from)), y: 0, height: HEIGHT }),
  );
  return [hatch, ...bands, svg('path', { class: 'speed', d: area(track) })];
}

function area(track: Track): string {
  const speeds = speedCurve(track, track.from, track.to, SAMPLES);
  const top = Math.max(10, ...speeds.filter((speed) => !Number.isNaN(speed)));
  const step = WIDTH / SAMPLES;
  let path = '';
  speeds.forEach((speed, i) => {
    if (Number.isNaN(speed)) return;
    const high = (speed / top) * (HEIGHT - 4);
    path += `M${i * step} ${HEIGHT}v${-high}h${step}v${high}Z`;
  });
  return path;
}

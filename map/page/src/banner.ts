// The line above the map: what is wrong, or that the problem is over.
import type { Tick } from './api';
import { byId, setText } from './dom';
import { moment, span } from './words';

/** How long "Live again." is shown. */
const RECOVERED_MS = 4000;
/** Pixels between the banner and the card below it. */
const GAP_PX = 8;
const NO_DRIVER_HINT =
  'No driver yet. Let a device publish {"lat":52.52,"lng":13.4,"ts":…} to drivers/van-1/gps: it appears here within a second. If it does not, run milepost check.';
const NO_DRIVER_SEEN = 'None of the drivers that you may see has sent a position.';

export function banner() {
  const element = byId('banner', HTMLElement);
  // Where there is no room for both, cards are below the banner, so that they can be closed.
  new ResizeObserver(() => {
    const { offsetHeight } = element;
    document.documentElement.style.setProperty('--banner-height', `${offsetHeight && offsetHeight + GAP_PX}px`);
  }).observe(element);
  let hideTimer = 0;

  let broken = false;
  /** Reason why the server refused the last request; empty: the request was not refused. */
  let refusal = '';
  let shown: { text: string; kind: 'bad' | 'good' | 'hint' | '' } = { text: '', kind: '' };
  /** Which fences were not saved; empty: all were. */
  let unsaved = '';

  function show(text: string, kind: typeof shown.kind): void {
    if (broken) return;
    clearTimeout(hideTimer);
    shown = { text, kind };
    draw();
  }

  function draw(): void {
    setText(element, [unsaved, shown.text].filter(Boolean).join(' '));
    element.dataset.kind = unsaved ? 'bad' : shown.kind;
  }

  return {
    /** `group`: the tick counts only drivers of this group; empty: all. */
    tick(tick: Tick, group: string): void {
      refusal = '';
      const text = problem(tick);
      if (text) show(text, 'bad');
      else if (tick.drivers === 0 && !group) show(tick.rate === null ? NO_DRIVER_SEEN : NO_DRIVER_HINT, 'hint');
      else if (shown.kind === 'hint') show('', '');
      else if (shown.kind === 'bad') {
        show('Live again.', 'good');
        hideTimer = window.setTimeout(() => show('', ''), RECOVERED_MS);
      }
    },
    /** Shows which fences were not saved, beside any other problem; empty: all were. */
    fences(text: string): void {
      unsaved = text;
      draw();
    },
    /** Shows the text permanently: only the viewer can solve the problem. */
    broken(text: string): void {
      show(text, 'bad');
      broken = true;
    },
    lost(): void {
      show(refusal || 'The map’s server does not answer. You see the last known positions; this page recovers by itself.', 'bad');
    },
    /** The server refuses this viewer, for example because a link has expired; empty: no more. */
    refused(why: string): void {
      refusal = why && `The map’s server refuses this page: ${why}.`;
      if (refusal) show(refusal, 'bad');
    },
  };
}

/**
 * Describes the problem; empty: there is none. The text changes at most once a minute and with the
 * state, because a screen reader speaks each change.
 */
export function problem({ state, since, now }: Pick<Tick, 'state' | 'since' | 'now'>): string {
  const minutes = (now - since) / 1000 >= 60 ? `, for ${span((now - since) / 1000)}` : '';
  switch (state) {
    case 'ok':
      return '';
    case 'away':
      return `ClickHouse has not answered since ${moment(since, now)}${minutes}. You see the last known positions; the map recovers by itself.`;
    case 'stale':
      return `No data has arrived since ${moment(since, now)}${minutes}. ClickHouse answers: check milepost and the broker.`;
  }
}

// What is wrong, in one sentence above the map, and that it is over.
import type { Tick } from './api';
import { byId, say } from './dom';
import { moment, span } from './words';

const BACK_MS = 4000;
const NOBODY =
  'No driver yet. Let a device publish {"lat":52.52,"lng":13.4,"ts":…} to drivers/van-1/gps: it appears here within a second. If it does not, run milepost check.';

export function banner() {
  const element = byId('banner', HTMLElement);
  let over = 0;

  let broken = false;

  function show(text: string, kind: 'bad' | 'good' | 'hint' | ''): void {
    if (broken) return;
    clearTimeout(over);
    say(element, text);
    element.dataset.kind = kind;
  }

  return {
    tick(tick: Tick): void {
      const text = trouble(tick);
      if (text) show(text, 'bad');
      else if (tick.drivers === 0) show(NOBODY, 'hint');
      else if (element.dataset.kind === 'hint') show('', '');
      else if (element.dataset.kind === 'bad') {
        show('Live again.', 'good');
        over = window.setTimeout(() => show('', ''), BACK_MS);
      }
    },
    /** For good: only the viewer can mend it. */
    broken(text: string): void {
      show(text, 'bad');
      broken = true;
    },
    lost(): void {
      show('The map’s server does not answer. You see what was last known; this page goes on by itself.', 'bad');
    },
  };
}

/** A sentence, or nothing. It changes only with the state or the minute: each change is spoken. */
export function trouble({ state, since, now }: Pick<Tick, 'state' | 'since' | 'now'>): string {
  const minutes = (now - since) / 1000 >= 60 ? `, for ${span((now - since) / 1000)}` : '';
  switch (state) {
    case 'ok':
      return '';
    case 'away':
      return `ClickHouse does not answer since ${moment(since, now)}${minutes}. You see what was last known; it goes on by itself.`;
    case 'stale':
      return `Nothing new has come since ${moment(since, now)}${minutes}. ClickHouse answers: look at milepost and the broker.`;
  }
}

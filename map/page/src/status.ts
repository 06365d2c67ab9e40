// The numbers at the top. Their boxes keep their width, so that nothing jumps when a number gets
// another digit.
import type { Tick } from './api';
import { byId, setText } from './dom';
import type { Moment } from './replay';
import { clock, dayLong, span, formatCount } from './words';

const PAST = ['Replay of', 'Drivers on the map', 'Time'];

export function status() {
  const box = byId('numbers', HTMLElement);
  const newest = byId('newest', HTMLElement);
  const pulse = byId('pulse', HTMLElement);
  const seen = byId('seen', HTMLElement);
  const drivers = byId('drivers', HTMLElement);
  const rate = byId('rate', HTMLElement);
  const titles = box.querySelectorAll('dt');
  const live = Array.from(titles, (title) => title.textContent ?? '');
  let group = '';
  let isPast = false;

  /** Writes what the three numbers are. */
  function name(): void {
    const names = isPast ? PAST : [live[0], group ? `${group}, last minute` : live[1], live[2]];
    titles.forEach((title, i) => setText(title, names[i]));
    box.setAttribute('aria-label', isPast ? 'Replay' : 'Data flow');
    box.toggleAttribute('data-past', isPast);
  }

  return {
    tick(tick: Tick): void {
      if (isPast) return;
      setText(newest, tick.newest === null ? 'no fixes yet' : age((tick.now - tick.newest) / 1000));
      pulse.dataset.state = tick.newest === null && tick.state === 'ok' ? 'none' : tick.state;
      // These numbers are unknown while ClickHouse does not answer.
      const isKnown = tick.state !== 'away';
      setText(seen, isKnown ? formatCount(tick.seen_1m) : '–');
      setText(drivers, ` of ${formatCount(tick.drivers)}`);
      setText(rate, isKnown && tick.rate !== null ? formatCount(tick.rate) : '–');
    },
    /** Counts the drivers of a group; empty: of every group. */
    setGroup(next: string): void {
      group = next;
      name();
    },
    /** Shows a moment of a replay in place of the live numbers; null: the live ones again. */
    replayed(moment: Moment | null): void {
      isPast = moment !== null;
      name();
      if (moment) {
        setText(newest, dayLong(moment.ms));
        setText(seen, formatCount(moment.shown));
        setText(drivers, ` of ${formatCount(moment.drivers)}`);
        setText(rate, clock(moment.ms));
        pulse.dataset.state = 'none';
      } else {
        // The next tick brings the live numbers.
        for (const number of [newest, seen, rate]) setText(number, '–');
        setText(drivers, '');
      }
    },
    lost(): void {
      if (isPast) return;
      pulse.dataset.state = 'away';
      setText(newest, 'not connected');
      setText(seen, '–');
      setText(rate, '–');
    },
  };
}

/** Age of the newest message, in whole seconds: fractions would flicker. */
export function age(seconds: number): string {
  if (seconds < 2) return 'just now';
  return seconds < 60 ? `${Math.floor(seconds)} s` : span(seconds);
}

// The numbers at the top. Their boxes keep their width, so that nothing jumps when a number gets
// another digit.
import type { Tick } from './api';
import { byId, setText } from './dom';
import { span, formatCount } from './words';

export function status() {
  const newest = byId('newest', HTMLElement);
  const pulse = byId('pulse', HTMLElement);
  const seen = byId('seen', HTMLElement);
  const drivers = byId('drivers', HTMLElement);
  const rate = byId('rate', HTMLElement);

  return {
    tick(tick: Tick): void {
      setText(newest, tick.newest === null ? 'no fixes yet' : age((tick.now - tick.newest) / 1000));
      pulse.dataset.state = tick.newest === null && tick.state === 'ok' ? 'none' : tick.state;
      // These numbers are unknown while ClickHouse does not answer.
      const isKnown = tick.state !== 'away';
      setText(seen, isKnown ? formatCount(tick.seen_1m) : '–');
      setText(drivers, ` of ${formatCount(tick.drivers)}`);
      setText(rate, isKnown && tick.rate !== null ? formatCount(tick.rate) : '–');
    },
    lost(): void {
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

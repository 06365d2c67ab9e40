// The numbers on top. Their boxes keep their width: nothing jumps when a digit comes.
import type { Tick } from './api';
import { byId, say } from './dom';
import { span, whole } from './words';

export function status() {
  const newest = byId('newest', HTMLElement);
  const pulse = byId('pulse', HTMLElement);
  const seen = byId('seen', HTMLElement);
  const drivers = byId('drivers', HTMLElement);
  const rate = byId('rate', HTMLElement);

  return {
    tick(tick: Tick): void {
      say(newest, tick.newest === null ? 'no fixes yet' : age((tick.now - tick.newest) / 1000));
      pulse.dataset.state = tick.newest === null && tick.state === 'ok' ? 'none' : tick.state;
      // Nobody knows how many it is while ClickHouse does not answer.
      const isKnown = tick.state !== 'away';
      say(seen, isKnown ? whole(tick.seen_1m) : '–');
      say(drivers, ` of ${whole(tick.drivers)}`);
      say(rate, isKnown && tick.rate !== null ? whole(tick.rate) : '–');
    },
    lost(): void {
      pulse.dataset.state = 'away';
      say(newest, 'not connected');
      say(seen, '–');
      say(rate, '–');
    },
  };
}

/** Half seconds would flicker. */
export function age(seconds: number): string {
  if (seconds < 2) return 'just now';
  return seconds < 60 ? `${Math.floor(seconds)} s` : span(seconds);
}

// A line that says that this page was opened with a read-only link, and until when it is valid.
import { serverNow } from './clock';
import { byId, setText } from './dom';
import { clockShort, dayLong, isoDay } from './words';

export function guest() {
  const line = byId('guest', HTMLElement);
  let until: number | null = null;

  function redraw(): void {
    if (until === null) return setText(line, '');
    const day = isoDay(until) === isoDay(serverNow()) ? '' : `${dayLong(until)}, `;
    setText(line, `Read-only link, until ${day}${clockShort(until)}`);
  }

  return {
    /** Shows when the link expires, in Unix ms; null: the viewer has a login. */
    open(next: number | null): void {
      until = next;
      document.body.dataset.link = String(until !== null);
      redraw();
    },
    /** Called when the zone has changed. */
    redraw,
  };
}

// The calendar of a driver: a month whose days with fixes can be chosen. Days are in the viewer's
// zone.
import { ApiError, days as fetchDays } from './api';
import { serverNow } from './clock';
import { byId, make, setText } from './dom';
import { daySpan, isoDay } from './words';
import { zone } from './zone';

const DAY_MS = 86_400_000;
const WEEKDAYS = ['Mo', 'Tu', 'We', 'Th', 'Fr', 'Sa', 'Su'];

/**
 * Returns the days of a month such as `2026-11`, and the number of empty cells before the first one
 * in weeks that begin on Monday.
 */
export function month(name: string): { days: string[]; before: number } {
  const first = new Date(`${name}-01T12:00Z`);
  const days: string[] = [];
  for (let day = new Date(first); day.toISOString().startsWith(name); day = new Date(day.getTime() + DAY_MS)) days.push(day.toISOString().slice(0, 10));
  return { days, before: (first.getUTCDay() + 6) % 7 };
}

/** Returns the month `by` months later. */
export function monthAfter(name: string, by: number): string {
  const [year, number] = name.split('-').map(Number);
  return new Date(Date.UTC(year, number - 1 + by, 1)).toISOString().slice(0, 7);
}

export function calendar(choose: (day: string) => void) {
  const box = byId('calendar', HTMLElement);
  const title = byId('calendar-month', HTMLElement);
  const grid = byId('calendar-days', HTMLElement);
  const open = byId('calendar-open', HTMLButtonElement);
  const later = byId('calendar-later', HTMLButtonElement);
  let driver = '';
  let shown = '';
  let request: AbortController | null = null;

  open.addEventListener('click', toggle);
  byId('calendar-earlier', HTMLButtonElement).addEventListener('click', () => void show(monthAfter(shown, -1)));
  later.addEventListener('click', () => void show(monthAfter(shown, 1)));

  function toggle(): void {
    if (!box.hidden) {
      close();
      return open.focus();
    }
    box.hidden = false;
    open.ariaExpanded = 'true';
    void show(isoDay(serverNow()).slice(0, 7));
    box.scrollIntoView({ block: 'nearest' });
  }

  function close(): void {
    request?.abort();
    box.hidden = true;
    open.ariaExpanded = 'false';
  }

  async function show(name: string): Promise<void> {
    shown = name;
    request?.abort();
    const controller = (request = new AbortController());
    const { days, before } = month(name);
    const from = daySpan(days[0])!.from;
    const to = Math.min(daySpan(days[days.length - 1])!.to, Math.ceil(serverNow()));
    later.disabled = name >= isoDay(serverNow()).slice(0, 7);
    const inWords = new Intl.DateTimeFormat('en-GB', { month: 'long', year: 'numeric', timeZone: 'UTC' }).format(new Date(`${name}-01T12:00Z`));
    setText(title, inWords);
    let daysWithFixes = new Set<string>();
    const draw = (isKnown: boolean) =>
      grid.replaceChildren(
        ...WEEKDAYS.map((name) => {
          const title = make('span', name);
          title.ariaHidden = 'true';
          return title;
        }),
        ...days.map((day, i) => {
          const button = make('button', String(Number(day.slice(8))));
          button.type = 'button';
          button.dataset.day = day;
          button.disabled = isKnown ? !daysWithFixes.has(day) : true;
          button.setAttribute('aria-label', `${day}${!isKnown || daysWithFixes.has(day) ? '' : ', no fixes'}`);
          if (i === 0) button.style.gridColumnStart = String(before + 1);
          button.addEventListener('click', () => {
            close();
            // The next Space plays the track: a focused button would open the calendar again.
            byId('driver-name', HTMLElement).focus({ preventScroll: true });
            choose(day);
          });
          return button;
        }),
      );
    draw(false);
    try {
      daysWithFixes = new Set(await fetchDays(driver, from, Math.max(to, from + 1), zone(), controller.signal));
      if (!controller.signal.aborted) draw(true);
    } catch (error) {
      // The days stay disabled, and the date field can still be used.
      if (!controller.signal.aborted) setText(title, `${inWords}: ${error instanceof ApiError ? error.message : 'the server does not answer'}`);
    }
  }

  return {
    /** Called when the zone has changed: its days have other fixes. */
    redraw(): void {
      if (!box.hidden) void show(shown);
    },
    setDriver(id: string): void {
      driver = id;
      close();
    },
  };
}

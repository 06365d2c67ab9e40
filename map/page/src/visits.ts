// One fence in the card of the fences: who is inside and since when, and who left it today.
import { ApiError, visits as fetchVisits, type Visit } from './api';
import { serverNow } from './clock';
import { byId, make, replaceRows, setText } from './dom';
import type { Fence } from './rings';
import { rulesInWords } from './rules';
import { silentAfter } from './states';
import { daySpan, duration, isoDay, minuteOf } from './words';

/** Visits of a fence, as of `now`. */
interface Found {
  now: number;
  inside: readonly Visit[];
  left: readonly Visit[];
  /** The server has left out visits. */
  isCut: boolean;
}

const DAY_MS = 86_400_000;
const DAYS_BEFORE = 6;
/** Interval of requests while a fence is shown. */
const REFRESH_MS = 30_000;
/** Maximum number of visits in one answer of the server. */
const ANSWER_VISITS_MAX = 500;
/** What the card shows before the first answer. */
const NONE: Found = { now: 0, inside: [], left: [], isCut: false };

/**
 * Describes the visits: "Depot: 2 inside, 3 drivers left today, 7 times". `isCut`: the server has
 * left out visits, first of those who left.
 */
export function visitsTitle(name: string, inside: readonly Visit[], left: readonly Visit[], isCut: boolean): string {
  if (isCut && left.length === 0) return `${name}: at least ${inside.length} inside`;
  const drivers = new Set(left.map(({ driver_id }) => driver_id)).size;
  const leaving = drivers === left.length && !isCut ? `${drivers} left today` : `${drivers} driver${drivers === 1 ? '' : 's'} left today, ${isCut ? 'more than ' : ''}${left.length} times`;
  return `${name}: ${inside.length} inside, ${leaving}`;
}

interface Options {
  /** Returns a driver's name, or the id. */
  name(id: string): string;
  choose(id: string): void;
  /** Null: the viewer may not edit fences. */
  edit: ((fence: Fence) => void) | null;
  /** Called when the viewer goes back from a fence to the list. */
  back(fence: Fence): void;
  /** Called when another fence is shown; null: the list of all fences. */
  changed(fence: Fence | null): void;
}

export class Visits {
  fence: Fence | null = null;
  private found = NONE;
  private request: AbortController | null = null;
  private timer = 0;
  /** Drivers whose earlier visits of today are listed. */
  private readonly unfolded = new Set<string>();
  private readonly box = byId('fence-shown', HTMLElement);
  private readonly title = byId('visits-title', HTMLElement);
  /** Says the title to screen readers when it has been counted. */
  private readonly said = byId('visits-said', HTMLElement);
  private readonly rules = byId('fence-shown-rules', HTMLElement);
  private readonly rows = byId('visits', HTMLUListElement);
  private readonly editButton = byId('fence-shown-edit', HTMLButtonElement);

  constructor(private readonly options: Options) {
    byId('fence-back', HTMLButtonElement).addEventListener('click', () => {
      const { fence } = this;
      this.close();
      if (fence) options.back(fence);
    });
    this.editButton.hidden = options.edit === null;
    this.editButton.addEventListener('click', () => this.fence && options.edit?.(this.fence));
  }

  /** Shows a fence in place of the list, and moves the focus there. */
  show(fence: Fence): void {
    this.fence = fence;
    this.box.hidden = false;
    const { name } = fence.properties;
    this.editButton.setAttribute('aria-label', `Edit ${name}`);
    setText(this.rules, this.notes(fence));
    this.found = NONE;
    this.unfolded.clear();
    this.redraw();
    setText(this.title, `${name}, today …`);
    this.title.focus({ preventScroll: true });
    this.options.changed(fence);
    void this.load();
  }

  /** Called when the fences were loaded again: the one that is shown may have changed or ended. */
  update(all: readonly Fence[]): void {
    const name = this.fence?.properties.name;
    const fence = all.find(({ properties }) => properties.name === name);
    if (!fence) return this.close();
    this.fence = fence;
    setText(this.rules, this.notes(fence));
  }

  /** Describes the rules of a fence, and since when it has its name and outline, if that is recent. */
  private notes({ properties }: Fence): string {
    const now = serverNow();
    const { valid_from } = properties;
    const isRecent = valid_from > now - DAYS_BEFORE * DAY_MS && valid_from <= now;
    const since = isRecent ? `Name and outline are valid since ${minuteOf(valid_from, isoDay(now))}; any earlier visits are those of a former version.` : '';
    return [rulesInWords(properties), since].filter((text) => text !== '').join(' · ');
  }

  /** Shows the list of all fences again. */
  close(): void {
    if (!this.fence) return;
    clearTimeout(this.timer);
    this.request?.abort();
    this.fence = null;
    this.box.hidden = true;
    this.found = NONE;
    this.unfolded.clear();
    setText(this.title, '');
    this.rows.replaceChildren();
    this.options.changed(null);
  }

  /** Requests the drivers in the fence, and those that left it today. */
  private async load(): Promise<void> {
    if (!this.fence) return;
    const { name } = this.fence.properties;
    clearTimeout(this.timer);
    this.request?.abort();
    const controller = (this.request = new AbortController());
    const now = Math.floor(serverNow());
    try {
      // A driver may have been inside for days. The view `fence_visits` also reads twelve hours
      // beyond both ends.
      const today = daySpan(isoDay(now))!.from;
      const found = await fetchVisits(name, today - DAYS_BEFORE * DAY_MS, now, controller.signal);
      if (controller.signal.aborted) return;
      const inside = found.filter(({ is_inside }) => is_inside).sort((a, b) => a.entered - b.entered);
      const left = found.filter(({ is_inside, left_at }) => !is_inside && left_at >= today);
      // The server sends first those inside and leaves out the oldest visits. If it sends visits of
      // earlier days, it has sent all of today.
      const isCut = found.length >= ANSWER_VISITS_MAX && inside.length + left.length === found.length;
      this.say(visitsTitle(name, inside, left, isCut));
      this.found = { now, inside, left, isCut };
      this.redraw();
    } catch (error) {
      if (controller.signal.aborted) return;
      this.say(`${name}: ${error instanceof ApiError ? error.message : 'the server does not answer.'}`);
    }
    this.timer = window.setTimeout(() => void this.load(), document.hidden ? 10 * REFRESH_MS : REFRESH_MS);
  }

  private say(text: string): void {
    setText(this.title, text);
    setText(this.said, text);
  }

  /** Called when names of drivers have changed. */
  redraw(): void {
    const { inside, left } = this.found;
    const part = (title: string, rows: HTMLElement[]) => (rows.length === 0 ? [] : [make('li', title, 'part'), ...rows]);
    // A driver who left often would hide the others, so each driver has one row.
    const newestFirst = left.toSorted((a, b) => b.left_at - a.left_at);
    const gone = [...new Set(newestFirst.map(({ driver_id }) => driver_id))].flatMap((id) => {
      const [newest, ...earlier] = newestFirst.filter(({ driver_id }) => driver_id === id);
      if (earlier.length === 0) return [this.row(newest)];
      return [this.row(newest, earlier.length), ...(this.unfolded.has(id) ? earlier.map((visit) => this.earlierRow(visit)) : [])];
    });
    replaceRows(this.rows, [...part('Inside', inside.map((visit) => this.row(visit))), ...part('Left today', gone)]);
  }

  private earlierRow({ entered, left_at }: Visit): HTMLLIElement {
    return make('li', leftWords(entered, left_at, isoDay(this.found.now)), 'earlier');
  }

  /** `earlier`: number of earlier visits of the driver, which a button lists. */
  private row({ driver_id, entered, left_at, is_inside }: Visit, earlier = 0): HTMLLIElement {
    const { now, isCut } = this.found;
    const item = make('li');
    item.dataset.key = is_inside ? `${driver_id} ${entered}` : driver_id;
    const button = make('button');
    button.type = 'button';
    const day = isoDay(now);
    const silent = now - left_at > silentAfter() * 1000 ? ` · last fix at ${minuteOf(left_at, day)}` : '';
    const when = is_inside ? `inside since ${minuteOf(entered, day)} · ${duration((now - entered) / 1000)}${silent}` : leftWords(entered, left_at, day);
    button.append(make('span', this.options.name(driver_id)), make('small', when));
    button.addEventListener('click', () => this.options.choose(driver_id));
    item.append(button);
    if (earlier > 0) {
      const isUnfolded = this.unfolded.has(driver_id);
      const more = make('button', `${isCut ? 'at least ' : ''}${earlier} earlier visit${earlier === 1 ? '' : 's'} today`, 'more');
      more.type = 'button';
      more.setAttribute('aria-expanded', String(isUnfolded));
      more.addEventListener('click', () => {
        if (isUnfolded) this.unfolded.delete(driver_id);
        else this.unfolded.add(driver_id);
        this.redraw();
      });
      item.append(more);
    }
    return item;
  }
}

const leftWords = (entered: number, leftAt: number, day: string): string => `left at ${minuteOf(leftAt, day)} · came at ${minuteOf(entered, day)}, ${duration((leftAt - entered) / 1000)}`;

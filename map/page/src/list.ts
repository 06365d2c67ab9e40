// The list of drivers that match a filter: by state, name, attribute or fence. The map draws rings
// around them; without WebGL there is only the list.
import { ApiError, list as fetchList, makeLink, type Found } from './api';
import { serverNow } from './clock';
import { byId, copyOnClick, make, replaceRows, setPressed, setText } from './dom';
import { guestLink, linkTo } from './hash';
import { ago, formatSpeed, limitMps, speedUnit } from './words';

/** Interval of requests while the list is open. */
const REFRESH_MS = 10_000;
/** Delay of a request after the last input. */
const PAUSE_MS = 300;
/** Order of names: case and accents do not matter, and van-2 is before van-10. */
const NAMES = new Intl.Collator(undefined, { sensitivity: 'base', numeric: true });
/** Drivers and groups that one link may name. */
const LINK_NAMES_MAX = 50;
/** Maximum number of drivers in one answer of the server. */
const ANSWER_DRIVERS_MAX = 500;

export interface List {
  toggle(): void;
  readonly isOpen: boolean;
  redraw(): void;
  /** Limits list and map to a group; empty: every group. */
  setGroup(group: string): void;
  /** Sets the groups that can be chosen. */
  groups(names: readonly string[]): void;
  /** Allows the viewer to make links to the listed drivers. */
  allowSharing(): void;
}

/**
 * `onOpening` is called before the list opens, `onFound` with the drivers to ring, `onGroup` with
 * the group that the map shows; empty: every group.
 */
export function list(choose: (id: string) => void, onOpening: () => void, onFound: (drivers: Found[]) => void, onGroup: (group: string) => void): List {
  const box = byId('list', HTMLElement);
  const button = byId('list-open', HTMLButtonElement);
  const form = byId('filter', HTMLFormElement);
  const rows = byId('listed', HTMLOListElement);
  const message = byId('list-said', HTMLElement);
  const field = (name: string) => form.elements.namedItem(name) as HTMLInputElement;
  const share = byId('list-share', HTMLElement);
  let request: AbortController | null = null;
  let timer = 0;
  let mayShare = false;
  /** Drivers or groups that a link to the list shows; null: none or too many. */
  let shared: { drivers?: string[]; groups?: string[] } | null = null;

  button.addEventListener('click', toggle);
  copyOnClick(byId('list-link', HTMLButtonElement), async () => {
    const hours = Number(byId('list-link-hours', HTMLSelectElement).value);
    return guestLink(location.href, await makeLink(shared ?? {}, hours));
  });
  byId('list-close', HTMLButtonElement).addEventListener('click', toggle);
  form.addEventListener('submit', (event) => event.preventDefault());
  form.addEventListener('input', () => {
    dropAnswers();
    refreshIn(PAUSE_MS);
  });
  field('group').addEventListener('change', () => setGroup(field('group').value));

  /** Limits list and map to a group. It stays chosen when the list closes. */
  function setGroup(next: string): void {
    const select = byId('filter-group', HTMLSelectElement);
    // The group of a link may have no drivers, or be unknown until the configuration has loaded.
    if (![...select.options].some(({ value }) => value === next)) select.append(Object.assign(make('option', next), { value: next }));
    select.value = next;
    onGroup(next);
    dropAnswers();
    if (!box.hidden) refreshIn(0);
  }

  function setShared(next: typeof shared): void {
    shared = next;
    share.hidden = !mayShare || shared === null;
  }

  /**
   * Called when the filter has changed: until the next answer, a link would show the drivers of the
   * filter before, and so would an answer that is still on its way.
   */
  function dropAnswers(): void {
    request?.abort();
    setShared(null);
  }

  function refreshIn(ms: number): void {
    clearTimeout(timer);
    timer = window.setTimeout(() => void refresh(), ms);
  }

  function toggle(): void {
    if (box.hidden) onOpening();
    box.hidden = !box.hidden;
    setPressed(button, !box.hidden);
    clearTimeout(timer);
    dropAnswers();
    if (box.hidden) {
      onFound([]);
      if (box.contains(document.activeElement)) button.focus();
      return;
    }
    redraw();
    field('find').focus();
  }

  async function refresh(): Promise<void> {
    request?.abort();
    const controller = (request = new AbortController());
    const faster = field('faster').value;
    const filter = new URLSearchParams({
      find: field('find').value.trim(),
      group: field('group').value,
      hidden: field('hidden').checked ? 'true' : '',
      silent: field('silent').value,
      faster: faster && String(limitMps(Number(faster))),
      stopped: field('stopped').checked ? 'true' : '',
      attribute: field('attribute').value.trim(),
      fence: field('fence').value.trim(),
    });
    try {
      const { drivers, truncated } = await fetchList(filter, controller.signal);
      if (controller.signal.aborted) return;
      const isFiltered = [...filter.values()].some((value) => value !== '');
      show(drivers, truncated, field('group').value, isFiltered);
      // The map shows only drivers of the group. If that is the only filter, or there is none, the
      // list has every driver on the map, so draw no rings.
      onFound([...filter].some(([name, value]) => name !== 'group' && value !== '') ? drivers : []);
      setShared(isFiltered && !truncated ? linkTo(filter, drivers.map(({ driver_id }) => driver_id), LINK_NAMES_MAX) : null);
    } catch (error) {
      if (controller.signal.aborted) return;
      setText(message, error instanceof ApiError ? error.message : 'The server does not answer.');
    }
    // A hidden page sends fewer requests.
    refreshIn(document.hidden ? 6 * REFRESH_MS : REFRESH_MS);
  }

  function show(drivers: Found[], truncated: boolean, group: string, isFiltered: boolean): void {
    const cut = drivers.length < ANSWER_DRIVERS_MAX ? 'and perhaps more: too many names match' : 'those with the lowest ids';
    const count = `${drivers.length} driver${drivers.length === 1 ? '' : 's'}${truncated ? `, ${cut}` : ''}`;
    const hint = mayShare && !isFiltered && drivers.length > 1 ? `${count}. Filter them to copy a guest link.` : count;
    setText(message, group ? `${count}. The map shows only ${group}.` : hint);
    const now = serverNow();
    const nameOf = ({ name, driver_id }: Found) => name || driver_id;
    // The server cuts a list by id. Sorted by name, it would seem to be the beginning of the alphabet.
    const sorted = truncated ? drivers : drivers.toSorted((a, b) => NAMES.compare(nameOf(a), nameOf(b)));
    replaceRows(rows, sorted.map((driver) => row(driver, now)));
  }

  function row({ driver_id, ts, lat, lng, speed, name, in_group }: Found, now: number): HTMLLIElement {
    const item = make('li');
    item.dataset.key = driver_id;
    const button = make('button');
    button.type = 'button';
    const details = [ago((now - ts) / 1000), ...(speed === null ? [] : [formatSpeed(speed)]), `${lat.toFixed(4)}, ${lng.toFixed(4)}`];
    if (in_group) details.unshift(in_group);
    if (name) details.unshift(driver_id);
    button.append(make('span', name || driver_id), make('small', details.join(' · ')));
    button.addEventListener('click', () => choose(driver_id));
    item.append(button);
    return item;
  }

  function redraw(): void {
    setText(byId('faster-unit', HTMLElement), speedUnit());
    // The limit of the speed has changed with its unit.
    dropAnswers();
    if (!box.hidden) void refresh();
  }

  return {
    groups(names: readonly string[]): void {
      const select = byId('filter-group', HTMLSelectElement);
      const chosen = select.value;
      // A group without drivers stays chosen until the viewer chooses another one.
      const all = new Set(['', ...names, chosen]);
      select.replaceChildren(...[...all].map((name) => Object.assign(make('option', name || 'any'), { value: name })));
      select.value = chosen;
      byId('filter-group-label', HTMLElement).hidden = all.size === 1;
    },
    setGroup,
    allowSharing: () => void (mayShare = true),
    toggle,
    get isOpen() {
      return !box.hidden;
    },
    redraw,
  };
}

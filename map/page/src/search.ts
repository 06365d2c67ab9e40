// Finds a driver by any part of its id or name: an ARIA combobox, whose focus is always in the
// field.
import { drivers, type Named } from './api';
import { byId, make } from './dom';

/** Delay of a request after the last input. */
const PAUSE_MS = 120;

export function search(choose: (id: string) => void): { focus(): void } {
  const input = byId('search', HTMLInputElement);
  const list = byId('found', HTMLUListElement);
  let active = -1;
  /** The text whose results are listed. */
  let listed = '';
  let timer = 0;
  let request: AbortController | null = null;

  input.addEventListener('input', () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => void load(), PAUSE_MS);
  });
  input.addEventListener('keydown', (event) => {
    if (event.key === 'ArrowDown') move(1);
    else if (event.key === 'ArrowUp') move(-1);
    else if (event.key === 'Enter') void accept();
    else if (event.key === 'Escape') clear();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  input.addEventListener('focus', () => {
    if (input.value) void load();
  });
  input.addEventListener('blur', close);
  // Keep the focus in the field. Otherwise the list would close before the click.
  list.addEventListener('pointerdown', (event) => event.preventDefault());
  list.addEventListener('click', (event) => {
    const option = (event.target as Element).closest<HTMLElement>('[role=option]');
    if (option?.dataset.id) pick(option.dataset.id);
  });

  async function load(): Promise<void> {
    request?.abort();
    const text = input.value.trim();
    if (!text) return close();
    const controller = (request = new AbortController());
    try {
      show(await drivers(text, controller.signal));
      listed = text;
    } catch (error) {
      if (controller.signal.aborted) return;
      showNote(error instanceof TypeError ? 'The server does not answer.' : String((error as Error).message));
    }
  }

  function show(found: Named[]): void {
    if (document.activeElement !== input) return;
    if (found.length === 0) return showNote('No driver has this in the id or name.');
    list.replaceChildren(
      ...found.map(({ driver_id, name, group }, i) => {
        const option = make('li', name || driver_id);
        const more = [...(name ? [driver_id] : []), ...(group ? [group] : [])].join(' · ');
        if (more) option.append(make('small', more));
        option.dataset.id = driver_id;
        option.id = `found-${i}`;
        option.role = 'option';
        return option;
      }),
    );
    open();
    mark(0);
  }

  function showNote(text: string): void {
    list.replaceChildren(make('li', text, 'note'));
    open();
    active = -1;
    input.removeAttribute('aria-activedescendant');
  }

  function open(): void {
    list.hidden = false;
    input.ariaExpanded = 'true';
  }

  function close(): void {
    clearTimeout(timer);
    request?.abort();
    list.hidden = true;
    active = -1;
    input.ariaExpanded = 'false';
    input.removeAttribute('aria-activedescendant');
  }

  function move(by: number): void {
    const count = list.querySelectorAll('[role=option]').length;
    if (list.hidden || count === 0) return void load();
    mark((active + by + count) % count);
  }

  function mark(i: number): void {
    active = i;
    list.querySelectorAll('[role=option]').forEach((option, at) => {
      option.ariaSelected = String(at === i);
      if (at === i) option.scrollIntoView({ block: 'nearest' });
    });
    input.setAttribute('aria-activedescendant', `found-${i}`);
  }

  async function accept(): Promise<void> {
    // The viewer may press Enter before the results have arrived.
    clearTimeout(timer);
    if (list.hidden || active < 0 || listed !== input.value.trim()) await load();
    const id = list.querySelector<HTMLElement>(`#found-${Math.max(0, active)}`)?.dataset.id;
    if (id && listed === input.value.trim()) pick(id);
  }

  function pick(id: string): void {
    // The field is cleared for the next search; the panel shows which driver was found.
    input.value = '';
    listed = '';
    close();
    choose(id);
  }

  function clear(): void {
    if (!list.hidden) return close();
    input.value = '';
    input.blur();
  }

  return {
    focus() {
      input.focus();
      input.select();
    },
  };
}

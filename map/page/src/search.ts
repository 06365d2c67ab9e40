// Find a driver by any part of its id or name: a combobox as ARIA describes it, with the focus always in the field.
import { drivers, type Named } from './api';
import { byId, make } from './dom';

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
    timer = window.setTimeout(() => void ask(), PAUSE_MS);
  });
  input.addEventListener('keydown', (event) => {
    if (event.key === 'ArrowDown') move(1);
    else if (event.key === 'ArrowUp') move(-1);
    else if (event.key === 'Enter') void take();
    else if (event.key === 'Escape') leave();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  input.addEventListener('focus', () => {
    if (input.value) void ask();
  });
  input.addEventListener('blur', close);
  // The field keeps the focus: without it the list would close before the click.
  list.addEventListener('pointerdown', (event) => event.preventDefault());
  list.addEventListener('click', (event) => {
    const option = (event.target as Element).closest<HTMLElement>('[role=option]');
    if (option?.dataset.id) pick(option.dataset.id);
  });

  async function ask(): Promise<void> {
    request?.abort();
    const text = input.value.trim();
    if (!text) return close();
    const controller = (request = new AbortController());
    try {
      show(await drivers(text, controller.signal));
      listed = text;
    } catch (error) {
      if (controller.signal.aborted) return;
      note(error instanceof TypeError ? 'The server does not answer.' : String((error as Error).message));
    }
  }

  function show(found: Named[]): void {
    if (document.activeElement !== input) return;
    if (found.length === 0) return note('No driver has this in its name.');
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

  function note(text: string): void {
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
    request?.abort();
    list.hidden = true;
    active = -1;
    input.ariaExpanded = 'false';
    input.removeAttribute('aria-activedescendant');
  }

  function move(by: number): void {
    const count = list.querySelectorAll('[role=option]').length;
    if (list.hidden || count === 0) return void ask();
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

  async function take(): Promise<void> {
    // Enter may come before the results.
    clearTimeout(timer);
    if (list.hidden || active < 0 || listed !== input.value.trim()) await ask();
    const id = list.querySelector<HTMLElement>(`#found-${Math.max(0, active)}`)?.dataset.id;
    if (id && listed === input.value.trim()) pick(id);
  }

  function pick(id: string): void {
    // Cleared for the next search: the panel shows which driver was found.
    input.value = '';
    listed = '';
    close();
    choose(id);
  }

  function leave(): void {
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

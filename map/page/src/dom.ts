// Finds the page's elements, which are in index.html, and makes small new ones.

/**
 * Returns an element of index.html. Throws if there is none, or one of another kind, which is a
 * bug.
 */
export function byId<T extends Element>(id: string, kind: abstract new () => T): T {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`index.html has no ${kind.name} #${id}`);
  return found;
}

/** Returns whether the page has room for only one card, as on a phone (style.css). */
export const isNarrow = (): boolean => innerWidth <= 640;

export function make<K extends keyof HTMLElementTagNameMap>(tag: K, text = '', className = ''): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  element.textContent = text;
  if (className) element.className = className;
  return element;
}

export function svg(tag: string, attributes: Record<string, string | number>): SVGElement {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return element;
}

/**
 * Writes the text only if it differs, because each write makes a live region speak and drops a
 * selection.
 */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Replaces the rows of a list, which `data-key` identifies. The focus stays on the same button of
 * the same row. If the row no longer has that button, it moves to that of the next row that has
 * one, or to `heading`: another button of the row would do something else at the next Enter.
 */
export function replaceRows(list: HTMLElement, rows: readonly HTMLElement[], heading?: HTMLElement): void {
  const focused = list.contains(document.activeElement) ? document.activeElement : null;
  const row = focused?.closest<HTMLElement>('[data-key]');
  const index = row ? [...row.querySelectorAll('button')].indexOf(focused as HTMLButtonElement) : -1;
  list.replaceChildren(...rows);
  if (!row) return;
  const same = rows.findIndex(({ dataset }) => dataset.key === row.dataset.key);
  if (same < 0) return;
  const buttons = rows.slice(same).map((next) => next.querySelectorAll('button')[index]);
  (buttons.find((button) => button !== undefined) ?? heading)?.focus({ preventScroll: true });
}

export function setPressed(button: Element, pressed: boolean): void {
  button.setAttribute('aria-pressed', String(pressed));
}

/** Makes the button copy a text when clicked, and show the outcome for two seconds. */
export function copyOnClick(button: HTMLButtonElement, text: () => string | Promise<string>): void {
  const name = button.textContent ?? '';
  button.addEventListener('click', async () => {
    const copied = await Promise.resolve(text()).catch(() => null);
    // The server has not made the link.
    if (copied === null) return showOutcome('Failed');
    try {
      await navigator.clipboard.writeText(copied);
      showOutcome('Copied');
    } catch {
      // The viewer has denied permission, or the page has no TLS and therefore no clipboard.
      showOutcome('Not allowed');
    }
  });
  function showOutcome(word: string): void {
    button.textContent = word;
    setTimeout(() => (button.textContent = name), 2000);
  }
}

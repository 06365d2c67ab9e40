// The page's own elements are in index.html; here they are found, and small ones made.

/** Throws if index.html has no such element, or another kind: that is a bug. */
export function byId<T extends Element>(id: string, kind: abstract new () => T): T {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`index.html has no ${kind.name} #${id}`);
  return found;
}

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

/** Writes only what changed: a live region speaks, and a selection is lost, with every write. */
export function say(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

export function press(button: Element, pressed: boolean): void {
  button.setAttribute('aria-pressed', String(pressed));
}

/** Copies, and says so on the button for two seconds. */
export function copies(button: HTMLButtonElement, text: () => string | Promise<string>): void {
  const name = button.textContent ?? '';
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(await text());
      answer('Copied');
    } catch {
      // Without a permission it rejects; without TLS there is no clipboard.
      answer('Not allowed');
    }
  });
  function answer(word: string): void {
    button.textContent = word;
    setTimeout(() => (button.textContent = name), 2000);
  }
}

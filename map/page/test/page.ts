// A simulated page for parts that write to index.html: elements by id, without a layout. An element
// is inside another only if the code under test puts it there, or the test calls `append`.
import { vi } from 'vitest';

type Listener = (event: object) => void;

class Fake {
  textContent = '';
  value = '';
  min = '';
  max = '';
  step = '';
  checked = false;
  hidden = false;
  disabled = false;
  clientWidth = 0;
  clientHeight = 0;
  /** Where the element is; it is not displayed if it has no width. */
  rect = { left: 0, right: 0, top: 0, bottom: 0 };
  /** How often the element was scrolled into view. */
  scrolls = 0;
  role = '';
  tabIndex = -1;
  title = '';
  style: Record<string, string> = {};
  dataset: Record<string, string> = {};
  children: unknown[] = [];
  attributes: Record<string, string> = {};
  parent: Fake | null = null;
  constructor(private readonly tag = '') {}
  /** The options of a select or a datalist. */
  get options(): unknown[] {
    return this.children;
  }
  get firstElementChild(): unknown {
    return this.children.find((child) => child instanceof Fake) ?? null;
  }
  private listeners: Record<string, Listener[]> = {};
  addEventListener(name: string, listener: Listener): void {
    (this.listeners[name] ??= []).push(listener);
  }
  dispatch(name: string, event: object = {}): void {
    for (const listener of this.listeners[name] ?? []) listener({ preventDefault() {}, stopPropagation() {}, ...event });
  }
  setAttribute(name: string, value: string): void {
    this.attributes[name] = value;
  }
  getAttribute(name: string): string | null {
    return this.attributes[name] ?? null;
  }
  removeAttribute(name: string): void {
    delete this.attributes[name];
  }
  toggleAttribute(): void {}
  append(...children: unknown[]): void {
    this.children.push(...children);
    for (const child of children) if (child instanceof Fake) child.parent = this;
  }
  /** A removed element loses the focus. */
  replaceChildren(...children: unknown[]): void {
    if (this.children.some((child) => child instanceof Fake && child.contains(document.activeElement))) Object.assign(document, { activeElement: null });
    this.children = [];
    this.append(...children);
  }
  contains(other: unknown): boolean {
    return other === this || this.children.some((child) => child instanceof Fake && child.contains(other));
  }
  closest(): Fake | null {
    return this.dataset.key === undefined ? (this.parent?.closest() ?? null) : this;
  }
  querySelectorAll(tag: string): Fake[] {
    return this.children.flatMap((child) => (child instanceof Fake ? [...(child.tag === tag ? [child] : []), ...child.querySelectorAll(tag)] : []));
  }
  querySelector(): null {
    return null;
  }
  setCustomValidity(): void {}
  getBoundingClientRect(): object {
    return this.rect;
  }
  scrollIntoView(): void {
    this.scrolls++;
  }
  remove(): void {
    this.parent?.children.splice(this.parent.children.indexOf(this), 1);
    this.parent = null;
  }
  before(next: Fake): void {
    next.remove();
    this.parent?.children.splice(this.parent.children.indexOf(this), 0, next);
    next.parent = this.parent;
  }
  checkVisibility(): boolean {
    return !this.hidden && (this.parent?.checkVisibility() ?? true);
  }
  focus(): void {
    Object.assign(document, { activeElement: this });
  }
}

export interface Page {
  element(id: string): Fake;
  /** The id or the text of the focused element; empty: none. */
  focused(): string;
  /** Runs the frames that were requested, and returns their number. */
  frame(now: number): number;
}

/** Simulates a page until `vi.unstubAllGlobals`. */
export function page(): Page {
  const elements = new Map<string, Fake>();
  let frames = new Map<number, (now: number) => void>();
  let ids = 0;
  const element = (id: string) => {
    const made = elements.get(id) ?? new Fake();
    elements.set(id, made);
    return made;
  };
  for (const kind of ['HTMLElement', 'HTMLButtonElement', 'HTMLInputElement', 'HTMLFormElement', 'HTMLOutputElement', 'HTMLUListElement', 'HTMLOListElement', 'HTMLLabelElement', 'HTMLDetailsElement', 'HTMLSelectElement', 'HTMLDataListElement', 'HTMLDListElement', 'HTMLAnchorElement', 'SVGElement']) vi.stubGlobal(kind, Fake);
  vi.stubGlobal('document', { querySelectorAll: () => [], getElementById: element, createElement: (tag: string) => new Fake(tag), createElementNS: () => new Fake(), documentElement: new Fake(), body: new Fake(), activeElement: null, hidden: false });
  vi.stubGlobal('CSS', { escape: String });
  vi.stubGlobal('getComputedStyle', () => ({ fontSize: '16px' }));
  vi.stubGlobal('ResizeObserver', class { observe(): void {} });
  const listeners = new Fake();
  vi.stubGlobal('addEventListener', (name: string, listener: Listener) => listeners.addEventListener(name, listener));
  vi.stubGlobal('requestAnimationFrame', (run: (now: number) => void) => (frames.set(++ids, run), ids));
  vi.stubGlobal('cancelAnimationFrame', (id: number) => frames.delete(id));
  return {
    element,
    focused() {
      const { activeElement } = document as unknown as { activeElement: Fake | null };
      return [...elements].find(([, one]) => one === activeElement)?.[0] ?? activeElement?.attributes['aria-label'] ?? activeElement?.textContent ?? '';
    },
    frame(now) {
      const due = frames;
      frames = new Map();
      for (const run of due.values()) run(now);
      return due.size;
    },
  };
}

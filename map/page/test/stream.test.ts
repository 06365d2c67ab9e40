// The stream connects and reconnects to a simulated server.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { listen } from '../src/stream';

class Source extends EventTarget {
  constructor() {
    super();
    sources.push(this);
  }
  close(): void {}
  tick(generation: number): void {
    this.dispatchEvent(new MessageEvent('tick', { data: JSON.stringify({ generation }) }));
  }
}

let sources: Source[];
const page = Object.assign(new EventTarget(), { hidden: false });
const show = (hidden: boolean) => {
  page.hidden = hidden;
  page.dispatchEvent(new Event('visibilitychange'));
};

beforeEach(() => {
  sources = [];
  vi.useFakeTimers();
  vi.stubGlobal('EventSource', Source);
  vi.stubGlobal('document', page);
  vi.stubGlobal('window', globalThis);
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test('the first tick of each connection is marked', () => {
  const heard: [number, boolean][] = [];
  listen({ tick: ({ generation }, isFirst) => heard.push([generation, isFirst]), lost: () => {} });
  sources[0].tick(5);
  sources[0].tick(6);
  sources[0].dispatchEvent(new Event('error'));
  vi.advanceTimersByTime(1_000);
  sources[1].tick(6);
  sources[1].tick(6);
  show(true);
  vi.advanceTimersByTime(30_000);
  show(false);
  sources[2].tick(6);
  expect(heard).toEqual([[5, true], [6, false], [6, true], [6, false], [6, true]]);
});

test('a page that opens in the background disconnects after 30 s', () => {
  page.hidden = true;
  const closed = vi.spyOn(Source.prototype, 'close');
  listen({ tick: () => {}, lost: () => {} });
  vi.advanceTimersByTime(4_000);
  expect(closed).not.toHaveBeenCalled();
  for (let second = 0; second < 26; second++) {
    sources[0].tick(5);
    vi.advanceTimersByTime(1_000);
  }
  expect(closed).toHaveBeenCalledOnce();
  show(false);
  expect(sources.length).toBe(2);
  closed.mockRestore();
});

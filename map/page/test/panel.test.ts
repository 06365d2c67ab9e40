// The panel of a driver, in a simulated page.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Panel } from '../src/panel';
import { page, type Page } from './page';

let shown: Page;
let panel: Panel;
let now: number;
/** Time of the newest fix. Unix ms. */
let ts: number;
let trackSignal: AbortSignal;
/** Requests for attributes without an answer, oldest first. */
let waiting: { answer(value: string): void }[];

beforeEach(() => {
  [now, ts, waiting] = [0, 1_000, []];
  shown = page();
  shown.element('panel').hidden = true;
  vi.spyOn(performance, 'now').mockImplementation(() => now);
  vi.stubGlobal('fetch', (url: string, { signal }: RequestInit) => {
    if (url.includes('/track?')) {
      trackSignal = signal!;
      return new Promise(() => {});
    }
    const [, driver, of] = /^api\/drivers\/(\w+)(?:\/(\w+))?$/.exec(url)!;
    if (!of) return Promise.resolve(Response.json({ driver_id: driver, ts, lat: 0, lng: 0, speed: 12, heading: null, alt: null, acc: null, received_at: ts }));
    const card = { name: '', group: '', vehicle: '', phone: '', note: '' };
    return new Promise((resolve) => waiting.push({ answer: (value) => resolve(Response.json({ ts, attributes: { ignition: value }, fields: [], card })) }));
  });
  const player = { open() {}, close() {}, seek() {} };
  panel = new Panel({ opening() {}, player, chosen() {}, tracked() {}, played() {}, shared() {}, name: String, place: () => '', makesLinks: false });
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

const settled = () => new Promise((later) => setTimeout(later, 5));
const attributes = () => (shown.element('attributes').children as { children: { textContent: string }[] }[]).map((row) => row.children.map(({ textContent }) => textContent).join(' '));

test('late attributes of an older fix do not replace those of a newer one', async () => {
  await panel.open('a');
  [now, ts] = [6_000, 7_000];
  await panel.refresh();
  const [old, next] = waiting;
  next.answer('off');
  await settled();
  expect(attributes()).toEqual(['ignition off']);
  old.answer('on');
  await settled();
  expect(attributes()).toEqual(['ignition off']);
});

test('late answers about a driver erased meanwhile are not shown', async () => {
  await panel.open('a', 'hour');
  const { fetch: other } = globalThis;
  vi.stubGlobal('fetch', () => Promise.resolve(Response.json({ error: 'no fix' }, { status: 404 })));
  await panel.refresh();
  vi.stubGlobal('fetch', other);
  waiting[0].answer('on');
  await settled();
  expect([attributes(), trackSignal.aborted]).toEqual([[], true]);
});

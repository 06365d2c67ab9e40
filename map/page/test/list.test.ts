// The list of drivers, in a simulated page.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { list } from '../src/list';
import { page, type Page } from './page';

let shown: Page;
/** Requests for the list without an answer, oldest first. An answer has ids, or `id:name`. */
let waiting: { find: string; answer(...ids: string[]): void; cut(...ids: string[]): void; fail(): void }[];
/** What the links show that were made. */
let links: unknown[];

beforeEach(() => {
  [waiting, links] = [[], []];
  shown = page();
  vi.stubGlobal('window', globalThis);
  vi.stubGlobal('location', { href: 'https://fleet.example/' });
  vi.stubGlobal('navigator', { clipboard: { writeText: async () => {} } });
  Object.assign(shown.element('filter'), { elements: { namedItem: (name: string) => shown.element(`filter.${name}`) } });
  shown.element('list').hidden = true;
  shown.element('list-share').hidden = true;
  vi.stubGlobal('fetch', (url: string, { signal, body }: RequestInit) => {
    if (url === 'api/links') {
      links.push(JSON.parse(body as string));
      return Promise.resolve(Response.json({ link: 'a.b', until: 1 }));
    }
    return new Promise((resolve, reject) => {
      signal!.addEventListener('abort', () => reject(signal!.reason as Error));
      const drivers = (ids: string[]) => ids.map((id) => {
        const [driver_id, name] = id.split(':');
        return { driver_id, name, ts: 1, lat: 0, lng: 0, speed: null };
      });
      waiting.push({
        find: new URL(url, 'http://localhost').searchParams.get('find')!,
        answer: (...ids) => resolve(Response.json({ drivers: drivers(ids), truncated: false })),
        cut: (...ids) => resolve(Response.json({ drivers: drivers(ids), truncated: true })),
        fail: () => reject(new TypeError('fetch failed')),
      });
    });
  });
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const settled = () => vi.advanceTimersByTimeAsync(0);
/** Returns whether a link is offered. */
const share = () => !shown.element('list-share').hidden;

/** Opens the list with the filter `van`. */
function openVans() {
  vi.useFakeTimers();
  const drivers = list(() => {}, () => {}, () => {}, () => {});
  drivers.allowSharing();
  shown.element('filter.find').value = 'van';
  drivers.toggle();
  return drivers;
}

test('drivers are sorted by the names that the list shows', async () => {
  openVans();
  waiting.shift()!.answer('van-10', 'van-9:Zoë', 'van-3:anna', 'van-2', 'van-1:Émile');
  await settled();
  const rows = shown.element('listed').children as { children: { children: { textContent: string }[] }[] }[];
  expect(rows.map((row) => row.children[0].children[0].textContent)).toEqual(['anna', 'Émile', 'van-2', 'van-10', 'Zoë']);
});

test('no link is offered for drivers that the filter no longer means', async () => {
  openVans();
  waiting.shift()!.answer('van-1');
  await settled();
  expect(share()).toBe(true);
  shown.element('filter.find').value = 'bike';
  shown.element('filter').dispatch('input');
  expect(share()).toBe(false);
  await vi.advanceTimersByTimeAsync(300);
  waiting.shift()!.fail();
  await settled();
  expect(share()).toBe(false);
  await vi.advanceTimersByTimeAsync(10_000);
  waiting.shift()!.answer('bike-7');
  await settled();
  expect(share()).toBe(true);
  shown.element('list-link').dispatch('click');
  await settled();
  expect(links).toEqual([{ drivers: ['bike-7'], hours: 0 }]);
  // A refresh of the same filter keeps the link.
  await vi.advanceTimersByTimeAsync(10_000);
  expect([waiting.length, share()]).toEqual([1, true]);
});

test('an answer to an earlier filter is dropped, and the next request is sent', async () => {
  const drivers = openVans();
  const changes = {
    input: () => void (shown.element('filter.find').value = 'bike', shown.element('filter').dispatch('input')),
    group: () => drivers.setGroup('north'),
    redraw: () => drivers.redraw(),
  };
  for (const [change, make] of Object.entries(changes)) {
    const before = waiting.shift()!;
    make();
    before.answer('van-1');
    await settled();
    expect(share(), change).toBe(false);
    await vi.advanceTimersByTimeAsync(300);
    expect(waiting.map(({ find }) => find), change).toEqual(['bike']);
  }
  // The unit of the speed in the filter has changed.
  waiting.shift()!.answer('bike-7');
  await settled();
  expect(share()).toBe(true);
  drivers.redraw();
  expect(share()).toBe(false);
});

test('the list says how to get a link for guests while no filter is set', async () => {
  const drivers = openVans();
  shown.element('filter.find').value = '';
  shown.element('filter').dispatch('input');
  await vi.advanceTimersByTimeAsync(1_000);
  waiting.at(-1)!.answer('van-1', 'van-2');
  await settled();
  expect([share(), shown.element('list-said').textContent]).toEqual([false, '2 drivers. Filter them to copy a guest link.']);
  shown.element('filter.find').value = 'van';
  shown.element('filter').dispatch('input');
  await vi.advanceTimersByTimeAsync(1_000);
  waiting.at(-1)!.answer('van-1', 'van-2');
  await settled();
  expect([share(), shown.element('list-said').textContent]).toEqual([true, '2 drivers']);
  drivers.toggle();
});

test('a short list from which drivers may be missing says so, and offers no link', async () => {
  openVans();
  waiting.shift()!.cut('van-1');
  await settled();
  expect([shown.element('list-said').textContent, share()]).toEqual(['1 driver, and perhaps more: too many names match', false]);
});

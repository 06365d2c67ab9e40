// The alerts of a group, in a simulated page.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Alert } from '../src/api';
import { Alerts } from '../src/alerts';
import { Names } from '../src/names';
import { page, type Page } from './page';

const GROUPS: Record<string, string> = { a: 'north', b: 'south', c: 'north', d: 'south' };
const alert = (driver_id: string, seen_at = 0): Alert => ({ driver_id, ts: 1, seq: 0, kind: 'silent', fence: '', lat: 0, lng: 0, speed: null, known_at: 1, seen_by: '', seen_at }) as Alert;
let shown: Page;
let alerts: Alerts;
let names: Names;
let group: string;
let canName: boolean;
let requested: string[];

beforeEach(async () => {
  [group, canName, requested] = ['', true, []];
  shown = page();
  vi.stubGlobal('fetch', async (path: string) => {
    if (path.startsWith('api/alerts')) requested.push(path);
    if (path === 'api/alerts?group=south') return Response.json({ alerts: [alert('b'), alert('d')] });
    if (path === 'api/alerts') return Response.json({ alerts: [alert('a'), alert('b'), alert('c', 2)] });
    if (!canName) throw new TypeError('fetch failed');
    const ids = path.split('=')[1].split(',');
    return Response.json({ names: ids.map((id) => ({ driver_id: id, name: '', group: GROUPS[id] })) });
  });
  names = new Names(() => alerts.redraw());
  alerts = new Alerts({ on() {} } as never, { opening() {}, writes: false, name: (id) => names.getOrRequest(id), group: () => group, groupOf: (id) => names.groupOf(id), go() {} });
  // Without marks, which need a layout.
  alerts.setHidden(true);
  await alerts.tick();
  alerts.toggle();
});
afterEach(() => vi.unstubAllGlobals());

const label = () => shown.element('alerts').attributes['aria-label'];
const rows = () => shown.element('alerts-list').children.length;

test('badge, list and message are those of the group', async () => {
  expect([label(), shown.element('alerts-count').textContent, rows(), shown.element('alerts-said').textContent]).toEqual(['Alerts, 2 not seen', '2', 3, '']);
  group = 'north';
  alerts.redraw();
  await vi.waitFor(() => expect(label()).toBe('Alerts, 1 not seen'));
  expect([shown.element('alerts-count').textContent, rows(), shown.element('alerts-said').textContent]).toEqual(['1', 2, 'Only alerts of north.']);
  group = '';
  alerts.redraw();
  expect([label(), rows(), shown.element('alerts-said').textContent]).toEqual(['Alerts, 2 not seen', 3, '']);
});

test('alerts of the group stay while its names are requested again, and if that fails', async () => {
  group = 'north';
  alerts.redraw();
  await vi.waitFor(() => expect(rows()).toBe(2));
  canName = false;
  names.tick(7);
  expect(rows()).toBe(2);
  await new Promise((later) => setTimeout(later, 10));
  alerts.redraw();
  expect(rows()).toBe(2);
});

test('alerts of a group are requested at once, because those of all groups may lack them', async () => {
  await alerts.tick();
  group = 'south';
  alerts.redraw();
  await alerts.tick();
  await vi.waitFor(() => expect(rows()).toBe(2));
  group = '';
  await alerts.tick();
  expect([rows(), requested]).toEqual([3, ['api/alerts', 'api/alerts?group=south', 'api/alerts']]);
});

// The present in the panel and on the map: since when a driver stands, and one group alone.
import { publish } from './mqtt';
import { coloursAt, expect, jumpTo, open, shown, test, violations } from './world';

const MINUTE_MS = 60_000;

test('the panel says since when a driver stands', async ({ page, stack }) => {
  const now = Date.now();
  const minutes = 130;
  const fixes = Array.from({ length: minutes * 2 }, (_, i) => {
    const before = minutes * MINUTE_MS - i * 30_000;
    const drives = before > 125 * MINUTE_MS;
    return { lat: 46.3 + Math.min(i, 10) * 0.002, lng: 15.6, speed: drives ? 7 : 0, ts: now - before };
  });
  for (let i = 0; i < fixes.length; i += 200) await publish(stack.mqttPort, 'drivers/stands/gps', fixes.slice(i, i + 200));
  await publish(stack.mqttPort, 'drivers/stands-once/gps', { lat: 46.35, lng: 15.6, speed: 0, ts: now - 4_000 });
  await expect.poll(async () => stack.query("SELECT count() FROM fleet.fixes WHERE driver_id = 'stands'")).toBe(String(fixes.length));
  await open(page, stack, '#driver=stands');
  const moves = page.locator('#driver-moves');
  await expect(moves).toHaveText(/^Standing since (\d+ \w+, )?\d\d:\d\d \(2 h [3-6] min\)\.$/);
  await page.goto('about:blank');
  await open(page, stack, '#driver=stands-once');
  await expect(moves).toHaveText(/^Standing for at least (\d+ s|1 min)\.$/);
  // As soon as the driver moves, the panel says so.
  await publish(stack.mqttPort, 'drivers/stands-once/gps', { lat: 46.351, lng: 15.6, speed: 9, heading: 0, ts: Date.now() });
  await expect(moves).toHaveText('Moving at 32 km/h, heading north.');
  // The cross stays in view when the panel is scrolled.
  await page.setViewportSize({ width: 1280, height: 400 });
  await page.getByRole('button', { name: 'Days with fixes' }).click();
  const cross = page.getByRole('button', { name: 'Close the driver' });
  await expect.poll(() => page.locator('#panel-body').evaluate((body) => { body.scrollTop = 10_000; return body.scrollTop; })).toBeGreaterThan(50);
  await expect(cross).toBeInViewport({ ratio: 1 });
  await cross.click();
  await expect(moves).toBeHidden();
});

test('a group hides the others, and the counts follow', async ({ page, stack }) => {
  const groups = { 'grouped-1': 'amber', 'grouped-2': 'amber', 'grouped-3': 'blue' };
  await stack.query(`INSERT INTO fleet.drivers (driver_id, \`group\`) VALUES ${Object.entries(groups).map(([id, group]) => `('${id}', '${group}')`).join(', ')}`);
  for (const [i, id] of Object.keys(groups).entries()) await publish(stack.mqttPort, `drivers/${id}/gps`, { lat: -20, lng: 30 + i * 0.01, speed: i === 0 ? 0 : 12, ts: Date.now() });
  await open(page, stack, '#at=13/-20/30.01');
  await expect.poll(async () => (await shown(page)).dots).toBe(3);
  await page.keyboard.press('l');
  const box = page.getByRole('region', { name: 'List of drivers' });
  // The groups arrive after the page was opened.
  await expect(box.getByLabel('Group').getByRole('option', { name: 'blue' })).toBeAttached();
  await box.getByLabel('Group').selectOption('amber');
  await expect.poll(async () => (await shown(page)).dots).toBe(2);
  await expect(box).toContainText('2 drivers. The map shows only amber.');
  expect(await page.evaluate(() => window.milepost!.scene['marked'].length)).toBe(0);
  const count = (state: string) => page.locator('#states').getByRole('button', { name: state }).locator('.count');
  for (const [state, drivers] of [['Moving', '1'], ['Standing', '1']] as const) await expect(count(state)).toHaveText(drivers);
  await expect(page.locator('#numbers')).toContainText(/amber, last minute\s*\d of 2/);
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    expect(await violations(page), colorScheme).toEqual([]);
  }
  // It stays when the list closes, from afar too, and the legend ends it.
  await page.keyboard.press('Escape');
  await page.keyboard.press('a');
  // The map was at zoom 13. An answer that arrives later than the jump would not move it.
  await expect.poll(() => page.evaluate(() => window.milepost!.map.getZoom())).toBeGreaterThan(14);
  await page.waitForFunction(() => !window.milepost!.map.isMoving());
  await jumpTo(page, [0, 30], 2);
  await expect.poll(async () => { const { dots, counted } = await shown(page); return dots + counted; }).toBe(2);
  const every = page.getByRole('button', { name: 'Only amber: show every group' });
  await every.click();
  await expect(every).toBeHidden();
  await expect.poll(async () => { const { dots, counted } = await shown(page); return dots + counted; }).toBeGreaterThan(300);
  await expect(count('Moving')).toHaveText(/\d\d/);
});

test('names are written above the canvas of tracks', async ({ page, stack }) => {
  await open(page, stack, '#at=13/-20/30.01');
  await expect(page.locator('canvas.labels')).toHaveCount(1);
  const isAbove = await page.evaluate(() => {
    const [names, tracks] = [document.querySelector('canvas.labels')!, document.querySelector('#deckgl-overlay')!];
    const level = (element: Element | null): number => (element ? Number(getComputedStyle(element).zIndex) || level(element.parentElement) : 0);
    return level(names) >= level(tracks) && (tracks.compareDocumentPosition(names) & Node.DOCUMENT_POSITION_FOLLOWING) > 0;
  });
  expect(isAbove).toBe(true);
});

test('discs change their colours with the theme', async ({ page, stack }) => {
  for (let i = 0; i < 5; i++) await publish(stack.mqttPort, `drivers/in-disc-${i}/gps`, { lat: -33.9, lng: 18.5 + i / 1000, speed: 0, ts: Date.now() });
  await open(page, stack, '#at=5/-33.9/18.5');
  await expect.poll(async () => (await shown(page)).counted).toBe(5);
  const isLight = async () => {
    const { x, y } = await page.evaluate(() => window.milepost!.map.project([18.502, -33.9]));
    const found = await coloursAt(page, { x, y }, 6);
    return [...found].some((colour) => colour.split(',').every((value) => Number(value) > 190));
  };
  for (const colorScheme of ['light', 'dark', 'light'] as const) {
    await page.emulateMedia({ colorScheme });
    // In the dark theme the count is light, on a dark disc.
    const isDark = async () => [...(await coloursAt(page, await page.evaluate(() => window.milepost!.map.project([18.502, -33.9])), 6))].some((colour) => colour.split(',').every((value) => Number(value) < 110));
    await expect.poll(async () => [await isLight(), await isDark()], colorScheme).toEqual([true, true]);
  }
});

test('a late answer does not move the map back from where the viewer went', async ({ page, stack }) => {
  await stack.query("INSERT INTO fleet.drivers (driver_id, `group`) VALUES ('late-1', 'late'), ('late-2', 'late')");
  for (const id of ['late-1', 'late-2']) await publish(stack.mqttPort, `drivers/${id}/gps`, { lat: -22, lng: id === 'late-1' ? 31 : 31.01, speed: 0, ts: Date.now() });
  await open(page, stack, '#at=13/-22/31&group=late');
  await expect.poll(async () => (await shown(page)).dots).toBe(2);
  // The request that finds all drivers of the group is held back.
  const held: (() => Promise<void>)[] = [];
  const ofGroup = /api\/tiles\?of=0\/0\/0&/;
  await page.route(ofGroup, (route) => void held.push(() => route.continue()));
  await page.keyboard.press('a');
  await expect.poll(() => held.length).toBe(1);
  await jumpTo(page, [0, 30], 2);
  await page.getByRole('button', { name: 'Only late: show every group' }).click();
  await expect.poll(async () => { const { dots, counted } = await shown(page); return dots + counted; }).toBeGreaterThan(2);
  const answered = page.waitForResponse(ofGroup);
  await held[0]();
  await answered;
  await page.waitForTimeout(1_500);
  expect(await page.evaluate(() => window.milepost!.map.getZoom())).toBe(2);
  // Without a move in between, the map shows them.
  await page.unroute(ofGroup);
  await page.keyboard.press('a');
  await expect.poll(() => page.evaluate(() => window.milepost!.map.getCenter().lng)).not.toBe(0);
});

test('a copied link has the group, and marks of other groups are hidden', async ({ page, stack }) => {
  const now = Date.now();
  await stack.query("INSERT INTO fleet.drivers (driver_id, name, `group`) VALUES ('linked-1', 'Linda', 'linked'), ('linked-2', 'Otto', 'others')");
  for (const [i, id] of ['linked-1', 'linked-2'].entries()) {
    await publish(stack.mqttPort, `drivers/${id}/gps`, { lat: -23, lng: 32 + i * 0.01, speed: 0, ts: now });
    await stack.query(`INSERT INTO fleet.events (driver_id, ts, seq, kind, fence, lat, lng, speed, known_at) VALUES ('${id}', now64(3), 0, 'silent', '', -23, ${32 + i * 0.01}, NULL, now64(3))`);
  }
  await open(page, stack, '#at=13/-23/32');
  const marks = (of: typeof page) => of.evaluate(() => [...document.querySelectorAll<HTMLElement>('.alert-mark')].map(({ title }) => title).filter((title) => /Linda|Otto|linked/.test(title)).sort());
  await expect.poll(() => marks(page)).toEqual(['Linda fell silent', 'Otto fell silent']);
  await page.keyboard.press('l');
  const group = page.getByRole('region', { name: 'List of drivers' }).getByLabel('Group');
  await expect(group.getByRole('option', { name: 'linked' })).toBeAttached();
  await group.selectOption('linked');
  await expect.poll(() => marks(page)).toEqual(['Linda fell silent']);
  await expect(page.getByRole('button', { name: 'Alerts, 1 not seen' })).toBeVisible();
  const { hash } = new URL(page.url());
  expect(hash).toContain('group=linked');
  await page.goto('about:blank');
  await open(page, stack, hash);
  await expect(page.locator('#legend-group')).toHaveText('Only linked ✕');
  await expect(page.locator('#numbers')).toContainText(/linked, last minute\s*\d of 1/);
  await expect.poll(async () => (await shown(page)).dots).toBe(1);
  await page.keyboard.press('l');
  await expect(group).toHaveValue('linked');
  await page.getByRole('button', { name: 'Only linked: show every group' }).click();
  await expect.poll(() => marks(page)).toEqual(['Linda fell silent', 'Otto fell silent']);
  expect(new URL(page.url()).hash).not.toContain('group=');
  await stack.query("ALTER TABLE fleet.events DELETE WHERE driver_id LIKE 'linked-%' SETTINGS mutations_sync = 1");
});

test('shortcuts work as soon as the panel opens, and a late answer does not move the focus', async ({ page, stack }) => {
  await publish(stack.mqttPort, 'drivers/slow-answer/gps', { lat: -24, lng: 33, speed: 0, ts: Date.now() });
  await expect.poll(async () => (await fetch(`${stack.url}/api/drivers/slow-answer`)).status).toBe(200);
  await open(page, stack, '#at=13/-24/33');
  const held: (() => Promise<void>)[] = [];
  await page.route(/api\/drivers\/slow-answer$/, (route) => void held.push(() => route.continue()));
  const search = page.getByRole('combobox', { name: 'Find a driver' });
  await page.keyboard.press('/');
  await page.keyboard.type('slow-an');
  await expect(page.getByRole('option', { name: 'slow-answer' })).toBeVisible();
  await page.keyboard.press('Enter');
  await expect(page.getByRole('heading', { name: 'slow-answer' })).toBeVisible();
  await page.keyboard.press('r');
  await expect(page.getByRole('region', { name: 'Replay', exact: true })).toBeVisible();
  await page.keyboard.press('Escape');
  await search.click();
  await page.keyboard.type('ab');
  await expect.poll(() => held.length).toBeGreaterThan(0);
  for (const answer of held) await answer();
  await expect(page.locator('#fix-when')).not.toHaveText('–');
  await page.keyboard.type('c');
  await expect(search).toHaveValue('abc');
});

test('the driver of a link, closed before the answer, does not open again', async ({ page, stack }) => {
  await publish(stack.mqttPort, 'drivers/slow-link/gps', { lat: -24, lng: 33, speed: 0, ts: Date.now() });
  await expect.poll(async () => (await fetch(`${stack.url}/api/drivers/slow-link`)).status).toBe(200);
  const held: (() => Promise<void>)[] = [];
  const ofDriver = /api\/drivers\/slow-link$/;
  await page.route(ofDriver, (route) => void held.push(() => route.continue().catch(() => {})));
  await open(page, stack, '#driver=slow-link&day=hour');
  const panel = page.getByRole('complementary', { name: 'Driver' });
  await expect(panel).toBeVisible();
  await expect.poll(() => held.length).toBeGreaterThan(0);
  await page.keyboard.press('Escape');
  await expect(panel).toBeHidden();
  for (const answer of held) await answer();
  await page.waitForTimeout(1_500);
  await expect(panel).toBeHidden();
  // Without that, the link opens the driver with the track.
  await page.unroute(ofDriver);
  await page.goto('about:blank');
  await open(page, stack, '#driver=slow-link&day=hour');
  await expect(page.locator('#player')).toBeVisible();
  await expect.poll(() => page.evaluate(() => Math.round(window.milepost!.map.getCenter().lng))).toBe(33);
});

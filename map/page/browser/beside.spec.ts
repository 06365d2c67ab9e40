// Further maps of the same fleet, with other settings: streets from a file, and a link for a guest
// without a login.
import { createHmac } from 'node:crypto';
import { BUBENEC, pmtiles } from '../test/pmtiles';
import { publish } from './mqtt';
import { expect, jumpTo, shown, test } from './world';

test('streets and names come from one file, in both themes', async ({ page, stack }) => {
  const url = await stack.startMap('streets', { MILEPOST_MAP__MAP__BASEMAP: stack.writeFile('streets.pmtiles', pmtiles()) });
  await publish(stack.mqttPort, 'drivers/in-town/gps', { lat: BUBENEC.lat, lng: BUBENEC.lng, speed: 8, heading: 45, ts: Date.now() });
  const ranges: number[] = [];
  page.on('response', (response) => {
    if (new URL(response.url()).pathname === '/basemap.pmtiles') ranges.push(response.status());
  });
  for (const colorScheme of ['dark', 'light'] as const) {
    await page.emulateMedia({ colorScheme });
    await page.goto('about:blank');
    await page.goto(`${url}/#at=16.2/${BUBENEC.lat}/${BUBENEC.lng}`);
    await page.waitForFunction(() => window.milepost !== undefined);
    const drawn = (layer: string) => page.evaluate((name) => {
      const { map } = window.milepost!;
      return map.queryRenderedFeatures({ layers: map.getStyle().layers.filter((one) => 'source-layer' in one && one['source-layer'] === name).map(({ id }) => id) }).length;
    }, layer);
    await expect.poll(() => drawn('roads')).toBeGreaterThan(10);
    await expect.poll(() => drawn('buildings')).toBeGreaterThan(20);
    const names = () => page.evaluate(() => {
      const { map } = window.milepost!;
      const layers = map.getStyle().layers.filter(({ id, type }) => type === 'symbol' && id.startsWith('roads_labels')).map(({ id }) => id);
      return map.queryRenderedFeatures({ layers }).map(({ properties }) => String(properties.name));
    });
    await expect.poll(async () => (await names()).filter((name) => name.startsWith('Street ')).length).toBeGreaterThan(0);
    await expect.poll(async () => (await shown(page)).dots).toBeGreaterThan(0);
    await expect(page.locator('.maplibregl-ctrl-attrib')).toContainText('OpenStreetMap');
    if (process.env.PICTURES) await page.screenshot({ path: `${process.env.PICTURES}/map-streets-${colorScheme}.jpg`, type: 'jpeg', quality: 82 });
  }
  // Beyond the file's region the coasts and borders of the world are drawn, in both themes.
  const land = () => page.evaluate(() => window.milepost!.map.queryRenderedFeatures({ layers: ['land'] }).length);
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    await jumpTo(page, [20, 40], 3);
    await expect.poll(land).toBeGreaterThan(0);
    await page.waitForFunction(() => window.milepost!.map.loaded());
    if (process.env.PICTURES) await page.screenshot({ path: `${process.env.PICTURES}/streets-world-${colorScheme}.png` });
    await jumpTo(page, [BUBENEC.lng, BUBENEC.lat], 8);
    await page.waitForFunction(() => window.milepost!.map.loaded());
  }
  // The theme changes the style, and keeps what the page itself has drawn.
  await page.keyboard.press('d');
  await expect.poll(() => page.evaluate(() => window.milepost!.map.getLayer('fences-line') !== undefined)).toBe(true);
  expect(ranges.length).toBeGreaterThan(2);
  expect(ranges.every((status) => status === 206)).toBe(true);
});

test('a guest link shows only its driver', async ({ page, stack, faults }) => {
  // Allow errors: the browser itself logs refusals.
  faults.mayFail = true;
  const login = { Authorization: `Basic ${Buffer.from('ada:secret').toString('base64')}` };
  const url = await stack.startMap('guests', { MILEPOST_MAP__HTTP__USERNAME: 'ada', MILEPOST_MAP__HTTP__PASSWORD: 'secret', MILEPOST_MAP__ACCESS__LINKS_KEY: 'a key of this test alone' });
  for (const name of ['guest-1', 'guest-2']) await publish(stack.mqttPort, `drivers/${name}/gps`, { lat: 47.9, lng: 16.1, speed: 8, ts: Date.now() });
  await expect.poll(async () => (await fetch(`${url}/api/drivers/guest-2`, { headers: login })).status).toBe(200);
  const made = await fetch(`${url}/api/links`, { method: 'POST', headers: { ...login, 'Content-Type': 'application/json' }, body: JSON.stringify({ drivers: ['guest-1'], hours: 1 }) });
  const { link } = (await made.json()) as { link: string };
  await page.goto(`${url}/?link=${link}#at=14/47.9/16.1`);
  await page.waitForFunction(() => window.milepost !== undefined);
  await expect.poll(async () => (await shown(page)).dots).toBe(1);
  await expect(page.locator('#seen')).toHaveText('1');
  // It says that it is a guest's page, on a phone too, and no card covers that.
  const line = page.getByRole('status').filter({ hasText: 'Read-only link' });
  await expect(line).toHaveText(/^Read-only link, until (\d+ \w+ \d{4}, )?\d\d:\d\d$/);
  for (const [width, height] of [[390, 844], [1280, 800]]) {
    await page.setViewportSize({ width, height });
    const { x, y, width: wide, height: high } = (await line.boundingBox())!;
    for (const name of ['List of drivers', 'Heatmap', 'Fences']) {
      await page.getByRole('button', { name, exact: true }).click();
      const isOnTop = await page.evaluate(([left, top]) => document.elementFromPoint(left, top)?.id === 'guest', [x + wide / 2, y + high / 2]);
      expect(isOnTop, `${name}, ${width} px`).toBe(true);
      await page.getByRole('button', { name, exact: true }).click();
    }
  }
  await page.keyboard.press('/');
  await page.keyboard.type('guest');
  await expect(page.getByRole('option')).toHaveCount(1);
  await page.keyboard.press('Enter');
  await expect(page.locator('#driver-name')).toHaveText('guest-1');
  await expect(page.locator('#share-guest')).toBeHidden();
  await page.keyboard.press('g');
  await expect(page.getByRole('button', { name: 'New' })).toBeHidden();
  expect(await page.evaluate(async () => (await fetch('api/drivers/guest-2')).status)).toBe(404);
});

test('an open page says that its link has expired', async ({ page, stack, faults }) => {
  faults.mayFail = true;
  const secret = 'a key of this test alone, 32 letters';
  const url = await stack.startMap('expiring', { MILEPOST_MAP__ACCESS__LINKS_KEY: secret, MILEPOST_MAP__HTTP__USERNAME: 'ada', MILEPOST_MAP__HTTP__PASSWORD: 'secret' });
  await publish(stack.mqttPort, 'drivers/expiring/gps', { lat: 1, lng: 1, speed: 8, heading: 45, ts: Date.now() });
  const content = Buffer.from(JSON.stringify({ groups: [], drivers: ['expiring'], until: Date.now() + 12_000, by: 'ada' }));
  const link = `${content.toString('hex')}.${createHmac('sha256', secret).update(content).digest('hex')}`;
  await page.goto(`${url}/?link=${link}`);
  await page.waitForFunction(() => window.milepost !== undefined);
  await expect(page.locator('#drivers')).toHaveText(/of 1$/);
  await expect(page.locator('#banner')).toContainText('this link has expired');
});

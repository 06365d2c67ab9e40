// A fleet around Taveuni (Fiji), on both sides of 180°, where the map continues.
import type { Page } from '@playwright/test';
import { publish } from './mqtt';
import { expect, jumpTo, placeOf, shown, test } from './world';

const LOGIN = { Authorization: `Basic ${Buffer.from('ada:secret').toString('base64')}` };
const picture = async (page: Page, name: string) => {
  if (!process.env.PICTURES) return;
  await page.waitForFunction(() => window.milepost!.map.loaded() && !window.milepost!.map.isMoving());
  await page.screenshot({ path: `${process.env.PICTURES}/antimeridian-${name}.png` });
};

test('a fleet on both sides of 180° is in one view with its track and fence', async ({ page, stack }) => {
  const now = Date.now();
  const wrap = (lng: number) => (lng > 180 ? lng - 360 : lng);
  // A ferry from the west of 180° to the east of it in half an hour.
  const ferry = Array.from({ length: 60 }, (_, i) => ({ lat: -16.8 - i * 0.001, lng: wrap(179.85 + i * 0.005), speed: 17, heading: 100, ts: now - (60 - i) * 30_000 }));
  await publish(stack.mqttPort, 'drivers/ferry/gps', ferry);
  for (const [id, lng] of [['west-1', 179.9], ['west-2', 179.8], ['east-1', -179.9], ['east-2', -179.8]] as const) {
    await publish(stack.mqttPort, `drivers/${id}/gps`, { lat: -16.75, lng, speed: 9, heading: 90, ts: now });
  }
  await stack.query(`INSERT INTO fleet.drivers (driver_id, name, \`group\`) VALUES ('ferry', 'Lomaiviti', 'fiji'), ('west-1', '', 'fiji'), ('west-2', '', 'fiji'), ('east-1', '', 'fiji'), ('east-2', '', 'fiji')`);
  const url = await stack.startMap('fiji', {
    MILEPOST_MAP__HTTP__USERNAME: 'ada',
    MILEPOST_MAP__HTTP__PASSWORD: 'secret',
    MILEPOST_MAP__ACCESS__VIEWERS: 'ada: fiji',
    MILEPOST_MAP__FENCES__USER: 'default',
    MILEPOST_MAP__MAP__SILENT_AFTER: '1h',
  });
  await expect.poll(async () => (await fetch(`${url}/api/drivers/east-2`, { headers: LOGIN })).status).toBe(200);
  await page.setExtraHTTPHeaders(LOGIN);
  await page.goto(url);
  await page.waitForFunction(() => window.milepost !== undefined);
  const zoom = () => page.evaluate(() => window.milepost!.map.getZoom());

  // The first view has all drivers, close up.
  await expect.poll(async () => { const { dots, counted } = await shown(page); return dots + counted; }).toBe(5);
  expect(await zoom()).toBeGreaterThan(8);
  await picture(page, 'first');
  const places = await Promise.all(['west-2', 'west-1', 'east-1', 'east-2'].map((id) => placeOf(page, id)));
  const xs = places.map((place) => Math.round(place?.x ?? -1));
  expect(xs.every((x) => x > 0 && x < 1280)).toBe(true);
  expect(xs).toEqual([...xs].sort((a, b) => a - b));
  // Drivers on both sides have names.
  const names = () => page.evaluate(() => window.milepost!.labels.placed.map(({ text }) => text));
  await expect.poll(names).toEqual(expect.arrayContaining(['west-1', 'east-2']));

  // A click on either side chooses the driver there.
  for (const id of ['west-1', 'east-1']) {
    const place = (await placeOf(page, id))!;
    await page.mouse.click(place.x, place.y);
    await expect(page.locator('#driver-name')).toHaveText(id);
    await page.keyboard.press('Escape');
  }

  // From afar the drivers are one disc.
  await jumpTo(page, [179.5, -16], 4);
  await expect.poll(async () => { const { discs, counted } = await shown(page); return [discs, counted]; }).toEqual([1, 5]);
  await picture(page, 'afar');

  // The whole track is in view.
  await page.keyboard.press('/');
  await page.keyboard.type('lomai');
  await page.keyboard.press('Enter');
  await expect(page.locator('#driver-name')).toHaveText('Lomaiviti');
  await page.getByRole('button', { name: 'Track of the last hour' }).click();
  await expect(page.locator('#player')).toBeVisible();
  await page.waitForFunction(() => !window.milepost!.map.isMoving());
  const ends = () => page.evaluate(() => [179.85, 180.145].map((lng) => {
    const { map } = window.milepost!;
    return Math.round(map.project([lng + 360 * Math.round((map.getCenter().lng - lng) / 360), -16.83]).x);
  }));
  await expect.poll(ends).toEqual([expect.any(Number), expect.any(Number)]);
  const [west, east] = await ends();
  expect(west).toBeGreaterThan(0);
  expect(east).toBeLessThan(1280);
  expect(east - west).toBeGreaterThan(200);
  await picture(page, 'track');
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');

  // A fence across 180° is drawn, stored as GeoJSON requires, and edited.
  await jumpTo(page, [180, -16.75], 10);
  await page.keyboard.press('g');
  const box = page.getByRole('region', { name: 'Fences' });
  await box.getByRole('button', { name: 'New' }).click();
  await page.keyboard.type('Strait');
  const xy = (lng: number, lat: number) => page.evaluate(([x, y]) => { const { map } = window.milepost!; const at = map.project([x + 360 * Math.round((map.getCenter().lng - x) / 360), y]); return [at.x, at.y]; }, [lng, lat]);
  for (const [lng, lat] of [[179.86, -16.8], [180.14, -16.8], [180.14, -16.7], [179.86, -16.7]]) await page.mouse.click(...((await xy(lng, lat)) as [number, number]));
  await expect(page.locator('.corner')).toHaveCount(4);
  await box.getByRole('button', { name: 'Save' }).click();
  await expect(box.getByRole('button', { name: 'Strait', exact: true })).toBeVisible();
  const stored = await page.evaluate(async () => ((await (await fetch('api/fences')).json()) as { features: { geometry: { coordinates: number[][][][] } }[] }).features[0].geometry.coordinates);
  expect(stored).toHaveLength(2);
  for (const [lng] of stored.flat(2)) expect(Math.abs(lng)).toBeLessThanOrEqual(180);
  await expect.poll(names).toContain('Strait');
  await box.getByRole('button', { name: 'Strait', exact: true }).click();
  await page.waitForFunction(() => !window.milepost!.map.isMoving());
  expect(await zoom()).toBeGreaterThan(9);
  // The fence contains west-1 and east-1, one on each side.
  await expect(box.getByRole('status').first()).toBeAttached();
  await picture(page, 'fence');
  await box.getByRole('button', { name: 'Edit Strait' }).click();
  await expect(page.locator('.corner')).toHaveCount(4);
  const corner = (await page.locator('.corner').nth(1).boundingBox())!;
  await page.mouse.move(corner.x + corner.width / 2, corner.y + corner.height / 2);
  await page.mouse.down();
  await page.mouse.move(corner.x + 40, corner.y + 30, { steps: 4 });
  await page.mouse.up();
  await picture(page, 'edit');
  await box.getByRole('button', { name: 'Save' }).click();
  await expect(box.getByRole('button', { name: 'Edit Strait' })).toBeVisible();
  await page.keyboard.press('Escape');
  const placesInWords = await page.evaluate(async () => {
    const shownPlaces = [];
    for (const id of ['west-1', 'east-1', 'west-2']) {
      await window.milepost!.find(id);
      shownPlaces.push(document.getElementById('fix-place')!.textContent);
    }
    return shownPlaces;
  });
  expect(placesInWords[0]).toContain('Strait');
  expect(placesInWords[1]).toContain('Strait');
  expect(placesInWords[2]).not.toContain('Strait ·');

  // The view of all drivers, from far away.
  await jumpTo(page, [10, 50], 3);
  await page.keyboard.press('a');
  await expect.poll(async () => { const { dots, counted } = await shown(page); return dots + counted; }).toBe(5);
  await page.waitForFunction(() => !window.milepost!.map.isMoving());
  expect(await zoom()).toBeGreaterThan(8);
  // The heatmap and a replay have both sides.
  await page.keyboard.press('h');
  await expect(page.locator('#heat-said')).toContainText(/^6\d fixes in view/);
  await picture(page, 'heat');
  await page.keyboard.press('h');
  await page.keyboard.press('r');
  await page.getByRole('region', { name: 'Replay' }).getByRole('button', { name: 'Play', exact: true }).click();
  await expect(page.getByRole('region', { name: 'Replay' })).toContainText('5 drivers.');
});

test('a whole world in view shows each place once', async ({ page, stack }) => {
  for (const width of [1280, 2400]) {
    await page.setViewportSize({ width, height: 800 });
    await page.goto('about:blank');
    await page.goto(`${stack.url}/#at=0/10/100`);
    await page.waitForFunction(() => window.milepost !== undefined);
    const seen = () => page.evaluate(() => { const box = window.milepost!.map.getBounds(); return box.getEast() - box.getWest(); });
    await expect.poll(seen).toBeLessThanOrEqual(360.01);
    await picture(page, `world-${width}`);
  }
});

// A dispatcher's first morning, as a repeatable trial: `npm run browser -- dispatcher`. It does
// seven tasks with only mouse and keyboard, counts clicks, keys and seconds, and prints a table.
// PICTURES=folder keeps a picture of each task, dark and light.
import { join } from 'node:path';
import type { Page } from '@playwright/test';
import { BUBENEC, pmtiles } from '../test/pmtiles';
import { publish } from './mqtt';
import type { Stack } from './stack';
import { expect, shown, test } from './world';

const folder = process.env.PICTURES ?? '';
const MINUTE_MS = 60_000;
const LOGIN = { Authorization: `Basic ${Buffer.from('ada:secret').toString('base64')}` };
const PHONE = { width: 390, height: 844 };

interface Fix {
  lat: number;
  lng: number;
  speed: number;
  heading?: number;
  ts: number;
}

const { lat: LAT, lng: LNG } = BUBENEC;
const EAST_M = 111_320 * Math.cos((LAT * Math.PI) / 180);
/** Returns a place from its distance to the depot, in metres. */
const from = (north: number, east: number) => ({ lat: LAT + north / 111_320, lng: LNG + east / EAST_M });

/** Returns the fixes of a driver that stands, one every half minute. */
const stands = (place: { lat: number; lng: number }, begin: number, end: number): Fix[] =>
  Array.from({ length: Math.floor((end - begin) / 30_000) }, (_, i) => ({ ...place, speed: 0, ts: begin + i * 30_000 }));

/**
 * Returns the fixes of a straight drive north, one every 5 s. `north` and `east`: start in metres
 * from the depot; `speed` in m/s, negative to the south.
 */
const drives = (north: number, east: number, speed: number, begin: number, end: number): Fix[] =>
  Array.from({ length: Math.floor((end - begin) / 5_000) }, (_, i) => ({ ...from(north + i * 5 * speed, east), speed: Math.abs(speed), heading: speed < 0 ? 180 : 0, ts: begin + i * 5_000 }));

/**
 * Publishes a town's fleet: Anna stands in the depot, Ben has left it, Dora and Emil had an
 * accident, two buses drive. Returns the time of the accident.
 */
async function fleet(stack: Stack, now: number): Promise<number> {
  const accident = Math.floor((now - 50 * MINUTE_MS) / MINUTE_MS) * MINUTE_MS;
  const days: Record<string, Fix[]> = {
    'van-1': [...drives(-900, 0, 6, now - 187 * MINUTE_MS, now - 184.5 * MINUTE_MS), ...stands(from(0, 0), now - 184 * MINUTE_MS, now)],
    'van-2': [...stands(from(20, 10), now - 200 * MINUTE_MS, now - 40 * MINUTE_MS), ...drives(40, 10, 8, now - 39 * MINUTE_MS, now - 37 * MINUTE_MS), ...stands(from(1000, 10), now - 36 * MINUTE_MS, now)],
    'van-3': [...drives(-700, 350, 10, accident - 70_000, accident), ...stands(from(0, 350), accident, now)],
    'van-4': [...drives(560, 352, -8, accident - 70_000, accident), ...stands(from(8, 352), accident, now)],
    'bus-1': drives(-450, -300, 6, now - 2 * MINUTE_MS, now),
    'bus-2': drives(450, -420, -5, now - 2 * MINUTE_MS, now),
  };
  for (const [id, fixes] of Object.entries(days)) for (let i = 0; i < fixes.length; i += 200) await publish(stack.mqttPort, `drivers/${id}/gps`, fixes.slice(i, i + 200));
  await stack.query(`INSERT INTO fleet.drivers (driver_id, name, \`group\`, vehicle, phone) VALUES
    ('van-1', 'Anna Müller', 'north', 'Sprinter', '+49 30 1234'), ('van-2', 'Ben Okafor', 'north', 'Sprinter', ''), ('van-3', 'Dora Lind', 'south', 'Crafter', ''),
    ('van-4', 'Emil Novák', 'south', 'Crafter', ''), ('bus-1', 'Line 131', 'buses', '', ''), ('bus-2', 'Line 907', 'buses', '', '')`);
  const side = (north: number, east: number) => { const { lat, lng } = from(north, east); return `(${lng}, ${lat})`; };
  await stack.query(`INSERT INTO fleet.fences (name, polygons) VALUES ('Depot', [[[${side(-90, -120)}, ${side(-90, 120)}, ${side(90, 120)}, ${side(90, -120)}]]])`);
  for (const id of Object.keys(days)) await expect.poll(async () => stack.query(`SELECT count() FROM fleet.fixes WHERE driver_id = '${id}'`), id).toBe(String(days[id].length));
  await stack.refresh();
  return accident;
}

/** Does tasks in a page, and counts clicks, keys and seconds. */
class Trial {
  private readonly rows: string[] = [];
  private clicks = 0;
  private keys = 0;

  constructor(private readonly page: Page) {}

  async click(target: ReturnType<Page['locator']>): Promise<void> {
    this.clicks++;
    await target.click();
  }

  async clickAt(x: number, y: number): Promise<void> {
    this.clicks++;
    await this.page.mouse.click(x, y);
  }

  async type(text: string): Promise<void> {
    this.keys += text.length;
    await this.page.keyboard.type(text);
  }

  async press(key: string): Promise<void> {
    this.keys++;
    await this.page.keyboard.press(key);
  }

  /** Adds the clicks and keys that a person needs where Playwright fills in a field at once. */
  count(clicks: number, keys: number): void {
    this.clicks += clicks;
    this.keys += keys;
  }

  async task(name: string, work: () => Promise<void>, picture = ''): Promise<void> {
    [this.clicks, this.keys] = [0, 0];
    const begin = performance.now();
    await work();
    const seconds = ((performance.now() - begin) / 1000).toFixed(1);
    this.rows.push(`| ${name} | ${this.clicks} | ${this.keys} | ${seconds} |`);
    if (folder && picture) await pictures(this.page, picture);
  }

  print(): void {
    console.log(['| task | clicks | keys | seconds |', '|---|---|---|---|', ...this.rows].join('\n'));
  }
}

async function pictures(page: Page, name: string): Promise<void> {
  for (const colorScheme of ['dark', 'light'] as const) {
    await page.emulateMedia({ colorScheme });
    await page.waitForFunction(() => window.milepost!.map.loaded() && !window.milepost!.map.isMoving());
    await page.screenshot({ path: join(folder, `dispatcher-${name}-${colorScheme}.jpg`), type: 'jpeg', quality: 82 });
  }
  await page.emulateMedia({ colorScheme: 'dark' });
}

test('a dispatcher does the seven tasks of a morning, two also on a phone', async ({ page, stack, faults, browser }) => {
  // Allow errors: the browser itself logs aborted requests.
  faults.mayFail = true;
  const now = Date.now();
  const accident = await fleet(stack, now);
  const url = await stack.startMap('dispatcher', {
    MILEPOST_MAP__MAP__BASEMAP: stack.writeFile('dispatcher.pmtiles', pmtiles()),
    MILEPOST_MAP__ACCESS__LINKS_KEY: 'a key of this trial alone, 32 letters',
    MILEPOST_MAP__FENCES__USER: 'default',
    MILEPOST_MAP__HTTP__USERNAME: 'ada',
    MILEPOST_MAP__HTTP__PASSWORD: 'secret',
  });
  await page.setExtraHTTPHeaders(LOGIN);
  await expect.poll(async () => (await fetch(`${url}/api/drivers?find=ller`, { headers: LOGIN })).text()).toContain('van-1');
  const start = `${url}/#at=15.6/${LAT}/${LNG}`;
  await page.goto(start);
  await page.waitForFunction(() => window.milepost !== undefined);
  await expect.poll(async () => (await shown(page)).dots).toBeGreaterThan(3);
  const trial = new Trial(page);
  const panel = page.getByRole('complementary', { name: 'Driver' });
  const fences = page.getByRole('region', { name: 'Fences' });

  await trial.task('find a driver by a part of its name', async () => {
    await trial.click(page.getByRole('combobox', { name: 'Find a driver' }));
    await trial.type('ller');
    await expect(page.getByRole('option', { name: 'Anna Müller' })).toBeVisible();
    await trial.press('Enter');
    await expect(panel.getByRole('heading', { name: 'Anna Müller' })).toBeVisible();
    await expect(panel).toContainText(/Standing (since|for at least) /);
    await expect(panel).toContainText('Depot ·');
  }, 'find');

  await trial.task('say who stands in the depot since when', async () => {
    await trial.click(page.getByRole('button', { name: 'Fences', exact: true }));
    await trial.click(fences.getByRole('button', { name: 'Depot', exact: true }));
    // Drivers of other tests may be inside as well.
    await expect(fences).toContainText(/Depot: \d+ inside/);
    await expect(fences.getByRole('list', { name: 'Visits' })).toContainText(/Anna Müllerinside since .*\d\d:\d\d · 3 h/);
  }, 'depot');
  // No corner is under the open panel.
  const east = () => page.evaluate(() => {
    const { map, fences: { all } } = window.milepost!;
    const [outline] = all.find(({ properties }) => properties.name === 'Depot')!.geometry.coordinates[0];
    return Math.max(...outline.map(([lng, lat]) => map.project([lng, lat]).x));
  });
  await expect.poll(east).toBeLessThan((await panel.boundingBox())!.x);

  await trial.task('see who left it today', async () => {
    const left = fences.getByRole('list', { name: 'Visits' }).getByRole('button', { name: /Ben Okafor/ });
    // If the test runs before 00:40 UTC, the driver left yesterday.
    if (new Date(now - 40 * MINUTE_MS).getUTCDate() === new Date(now).getUTCDate()) await expect(left).toContainText(/left at \d\d:\d\d · came at (\d+ \w+, )?\d\d:\d\d, 2 h (39|4\d) min/);
  });

  await trial.task('draw a fence', async () => {
    await trial.click(fences.getByRole('button', { name: 'New' }));
    await trial.type('Customer');
    for (const [x, y] of [[640, 170], [800, 170], [800, 290], [640, 290]]) await trial.clickAt(x, y);
    await trial.click(fences.getByRole('button', { name: 'Save' }));
    await expect(fences.getByRole('button', { name: 'Customer', exact: true })).toBeVisible();
  }, 'draw');

  await trial.task('edit and rename it', async () => {
    await trial.click(fences.getByRole('button', { name: 'Edit Customer' }));
    const corner = (await page.locator('.corner').nth(2).boundingBox())!;
    await page.mouse.move(corner.x + corner.width / 2, corner.y + corner.height / 2);
    await page.mouse.down();
    await page.mouse.move(corner.x + 60, corner.y + 50, { steps: 4 });
    await page.mouse.up();
    await trial.click(fences.getByLabel('Name'));
    await trial.press('ControlOrMeta+a');
    await trial.type('Bakery');
    await trial.click(fences.getByRole('button', { name: 'Save' }));
    await expect(fences.getByRole('button', { name: 'Bakery', exact: true })).toBeVisible();
    await trial.press('Escape');
  }, 'edit');

  await trial.task('replay an accident', async () => {
    // The replay shows the area in view, so the map must show Dora's place.
    await trial.press('/');
    await trial.type('dora');
    await expect(page.getByRole('option', { name: 'Dora Lind' })).toBeVisible();
    await trial.press('Enter');
    await expect(panel.getByRole('heading', { name: 'Dora Lind' })).toBeVisible();
    await page.waitForFunction(() => !window.milepost!.map.isMoving());
    await trial.press('r');
    const box = page.getByRole('region', { name: 'Replay' });
    const minute = (ms: number) => new Date(ms).toISOString().slice(0, 16);
    // A person types the digits one by one.
    for (const [label, ms] of [['From', accident - 3 * MINUTE_MS], ['To', accident + 2 * MINUTE_MS]] as const) {
      trial.count(1, minute(ms).replace(/\D/g, '').length);
      await box.getByLabel(`${label}, date`).fill(minute(ms).slice(0, 10));
      await box.getByLabel(`${label}, time`).fill(minute(ms).slice(11));
    }
    await trial.click(box.getByRole('button', { name: 'Play', exact: true }));
    await expect(box).toContainText(/\d drivers/);
    await trial.press('Space');
    const band = (await page.getByRole('slider').boundingBox())!;
    const to = (part: number) => trial.clickAt(band.x + band.width * part, band.y + band.height / 2);
    /** Metres between Dora and Emil. */
    const gap = () => page.evaluate(() => {
      const { fleet } = window.milepost!.scene;
      const slots = ['van-3', 'van-4'].map((id) => fleet.slot(id));
      if (slots.includes(undefined)) return NaN;
      const [a, b] = slots.map((slot) => fleet.lat[slot!]);
      return (b - a) * 111_320;
    });
    // The two collide after three of the five minutes.
    await to(0.55);
    await expect.poll(gap).toBeGreaterThan(100);
    await to(0.66);
    await expect.poll(gap).toBeLessThan(20);
    await to(0.57);
    await expect.poll(gap).toBeGreaterThan(60);
  }, 'replay');

  let link = '';
  await trial.task('send a colleague a link that shows only their drivers', async () => {
    await trial.press('Escape');
    await trial.press('l');
    const list = page.getByRole('region', { name: 'List of drivers' });
    trial.count(2, 0);
    await list.getByLabel('Group').selectOption('south');
    await expect(list.getByRole('list', { name: 'Drivers' }).getByRole('button')).toHaveCount(2);
    await trial.click(list.getByRole('button', { name: 'Copy guest link' }));
    await expect(list.getByRole('button', { name: 'Copied' })).toBeVisible();
    link = await page.evaluate(() => navigator.clipboard.readText());
  }, 'link');
  trial.print();

  const guest = await (await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: 'dark', timezoneId: 'UTC' })).newPage();
  await serve(guest);
  await guest.goto(link);
  await guest.waitForFunction(() => window.milepost !== undefined);
  await expect(guest.locator('#drivers')).toHaveText(/of 2$/);
  await expect.poll(async () => { const { dots, counted } = await shown(guest); return dots + counted; }).toBe(2);
  expect(await guest.evaluate(async () => (await fetch('api/drivers/van-1')).status)).toBe(404);
  if (folder) await pictures(guest, 'guest');
  await guest.context().close();

  const context = await browser.newContext({ viewport: PHONE, hasTouch: true, isMobile: true, deviceScaleFactor: 2, colorScheme: 'dark', timezoneId: 'UTC' });
  const phone = await context.newPage();
  await serve(phone);
  await phone.setExtraHTTPHeaders(LOGIN);
  await phone.goto(start);
  await phone.waitForFunction(() => window.milepost !== undefined);
  const thumb = new Trial(phone);
  await thumb.task('phone: find a driver by a part of its name', async () => {
    await thumb.click(phone.getByRole('combobox', { name: 'Find a driver' }));
    await thumb.type('ller');
    await thumb.click(phone.getByRole('option', { name: 'Anna Müller' }));
    await expect(phone.getByRole('heading', { name: 'Anna Müller' })).toBeVisible();
  }, 'phone-find');
  await thumb.task('phone: say who stands in the depot since when', async () => {
    await thumb.click(phone.getByRole('button', { name: 'Close the driver' }));
    await thumb.click(phone.getByRole('button', { name: 'Fences', exact: true }));
    const box = phone.getByRole('region', { name: 'Fences' });
    await thumb.click(box.getByRole('button', { name: 'Depot', exact: true }));
    await expect(box.getByRole('list', { name: 'Visits' })).toContainText(/Anna Müllerinside since/);
  }, 'phone-depot');
  thumb.print();
  await context.close();
});

/** Serves the page under test in another browser context. */
async function serve(page: Page): Promise<void> {
  const built = process.env.MAP_PAGE;
  if (!built) return;
  await page.route((url) => url.hostname === '127.0.0.1' && !url.pathname.startsWith('/api/') && url.pathname !== '/basemap.pmtiles', async (route) => {
    const { pathname, search } = new URL(route.request().url());
    const headers = search ? (await route.fetch()).headers() : {};
    await route.fulfill({ path: join(built, pathname.replace(/\/$/, '/index.html')), ...(headers['set-cookie'] ? { headers: { 'set-cookie': headers['set-cookie'], 'content-type': 'text/html' } } : {}) });
  });
}

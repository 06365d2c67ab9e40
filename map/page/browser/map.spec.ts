// The page's guarantees, in a browser with real servers. The order matters: the last test kills the
// engine.
import type { Page } from '@playwright/test';
import { radius } from '../src/cells';
import { publish } from './mqtt';
import { coloursAt, expect, open, placeOf, shown, test, violations } from './world';

const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;

/** A place away from the simulated fleet, for drivers that tests publish. */
const HERE = { lat: 48.2082, lng: 16.3738 };
const at = (zoom: number, { lat, lng } = HERE) => `#at=${zoom}/${lat}/${lng}`;

const pagesOwn = (page: Page, text: string) => page.getByText(text, { exact: false });

test('drivers are drawn in colour, and move', async ({ page, stack }) => {
  await open(page, stack);
  await expect.poll(async () => { const { dots, counted } = await shown(page); return dots + counted; }).toBeGreaterThan(300);
  // Close up, drivers are dots.
  await page.getByRole('combobox').fill('sim-test-1');
  await page.getByRole('option').first().click();
  await expect.poll(async () => (await shown(page)).dots).toBeGreaterThan(0);
  // On a slow machine the driver would leave the picture.
  await page.getByRole('button', { name: 'Follow' }).click();
  const places = () => page.evaluate(() => {
    const { fleet } = window.milepost!.scene;
    return fleet.ids.slice(0, fleet.n).map((_, slot) => fleet.at(slot, performance.now() / 1000).join()).sort().join(' ');
  });
  const before = await places();
  await expect.poll(places).not.toBe(before);
  const driver = await page.evaluate(() => window.milepost!.panel.id!);
  await expect.poll(async () => { const place = await placeOf(page, driver); return place ? (await coloursAt(page, place)).size : 0; }).toBeGreaterThan(3);
  await expect(page.locator('#seen')).not.toHaveText('–');
  await expect(page.locator('#pulse')).toHaveAttribute('data-state', 'ok');
});

test('a published fix appears without an action of the viewer', async ({ page, stack }) => {
  await open(page, stack, at(15));
  await publish(stack.mqttPort, 'drivers/fresh/gps', { ...HERE, speed: 12, heading: 90, ts: Date.now() });
  await page.waitForFunction(() => window.milepost!.scene.fleet.slot('fresh') !== undefined);
  const place = await placeOf(page, 'fresh');
  await expect.poll(async () => (await coloursAt(page, place!)).size).toBeGreaterThan(3);
});

test('a driver is found, and its track played, with only the keyboard', async ({ page, stack }) => {
  const now = Date.now();
  const trip = Array.from({ length: 40 }, (_, i) => ({ lat: 48.1 + i * 0.001, lng: 16.2, speed: 12, heading: 0, acc: 8, ts: now - (40 - i) * 10_000 }));
  await publish(stack.mqttPort, 'drivers/by-key/gps', trip);
  await expect.poll(async () => (await fetch(`${stack.url}/api/drivers/by-key`)).status).toBe(200);
  await stack.refresh();
  await open(page, stack);
  await page.keyboard.press('/');
  await expect(page.getByRole('combobox', { name: 'Find a driver' })).toBeFocused();
  await page.keyboard.type('by-k');
  await expect(page.getByRole('option', { name: 'by-key' })).toHaveAttribute('aria-selected', 'true');
  await page.keyboard.press('Enter');
  const panel = page.getByRole('complementary', { name: 'Driver' });
  await expect(panel.getByRole('heading', { name: 'by-key' })).toBeFocused();
  await expect(panel).toContainText('heading north');
  await expect(panel).toContainText('43 km/h');
  await expect(panel).toContainText('within 8 m');
  await expect(panel).toContainText(/ago, at \d\d:\d\d:\d\d/);

  await page.keyboard.press('t');
  const slider = page.getByRole('slider', { name: 'Moment of the track' });
  await expect(slider).toBeVisible();
  await expect(panel).toContainText(/\d km in \d+ min/);
  // The slider starts at the end; Space plays the track from its beginning.
  await page.keyboard.press('Space');
  await expect(page.getByRole('button', { name: 'Pause' })).toBeVisible();
  const value = async () => Number(await slider.inputValue());
  const begin = await value();
  await expect.poll(value).toBeGreaterThan(begin);
  await page.keyboard.press('Space');
  await expect(page.getByRole('button', { name: 'Play', exact: true })).toBeVisible();
  await slider.focus();
  const paused = await value();
  await page.keyboard.press('ArrowRight');
  await expect.poll(value).toBeGreaterThan(paused);
  await expect(slider).toHaveAttribute('aria-valuetext', /\d\d:\d\d:\d\d, /);

  // A link shows the same, in the units and the zone of the viewer who opens it.
  const link = await page.evaluate(() => location.hash);
  expect(link).toContain('day=hour');
  await page.goto('about:blank');
  await open(page, stack, link);
  await expect(slider).toBeVisible();
  // The legend explains the colours of the track.
  await expect(page.locator('#ramp-labels')).toBeHidden();
  await expect(page.getByRole('list', { name: 'Speed on the track' })).toHaveAttribute('data-unit', 'km/h');
  await slider.press('ArrowLeft');
  const shownMoment = await value();
  await page.keyboard.press('?');
  await page.getByRole('button', { name: 'mph' }).click();

  await page.getByLabel('Times in').selectOption('Asia/Tokyo');
  await page.keyboard.press('Escape');
  await expect(panel).toContainText('27 mph');
  await expect(panel).toContainText('GMT+9');
  await page.getByRole('button', { name: 'Speed', exact: true }).click();
  await expect(page.locator('#ramp-labels')).toHaveAttribute('data-unit', 'mph');
  await expect(page.getByRole('list', { name: 'Speed on the track' })).toBeHidden();
  // The track stays at its moment.
  expect(await value()).toBe(shownMoment);

  await page.keyboard.press('Escape');
  await expect(slider).toBeHidden();
  await page.keyboard.press('Escape');
  await expect(panel).toBeHidden();
  await page.keyboard.press('?');
  await expect(page.getByRole('dialog', { name: 'The live map' })).toBeVisible();
  await page.keyboard.press('Escape');
  await expect(page.getByRole('dialog')).toBeHidden();
});

test('Enter right after more typing opens the driver that was typed', async ({ page, stack }) => {
  for (const name of ['typed', 'typed-on']) {
    await publish(stack.mqttPort, `drivers/${name}/gps`, { lat: 47.5, lng: 15.7, speed: 0, ts: Date.now() });
    await expect.poll(async () => (await fetch(`${stack.url}/api/drivers/${name}`)).status).toBe(200);
  }
  await open(page, stack);
  await page.keyboard.press('/');
  await page.keyboard.type('typed');
  await expect(page.getByRole('option', { name: 'typed', exact: true })).toHaveAttribute('aria-selected', 'true');
  await page.getByRole('combobox').evaluate((input: HTMLInputElement) => {
    input.value = 'typed-on';
    input.dispatchEvent(new Event('input'));
    input.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter' }));
  });
  await expect(page.locator('#driver-name')).toHaveText('typed-on');
});

test('an erased driver disappears from the panel', async ({ page, stack, faults }) => {
  // Allow errors: the browser itself logs the 404.
  faults.mayFail = true;
  await page.addInitScript(() => Object.defineProperty(navigator, 'clipboard', { value: undefined }));
  await publish(stack.mqttPort, 'drivers/erased/gps', { lat: 47.5, lng: 15.8, speed: 0, ignition: 'on', batt: 80, ts: Date.now() });
  await expect.poll(async () => (await fetch(`${stack.url}/api/drivers/erased`)).status).toBe(200);
  await open(page, stack, '#driver=erased&day=hour');
  const panel = page.getByRole('complementary', { name: 'Driver' });
  await expect(panel).toContainText('ignition');
  await expect(page.getByTitle('Charge of the phone')).toHaveText(/battery\s*80 per cent/);
  await expect(panel).not.toContainText(/batt\b/);
  await expect(page.locator('#player')).toBeVisible();
  // The label shows the failure for some seconds only, which a busy machine may miss.
  await expect(async () => {
    await panel.getByRole('button', { name: /Copy link|Not allowed/ }).click();
    await expect(panel.getByRole('button', { name: 'Not allowed' })).toBeVisible({ timeout: 1000 });
  }).toPass();
  // A page stays open past midnight.
  await page.locator('#day').evaluate((field: HTMLInputElement) => (field.max = '2020-01-01'));
  await expect.poll(() => page.locator('#day').getAttribute('max')).toBe(new Date().toISOString().slice(0, 10));
  await page.route('**/api/drivers/erased', (route) => route.fulfill({ status: 404, json: { error: 'nobody' } }));
  await expect(panel).toContainText('There is no driver of this name.');
  await expect(panel).not.toContainText(/ignition|battery|47\.5/);
  await expect(page.locator('#player')).toBeHidden();
});

test('a track of a day has its stop, its gap, its SQL and a link', async ({ page, stack }) => {
  const noon = Math.floor((Date.now() - DAY_MS) / DAY_MS) * DAY_MS + 12 * HOUR_MS;
  const drive = (from: number, minutes: number, lat: number, step: number) =>
    Array.from({ length: minutes * 6 }, (_, i) => ({ lat: lat + i * step, lng: 16.5, speed: step ? 11 : 0, ts: from + i * 10_000 }));
  const minute = 60_000;
  // 20 minutes of driving, 15 of standing, 10 of driving, no fixes for three hours, then 10 minutes
  // elsewhere: the route between is unknown.
  for (const part of [
    drive(noon, 20, 48, 0.001),
    drive(noon + 20 * minute, 15, 48.12, 0),
    drive(noon + 35 * minute, 10, 48.12, 0.001),
    drive(noon + 225 * minute, 10, 48.4, -0.001),
  ]) await publish(stack.mqttPort, 'drivers/by-day/gps', part);
  const day = new Date(noon).toISOString().slice(0, 10);
  await expect.poll(async () => (await fetch(`${stack.url}/api/drivers/by-day`)).status).toBe(200);
  const points = async () => ((await (await fetch(`${stack.url}/api/drivers/by-day/track?from=${noon}&to=${noon + 5 * HOUR_MS}`)).json()) as { episodes: unknown[] }).episodes.length;
  await expect.poll(async () => (await stack.refresh(), points())).toBeGreaterThanOrEqual(5);

  await open(page, stack, `#driver=by-day&day=${day}`);
  const episodes = page.getByRole('list', { name: 'Stops and gaps' });
  await expect(episodes.getByRole('button', { name: /^Stop · 1[45] min/ })).toBeVisible();
  const gap = episodes.getByRole('button', { name: /^No fixes · (3 h|2 h 5\d min)/ });
  await gap.click();
  await expect(gap).toHaveAttribute('aria-current', 'true');
  await expect(page.locator('#moment')).toContainText('no fixes');
  await expect(page.locator('#curve rect.stop')).not.toHaveCount(0);
  await expect(page.locator('#curve rect.gap')).not.toHaveCount(0);

  await page.getByText('The SQL that gives this track').click();
  await page.locator('#sql-box').getByRole('button', { name: 'Copy' }).click();
  const sql = await page.evaluate(() => navigator.clipboard.readText());
  expect(sql).toContain('by-day');
  expect(sql).toMatch(/SELECT/);

  const link = await page.evaluate(() => location.hash);
  expect(link).toContain('driver=by-day');
  expect(link).toContain(`day=${day}`);
  expect(link).toMatch(/at=/);
  await page.goto('about:blank');
  await open(page, stack, link);
  await expect(gap).toBeVisible();
  expect(await page.evaluate(() => location.hash.split('&').slice(1).join())).toBe(link.split('&').slice(1).join());
});

test('a click opens a driver only on its dot', async ({ page, stack }) => {
  await publish(stack.mqttPort, 'drivers/clicked/gps', { lat: 47.5, lng: 15.5, speed: 0, ts: Date.now() });
  await open(page, stack, at(15, { lat: 47.5, lng: 15.5 }));
  await expect.poll(() => placeOf(page, 'clicked')).not.toBeNull();
  const place = (await placeOf(page, 'clicked'))!;
  await page.mouse.click(place.x + 150, place.y + 150);
  await expect(page.locator('#panel')).toBeHidden();
  await page.mouse.move(place.x, place.y);
  await expect(page.locator('#tip')).toContainText('clicked, 0 km/h');
  await page.mouse.click(place.x, place.y);
  await expect(page.getByRole('heading', { name: 'clicked' })).toBeVisible();
  await expect(page.locator('#panel')).toContainText(/Standing (since|for at least) /);
});

test('a list has the matching drivers, which the map rings', async ({ page, stack }) => {
  const moved = (lng: number, ignition: string) => publish(stack.mqttPort, 'drivers/listed-1/gps', { lat: 47.5, lng, speed: 0, ts: Date.now(), ignition });
  await moved(15.1, 'off');
  await publish(stack.mqttPort, 'drivers/listed-2/gps', { lat: 47.5, lng: 15.11, speed: 30, ts: Date.now() });
  await open(page, stack, at(13, { lat: 47.5, lng: 15.1 }));
  await page.keyboard.press('l');
  const box = page.getByRole('region', { name: 'List of drivers' });
  const entries = box.getByRole('list', { name: 'Drivers' }).getByRole('button');
  const ringed = () => page.evaluate(() => window.milepost!.scene['marked'].length);
  // Without a filter the list has all drivers, and the map rings none.
  await expect.poll(() => entries.count()).toBeGreaterThan(2);
  expect(await ringed()).toBe(0);
  await page.keyboard.type('listed-');
  await expect(entries).toHaveText([/^listed-1/, /^listed-2.*108 km\/h/]);
  expect(await ringed()).toBe(2);
  await box.getByLabel('Faster than').fill('100');
  await expect(entries).toHaveText([/^listed-2/]);
  await box.getByLabel('Faster than').fill('');
  await box.getByLabel('Stopped').check();
  await expect(entries).toHaveText([/^listed-1/]);
  await box.getByLabel('Stopped').uncheck();
  await box.getByLabel('Attribute').fill('ignition=off');
  await expect(entries).toHaveText([/^listed-1/]);
  await entries.first().click();
  const panel = page.getByRole('complementary', { name: 'Driver' });
  await expect(panel.getByRole('heading', { name: 'listed-1' })).toBeVisible();
  await page.keyboard.press('f');
  await expect(panel.getByRole('button', { name: 'Follow' })).toHaveAttribute('aria-pressed', 'true');
  await expect(panel).toContainText(/ignition\s*off/);
  await moved(15.3, 'on');
  await expect.poll(async () => page.evaluate(() => window.milepost!.map.getBounds().contains([15.3, 47.5]))).toBe(true);
  await expect(panel).toContainText(/ignition\s*on/);
  await page.keyboard.press('Escape');
  await expect(box).toBeHidden();
});

test('the fleet’s past is played, and then the present is shown again', async ({ page, stack }) => {
  const now = Date.now();
  const drive = (lng: number) => Array.from({ length: 60 }, (_, i) => ({ lat: 47.2 + i * 0.001, lng, speed: 11, ts: now - 3 * HOUR_MS + i * 60_000 }));
  await publish(stack.mqttPort, 'drivers/past-1/gps', drive(15.0));
  await publish(stack.mqttPort, 'drivers/past-2/gps', drive(15.02));
  await expect.poll(async () => (await fetch(`${stack.url}/api/drivers/past-2`)).status).toBe(200);
  await open(page, stack, at(12, { lat: 47.23, lng: 15.01 }));
  // The box of the fences is at the same place, so the replay closes it.
  const fences = page.getByRole('region', { name: 'Fences' });
  await page.keyboard.press('g');
  await expect(fences).toBeVisible();
  await page.keyboard.press('r');
  await expect(fences).toBeHidden();
  const box = page.getByRole('region', { name: 'Replay' });
  const begin = new Date(now - 3.5 * HOUR_MS).toISOString().slice(0, 16);
  await box.getByLabel('From, date').fill(begin.slice(0, 10));
  await box.getByLabel('From, time').fill(begin.slice(11));
  await box.getByRole('button', { name: 'Play', exact: true }).click();
  await expect(box).toContainText('2 drivers');
  const lat = () => page.evaluate(() => { const { fleet } = window.milepost!.scene; const slot = fleet.slot('past-1'); return slot === undefined ? 0 : fleet.lat[slot]; });
  await page.evaluate((ms) => window.milepost!.player.seek(ms), now - 2.5 * HOUR_MS);
  await expect.poll(lat).toBeCloseTo(47.23, 2);
  await page.keyboard.press('Escape');
  await expect(page.locator('#player')).toBeHidden();
  await expect.poll(lat).toBeGreaterThan(47.258);
  // Opened again, the replay has the span that was played.
  await page.keyboard.press('r');
  await expect(box.getByLabel('From, date')).toHaveValue(begin.slice(0, 10));
  await expect(box.getByLabel('From, time')).toHaveValue(begin.slice(11));
});

test('a replay and a track take turns in the player', async ({ page, stack }) => {
  const track = Array.from({ length: 20 }, (_, i) => ({ lat: 47.3 + i * 0.001, lng: 15.3, speed: 11, ts: Date.now() - (20 - i) * 60_000 }));
  await publish(stack.mqttPort, 'drivers/in-turn/gps', track);
  await expect.poll(async () => (await fetch(`${stack.url}/api/drivers/in-turn`)).status).toBe(200);
  await open(page, stack, '#at=12/47.3/15.3&driver=in-turn&day=hour');
  const player = page.locator('#player');
  const box = page.getByRole('region', { name: 'Replay' });
  const hasTrack = () => page.evaluate(() => window.milepost!.scene['track'] !== null);
  await expect(player).toBeVisible();
  // Opened and closed without being played, a replay leaves the track.
  await page.keyboard.press('r');
  await box.getByRole('button', { name: 'Close the replay' }).click();
  await expect(box).toBeHidden();
  await expect(player).toBeVisible();
  await page.keyboard.press('r');
  await page.getByRole('button', { name: 'Close the track' }).click();
  await expect(player).toBeHidden();
  expect(await hasTrack()).toBe(false);
  // While the replay plays, another driver can be opened; a track ends the replay.
  await box.getByRole('button', { name: 'Play', exact: true }).click();
  await expect(box).toContainText('drivers');
  await page.keyboard.press('/');
  await page.keyboard.type('sim-test-1');
  await page.keyboard.press('Enter');
  await expect(page.locator('#driver-name')).toContainText('sim-test-1');
  await expect(player).toBeVisible();
  await page.getByRole('button', { name: 'Track of the last hour' }).click();
  await expect.poll(hasTrack).toBe(true);
  await expect(box).toBeHidden();
  await expect(player).toBeVisible();
  expect(await page.evaluate(() => window.milepost!.scene['past'])).toBeNull();
});

test('a fence is drawn, edited and removed, with clicks and with keys', async ({ page, stack, faults }) => {
  // Allow errors: the browser itself logs the refusal.
  faults.mayFail = true;
  await publish(stack.mqttPort, 'drivers/fenced/gps', { lat: 47.0, lng: 15.4, speed: 3, ts: Date.now() });
  await open(page, stack, at(14, { lat: 47.0, lng: 15.4 }));
  await page.keyboard.press('g');
  const box = page.getByRole('region', { name: 'Fences' });
  await box.getByRole('button', { name: 'New' }).click();
  await page.keyboard.type('the yard');
  for (const [x, y] of [[560, 320], [720, 320], [720, 480], [560, 320]]) await page.mouse.click(x, y);
  // The last click was on a corner.
  await expect(page.locator('.corner')).toHaveCount(3);
  await box.getByRole('button', { name: 'Corner here' }).click();
  await box.getByRole('button', { name: 'Undo' }).press('Enter');
  await page.mouse.click(560, 480);
  await box.getByRole('button', { name: 'Save' }).press('Enter');
  await expect(box.getByRole('button', { name: 'the yard', exact: true })).toBeVisible();
  const inside = async () => ((await (await fetch(`${stack.url}/api/list?fence=the+yard`)).json()) as { drivers: { driver_id: string }[] }).drivers.map(({ driver_id }) => driver_id);
  await expect.poll(inside).toEqual(['fenced']);

  // The corners are kept; an outline of two corners is refused with an explanation.
  await box.getByRole('button', { name: 'Edit the yard' }).click();
  await expect(page.locator('.corner')).toHaveCount(4);
  for (let i = 0; i < 2; i++) await page.locator('.corner').first().press('Delete');
  await box.getByRole('button', { name: 'Save' }).click();
  await expect(box).toContainText('the outline needs at least three corners');
  await box.getByRole('button', { name: 'Cancel' }).click();
  // A new name begins a new version: the old one ends, and its visits stay.
  await box.getByRole('button', { name: 'Edit the yard' }).click();
  await box.getByLabel('Name').fill('the depot');
  await box.getByRole('button', { name: 'Save' }).click();
  await expect(box.getByRole('button', { name: 'the depot', exact: true })).toBeVisible();
  await expect(box.getByRole('button', { name: 'the yard', exact: true })).toHaveCount(0);
  expect(await stack.query("SELECT groupArray((name, valid_until < now64(3))) FROM (SELECT * FROM fleet.fences FINAL WHERE name LIKE 'the %' ORDER BY valid_from)")).toBe("[('the yard',1),('the depot',0)]");
  await box.getByRole('button', { name: 'Edit the depot' }).click();
  await box.getByRole('button', { name: 'Remove', exact: true }).click();
  await expect(box.getByRole('button', { name: 'the depot', exact: true })).toHaveCount(0);
  await expect.poll(inside).toEqual([]);
});

test('the rules of a fence are set on the map, and survive a rename', async ({ page, stack, faults }) => {
  // Allow errors: the browser itself logs the refusal.
  faults.mayFail = true;
  await publish(stack.mqttPort, 'drivers/ruled/gps', { lat: 46.9, lng: 15.2, speed: 3, ts: Date.now() });
  await expect.poll(async () => (await fetch(`${stack.url}/api/drivers/ruled`)).status).toBe(200);
  await stack.query("INSERT INTO fleet.fences (name, polygons) VALUES ('ruled-a', [[[(15.19, 46.89), (15.21, 46.89), (15.21, 46.91), (15.19, 46.91)]]])");
  await open(page, stack, at(13, { lat: 46.9, lng: 15.2 }));
  await page.keyboard.press('g');
  const box = page.getByRole('region', { name: 'Fences' });
  await box.getByRole('button', { name: 'Edit ruled-a' }).click();
  await box.getByText('Rules for alerts').click();
  await box.getByLabel('Speed limit').fill('50');
  await box.getByLabel('Longest stay').fill('30');
  await box.getByLabel('Silent after').fill('0');
  await box.getByLabel('Open', { exact: true }).fill('8 to 5');
  await box.getByLabel('Only for').fill('ruled');
  await box.getByLabel('Only for').press('Enter');
  await expect(box.getByRole('button', { name: 'Not only for ruled' })).toBeVisible();
  if (process.env.PICTURES) await page.screenshot({ path: `${process.env.PICTURES}/map-fence-rules.jpg`, type: 'jpeg', quality: 82 });
  await box.getByRole('button', { name: 'Save' }).click();
  await expect(box).toContainText('is not a list of opening hours such as');
  await box.getByLabel('Open', { exact: true }).fill('Mo-Fr 06:00-18:00');
  await box.getByLabel('Time zone of the hours').selectOption('Europe/Vienna');
  await box.getByRole('button', { name: 'Save' }).click();
  await expect(box.getByRole('list', { name: 'Fences that are valid now' })).toContainText('50 km/h, at most 30 min, never silent, Mo-Fr 06:00-18:00, 1 driver');
  const rules = 'name, speed_limit_kmh, stay_max_s, silent_for_s, hours, hours_zone, drivers';
  const stored = () => stack.query(`SELECT ${rules} FROM fleet.fences FINAL WHERE name LIKE 'ruled-%' AND valid_until > now64(3) FORMAT CSV`);
  expect(await stored()).toBe(`"ruled-a",50,1800,0,"Mo-Fr 06:00-18:00","Europe/Vienna","['ruled']"`);
  // A change of only the rules does not begin a new version.
  expect(await stack.query("SELECT count() FROM fleet.fences FINAL WHERE name LIKE 'ruled-%'")).toBe('1');
  await box.getByRole('button', { name: 'Edit ruled-a' }).click();
  await box.getByLabel('Name').fill('ruled-b');
  await box.getByLabel('Longest stay').fill('');
  await box.getByRole('button', { name: 'Save' }).click();
  await expect(box.getByRole('button', { name: 'Edit ruled-b' })).toBeVisible();
  expect(await stored()).toBe(`"ruled-b",50,\\N,0,"Mo-Fr 06:00-18:00","Europe/Vienna","['ruled']"`);
});

test('an edit stores what the viewer changed, and nothing else', async ({ page, stack }) => {
  const square = (lng: number) => `[[[(${lng}, 46.7), (${lng + 0.01}, 46.7), (${lng + 0.01}, 46.71), (${lng}, 46.71)]]]`;
  await stack.query(`INSERT INTO fleet.fences (name, polygons, silent_for_s, stay_max_s) VALUES ('shared-a ', ${square(15.3)}, 900, 600)`);
  await open(page, stack, at(13, { lat: 46.7, lng: 15.3 }));
  await page.keyboard.press('g');
  const box = page.getByRole('region', { name: 'Fences' });
  await box.getByRole('button', { name: 'Edit shared-a' }).click();
  await box.getByLabel('Longest stay').fill('30');
  // The unit changes while the field is open, and another viewer sets another outline and silence.
  await page.evaluate(() => document.querySelector<HTMLButtonElement>('[data-unit-choice="mph"]')!.click());
  await box.getByLabel('Speed limit').fill('50');
  await stack.query(`INSERT INTO fleet.fences (name, polygons, silent_for_s, stay_max_s) VALUES ('shared-a ', ${square(15.4)}, 60, 600)`);
  await box.getByRole('button', { name: 'Save' }).click();
  await expect(box.getByLabel('Name')).toBeHidden();
  await page.evaluate(() => document.querySelector<HTMLButtonElement>('[data-unit-choice="km/h"]')!.click());
  expect(await stack.query("SELECT name, speed_limit_kmh, stay_max_s, silent_for_s, polygons[1][1][1].1 FROM fleet.fences FINAL WHERE name LIKE 'shared-%' FORMAT CSV")).toBe('"shared-a ",50,1800,60,15.4');
});

test('open rings, rings across tiles and holes survive an edit', async ({ page, stack }) => {
  // 15.46875° is a border of tiles at zoom 8 and above.
  const rings = {
    open: '[[[(15.40, 46.80), (15.41, 46.80), (15.41, 46.81), (15.40, 46.81)]]]',
    border: '[[[(15.46, 46.80), (15.48, 46.80), (15.48, 46.81), (15.46, 46.81), (15.46, 46.80)]]]',
    hole: '[[[(15.43, 46.80), (15.445, 46.80), (15.445, 46.81), (15.43, 46.81)], [(15.434, 46.803), (15.441, 46.803), (15.441, 46.807), (15.434, 46.807)]]]',
  };
  for (const [name, polygons] of Object.entries(rings)) await stack.query(`INSERT INTO fleet.fences (name, polygons) VALUES ('ring-${name}', ${polygons})`);
  await open(page, stack, at(13.2, { lat: 46.805, lng: 15.44 }));
  await expect.poll(() => page.evaluate(() => window.milepost!.map.querySourceFeatures('fences').length)).toBeGreaterThan(0);
  await page.waitForFunction(() => window.milepost!.map.loaded());
  const filled = (lng: number, lat: number) =>
    page.evaluate((place) => {
      const { map } = window.milepost!;
      return [...new Set(map.queryRenderedFeatures(map.project(place as [number, number]), { layers: ['fences-area'] }).map(({ properties }) => properties.name as string))].join();
    }, [lng, lat]);
  for (const [lng, lat, name] of [[15.401, 46.809, 'ring-open'], [15.409, 46.801, 'ring-open'], [15.465, 46.805, 'ring-border'], [15.475, 46.805, 'ring-border'], [15.432, 46.805, 'ring-hole'], [15.4375, 46.805, ''], [15.452, 46.805, '']] as const) {
    await expect.poll(() => filled(lng, lat), `${lng}, ${lat}`).toBe(name);
  }
  // The pixels, not only MapLibre's features: the inside is tinted, the hole is not.
  const spot = async (lng: number, lat: number) => [...(await coloursAt(page, await page.evaluate((place) => window.milepost!.map.project(place as [number, number]), [lng, lat]), 2))].join(' ');
  expect(await spot(15.402, 46.808)).not.toBe(await spot(15.4375, 46.8036));
  expect(await spot(15.4375, 46.8036)).toBe(await spot(15.452, 46.8036));
  await page.keyboard.press('g');
  const box = page.getByRole('region', { name: 'Fences' });
  await box.getByRole('button', { name: 'Edit ring-open' }).click();
  await expect(page.locator('.corner')).toHaveCount(4);
  await box.getByRole('button', { name: 'Save' }).click();
  await expect(page.locator('.corner')).toHaveCount(0);
  await box.getByRole('button', { name: 'Edit ring-hole' }).click();
  await expect(box).toContainText('several rings');
  await box.getByRole('button', { name: 'Save' }).click();
  await expect(box.getByLabel('Name')).toBeHidden();
  expect(await stack.query("SELECT groupArray((length(polygons[1][1]), length(polygons[1]))) FROM (SELECT * FROM fleet.fences FINAL WHERE name LIKE 'ring-%' ORDER BY name)")).toBe('[(5,1),(4,2),(4,1)]');
});

test('axe finds nothing in any card, dark and light', async ({ page, stack }) => {
  await publish(stack.mqttPort, 'drivers/axe/gps', { lat: 47.5, lng: 15.6, speed: 0, ignition: 'on', ts: Date.now() });
  await expect.poll(async () => (await fetch(`${stack.url}/api/drivers/axe`)).status).toBe(200);
  for (const colorScheme of ['dark', 'light'] as const) {
    await page.emulateMedia({ colorScheme });
    await page.goto('about:blank');
    await open(page, stack, '#driver=axe&day=hour');
    await expect(page.getByRole('complementary', { name: 'Driver' })).toContainText('ignition');
    await expect(page.locator('#player')).toBeVisible();
    for (const key of ['', 'l', 'g', 'e', 'r', 'h', '?']) {
      if (key) await page.keyboard.press(key);
      expect(await violations(page), `${colorScheme}, after ${key || 'opening'}`).toEqual([]);
      // One card at a time.
      if (key) await page.locator('dialog[open] .close, #list:not([hidden]) .close, #fences-box:not([hidden]) .close, #alerts-box:not([hidden]) .close, #replay-box:not([hidden]) .close, #heat-box:not([hidden]) .close').first().click();
    }
  }
});

test('without WebGL the page lists the drivers', async ({ page, stack, faults }) => {
  faults.mayFail = true;
  await page.addInitScript(() => {
    HTMLCanvasElement.prototype.getContext = () => null;
  });
  await publish(stack.mqttPort, 'drivers/no-webgl/gps', { lat: 47.5, lng: 15.3, speed: 12, ts: Date.now() });
  await page.goto(stack.url);
  await expect(page.getByRole('alert')).toContainText('WebGL');
  const box = page.getByRole('region', { name: 'List of drivers' });
  await box.getByLabel('Name contains').fill('no-webgl');
  await expect(box.getByRole('list', { name: 'Drivers' })).toContainText(/no-webgl.*43 km\/h · 47\.5000, 15\.3000/);
});

test('with a graphics card the drivers are drawn, too', async ({ page, stack }) => {
  // Without the renderer's name the page assumes a graphics card.
  await page.addInitScript(() => {
    const prototype = WebGL2RenderingContext.prototype as { getExtension(name: string): unknown };
    const { getExtension } = prototype;
    prototype.getExtension = function (name) {
      return name === 'WEBGL_debug_renderer_info' ? null : getExtension.call(this, name);
    };
  });
  await publish(stack.mqttPort, 'drivers/by-card/gps', { lat: 47.5, lng: 15.3, speed: 12, heading: 90, ts: Date.now() });
  await open(page, stack, at(15, { lat: 47.5, lng: 15.3 }));
  await expect.poll(() => placeOf(page, 'by-card')).not.toBeNull();
  await expect(page.locator('canvas.dots')).toHaveCount(0);
  const place = (await placeOf(page, 'by-card'))!;
  await expect.poll(async () => (await coloursAt(page, place)).size).toBeGreaterThan(3);
});

test('cells count drivers from far away; zooming in resolves them', async ({ page, stack }) => {
  await open(page, stack, at(3, { lat: 30, lng: -30 }));
  await expect.poll(async () => (await shown(page)).counted).toBeGreaterThanOrEqual(400);
  const far = await shown(page);
  expect(far.discs).toBeLessThan(100);
  // The whole disc reacts to clicks, on a large screen too; while a track is shown no disc does.
  await page.setViewportSize({ width: 3840, height: 2160 });
  const count = await page.evaluate(() => Math.max(...window.milepost!.scene.discs.map((disc) => disc.count)));
  const isHit = () => page.evaluate((edge) => {
    const { scene, map } = window.milepost!;
    const [disc] = scene.discs.toSorted((a, b) => b.count - a.count);
    const { x, y } = map.project(disc);
    return scene.discAt(x + edge * (parseFloat(getComputedStyle(document.documentElement).fontSize) / 16) - 1, y) !== undefined;
  }, radius(count));
  expect(await isHit()).toBe(true);
  await page.evaluate(() => window.milepost!.scene.showTrack({ track: { driver_id: '', from: 0, to: 1, sql: '', truncated: false, points: { ts: [], lat: [], lng: [], speed: [] }, episodes: [] }, ms: 0 }));
  expect(await isHit()).toBe(false);
  await page.evaluate(() => window.milepost!.scene.showTrack(null));
  await page.setViewportSize({ width: 1280, height: 800 });
  // Zooming in on the largest disc again and again ends at dots.
  await expect(async () => {
    await page.evaluate(() => {
      const { scene, map } = window.milepost!;
      const [most] = scene.discs.toSorted((a, b) => b.count - a.count);
      if (most) map.jumpTo({ center: [most.lng, most.lat], zoom: map.getZoom() + 2 });
    });
    const near = await shown(page);
    expect(near.discs).toBe(0);
    expect(near.dots).toBeGreaterThan(0);
  }).toPass({ intervals: [1500] });
});

test('the heatmap counts the fixes of a span in the area in view', async ({ page, stack }) => {
  await open(page, stack, at(13, { lat: 46.5, lng: 14.5 }));
  const fixes = Array.from({ length: 120 }, (_, i) => ({ lat: 46.5 + Math.floor(i / 12) * 0.001, lng: 14.5 + (i % 12) * 0.001, ts: Date.now() - i * 10_000 }));
  await publish(stack.mqttPort, 'drivers/warm/gps', fixes);
  await expect.poll(() => placeOf(page, 'warm')).not.toBeNull();
  const middle = { x: 660, y: 380 };
  await page.keyboard.press('h');
  const box = page.getByRole('region', { name: 'Heatmap' });
  await expect(box).toContainText('120 fixes in view');
  await expect(page.locator('#heat-labels li').first()).toHaveText('1');
  await expect.poll(async () => (await coloursAt(page, middle, 40)).size).toBeGreaterThan(20);
  await box.getByRole('button', { name: '24 hours' }).click();
  await expect(box.getByRole('button', { name: '24 hours' })).toHaveAttribute('aria-pressed', 'true');
  await box.getByLabel('To, date').fill('2020-01-01');
  await expect(box).toContainText('must begin before it ends');
  await box.getByRole('button', { name: '24 hours' }).click();
  await expect(box).toContainText('120 fixes in view');
  // The map moves, and the heatmap is closed before it would count again.
  await page.route('**/api/cells?*', () => {});
  await page.evaluate(() => {
    const { map, heat } = window.milepost!;
    map.fire('moveend');
    heat.toggle();
  });
  await expect(page.locator('#heat-box')).toBeHidden();
  expect(await page.evaluate(() => new Promise((resolve) => setTimeout(() => resolve(document.getElementById('heat-said')!.textContent), 500)))).not.toContain('Counting');
});

test('colours, theme and place are kept', async ({ page, stack }) => {
  await open(page, stack, at(12));
  await page.getByRole('button', { name: 'Age' }).click();
  await expect(page.locator('#ramp-labels')).toContainText('5 min');
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor + getComputedStyle(document.documentElement).backgroundColor);
  const dark = await background();
  await page.keyboard.press('d');
  await expect.poll(background).not.toBe(dark);
  await page.reload();
  await page.waitForFunction(() => window.milepost !== undefined);
  expect(await background()).not.toBe(dark);
  expect(await page.evaluate(() => window.milepost!.map.getCenter().lat)).toBeCloseTo(HERE.lat, 3);
});

for (const [name, viewport] of Object.entries({ 'a small phone': { width: 360, height: 740 }, 'a laptop': { width: 1280, height: 800 }, '4K': { width: 3840, height: 2160 } })) {
  test(`on ${name} no card is cut off, covered or jumps, and controls have names`, async ({ page, stack }) => {
    await page.setViewportSize(viewport);
    await page.addInitScript(() => {
      Object.assign(window, { jumps: 0 });
      new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) (window as unknown as { jumps: number }).jumps += (entry as unknown as { value: number }).value;
      }).observe({ type: 'layout-shift', buffered: true });
    });
    await publish(stack.mqttPort, 'drivers/laid-out/gps', { lat: 47.5, lng: 15.6, speed: 0, ts: Date.now() });
    await expect.poll(async () => (await page.request.get(`${stack.url}/api/drivers/laid-out`)).status()).toBe(200);
    await open(page, stack, '#driver=laid-out');
    await expect(page.locator('#panel')).toContainText(/Standing (since|for at least) /);
    await page.keyboard.press('t');
    await expect(page.locator('#player')).toBeVisible();
    // In one call: each call waits for a frame, and the player keeps drawing frames.
    const boxes = await page.locator('.card:visible').evaluateAll((cards) =>
      cards.map((card) => {
        const { x, y, width, height } = card.getBoundingClientRect();
        return { id: card.id || card.className, x, y, width, height };
      }),
    );
    expect(boxes.length).toBeGreaterThan(2);
    for (const box of boxes) {
      expect(box.x, box.id).toBeGreaterThanOrEqual(-1);
      expect(box.y, box.id).toBeGreaterThanOrEqual(-1);
      expect(box.x + box.width, box.id).toBeLessThanOrEqual(viewport.width + 1);
      expect(box.y + box.height, box.id).toBeLessThanOrEqual(viewport.height + 1);
      for (const other of boxes) {
        if (other === box) continue;
        const apart = box.x + box.width <= other.x + 1 || other.x + other.width <= box.x + 1 || box.y + box.height <= other.y + 1 || other.y + other.height <= box.y + 1;
        expect(apart, `${box.id} beside ${other.id}`).toBe(true);
      }
    }
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(viewport.width);
    // Web Vitals call a layout shift below 0.1 good.
    expect(await page.evaluate(() => (window as unknown as { jumps: number }).jumps)).toBeLessThan(0.1);
    const nameless = await page.locator('button:visible, input:visible, [role=region], aside:visible, section:visible').evaluateAll((elements) =>
      elements.filter((element) => !(element.getAttribute('aria-label') || element.textContent?.trim() || (element as HTMLInputElement).labels?.length)).map(({ outerHTML }) => outerHTML.slice(0, 120)),
    );
    expect(nameless).toEqual([]);
    const unnamed = await page.locator('canvas, [tabindex="0"]').evaluateAll((elements) => elements.filter((element) => (element as HTMLElement).tabIndex >= 0 && !element.getAttribute('aria-label') && !element.textContent?.trim()).map(({ outerHTML }) => outerHTML.slice(0, 120)));
    expect(unnamed, 'tab stops without a name').toEqual([]);
    if (viewport.width > 2000) expect(await page.evaluate(() => parseFloat(getComputedStyle(document.documentElement).fontSize))).toBeGreaterThan(20);
  });
}

test('the page reports that the engine is down, and recovers by itself', async ({ page, stack, faults }) => {
  await open(page, stack, at(15));
  await expect(page.locator('#banner')).toBeEmpty();
  const square = { type: 'Polygon', coordinates: [[[15, 46], [15.1, 46], [15.1, 46.1], [15, 46]]] };
  const stored = await page.request.post(`${stack.url}/api/fences`, { headers: { 'Content-Type': 'application/geo+json' }, data: JSON.stringify({ type: 'Feature', properties: { name: 'kept' }, geometry: square }) });
  expect(stored.status()).toBe(200);
  faults.mayFail = true;
  await stack.killEngine();
  await expect(page.getByRole('alert')).toContainText('ClickHouse has not answered since');
  await expect(page.locator('#pulse')).toHaveAttribute('data-state', 'away');
  // These numbers are unknown now.
  await expect(page.locator('#rate')).toHaveText('–');
  await expect(page.locator('#seen')).toHaveText('–');
  // A page that is opened meanwhile gets the fences afterwards.
  await page.reload();
  await expect(page.locator('#fences-said')).toContainText('ClickHouse does not answer');
  await stack.startEngine();
  await expect(pagesOwn(page, 'Live again.').or(page.locator('#banner:empty'))).toHaveCount(1, { timeout: 60_000 });
  await expect(page.locator('#pulse')).toHaveAttribute('data-state', 'ok');
  await publish(stack.mqttPort, 'drivers/after/gps', { ...HERE, speed: 5, ts: Date.now() });
  await expect.poll(() => placeOf(page, 'after'), { timeout: 60_000 }).not.toBeNull();
  await expect(page.locator('#fences-list')).toContainText('kept');
});

// A replay shows what was: its counts, its time, and a slider that goes on playing.
import type { Page } from '@playwright/test';
import { publish } from './mqtt';
import type { Stack } from './stack';
import { expect, open, shown, test, violations } from './world';

const HOUR_MS = 3_600_000;
const HERE = { lat: -46.2, lng: 15.2 };

// A locale in which the browser's own fields have 12 hours.
test.use({ locale: 'en-US' });

/**
 * Publishes an hour three hours ago: one driver drives, and one stands. Each test has a place of
 * its own. Opens the map there.
 */
async function openPast(page: Page, stack: Stack, now: number, place: number): Promise<void> {
  const lng = HERE.lng + place;
  const fixes = (move: number, speed: number) => Array.from({ length: 120 }, (_, i) => ({ lat: HERE.lat + i * move, lng: lng + speed / 1000, speed, ts: now - 3 * HOUR_MS + i * 30_000 }));
  await publish(stack.mqttPort, `drivers/was-driving-${place}/gps`, fixes(0.0003, 1.2));
  await publish(stack.mqttPort, `drivers/was-standing-${place}/gps`, fixes(0, 0));
  for (const name of ['driving', 'standing']) await expect.poll(async () => stack.query(`SELECT count() FROM fleet.fixes WHERE driver_id = 'was-${name}-${place}'`)).toBe('120');
  await open(page, stack, `#at=13/${HERE.lat + 0.01}/${lng}`);
}

/** Plays from 3.2 to 1.8 hours ago, and pauses. */
async function play(page: Page, now: number): Promise<void> {
  await page.keyboard.press('r');
  const box = page.getByRole('region', { name: 'Replay', exact: true });
  for (const [label, ms] of [['From', now - 3.2 * HOUR_MS], ['To', now - 1.8 * HOUR_MS]] as const) {
    const text = new Date(ms).toISOString();
    await box.getByLabel(`${label}, date`).fill(text.slice(0, 10));
    await box.getByLabel(`${label}, time`).fill(text.slice(11, 16));
  }
  await box.getByRole('button', { name: 'Play', exact: true }).click();
  await expect(box).toContainText('2 drivers');
  await page.keyboard.press('Space');
  await expect(page.locator('#player').getByRole('button', { name: 'Play', exact: true })).toBeVisible();
}

const seek = (page: Page, ms: number) => page.evaluate((to) => window.milepost!.player.seek(to), ms);
const count = (page: Page, state: string) => page.locator('#states').getByRole('button', { name: state }).locator('.count');

test('legend and numbers show the replayed moment, and then the present', async ({ page, stack }) => {
  const now = Date.now();
  await openPast(page, stack, now, 0);
  await expect(count(page, 'Moving')).toHaveText(/\d\d/);
  await play(page, now);
  await seek(page, now - 2.5 * HOUR_MS);
  const numbers = page.locator('#numbers');
  await expect(page.getByRole('list', { name: 'Drivers by state in the replay' })).toBeVisible();
  for (const [state, drivers] of [['Moving', '1'], ['Standing', '1'], ['Silent', '0']] as const) await expect(count(page, state)).toHaveText(drivers);
  await expect(numbers).toHaveText(/Replay of\s*\d+ \w+ \d{4}\s*Drivers on the map\s*2 of 2\s*Time\s*\d\d:\d\d:\d\d/);
  await expect(page.locator('#legend-moment')).toHaveText(/^Replay: (\d+ \w+, )?\d\d:\d\d$/);
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    expect(await violations(page), colorScheme).toEqual([]);
  }
  // Ticks of the present do not overwrite them.
  await page.waitForTimeout(2500);
  await expect(count(page, 'Moving')).toHaveText('1');
  await expect(numbers).toContainText('2 of 2');
  // A state that is hidden is hidden in the replay, too.
  await page.locator('#states').getByRole('button', { name: 'Standing' }).click();
  await expect(numbers).toContainText('1 of 2');
  await expect(page.locator('#moment')).toContainText('1 driver');
  expect((await shown(page)).dots).toBe(1);
  await page.locator('#states').getByRole('button', { name: 'Standing' }).click();
  await expect.poll(async () => (await shown(page)).dots).toBe(2);
  // Before the first fix there is nobody.
  await seek(page, now - 3.15 * HOUR_MS);
  await expect(numbers).toContainText('0 of 2');
  await page.keyboard.press('Escape');
  await expect(numbers).toContainText('Drivers, last minute');
  await expect(page.locator('#legend-moment')).toBeEmpty();
  await expect(count(page, 'Moving')).toHaveText(/\d\d/);
});

test('seeking goes on playing, and holds while the slider is held', async ({ page, stack }) => {
  const now = Date.now();
  await openPast(page, stack, now, 1);
  await play(page, now);
  const slider = page.getByRole('slider');
  const value = async () => Number(await slider.inputValue());
  const pause = page.getByRole('button', { name: 'Pause' });
  const band = (await slider.boundingBox())!;
  const middle = () => page.mouse.move(band.x + band.width / 2, band.y + band.height / 2);
  // Paused, it stays paused.
  await middle();
  await page.mouse.down();
  await page.mouse.up();
  await expect(pause).toBeHidden();
  await page.keyboard.press('Space');
  await page.locator('#pace').click();
  await expect(pause).toBeVisible();
  await page.mouse.move(band.x + band.width / 4, band.y + band.height / 2);
  await page.mouse.down();
  const held = await value();
  await page.waitForTimeout(700);
  expect(await value()).toBe(held);
  await page.mouse.up();
  await expect.poll(value).toBeGreaterThan(held);
  await expect(pause).toBeVisible();
  await slider.press('ArrowLeft');
  await expect(pause).toBeVisible();
  const before = await value();
  await expect.poll(value).toBeGreaterThan(before);
});

test('the span has a date and 24 hours, and the slider has hours', async ({ page, stack }) => {
  const now = Date.now();
  await openPast(page, stack, now, 2);
  await page.keyboard.press('r');
  const box = page.getByRole('region', { name: 'Replay', exact: true });
  const time = box.getByLabel('From, time');
  await expect(time).toHaveValue(/^\d\d:\d\d$/);
  await expect(box.getByLabel('From, date')).toHaveValue(/^\d{4}-\d\d-\d\d$/);
  await time.fill('2:05 pm');
  await time.press('Tab');
  await expect(time).toHaveValue('14:05');
  await time.fill('25:00');
  await box.getByRole('button', { name: 'Play', exact: true }).click();
  expect(await time.evaluate((field: HTMLInputElement) => field.validationMessage)).toContain('24 hours');
  await expect(page.locator('#player')).toBeHidden();
  await page.keyboard.press('Escape');
  await play(page, now);
  const marks = page.locator('#marks span');
  await expect.poll(() => marks.count()).toBeGreaterThan(3);
  expect((await marks.allTextContents()).filter((text) => text && !/^(\d\d:\d0|\d+ [A-Z]\w\w)$/.test(text))).toEqual([]);
  // Each mark is where its time is on the slider.
  const [first] = await marks.evaluateAll((spans) => spans.map((span) => ({ text: span.textContent ?? '', share: parseFloat((span as HTMLElement).style.left) / 100 })));
  const { min, max } = await page.getByRole('slider').evaluate((slider: HTMLInputElement) => ({ min: Number(slider.min), max: Number(slider.max) }));
  const at = new Date(min + first.share * (max - min) + 500).toISOString();
  expect(/:/.test(first.text) ? at.slice(11, 16) : at.slice(11, 16) === '00:00').toBe(/:/.test(first.text) ? first.text : true);
  await page.setViewportSize({ width: 390, height: 844 });
  await expect.poll(() => marks.count()).toBeLessThan(4);
  // On a phone the form makes room for the map, and comes back.
  await expect(time).toBeHidden();
  await box.getByRole('button', { name: 'Change span' }).click();
  await expect(time).toBeVisible();
  await expect(box.getByLabel('From, date')).toBeFocused();
});

test('a replay begins with the drivers who were there before its span', async ({ page, stack }) => {
  const now = Date.now();
  const id = 'was-parked-4';
  await publish(stack.mqttPort, `drivers/${id}/gps`, { lat: HERE.lat, lng: HERE.lng + 4, speed: 0, ts: now - 3.7 * HOUR_MS });
  await publish(stack.mqttPort, 'drivers/was-driving-4/gps', { lat: HERE.lat + 0.01, lng: HERE.lng + 4, speed: 12, ts: now - 2 * HOUR_MS });
  for (const name of [id, 'was-driving-4']) await expect.poll(async () => stack.query(`SELECT count() FROM fleet.fixes WHERE driver_id = '${name}'`)).toBe('1');
  await open(page, stack, `#at=13/${HERE.lat}/${HERE.lng + 4}`);
  // Typed digit by digit, a year is at first one of the first centuries.
  await page.keyboard.press('r');
  const date = page.getByRole('region', { name: 'Replay', exact: true }).getByLabel('From, date');
  const today = new Date(now).toISOString();
  await date.pressSequentially(`${today.slice(5, 7)}${today.slice(8, 10)}${today.slice(0, 4)}`);
  await expect(date).toHaveValue(today.slice(0, 10));
  await page.keyboard.press('Escape');
  await play(page, now);
  await seek(page, now - 3.2 * HOUR_MS);
  await expect(page.locator('#numbers')).toContainText('1 of 2');
  await expect(count(page, 'Silent')).toHaveText('1');
  expect(await page.evaluate(() => window.milepost!.scene.fleet.ids)).toEqual([id]);
});

test('the panel states that it shows the present while the map shows the past', async ({ page, stack }) => {
  const now = Date.now();
  await openPast(page, stack, now, 9);
  await publish(stack.mqttPort, 'drivers/was-standing-9/gps', { lat: HERE.lat, lng: HERE.lng + 9, speed: 0, ts: Date.now() });
  await page.evaluate(() => void window.milepost!.find('was-standing-9'));
  const moves = page.locator('#driver-moves');
  await expect(moves).toHaveText(/^Standing /);
  await play(page, now);
  await expect(moves).toHaveText(/^Now, not in the replay: standing /);
  await page.keyboard.press('Escape');
  await expect(moves).toHaveText(/^Standing /);
});

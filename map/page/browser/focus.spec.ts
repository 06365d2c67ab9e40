// The keyboard's focus stays where the viewer left it.
import { publish } from './mqtt';
import { expect, open, test } from './world';

test('Seen keeps the focus, and gives it to the next Seen when pressed', async ({ page, stack }) => {
  for (const id of ['focus-1', 'focus-2']) await stack.query(`INSERT INTO fleet.events (driver_id, ts, seq, kind, fence, lat, lng, speed, known_at) VALUES ('${id}', now64(3), 0, 'silent', '', -25, 34, NULL, now64(3))`);
  await open(page, stack, '#at=13/-25/34');
  await page.keyboard.press('e');
  const box = page.getByRole('region', { name: 'Alerts' });
  const seen = box.getByRole('button', { name: 'Seen: focus-2 fell silent' });
  await seen.focus();
  for (let i = 0; i < 2; i++) await page.waitForResponse(/api\/alerts$/);
  await page.waitForTimeout(100);
  await expect(seen).toBeFocused();
  await page.keyboard.press('Enter');
  await expect(seen).toHaveCount(0);
  // The older alert is below it.
  await expect(box.getByRole('button', { name: 'Seen: focus-1 fell silent' })).toBeFocused();
  await stack.query("ALTER TABLE fleet.events DELETE WHERE driver_id LIKE 'focus-%' SETTINGS mutations_sync = 1");
});

test('after a day is chosen in the calendar, Space plays its track', async ({ page, stack }) => {
  await publish(stack.mqttPort, 'drivers/focus-day/gps', { lat: -25, lng: 34, speed: 0, ts: Date.now() });
  await expect.poll(async () => (await fetch(`${stack.url}/api/drivers/focus-day`)).status).toBe(200);
  await open(page, stack, '#at=13/-25/34&driver=focus-day');
  const button = page.getByRole('button', { name: 'Days with fixes' });
  await button.press('Enter');
  await page.locator('#calendar-days button:enabled').first().click();
  await expect(page.locator('#calendar')).toBeHidden();
  await expect(page.getByRole('heading', { name: 'focus-day' })).toBeFocused();
  await expect(page.locator('#player')).toBeVisible();
  await page.keyboard.press('Space');
  await expect(page.getByRole('button', { name: 'Pause' })).toBeVisible();
  await expect(page.locator('#calendar')).toBeHidden();
});

test('fences that are read again keep the focus in their list', async ({ page, stack }) => {
  await stack.query("INSERT INTO fleet.fences (name, polygons) VALUES ('focus yard', [[[(34.0, -25.0), (34.01, -25.0), (34.01, -25.01), (34.0, -25.01)]]])");
  await open(page, stack, '#at=13/-25/34');
  await page.keyboard.press('g');
  for (const name of ['focus yard', 'Edit focus yard']) {
    const button = page.getByRole('button', { name, exact: true });
    await button.focus();
    await page.evaluate(() => window.milepost!.fences.load());
    await expect(button).toBeFocused();
  }
});

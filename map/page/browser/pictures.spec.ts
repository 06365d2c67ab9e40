// Takes the pictures of the docs, with real servers: PICTURES=../../docs/figures npm run browser --
// pictures
import { join } from 'node:path';
import { publish } from './mqtt';
import { expect, open, shown, test } from './world';

const folder = process.env.PICTURES ?? '';
test.skip(!folder, 'PICTURES is not set');

const MINUTE_MS = 60_000;

/**
 * Returns the fixes of a drive of 57 minutes through the town, with turns and a stop of nine
 * minutes.
 */
function round(now: number) {
  const turns = [0, 90, 0, 270, 0, 90, 180, 90, 180, 270, 180, 90, 180, 270, 180, 270, 0, 270, 0];
  let [lat, lng, step] = [25.752, -80.226, 0];
  const fixes = [];
  for (let ts = now - 57 * MINUTE_MS; ts < now; ts += 10_000) {
    const minute = (ts - now) / MINUTE_MS + 57;
    const stands = minute > 21 && minute < 30;
    const heading = turns[Math.floor(step / 16) % turns.length];
    const speed = stands ? 0 : 6 + 8 * Math.abs(Math.sin(step / 5));
    if (!stands) step++;
    lat += (Math.cos((heading * Math.PI) / 180) * speed * 10) / 111_320;
    lng += (Math.sin((heading * Math.PI) / 180) * speed * 10) / 100_200;
    fixes.push({ lat, lng, speed, heading, acc: 6, ts });
  }
  return fixes;
}

test('pictures', async ({ page, stack }) => {
  await publish(stack.mqttPort, 'drivers/van-12/gps', round(Date.now()));
  await expect.poll(async () => (await fetch(`${stack.url}/api/drivers/van-12`)).ok).toBe(true);
  await stack.refresh();
  await open(page, stack, '#at=10.9/25.78/-80.2');
  await expect.poll(async () => { const { dots, counted } = await shown(page); return dots + counted; }).toBeGreaterThan(300);
  await page.waitForFunction(() => window.milepost!.map.loaded());
  await page.screenshot({ path: join(folder, 'map.jpg'), type: 'jpeg', quality: 82 });

  await page.getByRole('combobox').fill('van-12');
  await page.getByRole('option').first().click();
  await page.getByRole('button', { name: 'Track of the last hour' }).click();
  await expect(page.locator('#player')).toBeVisible();
  const slider = page.getByRole('slider');
  await slider.focus();
  for (let i = 0; i < 60; i++) await page.keyboard.press('ArrowLeft');
  await page.emulateMedia({ colorScheme: 'light' });
  await page.waitForFunction(() => window.milepost!.map.loaded() && !window.milepost!.map.isMoving());
  await page.screenshot({ path: join(folder, 'map-track.jpg'), type: 'jpeg', quality: 82 });
});

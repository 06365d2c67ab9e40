// No text is cut off, on a phone and on a laptop.
import { publish } from './mqtt';
import { expect, open, test } from './world';

const HOUR_MS = 3_600_000;
/** A zone with a long name. */
test.use({ timezoneId: 'Asia/Kolkata' });

for (const [width, height] of [[390, 844], [1280, 800]]) {
  test(`the panel and the numbers have room for their texts at ${width} px`, async ({ page, stack, faults }) => {
    faults.mayFail = true;
    await page.setViewportSize({ width, height });
    await publish(stack.mqttPort, 'drivers/long-texts/gps', { lat: -26, lng: 35, speed: 30, heading: 315, acc: 12_345, ts: Date.now() - 23 * HOUR_MS });
    await expect.poll(async () => (await fetch(`${stack.url}/api/drivers/long-texts`)).status).toBe(200);
    // Every stream that the page opens.
    await page.addInitScript(() => {
      const streams: EventSource[] = [];
      Object.assign(window, { streams });
      window.EventSource = class extends EventSource {
        constructor(url: string | URL) {
          super(url);
          streams.push(this);
        }
      };
    });
    await open(page, stack, '#at=13/-26/35&driver=long-texts');
    await expect(page.locator('#fix-when')).toContainText('GMT+5:30');
    /** Texts that reach beyond their box, optionally after the age of the newest fix is replaced. */
    const cut = (newest = '') =>
      page.evaluate((text) => {
        if (text) document.querySelector('#newest')!.textContent = text;
        return [...document.querySelectorAll<HTMLElement>('#panel dl, #panel dd, #panel dt, #numbers dd, #numbers dt, #legend button')].filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth).map(({ textContent }) => textContent);
      }, newest);
    await expect(page.locator('#seen')).not.toHaveText('–');
    expect(await cut()).toEqual([]);
    // The texts while there is no connection, and while there are no fixes.
    await page.route(/api\/(stream|config)/, (route) => route.abort());
    await page.evaluate(() => {
      Object.defineProperty(document, 'hidden', { value: true, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    });
    // A hidden page disconnects after half a minute.
    await expect.poll(() => page.evaluate(() => (window as unknown as { streams: EventSource[] }).streams.every(({ readyState }) => readyState === EventSource.CLOSED))).toBe(true);
    await page.evaluate(() => {
      Object.defineProperty(document, 'hidden', { value: false, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    });
    await expect(page.locator('#newest')).toHaveText('not connected');
    expect(await cut()).toEqual([]);
    expect(await cut('no fixes yet')).toEqual([]);
  });
}

test('a warning covers no card, so that each can be closed', async ({ page, stack }) => {
  await open(page, stack);
  const warning = page.locator('#banner');
  /** Shows a warning again, because the page empties it while all is well. */
  const warn = () =>
    warning.evaluate((banner) => {
      banner.textContent = 'ClickHouse has not answered since 03:14:23, for 12 minutes. You see the last known positions; the map recovers by itself.';
    });
  for (const width of [375, 700, 1024, 1280]) {
    await page.setViewportSize({ width, height: 812 });
    for (const key of ['e', 'g', 'r', 'h', 'l']) {
      await page.keyboard.press(key);
      const card = page.locator('#alerts-box, #fences-box, #replay-box, #heat-box, #list').filter({ visible: true });
      await expect(card, key).toHaveCount(1);
      const isFree = async () => {
        await warn();
        const [a, b] = [(await warning.boundingBox())!, (await card.boundingBox())!];
        return a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y;
      };
      await expect.poll(isFree, `${width} ${key}`).toBe(true);
      await card.getByRole('button', { name: /^Close/ }).click();
      await expect(card).toHaveCount(0);
    }
  }
});

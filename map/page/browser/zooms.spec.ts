// A region of drivers in all states with large and small fences, from far away to close up, on both
// basemaps: names hide no counts. PICTURES=folder keeps a picture of each zoom in both themes.
import { join } from 'node:path';
import { BUBENEC, pmtiles } from '../test/pmtiles';
import { publish } from './mqtt';
import { expect, jumpTo, shown, test } from './world';

const folder = process.env.PICTURES ?? '';
const { lat, lng } = BUBENEC;
const EAST_M = 111_320 * Math.cos((lat * Math.PI) / 180);
const ZOOMS = [4, 6, 9, 12, 15];

/** Returns a square outline as SQL, from its distance to the town and half its side, in metres. */
function square(north: number, east: number, half: number): string {
  const corner = (dn: number, de: number) => `(${lng + (east + de * half) / EAST_M}, ${lat + (north + dn * half) / 111_320})`;
  return `[[[${corner(-1, -1)}, ${corner(-1, 1)}, ${corner(1, 1)}, ${corner(1, -1)}]]]`;
}

test('names hide neither counts nor alerts at any zoom', async ({ page, stack }) => {
  const now = Date.now();
  for (let i = 0; i < 60; i++) {
    const far = 10 ** (2.2 + (i % 12) / 3.2);
    const towards = (i * 137.5 * Math.PI) / 180;
    const place = { lat: lat + (Math.cos(towards) * far) / 111_320, lng: lng + (Math.sin(towards) * far) / EAST_M };
    const motion = i % 5 === 3 ? {} : { speed: i % 5 === 0 ? 0 : 12, heading: (i * 40) % 360 };
    await publish(stack.mqttPort, `drivers/zoom-${i}/gps`, { ...place, ...motion, ts: now - (i % 5 === 4 ? 20 * 60_000 : 5_000) });
  }
  await stack.query(`INSERT INTO fleet.fences (name, polygons) VALUES
    ('Zoom depot', ${square(0, 0, 90)}), ('Zoom town', ${square(0, 0, 9_000)}), ('Zoom yard', ${square(60_000, 30_000, 400)}), ('Zoom region', ${square(0, 0, 90_000)})`);
  await stack.query(`INSERT INTO fleet.events (driver_id, ts, seq, kind, fence, lat, lng, speed, known_at) VALUES ('zoom-1', now64(3), 0, 'left', 'Zoom depot', ${lat + 0.001}, ${lng}, NULL, now64(3))`);
  const streets = await stack.startMap('zooms', { MILEPOST_MAP__MAP__BASEMAP: stack.writeFile('zooms.pmtiles', pmtiles()) });
  for (const [basemap, url] of Object.entries({ own: stack.url, streets })) {
    await page.goto(`${url}/#at=6/${lat}/${lng}`);
    await page.waitForFunction(() => window.milepost !== undefined);
    await expect.poll(async () => { const { dots, counted } = await shown(page); return dots + counted; }).toBeGreaterThan(50);
    await page.waitForFunction(() => window.milepost!.alerts.areas().length > 0);
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      for (const zoom of ZOOMS) {
        await jumpTo(page, [lng, lat], zoom);
        await page.waitForFunction(() => window.milepost!.map.loaded() && window.milepost!.labels.placed.length > 0);
        const hidden = () => page.evaluate(() => {
          const { scene, alerts, labels } = window.milepost!;
          const symbols = [...scene.discAreas(), ...alerts.areas()];
          return labels.placed.filter(({ left, middle, width }) => symbols.some((symbol) => left < symbol.right && left + width > symbol.left && middle - 7 < symbol.bottom && middle + 7 > symbol.top)).map(({ text }) => text);
        });
        await expect.poll(hidden, `${basemap} ${colorScheme} ${zoom}`).toEqual([]);
        if (folder) await page.screenshot({ path: join(folder, `zoom-${basemap}-${colorScheme}-${zoom}.png`) });
        else if (zoom > 6 && colorScheme === 'dark') break;
      }
    }
  }
  for (const name of ['depot', 'town', 'yard', 'region']) await stack.query(`ALTER TABLE fleet.fences DELETE WHERE name = 'Zoom ${name}' SETTINGS mutations_sync = 1`);
  await stack.query(`ALTER TABLE fleet.events DELETE WHERE driver_id = 'zoom-1' SETTINGS mutations_sync = 1`);
});

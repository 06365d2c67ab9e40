// Frames a second with many drivers in view, in software rendering. Prints; it judges nothing.
import { test } from '@playwright/test';
import type { Stage } from '../src/stage';
import { serve } from './server';

const SECONDS = 10;

for (const [drivers, moving] of [[5_000, 5_000], [50_000, 20_000]] as const) {
  test(`${drivers} drivers, ${moving} fixes a second`, async ({ page }) => {
    const { server, url } = await serve(drivers, moving);
    await page.goto(`${url}/#at=9.4/25.8/-80.2`);
    await page.waitForFunction((n) => (window as { milepost?: Stage }).milepost?.scene.fleet.n === n, drivers, { timeout: 120_000 });
    await page.waitForTimeout(5000);
    const rates = await page.evaluate(async (seconds) => {
      const { scene, map } = (window as { milepost?: Stage }).milepost!;
      async function count(during: () => void): Promise<number> {
        const drawn = scene.frames;
        const begin = performance.now();
        while (performance.now() - begin < seconds * 1000) {
          await new Promise(requestAnimationFrame);
          during();
        }
        return ((scene.frames - drawn) * 1000) / (performance.now() - begin);
      }
      const moving = await count(() => scene.invalidate());
      let turn = 0;
      const panning = await count(() => {
        turn += 0.05;
        map.jumpTo({ center: [-80.2 + 0.05 * Math.sin(turn), 25.8] });
        scene.invalidate();
      });
      return { moving, panning };
    }, SECONDS);
    console.log(`frames/s with ${drivers} drivers in view, ${moving} fixes a second, 1280×720, software WebGL: ${rates.moving.toFixed(1)}; while the map is dragged: ${rates.panning.toFixed(1)}`);
    server.closeAllConnections();
    server.close();
  });
}

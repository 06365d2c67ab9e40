// Frames a second with many drivers in view, in software rendering. Prints the rates and asserts
// nothing.
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
      const begin = performance.now();
      const drawn = scene.frames;
      while (performance.now() - begin < seconds * 1000) {
        await new Promise(requestAnimationFrame);
        scene.invalidate();
      }
      const moving = ((scene.frames - drawn) * 1000) / (performance.now() - begin);
      // Moves the map evenly, as if dragged by a fifth of the screen.
      let moves = 0;
      const moved = () => void moves++;
      map.on('render', moved);
      map.easeTo({ center: [-80.1, 25.8], duration: seconds * 1000, easing: (part) => part });
      await map.once('moveend');
      map.off('render', moved);
      const panning = moves / seconds;
      return { moving, panning };
    }, SECONDS);
    console.log(`frames/s with ${drivers} drivers in view, ${moving} fixes a second, 1280×720, software WebGL: ${rates.moving.toFixed(1)}; while the map is dragged: ${rates.panning.toFixed(1)}`);
    server.closeAllConnections();
    server.close();
  });
}

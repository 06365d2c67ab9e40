// Fixtures of all tests: the servers, a page whose errors fail the test, and functions that read
// what a canvas shows.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { expect, test as base, type Page } from '@playwright/test';
import type { Stage } from '../src/stage';
import { Stack } from './stack';

declare global {
  interface Window {
    /** Set by main.ts, for the console and for these tests. */
    milepost?: Stage;
  }
}

interface Faults {
  /**
   * Set by a test that makes requests fail, so that the errors that the browser logs about them are
   * expected.
   */
  mayFail: boolean;
}

/**
 * A folder such as `dist`, from which the page under test is served, so that a change needs no
 * build of milepost-map.
 */
const BUILT = process.env.MAP_PAGE ?? '';

export const test = base.extend<{ faults: Faults }, { stack: Stack }>({
  stack: [
    async ({}, use) => {
      const stack = await Stack.start({ drivers: 400, rate: 400, pointsMax: 320 });
      await use(stack);
      await stack.stop();
    },
    { scope: 'worker', timeout: 300_000 },
  ],
  faults: [
    async ({ page }, use) => {
      if (BUILT) await page.route((url) => url.hostname === '127.0.0.1' && !url.pathname.startsWith('/api/') && url.pathname !== '/basemap.pmtiles', async (route) => {
        const { pathname, search } = new URL(route.request().url());
        const path = join(BUILT, pathname.replace(/\/$/, '/index.html'));
        // The response to a link sets a cookie, so its headers come from the server.
        const headers = search ? (await route.fetch()).headers() : {};
        await route.fulfill({ path, ...(headers['set-cookie'] ? { headers: { 'set-cookie': headers['set-cookie'], 'content-type': 'text/html' } } : {}) });
      });
      await page.addInitScript(drawTenTimesASecond);
      const faults: Faults = { mayFail: false };
      const logged: string[] = [];
      page.on('console', (message) => {
        if (['error', 'warning'].includes(message.type())) logged.push(message.text());
      });
      page.on('pageerror', (error) => logged.push(String(error.stack ?? error)));
      const foreign: string[] = [];
      page.on('request', (request) => {
        // All maps of a test listen on the loopback address.
        if (!/^(data:|blob:|http:\/\/127\.0\.0\.1:)/.test(request.url())) foreign.push(request.url());
      });
      await use(faults);
      expect(foreign, 'requests to other hosts').toEqual([]);
      expect(
        logged.filter((text) => !IGNORED.test(text) && !(faults.mayFail && /Failed to load resource|ERR_|WebGL/i.test(text))),
        'errors and warnings in the console',
      ).toEqual([]);
    },
    { auto: true },
  ],
});

/**
 * Limits the page to ten frames a second. Without a graphics card, 60 frames a second would take
 * all cores, and every server of a test would be late.
 */
function drawTenTimesASecond(): void {
  const request = window.requestAnimationFrame.bind(window);
  const callbacks = new Map<number, FrameRequestCallback>();
  let last = 0;
  const draw = (now: number) => {
    const due = [...callbacks.values()];
    callbacks.clear();
    for (const callback of due) callback(now);
  };
  window.requestAnimationFrame = (callback) => {
    callbacks.set(++last, callback);
    if (callbacks.size === 1) setTimeout(() => request(draw), 100);
    return last;
  };
  window.cancelAnimationFrame = (id) => void callbacks.delete(id);
}

/** Chromium's messages about reading pixels of software WebGL, which a screenshot does. */
const IGNORED = /GPU stall due to ReadPixels|GL Driver Message/;

/** Opens the page, and waits until its map has loaded. */
export async function open(page: Page, stack: Stack, hash = ''): Promise<void> {
  await page.goto(`${stack.url}/${hash}`);
  await page.waitForFunction(() => window.milepost !== undefined);
}

/**
 * Moves the map at once. Returns nothing: jumpTo returns the map, which Playwright would copy out of
 * the page for half a minute.
 */
export const jumpTo = (page: Page, center: [number, number], zoom: number): Promise<void> =>
  page.evaluate(([to, level]) => void window.milepost!.map.jumpTo({ center: to, zoom: level }), [center, zoom] as const);

/** Counts the drivers drawn as dots, the discs, and the drivers in discs. */
export const shown = (page: Page): Promise<{ dots: number; discs: number; counted: number }> =>
  page.evaluate(() => {
    const { fleet, discs } = window.milepost!.scene;
    return { dots: fleet.n, discs: discs.length, counted: discs.reduce((sum, { count }) => sum + count, 0) };
  });

/** Returns the place of a driver on the page, in pixels; null: it is not drawn. */
export const placeOf = (page: Page, id: string): Promise<{ x: number; y: number } | null> =>
  page.evaluate((name) => {
    const { scene, map } = window.milepost!;
    const slot = scene.fleet.slot(name);
    if (slot === undefined) return null;
    const [lng, lat] = scene.fleet.at(slot, performance.now() / 1000);
    const { x, y } = map.project([lng + 360 * Math.round((map.getCenter().lng - lng) / 360), lat]);
    return { x, y };
  }, id);

/** Returns the colours around a point, as they are on the screen. */
export async function coloursAt(page: Page, { x, y }: { x: number; y: number }, reach = 10): Promise<Set<string>> {
  const clip = { x: Math.round(x) - reach, y: Math.round(y) - reach, width: 2 * reach, height: 2 * reach };
  const png = (await page.screenshot({ clip })).toString('base64');
  const colours = await page.evaluate(async (data) => {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    const bitmap = await createImageBitmap(new Blob([bytes], { type: 'image/png' }));
    const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext('2d')!;
    context.drawImage(bitmap, 0, 0);
    const { data: pixels } = context.getImageData(0, 0, bitmap.width, bitmap.height);
    const found: string[] = [];
    for (let i = 0; i < pixels.length; i += 4) found.push([pixels[i], pixels[i + 1], pixels[i + 2]].join());
    return found;
  }, png);
  return new Set(colours);
}

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Returns what axe finds on the page as it is now. */
export async function violations(page: Page): Promise<string[]> {
  await page.evaluate(AXE);
  return page.evaluate(async () => {
    const { violations: found } = await (window as unknown as { axe: { run(): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }> } }).axe.run();
    return found.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`);
  });
}

export { expect };

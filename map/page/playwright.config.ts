import { existsSync } from 'node:fs';
import { defineConfig } from '@playwright/test';

// Debian's Chromium, which lab/local/setup --map installs.
const chromium = process.env.CHROMIUM ?? ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);

export default defineConfig({
  testDir: 'browser',
  // All tests share the same servers, and the last one kills the engine, so they run in order, in
  // one worker.
  workers: 1,
  fullyParallel: false,
  // Long, so that no test fails on a busy machine.
  timeout: 900_000,
  expect: { timeout: 120_000 },
  reporter: [['list']],
  outputDir: 'test-results',
  use: {
    viewport: { width: 1280, height: 800 },
    colorScheme: 'dark',
    timezoneId: 'UTC',
    permissions: ['clipboard-read', 'clipboard-write'],
    trace: 'off',
    actionTimeout: 120_000,
    launchOptions: {
      ...(chromium ? { executablePath: chromium } : {}),
      // Behaves like a machine without a graphics card: the CPU draws WebGL, and the page paints
      // drivers without WebGL.
      args: ['--disable-gpu', '--enable-unsafe-swiftshader'],
    },
  },
});

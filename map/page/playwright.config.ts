import { existsSync } from 'node:fs';
import { defineConfig } from '@playwright/test';

// Debian's, which lab/local/setup --map installs.
const chromium = process.env.CHROMIUM ?? ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);

export default defineConfig({
  testDir: 'browser',
  // One stack for all, and the engine is killed at the end: in order, in one worker.
  workers: 1,
  fullyParallel: false,
  // Timings are no tests: a machine may be busy.
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
      // As on a machine without a graphics card: WebGL is drawn by the CPU, and so is the page, but not with WebGL.
      args: ['--disable-gpu', '--enable-unsafe-swiftshader'],
    },
  },
});

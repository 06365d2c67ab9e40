import { defineConfig } from '@playwright/test';
import browser from '../playwright.config';

export default defineConfig(browser, { testDir: '.', testMatch: 'frames.spec.ts', timeout: 300_000, use: { viewport: { width: 1280, height: 720 } } });

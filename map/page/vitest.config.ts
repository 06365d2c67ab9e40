import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    dir: 'test',
    // Timings are no tests: a machine may be busy.
    testTimeout: 120_000,
    pool: 'threads',
    maxWorkers: 1,
    isolate: false,
  },
});

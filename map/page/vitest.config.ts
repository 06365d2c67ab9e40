import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    dir: 'test',
    // Long, so that no test fails on a busy machine.
    testTimeout: 120_000,
    pool: 'threads',
    maxWorkers: 1,
    isolate: false,
  },
});

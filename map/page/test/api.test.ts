// Deadlines of requests.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { alerts, config, lastFix } from '../src/api';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

/** A server that never answers, or only with the headers. */
function hang(hasHeaders: boolean): void {
  vi.stubGlobal('fetch', (_: string, { signal }: { signal: AbortSignal }) => {
    const aborted = new Promise<never>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)));
    return hasHeaders ? Promise.resolve({ ok: true, json: () => aborted }) : aborted;
  });
}

for (const hasHeaders of [false, true]) {
  test(`a request ${hasHeaders ? 'without the end of its answer' : 'without an answer'} fails as if the server were away`, async () => {
    hang(hasHeaders);
    const outcomes: string[] = [];
    for (const [name, request] of [['config', config()], ['fix', lastFix('d1')], ['alerts', alerts('')]] as const) request.catch((error: unknown) => outcomes.push(`${name} ${(error as Error).name}`));
    await vi.advanceTimersByTimeAsync(20_000);
    expect(outcomes).toEqual(['config TypeError', 'fix TypeError']);
    // ClickHouse may take two minutes.
    await vi.advanceTimersByTimeAsync(130_000);
    expect(outcomes).toEqual(['config TypeError', 'fix TypeError', 'alerts TypeError']);
  });
}

test('a request that its caller aborts fails with the abort', async () => {
  hang(false);
  const controller = new AbortController();
  const outcome = lastFix('d1', controller.signal).catch((error: unknown) => (error as Error).name);
  controller.abort();
  expect(await outcome).toBe('AbortError');
});

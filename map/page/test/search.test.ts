// The search field, in a simulated page.
import { afterEach, expect, test, vi } from 'vitest';
import { search } from '../src/search';
import { page } from './page';

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test('Escape right after a letter does not open the results again', async () => {
  vi.useFakeTimers();
  vi.stubGlobal('window', globalThis);
  const request = vi.fn(() => Promise.resolve(Response.json({ found: [] })));
  vi.stubGlobal('fetch', request);
  const input = page().element('search');
  search(() => {});
  input.value = 'va';
  input.dispatch('input');
  input.dispatch('keydown', { key: 'Escape', stopPropagation() {} });
  await vi.advanceTimersByTimeAsync(1_000);
  expect(request).not.toHaveBeenCalled();
});

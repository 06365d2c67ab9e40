// Buttons that copy, in a simulated page.
import { afterEach, expect, test, vi } from 'vitest';
import { copyOnClick } from '../src/dom';
import { page } from './page';

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test.each([
  ['Copied', async () => {}, async () => 'a link'],
  ['Not allowed', async () => Promise.reject(new Error('no permission')), async () => 'a link'],
  ['Failed', async () => {}, async () => Promise.reject(new TypeError('fetch failed'))],
])('a button that copies says “%s” for two seconds', async (outcome, writeText, text) => {
  vi.useFakeTimers();
  vi.stubGlobal('navigator', { clipboard: { writeText } });
  const button = page().element('share');
  button.textContent = 'Copy link';
  copyOnClick(button as never, text);
  button.dispatch('click');
  await vi.advanceTimersByTimeAsync(0);
  expect(button.textContent).toBe(outcome);
  await vi.advanceTimersByTimeAsync(2_000);
  expect(button.textContent).toBe('Copy link');
});

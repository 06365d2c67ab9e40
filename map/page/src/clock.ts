// The server's clock, so that ages on the screen are right even if the viewer's clock is wrong.

/** Milliseconds by which the server's clock is ahead of the browser's. */
let ahead = 0;

/** Sets the clock, from the server's time in Unix ms. */
export function syncClock(now: number): void {
  ahead = now - Date.now();
}

/** Unix ms on the server's clock. */
export const serverNow = (): number => Date.now() + ahead;

/** Seconds since the page was opened, for animation. */
export const seconds = (): number => performance.now() / 1000;

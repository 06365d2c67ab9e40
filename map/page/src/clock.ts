// The server's clock: ages on screen are right even where the viewer's clock is wrong.

let ahead = 0;

export function heard(now: number): void {
  ahead = now - Date.now();
}

/** Unix ms on the server's clock. */
export const serverNow = (): number => Date.now() + ahead;

/** Seconds since the page began: for motion. */
export const seconds = (): number => performance.now() / 1000;

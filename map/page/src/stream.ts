// Receives the server's tick, once a second, as a server-sent event. Reconnects by itself.
import type { Tick } from './api';

/** The server ticks every second: after this long without one the connection is dead, whatever the socket says. */
const SILENCE_MS = 6_000;
const HEARD_MS = 1_000;
const RETRY_MIN_MS = 1_000;
const RETRY_MAX_MS = 8_000;
/** A hidden page disconnects after this. */
const HIDDEN_MS = 30_000;

export interface Listener {
  /** `isFirst`: the first tick of a connection, which may come from another server than the tick before. */
  tick(tick: Tick, isFirst: boolean): void;
  /** The server cannot be reached; `retryMs` until the next attempt. */
  lost(retryMs: number): void;
}

export function listen({ tick, lost }: Listener): void {
  let source: EventSource | null = null;
  let retryMs = RETRY_MIN_MS;
  let silence = 0;
  let retry = 0;
  let hidden = 0;

  function open(): void {
    close();
    let isFirst = true;
    source = new EventSource('api/stream');
    source.addEventListener('tick', (event) => {
      retryMs = RETRY_MIN_MS;
      expectMore();
      tick(JSON.parse((event as MessageEvent<string>).data) as Tick, isFirst);
      isFirst = false;
    });
    source.addEventListener('error', failed);
    expectMore();
  }

  function expectMore(): void {
    clearTimeout(silence);
    // A second timer: a page that was busy drawing first handles the ticks that have arrived meanwhile.
    silence = window.setTimeout(() => (silence = window.setTimeout(failed, HEARD_MS)), SILENCE_MS);
  }

  function failed(): void {
    close();
    lost(retryMs);
    retry = window.setTimeout(open, retryMs);
    retryMs = Math.min(RETRY_MAX_MS, retryMs * 2);
  }

  function close(): void {
    source?.close();
    source = null;
    clearTimeout(silence);
    clearTimeout(retry);
  }

  document.addEventListener('visibilitychange', () => {
    clearTimeout(hidden);
    if (document.hidden) hidden = window.setTimeout(close, HIDDEN_MS);
    else if (!source) open();
  });
  open();
}

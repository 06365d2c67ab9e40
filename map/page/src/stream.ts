// Receives the server's tick once a second, as a server-sent event, and reconnects after a failure.
import type { Tick } from './api';

/**
 * The connection counts as dead after this long without a tick, because the server sends one every
 * second.
 */
const SILENCE_MS = 6_000;
/** Grace period in which a busy page handles ticks that have already arrived. */
const GRACE_MS = 1_000;
const RETRY_MIN_MS = 1_000;
const RETRY_MAX_MS = 8_000;
/** A hidden page disconnects after this long. */
const HIDDEN_MS = 30_000;

export interface Listener {
  /**
   * `isFirst`: the first tick of a connection, which may come from another server than the tick
   * before.
   */
  tick(tick: Tick, isFirst: boolean): void;
  /** Called when the server cannot be reached; the next attempt follows after `retryMs`. */
  lost(retryMs: number): void;
}

/** Returns a function that limits the counts of the ticks to a group; empty: every group. */
export function listen({ tick, lost }: Listener): (group: string) => void {
  let group = '';
  let source: EventSource | null = null;
  let retryMs = RETRY_MIN_MS;
  let silenceTimer = 0;
  let retryTimer = 0;
  let hiddenTimer = 0;

  function open(): void {
    close();
    let isFirst = true;
    source = new EventSource(`api/stream${group && `?group=${encodeURIComponent(group)}`}`);
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
    clearTimeout(silenceTimer);
    // Two timers: after the first one, a page that was busy drawing handles the ticks that have
    // arrived meanwhile.
    silenceTimer = window.setTimeout(() => (silenceTimer = window.setTimeout(failed, GRACE_MS)), SILENCE_MS);
  }

  function failed(): void {
    close();
    lost(retryMs);
    retryTimer = window.setTimeout(open, retryMs);
    retryMs = Math.min(RETRY_MAX_MS, retryMs * 2);
  }

  function close(): void {
    source?.close();
    source = null;
    clearTimeout(silenceTimer);
    clearTimeout(retryTimer);
  }

  function checkVisibility(): void {
    clearTimeout(hiddenTimer);
    if (document.hidden) hiddenTimer = window.setTimeout(close, HIDDEN_MS);
    else if (!source) open();
  }

  document.addEventListener('visibilitychange', checkVisibility);
  open();
  // The page may have been opened in the background.
  checkVisibility();
  return (next) => {
    group = next;
    // A hidden page is not connected.
    if (source) open();
  };
}

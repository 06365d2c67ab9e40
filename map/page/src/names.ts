// Names and groups of drivers, requested as they come into view, and again when they may have
// changed. Until then the old ones stay.
import { namesOf, type Named } from './api';

/** Maximum number of names in one request; the server allows 400. */
const AT_ONCE = 300;

/** A driver's name and group, and the version of all names when they were requested. */
interface Entry extends Named {
  version: number;
}

export class Names {
  private readonly known = new Map<string, Entry>();
  private isRequesting = false;
  /** Entries of another version may have changed since. */
  private version = -1;
  /** The server's version of all names. Each process of the server counts for itself. */
  private serverVersion = -1;
  /** Ids whose names `getOrRequest` has not found, for the next request. */
  private readonly waiting = new Set<string>();

  constructor(private readonly changed: () => void) {}

  /** Returns the driver's name, or the id. */
  get(id: string): string {
    return this.known.get(id)?.name || id;
  }

  /** Like `get`, but requests an unknown or old name, and calls `changed` when it has arrived. */
  getOrRequest(id: string): string {
    if (this.isMissing(id)) {
      this.waiting.add(id);
      queueMicrotask(() => void this.load([]));
    }
    return this.get(id);
  }

  /** Returns the driver's group; empty: none, or not known yet, in which case it is requested. */
  groupOf(id: string): string {
    this.getOrRequest(id);
    return this.known.get(id)?.group ?? '';
  }

  /**
   * Called once a second. If the server has new names, all are requested again as they are needed.
   * `isFirst`: the first tick of a connection, which may come from another process of the server.
   */
  tick(serverVersion: number, isFirst = false): void {
    if (serverVersion === this.serverVersion && !isFirst) return;
    this.serverVersion = serverVersion;
    this.version++;
    this.changed();
  }

  private isMissing(id: string): boolean {
    return this.known.get(id)?.version !== this.version;
  }

  /** Requests the names that are unknown or old, at most `AT_ONCE` at a time. */
  async load(ids: readonly string[]): Promise<void> {
    if (this.isRequesting) return;
    const missing = [...new Set([...this.waiting, ...ids])].filter((id) => this.isMissing(id)).slice(0, AT_ONCE);
    if (missing.length === 0) return;
    this.isRequesting = true;
    for (const id of missing) this.waiting.delete(id);
    // If there are newer names before the answer, it may have the old ones.
    const { version } = this;
    try {
      const named = await namesOf(missing);
      // A driver that this viewer may not see gets an empty name, so that it is not requested
      // again.
      for (const id of missing) this.known.set(id, { driver_id: id, name: '', group: '', version });
      for (const one of named) this.known.set(one.driver_id, { ...one, version });
      this.changed();
    } catch {
      // The server does not answer: the ids, or the old names, stay until the next request.
    } finally {
      this.isRequesting = false;
    }
    if (this.waiting.size > 0) void this.load([]);
  }
}

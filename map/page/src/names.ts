// Names and groups of drivers, requested as they come into view, and kept until they change.
import { namesOf, type Named } from './api';

/** Maximum number of names in one request; the server allows 400. */
const AT_ONCE = 300;

export class Names {
  private readonly known = new Map<string, Named>();
  private isRequesting = false;
  private version = -1;
  /** Ids whose names `getOrRequest` has not found, for the next request. */
  private readonly waiting = new Set<string>();

  constructor(private readonly changed: () => void) {}

  /** Returns the driver's name, or the id. */
  get(id: string): string {
    return this.known.get(id)?.name || id;
  }

  /** Like `get`, but requests an unknown name, and calls `changed` when it has arrived. */
  getOrRequest(id: string): string {
    if (!this.known.has(id)) {
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

  card(id: string): Named | undefined {
    return this.known.get(id);
  }

  add(named: readonly Named[]): void {
    for (const one of named) this.known.set(one.driver_id, one);
  }

  /** Called once a second; drops all names if the server has new ones. */
  tick(version: number): void {
    if (version === this.version) return;
    this.version = version;
    this.known.clear();
    this.changed();
  }

  /** Requests the names that are not known yet, at most `AT_ONCE` at a time. */
  async load(ids: readonly string[]): Promise<void> {
    if (this.isRequesting) return;
    const unknown = [...this.waiting, ...ids].filter((id) => !this.known.has(id)).slice(0, AT_ONCE);
    if (unknown.length === 0) return;
    this.isRequesting = true;
    for (const id of unknown) this.waiting.delete(id);
    try {
      this.add(await namesOf(unknown));
      // A driver that this viewer may not see gets an empty name, so that it is not requested
      // again.
      for (const id of unknown) if (!this.known.has(id)) this.known.set(id, { driver_id: id, name: '', group: '' });
      this.changed();
    } catch {
      // The server does not answer: the ids stand in for names until the next request.
    } finally {
      this.isRequesting = false;
    }
    if (this.waiting.size > 0) void this.load([]);
  }
}

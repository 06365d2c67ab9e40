// Names and groups of drivers, requested as they come into view, and kept until they change.
import { namesOf, type Named } from './api';

const AT_ONCE = 300;

export class Names {
  private readonly known = new Map<string, Named>();
  private isRequesting = false;
  private version = -1;
  /** Ids in lists whose names are not known yet. */
  private readonly waiting = new Set<string>();

  constructor(private readonly changed: () => void) {}

  /** Returns the driver's name, or the id. */
  of(id: string): string {
    return this.known.get(id)?.name || id;
  }

  /** Like `of`, for a list: requests an unknown name, and calls `changed` when it has arrived. */
  inList(id: string): string {
    if (!this.known.has(id)) {
      this.waiting.add(id);
      queueMicrotask(() => void this.want([]));
    }
    return this.of(id);
  }

  card(id: string): Named | undefined {
    return this.known.get(id);
  }

  learn(named: readonly Named[]): void {
    for (const one of named) this.known.set(one.driver_id, one);
  }

  /** Drops all names when the server has new ones. */
  tick(version: number): void {
    if (version === this.version) return;
    this.version = version;
    this.known.clear();
    this.changed();
  }

  /** Requests the names that are not known yet. */
  async want(ids: readonly string[]): Promise<void> {
    if (this.isRequesting) return;
    const unknown = [...this.waiting, ...ids].filter((id) => !this.known.has(id)).slice(0, AT_ONCE);
    if (unknown.length === 0) return;
    this.isRequesting = true;
    for (const id of unknown) this.waiting.delete(id);
    try {
      this.learn(await namesOf(unknown));
      // A driver that this viewer may not see gets an empty name, so that it is not requested again.
      for (const id of unknown) if (!this.known.has(id)) this.known.set(id, { driver_id: id, name: '', group: '' });
      this.changed();
    } catch {
      // The server does not answer: ids are shown until the next request.
    } finally {
      this.isRequesting = false;
    }
    if (this.waiting.size > 0) void this.want([]);
  }
}

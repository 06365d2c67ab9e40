// Names and groups of drivers, asked for as they come into view, and kept until they change.
import { namesOf, type Named } from './api';

const AT_ONCE = 300;

export class Names {
  private readonly known = new Map<string, Named>();
  private asking = false;
  private version = -1;
  /** Ids in lists whose names are not known yet. */
  private readonly waiting = new Set<string>();

  constructor(private readonly changed: () => void) {}

  /** What people call the driver. */
  of(id: string): string {
    return this.known.get(id)?.name || id;
  }

  /** Like `of`, for a list: an unknown name is asked for, and then `changed` is called. */
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

  /** The server has read other names. */
  tick(version: number): void {
    if (version === this.version) return;
    this.version = version;
    this.known.clear();
    this.changed();
  }

  /** Asks for the names of those that are not known yet. */
  async want(ids: readonly string[]): Promise<void> {
    if (this.asking) return;
    const unknown = [...this.waiting, ...ids].filter((id) => !this.known.has(id)).slice(0, AT_ONCE);
    if (unknown.length === 0) return;
    this.asking = true;
    for (const id of unknown) this.waiting.delete(id);
    try {
      this.learn(await namesOf(unknown));
      // A driver that this viewer may not see has no name here: its id is not asked for again.
      for (const id of unknown) if (!this.known.has(id)) this.known.set(id, { driver_id: id, name: '', group: '' });
      this.changed();
    } catch {
      // The server is away: the ids stay until the next time.
    } finally {
      this.asking = false;
    }
    if (this.waiting.size > 0) void this.want([]);
  }
}

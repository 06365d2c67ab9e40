// The panel of one driver: its last fix in words, its track with stops and gaps, and the SQL that
// returns the track.
import { ApiError, lastFix, makeLink, properties, track as fetchTrack, trackFile, type Episode, type Fix, type Track } from './api';
import { calendar } from './calendar';
import { serverNow } from './clock';
import { byId, copyOnClick, make, replaceRows, setPressed, setText } from './dom';
import { trackFilm, type Player } from './player';
import { format, guestLink, parse } from './hash';
import { shownProperties, type Property } from './properties';
import { silentAfter } from './states';
import { Stay } from './stay';
import { episodeAt, summary } from './track';
import { ago, compassPoint, daySpan, distance, duration, formatSpeed, isoDay, lowerFirst, minuteOf, moment, motion } from './words';
import { zoneShort } from './zone';

const HOUR_MS = 3_600_000;
/** Minimum interval between requests for attributes. */
const ATTRIBUTES_MS = 5_000;
/** Validity of a guest's link. */
const LINK_HOURS = 24;
/** The end of a track has no computed stops yet; the panel mentions this only if it is longer. */
const UNCOUNTED_MS = 60_000;

interface Options {
  /** Called before the panel opens. */
  opening(): void;
  player: Pick<Player, 'open' | 'close' | 'seek'>;
  /** Called with the driver's newest fix; null: no driver is chosen. */
  chosen(fix: Fix | null): void;
  /** Called with the loaded track; null: the track is closed. */
  tracked(track: Track | null): void;
  /** Called with the moment of the track that is shown. */
  played(track: Track, ms: number): void;
  /** Called when driver or day have changed, to update the URL. */
  shared(): void;
  /** Returns a driver's name, or the id. */
  name(id: string): string;
  /** Returns the fence at or near a place; empty: none. */
  place(lng: number, lat: number): string;
  makesLinks: boolean;
}

export class Panel {
  id: string | null = null;
  day: string | null = null;
  fix: Fix | null = null;
  private readonly box = byId('panel', HTMLElement);
  private readonly message = byId('track-said', HTMLElement);
  private readonly list = byId('episodes', HTMLOListElement);
  private readonly hour = byId('hour', HTMLButtonElement);
  private readonly dayField = byId('day', HTMLInputElement);
  /** The map keeps the driver in the middle. */
  isFollowed = false;
  private readonly followButton = byId('follow', HTMLButtonElement);
  private readonly attributes = byId('attributes', HTMLDListElement);
  /**
   * Time of the fix whose attributes are shown, and time of their request. Every request sets a new
   * object, so that a late answer is recognised.
   */
  private shownAttributes = { ts: 0, at: -Infinity };
  private readonly stay = new Stay();
  private readonly month: ReturnType<typeof calendar>;
  private readonly files = byId('track-files', HTMLElement);
  private trackRequest: AbortController | null = null;
  private fixRequest: AbortController | null = null;
  private track: Track | null = null;
  /** The moment of the track that is shown, in Unix ms. */
  private playedMs = NaN;
  /** The map shows the past, and the panel still the present. */
  private isReplay = false;

  constructor(private readonly options: Options) {
    byId('panel-close', HTMLButtonElement).addEventListener('click', () => this.close());
    this.followButton.addEventListener('click', () => this.follow(!this.isFollowed));
    this.hour.addEventListener('click', () => this.lastHour());
    this.dayField.addEventListener('change', () => this.showDay(this.dayField.value));
    copyOnClick(byId('share', HTMLButtonElement), () => location.href);
    this.month = calendar((day) => this.showDay(day));
    const guest = byId('share-guest', HTMLButtonElement);
    guest.hidden = !options.makesLinks;
    copyOnClick(guest, async () => {
      // The guest sees this driver whatever group the viewer sees.
      const hash = format({ ...parse(location.hash), group: '' });
      return guestLink(location.href, await makeLink({ drivers: [this.id ?? ''] }, LINK_HOURS), hash);
    });
    copyOnClick(byId('sql-copy', HTMLButtonElement), () => this.track?.sql ?? '');
  }

  /** Shows a driver, and optionally its track of a day; returns whether the driver has a fix. */
  async open(id: string, day: string | null = null): Promise<boolean> {
    if (this.id !== id) {
      this.closeTrack();
      this.fixRequest?.abort();
      this.fixRequest = null;
      this.id = id;
      this.fix = null;
      this.follow(false);
      this.attributes.replaceChildren();
      this.shownAttributes = { ts: 0, at: -Infinity };
      this.drawFix();
      this.title();
      this.month.setDriver(id);
      setText(byId('driver-moves', HTMLElement), '');
      this.dayField.value = '';
    }
    this.options.opening();
    this.box.hidden = false;
    // Move the focus before the answer arrives. Until it is moved, the search field takes shortcuts
    // as text; and when a late answer arrives, the viewer may already be typing somewhere else.
    byId('driver-name', HTMLElement).focus({ preventScroll: true });
    this.options.shared();
    await this.refresh();
    if (this.id !== id) return false;
    if (day === 'hour') this.lastHour();
    else if (day) this.showDay(day);
    return this.fix !== null;
  }

  close(): void {
    if (!this.id) return;
    this.closeTrack();
    this.fixRequest?.abort();
    this.fixRequest = null;
    this.id = null;
    this.fix = null;
    this.follow(false);
    this.box.hidden = true;
    this.options.chosen(null);
    this.options.shared();
    // Focus the map, which handles arrow keys and shortcuts. In the search field, such keys would
    // be text.
    byId('map', HTMLElement).querySelector('canvas')?.focus({ preventScroll: true });
  }

  /** Called when a replay begins or ends. */
  setReplay(isReplay: boolean): void {
    if (isReplay === this.isReplay) return;
    this.isReplay = isReplay;
    if (this.id) this.drawFix();
  }

  follow(on: boolean): void {
    this.isFollowed = on && this.id !== null;
    setPressed(this.followButton, this.isFollowed);
    if (this.isFollowed && this.fix) this.options.chosen(this.fix);
  }

  closeTrack(): void {
    this.trackRequest?.abort();
    this.day = null;
    this.track = null;
    setText(this.message, '');
    this.list.replaceChildren();
    byId('sql-box', HTMLDetailsElement).hidden = true;
    this.files.hidden = true;
    setPressed(this.hour, false);
    this.options.player.close();
    this.options.tracked(null);
    this.options.shared();
  }

  /** Called once a second while the panel is open. */
  async refresh(): Promise<void> {
    const { id } = this;
    if (!id || this.fixRequest) return;
    const controller = (this.fixRequest = new AbortController());
    try {
      const fix = await lastFix(id, controller.signal);
      if (controller.signal.aborted) return;
      this.fix = fix;
      this.options.chosen(fix);
      void this.stay.follow(fix, controller.signal).then(() => this.drawFix());
      if (fix.ts !== this.shownAttributes.ts && performance.now() - this.shownAttributes.at >= ATTRIBUTES_MS) void this.showAttributes(fix, controller.signal);
    } catch (error) {
      if (controller.signal.aborted) return;
      if (error instanceof ApiError && error.status === 404) this.showUnknown();
      else if (!(error instanceof ApiError || error instanceof TypeError)) throw error;
    } finally {
      if (this.fixRequest === controller) {
        this.fixRequest = null;
        this.drawFix();
      }
    }
  }

  /** Removes everything that is shown of a driver that never existed or was erased. */
  private showUnknown(): void {
    if (this.fix) this.closeTrack();
    this.fix = null;
    this.attributes.replaceChildren();
    this.shownAttributes = { ts: 0, at: performance.now() };
    this.options.chosen(null);
    setText(byId('driver-moves', HTMLElement), 'There is no driver of this name.');
  }

  /**
   * Shows the driver's card (`Card` in api.ts), the fields and the attributes. Unlike the fix, they
   * cost ClickHouse queries, so they are requested rarely, and only after a new fix.
   */
  private async showAttributes(fix: Fix, signal: AbortSignal): Promise<void> {
    const request = (this.shownAttributes = { ts: fix.ts, at: performance.now() });
    const found = await properties(fix.driver_id, signal).catch(() => null);
    // A late answer belongs to another driver, or is older than what is shown.
    if (this.shownAttributes !== request) return;
    if (!found) return void (this.shownAttributes = { ts: 0, at: performance.now() });
    const row = ({ name, value, comment }: Property) => {
      const entry = make('div');
      entry.append(make('dt', name), make('dd', value));
      if (comment) entry.title = comment;
      return entry;
    };
    this.attributes.replaceChildren(...shownProperties(found, serverNow()).map(row));
  }

  lastHour(): void {
    const to = Math.floor(serverNow());
    void this.load(to - HOUR_MS, to, 2, 'hour');
  }

  private showDay(day: string): void {
    const span = daySpan(day);
    if (!span) return;
    this.dayField.value = day;
    void this.load(span.from, Math.min(span.to, Math.floor(serverNow())), 10, day);
  }

  private async load(from: number, to: number, metres: number, day: string): Promise<void> {
    if (!this.id) return;
    this.trackRequest?.abort();
    const controller = (this.trackRequest = new AbortController());
    setPressed(this.hour, day === 'hour');
    if (day === 'hour') this.dayField.value = '';
    this.day = day;
    this.options.shared();
    setText(this.message, 'Loading the track …');
    try {
      const track = await fetchTrack(this.id, from, to, metres, controller.signal);
      if (!controller.signal.aborted) this.show(track);
    } catch (error) {
      if (controller.signal.aborted) return;
      setText(this.message, error instanceof ApiError ? error.message : 'The server does not answer.');
    }
  }

  private show(track: Track): void {
    this.track = track;
    this.playedMs = NaN;
    this.describe(track);
    setText(byId('sql', HTMLElement), track.sql);
    byId('sql-box', HTMLDetailsElement).hidden = false;
    this.files.hidden = track.points.ts.length === 0;
    for (const format of ['csv', 'gpx'] as const) byId(`track-${format}`, HTMLAnchorElement).href = trackFile(track.driver_id, track.from, track.to, format);
    if (track.points.ts.length > 0) {
      this.options.player.open(trackFilm(track, (ms) => this.options.played(track, ms)));
      // Call this after the player is open, because the player covers a part of the map.
      this.options.tracked(track);
    } else {
      this.options.player.close();
      this.options.tracked(null);
    }
  }

  /** Writes what the driver did, and the list of trips, stops and gaps. */
  private describe(track: Track): void {
    const { metres, movingMs, stops, gaps } = summary(track);
    // ClickHouse computes trips and stops some minutes late, so the server sums the newest minutes
    // from the points.
    const { tail } = track;
    const count = (n: number, word: string) => `${n} ${word}${n === 1 ? '' : 's'}`;
    if (track.points.ts.length === 0) setText(this.message, 'No fixes in this span.');
    else {
      const truncation = track.truncated ? ' The track is longer than the server sends: this is its beginning.' : '';
      const driven = `${distance(metres + (tail?.metres ?? 0))} in ${duration((movingMs + (tail?.moving_ms ?? 0)) / 1000)}`;
      const parts = track.episodes.length === 0 ? '' : `, ${count(stops, 'stop')}, ${count(gaps, 'gap')}`;
      const until = tail && track.to - tail.from > UNCOUNTED_MS ? (track.episodes.length === 0 ? ' Stops will be counted in a few minutes.' : ` Stops are counted until ${minuteOf(tail.from, this.shownDay())}.`) : '';
      setText(this.message, track.points.ts.length === 1 ? `One fix, at ${moment(track.points.ts[0], serverNow())}.${truncation}` : `${driven}${parts}.${until}${truncation}`);
    }
    this.drawEpisodes(track);
  }

  private drawEpisodes({ episodes }: Track): void {
    replaceRows(this.list, episodes.map((episode) => this.row(episode)));
    this.played(this.playedMs);
  }

  private row(episode: Episode): HTMLLIElement {
    const { kind, from, to, distance_m, lng, lat } = episode;
    const at = kind === 'stop' ? this.options.place(lng, lat) : '';
    const label = { trip: `Trip, ${distance(distance_m)}`, stop: at || 'Stop', gap: 'No fixes' }[kind];
    const day = this.shownDay();
    const item = make('li');
    item.dataset.key = `${kind} ${from}`;
    const button = make('button');
    button.type = 'button';
    button.dataset.kind = kind;
    button.append(make('i'), make('span', `${label} · ${duration((to - from) / 1000)}`), make('span', `${minuteOf(from, day)}–${minuteOf(to, day)}`));
    button.addEventListener('click', () => this.options.player.seek(from));
    item.append(button);
    return item;
  }

  /** Returns the day whose times are shown without a date. */
  private shownDay(): string {
    return this.day && this.day !== 'hour' ? this.day : isoDay(serverNow());
  }

  /** Shows the driver's name, and below it the id if that differs. */
  title(): void {
    const { id } = this;
    if (!id) return;
    const name = this.options.name(id);
    setText(byId('driver-name', HTMLElement), name);
    setText(byId('driver-id', HTMLElement), name === id ? '' : id);
  }

  /** Called when fences have changed: stops are named after them. */
  redrawNames(): void {
    this.title();
    if (this.track) this.drawEpisodes(this.track);
  }

  /**
   * Called when units or zone have changed. The track stays at its moment, unless its day begins at
   * another time in the new zone.
   */
  redraw(): void {
    this.drawFix();
    this.month.redraw();
    // The next refresh requests the attributes, among which may be times.
    this.shownAttributes.ts = 0;
    const { day, track } = this;
    if (day && day !== 'hour' && daySpan(day)?.from !== track?.from) this.showDay(day);
    else if (track) this.describe(track);
  }

  /** Marks, in the list, the episode at the moment that is shown. */
  played(ms: number): void {
    this.playedMs = ms;
    if (!this.track) return;
    const now = episodeAt(this.track.episodes, ms);
    this.track.episodes.forEach((episode, i) => {
      const button = this.list.children[i]?.firstElementChild;
      if (episode === now) button?.setAttribute('aria-current', 'true');
      else button?.removeAttribute('aria-current');
    });
  }

  private drawFix(): void {
    const { fix } = this;
    const set = (name: string, text: string) => setText(byId(`fix-${name}`, HTMLElement), text);
    const now = serverNow();
    this.dayField.max = isoDay(now);
    if (!fix) {
      for (const name of ['when', 'speed', 'heading', 'acc', 'place']) set(name, '–');
      return;
    }
    const age = (now - fix.ts) / 1000;
    const stay = this.stay.text(fix, age < silentAfter() ? now : fix.ts, now);
    // Do not describe the movement of a silent driver: "moving" would be a guess.
    const state = age < silentAfter() ? `${stay || motion(fix.speed, fix.heading)}.` : `No fix for a while; last seen ${ago(age)}${stay && `, ${lowerFirst(stay)}`}.`;
    setText(byId('driver-moves', HTMLElement), this.isReplay ? `Now, not in the replay: ${lowerFirst(state)}` : state);
    set('when', `${ago(age)}, at ${moment(fix.ts, now)} ${zoneShort(fix.ts)}`);
    set('speed', fix.speed === null ? 'unknown' : formatSpeed(fix.speed));
    set('heading', fix.heading === null ? 'unknown' : `${compassPoint(fix.heading)}, ${Math.round(fix.heading)}°`);
    set('acc', fix.acc === null ? 'unknown' : `within ${distance(fix.acc)}`);
    const place = this.options.place(fix.lng, fix.lat);
    set('place', `${place && `${place} · `}${fix.lat.toFixed(5)}, ${fix.lng.toFixed(5)}`);
  }
}

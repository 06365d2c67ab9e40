// Alerts: the events that `milepost events` detected, newest first. Each has a mark on the map
// until a viewer acknowledges it.
import { Marker, type Map as MapLibre } from 'maplibre-gl';
import { alerts as fetchAlerts, ApiError, acknowledgeAlert, type Alert } from './api';
import { serverNow } from './clock';
import { byId, make, replaceRows, setPressed, setText } from './dom';
import type { Covered } from './labels';
import { CLUSTER_ZOOM } from './scene';
import { project } from './view';
import { moment, formatSpeed } from './words';

/** Interval of requests for alerts. */
const REFRESH_MS = 5_000;
/** Maximum number of marks on the map: those of the newest alerts. */
const MARKS_MAX = 50;
/**
 * Pixels by which a mark is higher where drivers are drawn as discs, so that the mark does not hide
 * a count.
 */
const ABOVE_DISC_PX = 14;
const MARK_SIZE_PX = 18;

const DESCRIPTIONS: Record<Alert['kind'], (alert: Alert) => string> = {
  entered: ({ fence }) => `entered ${fence}`,
  left: ({ fence }) => `left ${fence}`,
  silent: () => 'fell silent',
  heard: () => 'is heard again',
  overstayed: ({ fence }) => `stays too long in ${fence}`,
  off_hours: ({ fence }) => `crossed the border of ${fence} while it is closed`,
  fast: ({ fence, speed }) => `is too fast${fence && ` in ${fence}`}${speed === null ? '' : `, ${formatSpeed(speed)}`}`,
  slow: ({ fence }) => `is slower again${fence && ` in ${fence}`}`,
  jump: () => 'jumped',
};

/** Describes an alert: "Anna entered Depot". */
export const alertText = (alert: Alert, name: string): string => `${name} ${DESCRIPTIONS[alert.kind]?.(alert) ?? alert.kind}`;

/** Identifies an event. */
export const key = ({ driver_id, ts, seq, kind, fence }: Alert): string => [driver_id, ts, seq, kind, fence].join('|');

interface Options {
  /** Called before the box opens: the other boxes are at the same place. */
  opening(): void;
  writes: boolean;
  name(id: string): string;
  /** Group that is shown; empty: every group. */
  group(): string;
  /** Returns the driver's group; empty: none, or not known yet. */
  groupOf(id: string): string;
  /** Moves the map to the place of an alert, and opens its driver. */
  go(alert: Alert): void;
}

export class Alerts {
  isOpen = false;
  all: Alert[] = [];
  /** The map shows the past, without marks of the present. */
  private isHidden = false;
  /** Reason why some alerts are missing; empty: none is missing. */
  private hint = '';
  private readonly box = byId('alerts-box', HTMLElement);
  private readonly button = byId('alerts', HTMLButtonElement);
  private readonly badge = byId('alerts-count', HTMLElement);
  private readonly title = byId('alerts-title', HTMLElement);
  private readonly rows = byId('alerts-list', HTMLOListElement);
  private readonly message = byId('alerts-said', HTMLElement);
  private readonly marks = new Map<string, Marker>();
  private requestedAt = -Infinity;
  private isRequesting = false;
  /** Group of the last request. */
  private requestedGroup = '';
  /** Group whose alerts are in `all`; empty: every group. */
  private loadedGroup = '';

  constructor(
    private readonly map: MapLibre,
    private readonly options: Options,
  ) {
    this.button.addEventListener('click', () => this.toggle());
    byId('alerts-close', HTMLButtonElement).addEventListener('click', () => this.toggle());
    map.on('zoom', () => {
      const offset = this.offset();
      for (const marker of this.marks.values()) if (marker.getOffset().y !== offset[1]) marker.setOffset(offset);
    });
  }

  toggle(): void {
    if (!this.isOpen) this.options.opening();
    this.isOpen = !this.isOpen;
    this.box.hidden = !this.isOpen;
    setPressed(this.button, this.isOpen);
    if (this.isOpen) this.box.querySelector<HTMLElement>('button')?.focus();
    else if (this.box.contains(document.activeElement)) this.button.focus();
    this.draw();
  }

  /** Hides the marks on the map, or shows them again. */
  setHidden(isHidden: boolean): void {
    if (isHidden === this.isHidden) return;
    this.isHidden = isHidden;
    this.draw();
  }

  /** Called when names or groups of drivers have changed, or another group is shown. */
  redraw(): void {
    for (const marker of this.marks.values()) marker.remove();
    this.marks.clear();
    this.draw();
  }

  /**
   * Called once a second; requests the alerts if `REFRESH_MS` have passed since the last request,
   * or if another group is shown: an answer has only the newest alerts, which may all be of others.
   */
  async tick(): Promise<void> {
    const group = this.options.group();
    if (this.isRequesting || (group === this.requestedGroup && performance.now() - this.requestedAt < REFRESH_MS)) return;
    this.isRequesting = true;
    this.requestedAt = performance.now();
    this.requestedGroup = group;
    try {
      const found = await fetchAlerts(group);
      this.loadedGroup = group;
      this.all = found.alerts;
      this.hint = found.hint ?? '';
      this.draw();
    } catch (error) {
      setText(this.message, error instanceof ApiError ? error.message : 'The server does not answer.');
    } finally {
      this.isRequesting = false;
    }
  }

  private draw(): void {
    const group = this.options.group();
    const shown = group ? this.all.filter(({ driver_id }) => this.options.groupOf(driver_id) === group) : this.all;
    const unseen = shown.filter(({ seen_at }) => seen_at === 0);
    setText(this.badge, unseen.length === 0 ? '' : unseen.length > 99 ? '99+' : String(unseen.length));
    this.button.setAttribute('aria-label', unseen.length === 0 ? 'Alerts' : `Alerts, ${unseen.length} not seen`);
    this.drawMarks(this.isHidden ? [] : unseen.slice(0, MARKS_MAX));
    if (!this.isOpen) return;
    const none = this.all.length === 0 && !group && !this.loadedGroup ? 'None in the last 24 hours. milepost events finds them.' : '';
    setText(this.message, this.hint || none || (group && `Only alerts of ${group}.`));
    replaceRows(this.rows, shown.map((alert) => this.row(alert)), this.title);
  }

  private row(alert: Alert): HTMLLIElement {
    const item = make('li');
    item.dataset.key = key(alert);
    item.dataset.seen = String(alert.seen_at > 0);
    const go = make('button');
    go.type = 'button';
    const seen = alert.seen_at > 0 ? ` · seen${alert.seen_by ? ` by ${alert.seen_by}` : ''}` : '';
    go.append(make('span', alertText(alert, this.options.name(alert.driver_id))), make('small', `${moment(alert.ts, serverNow())}${seen}`));
    go.addEventListener('click', () => this.options.go(alert));
    item.append(go);
    if (this.options.writes && alert.seen_at === 0) {
      const seenButton = make('button', 'Seen');
      seenButton.type = 'button';
      seenButton.setAttribute('aria-label', `Seen: ${alertText(alert, this.options.name(alert.driver_id))}`);
      seenButton.addEventListener('click', () => void this.acknowledge(alert));
      item.append(seenButton);
    }
    return item;
  }

  /** Returns the areas of the marks, in pixels of the page. */
  areas(): Covered[] {
    const up = this.offset()[1];
    return Array.from(this.marks.values(), (marker) => {
      const { x, y } = project(this.map, marker.getLngLat().toArray());
      return { left: x - MARK_SIZE_PX / 2, top: y + up - MARK_SIZE_PX, right: x + MARK_SIZE_PX / 2, bottom: y + up };
    });
  }

  private offset(): [x: number, y: number] {
    return [0, this.map.getZoom() < CLUSTER_ZOOM ? -ABOVE_DISC_PX : 0];
  }

  private async acknowledge(alert: Alert): Promise<void> {
    try {
      await acknowledgeAlert(alert);
      this.requestedAt = -Infinity;
      await this.tick();
    } catch (error) {
      setText(this.message, error instanceof ApiError ? error.message : 'The server does not answer.');
    }
  }

  /** Marks the place of each alert that no viewer has acknowledged. */
  private drawMarks(unseen: readonly Alert[]): void {
    const wanted = new Map(unseen.map((alert) => [key(alert), alert]));
    for (const [name, marker] of this.marks) {
      if (wanted.has(name)) continue;
      marker.remove();
      this.marks.delete(name);
    }
    for (const [name, alert] of wanted) {
      if (this.marks.has(name)) continue;
      const element = make('div', '!', 'alert-mark');
      element.ariaHidden = 'true';
      element.title = alertText(alert, this.options.name(alert.driver_id));
      this.marks.set(name, new Marker({ element, anchor: 'bottom', offset: this.offset() }).setLngLat([alert.lng, alert.lat]).addTo(this.map));
    }
  }
}

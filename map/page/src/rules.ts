// The rules of a fence: a form, and a description.
import { drivers as findDrivers } from './api';
import { byId, make, replaceRows, setText } from './dom';
import { changedRules, type Rules } from './rings';
import { duration, kmhOf, formatSpeed, speedUnit, speedOfKmh, type Unit } from './words';
import { zone } from './zone';

const MINUTE_S = 60;

/**
 * Describes rules: "50 km/h, at most 30 min, Mo-Fr 06:00-18:00, 2 drivers"; empty: there are none.
 */
export function rulesInWords({ speed_limit_kmh, stay_max_s, silent_for_s, hours, drivers }: Rules): string {
  const parts = [
    speed_limit_kmh ? formatSpeed(speed_limit_kmh / 3.6) : '',
    stay_max_s ? `at most ${duration(stay_max_s)}` : '',
    silent_for_s === 0 ? 'never silent' : silent_for_s ? `silent after ${duration(silent_for_s)}` : '',
    hours ?? '',
    drivers?.length ? `${drivers.length} driver${drivers.length === 1 ? '' : 's'}` : '',
  ];
  return parts.filter((part) => part !== '').join(', ');
}

const number = (text: string): number | null => (text.trim() === '' ? null : Number(text));

/** Formats a number with at most one decimal, as a person would write it. */
const rounded = (value: number): string => String(Math.round(value * 10) / 10);

/**
 * Parses a field in this unit to a speed limit in km/h. An untouched field keeps the exact value
 * `was`.
 */
export function kmhIn(text: string, was: number | null | undefined, unit: Unit): number | null {
  if (was && rounded(speedOfKmh(was, unit)) === text) return was;
  const limit = number(text);
  return limit === null ? null : kmhOf(limit, unit);
}

/**
 * Parses a field of minutes to seconds. An untouched field keeps the exact value `was`. Only 0
 * becomes 0, which means never silent.
 */
export function secondsIn(text: string, was: number | null | undefined): number | null {
  if (was != null && rounded(was / MINUTE_S) === text) return was;
  const minutes = number(text);
  return minutes && Math.max(1, Math.round(minutes * MINUTE_S));
}

export class RulesForm {
  private readonly box = byId('fence-rules', HTMLDetailsElement);
  private readonly speed = byId('fence-speed', HTMLInputElement);
  private readonly stay = byId('fence-stay', HTMLInputElement);
  private readonly silent = byId('fence-silent', HTMLInputElement);
  private readonly hours = byId('fence-hours', HTMLInputElement);
  private readonly zone = byId('fence-zone', HTMLSelectElement);
  private readonly driver = byId('fence-driver', HTMLInputElement);
  private readonly names = byId('fence-driver-names', HTMLDataListElement);
  private readonly chosen = byId('fence-drivers', HTMLUListElement);
  /** The rules with which the form was opened, so that an untouched field keeps its exact value. */
  private before: Rules = {};
  /**
   * Unit of the speed field. It stays the same even if the viewer changes the unit of the page
   * meanwhile.
   */
  private unit: Unit = 'km/h';
  private drivers: string[] = [];
  private request: AbortController | null = null;
  /** The text whose suggestions are listed. */
  private listed = '';

  constructor(private readonly name: (id: string) => string) {
    this.driver.addEventListener('input', () => void this.suggest());
    this.driver.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter') return;
      // Otherwise the form would be submitted.
      event.preventDefault();
      // The viewer may press Enter before the suggestions have arrived.
      if (!this.addDriver(true)) void this.suggest(true);
    });
    this.driver.addEventListener('change', () => this.addDriver(true));
  }

  open(rules: Rules): void {
    this.before = rules;
    this.unit = speedUnit();
    this.speed.value = rules.speed_limit_kmh ? rounded(speedOfKmh(rules.speed_limit_kmh, this.unit)) : '';
    this.stay.value = rules.stay_max_s ? rounded(rules.stay_max_s / MINUTE_S) : '';
    this.silent.value = rules.silent_for_s == null ? '' : rounded(rules.silent_for_s / MINUTE_S);
    this.hours.value = rules.hours ?? '';
    const zones = new Set([rules.hours_zone || (rules.hours ? 'UTC' : zone()), zone(), 'UTC', ...Intl.supportedValuesOf('timeZone')]);
    this.zone.replaceChildren(...[...zones].map((name) => Object.assign(make('option', name), { value: name })));
    this.zone.selectedIndex = 0;
    setText(byId('fence-speed-unit', HTMLElement), this.unit);
    this.drivers = [...(rules.drivers ?? [])];
    byId('fence-drivers-box', HTMLElement).hidden = rules.drivers === undefined;
    this.request?.abort();
    this.names.replaceChildren();
    this.driver.value = '';
    this.draw();
    this.box.open = rulesInWords(rules) !== '';
  }

  /** Called when these rules were saved while the form stays open: `read` returns later changes. */
  rebase(saved: Rules): void {
    this.before = { ...this.before, ...saved };
  }

  /** Returns what the fields contain. */
  contents(): unknown[] {
    return [...[this.speed, this.stay, this.silent, this.hours, this.zone, this.driver].map(({ value }) => value), ...this.drivers];
  }

  /** Returns the rules that were changed. Throws an Error with a message for the viewer. */
  read(): Rules {
    this.addDriver(false);
    if (this.driver.value.trim()) throw new Error(`There is no driver “${this.driver.value.trim()}”: choose one from the list.`);
    const { before } = this;
    const hours = this.hours.value.trim() || null;
    const shown = before.hours ? before.hours_zone || 'UTC' : '';
    const zone = this.zone.value === shown ? (before.hours_zone ?? null) : this.zone.value;
    return changedRules(before, {
      speed_limit_kmh: kmhIn(this.speed.value, before.speed_limit_kmh, this.unit),
      stay_max_s: secondsIn(this.stay.value, before.stay_max_s),
      silent_for_s: secondsIn(this.silent.value, before.silent_for_s),
      hours,
      hours_zone: hours === null ? null : zone,
      ...(before.drivers === undefined ? {} : { drivers: [...this.drivers] }),
    });
  }

  /**
   * Suggests drivers. With `addsDriver`, adds the driver with the id in the field, or the only
   * suggestion.
   */
  private async suggest(addsDriver = false): Promise<void> {
    this.request?.abort();
    const text = this.driver.value.trim();
    if (this.addDriver(false) || !text) return;
    const controller = (this.request = new AbortController());
    const found = await findDrivers(text, controller.signal).catch(() => []);
    if (controller.signal.aborted) return;
    this.listed = text;
    this.names.replaceChildren(...found.map(({ driver_id, name }) => Object.assign(make('option', name), { value: driver_id })));
    if (addsDriver) this.addDriver(true);
  }

  /**
   * Adds the driver whose id is in the field or, with `acceptsOnly`, that is the only suggestion for
   * its text. Returns whether it added one.
   */
  private addDriver(acceptsOnly: boolean): boolean {
    const text = this.driver.value.trim();
    const ids = [...this.names.options].map(({ value }) => value);
    const id = ids.includes(text) ? text : acceptsOnly && text && text === this.listed && ids.length === 1 ? ids[0] : '';
    if (!id) return false;
    if (!this.drivers.includes(id)) this.drivers.push(id);
    this.driver.value = '';
    this.names.replaceChildren();
    this.draw();
    return true;
  }

  /** Called when names of drivers have changed. */
  redrawNames(): void {
    this.draw();
  }

  private draw(): void {
    this.driver.placeholder = this.drivers.length === 0 ? 'all drivers' : 'one more';
    replaceRows(
      this.chosen,
      this.drivers.map((id) => {
        const item = make('li');
        item.dataset.key = id;
        const remove = make('button', `${this.name(id)} ✕`);
        remove.type = 'button';
        remove.setAttribute('aria-label', `Not only for ${this.name(id)}`);
        remove.addEventListener('click', () => {
          this.drivers = this.drivers.filter((other) => other !== id);
          this.draw();
          this.driver.focus();
        });
        item.append(remove);
        return item;
      }),
    );
  }
}

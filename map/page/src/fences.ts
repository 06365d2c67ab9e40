// Fences: named areas, on the map and in a list. Viewers who may edit fences set corners by clicks
// or at the middle of the map, and drag them. The server stores fences in ClickHouse.
import type { Position } from 'geojson';
import { LngLatBounds, type Map as MapLibre, type PointLike } from 'maplibre-gl';
import { cutRing, joinRings } from './antimeridian';
import { ApiError, fences as fetchFences, putFence } from './api';
import type { Theme } from './colours';
import { byId, make, replaceRows, setPressed, setText } from './dom';
import { Draft } from './draft';
import { FenceLayers } from './fence-layers';
import { middle } from './places';
import { corners, hasOneRing, type Fence, type Rules } from './rings';
import { isAcross, padding, SLACK_PX, type Sides } from './room';
import { RulesForm, rulesInWords } from './rules';
import { project } from './view';
import { Visits } from './visits';
import { upperFirst } from './words';

export type { Fence };

/** Maximum zoom at which the map shows a fence that is chosen in the list. */
const FIT_ZOOM = 17;
/** An outline smaller than this is too small to be edited. */
const OUTLINE_PX = 40;
/** HTTP status of an edit that would overwrite another user's change. */
const CONFLICT = 409;

/** Says why a request failed. */
const reason = (error: unknown): string => (error instanceof ApiError ? error.message : 'The server does not answer.');

export class Fences {
  isOpen = false;
  /** Clicks on the map set corners. */
  isDrawing = false;
  all: Fence[] = [];
  private readonly visits: Visits;
  /** The outline that is edited. */
  private readonly draft: Draft;
  /**
   * The name as the field shows it, without line breaks. If the field still contains this name, the
   * viewer has not changed it.
   */
  private shownName = '';
  /** The fence that is edited; null: a new one. */
  private edited: Fence | null = null;
  /** Counts how often the form was closed: a late answer to a save must not change a later form. */
  private closings = 0;
  /** A save has no answer yet. */
  private isSaving = false;
  /** The outline of the edited fence that the server has, as JSON. */
  private storedRing = '';
  /** Counts the requests for fences. */
  private loads = 0;
  /** The request whose answer is shown: late answers to those before it are dropped. */
  private shownLoad = 0;
  /** The last request. */
  private lastLoad: Promise<void> = Promise.resolve();
  /**
   * The saves that failed after their forms were closed. The message begins with them until the
   * viewer, having seen them above the list, opens a form or closes the box.
   */
  private failures: string[] = [];
  /** The message without the failures. */
  private said = '';
  private readonly box = byId('fences-box', HTMLElement);
  private readonly button = byId('fences', HTMLButtonElement);
  private readonly rows = byId('fences-list', HTMLOListElement);
  private readonly newButton = byId('fence-new', HTMLButtonElement);
  private readonly form = byId('fence-form', HTMLFormElement);
  private readonly name = byId('fence-name', HTMLInputElement);
  private readonly message = byId('fences-said', HTMLElement);
  private readonly submit = byId('fence-submit', HTMLButtonElement);
  private readonly remove = byId('fence-remove', HTMLButtonElement);
  private readonly past = byId('fence-past', HTMLInputElement);
  private readonly pastLabel = byId('fence-past-label', HTMLLabelElement);
  private readonly outlineTools = byId('fence-outline', HTMLElement);
  private readonly rules: RulesForm;
  readonly layers: FenceLayers;

  constructor(
    private readonly map: MapLibre,
    theme: Theme,
    private readonly edits: boolean,
    private readonly options: { opening(): void; changed(): void; name(id: string): string; choose(id: string): void; /** Called before the map moves to a fence. */ moving(): void; /** Shows above the map which saves failed; empty: none. */ warn(text: string): void; seesAll: boolean },
  ) {
    this.layers = new FenceLayers(map, theme);
    this.draft = new Draft(map, this.layers, options.moving);
    this.rules = new RulesForm(options.name);
    this.visits = new Visits({
      name: options.name,
      choose: options.choose,
      edit: edits ? (fence) => this.edit(fence) : null,
      back: ({ properties }) => this.focusRow(properties.name),
      changed: (fence) => {
        this.box.toggleAttribute('data-chosen', fence !== null);
        this.layers.choose(fence?.properties.name ?? null);
      },
    });
    this.button.addEventListener('click', () => this.toggle());
    byId('fences-close', HTMLButtonElement).addEventListener('click', () => this.toggle());
    this.newButton.addEventListener('click', () => this.edit(null));
    byId('fence-corner', HTMLButtonElement).addEventListener('click', () => this.setCorner(map.getCenter().toArray()));
    byId('fence-cancel', HTMLButtonElement).addEventListener('click', () => this.stopEditing());
    this.remove.addEventListener('click', () => void this.save(true));
    this.form.addEventListener('submit', (event) => {
      event.preventDefault();
      void this.save(false);
    });
    map.on('click', ({ lngLat, originalEvent }) => {
      // The second click of a double click does not set another corner at the same place.
      if (this.isDrawing && originalEvent.detail < 2) this.setCorner(lngLat.toArray());
    });
    map.on('dblclick', (event) => this.isDrawing && event.preventDefault());
    this.newButton.hidden = !edits;
    void this.load();
  }

  toggle(): void {
    if (!this.isOpen) this.options.opening();
    else if (!this.isEditing) this.failures = [];
    const hadFocus = this.box.contains(document.activeElement) || this.draft.hasFocus;
    this.isOpen = !this.isOpen;
    this.box.hidden = !this.isOpen;
    setPressed(this.button, this.isOpen);
    this.closeForm();
    if (this.isOpen) {
      void this.load();
      this.box.querySelector<HTMLElement>('button')?.focus();
    } else if (hadFocus) this.button.focus();
    this.warn();
  }

  load(): Promise<void> {
    return (this.lastLoad = this.request(++this.loads));
  }

  private async request(load: number): Promise<void> {
    let hint = '';
    try {
      const found = await fetchFences();
      if (load < this.shownLoad) return;
      this.shownLoad = load;
      hint = found.hint ?? '';
      this.all = found.features.map((fence) => ({ ...fence, geometry: joinRings(fence.geometry) }));
    } catch (error) {
      if (load === this.loads && !this.isEditing) this.say(reason(error));
      return;
    }
    if (!this.isEditing) this.say(hint || this.all.length > 0 ? hint : this.edits ? 'There are none yet.' : 'There are none. milepost fences import reads them from a file.');
    this.drawRows();
    byId('fence-names', HTMLDataListElement).replaceChildren(...this.all.map(({ properties }) => Object.assign(make('option'), { value: properties.name })));
    this.layers.setData('fences', { type: 'FeatureCollection', features: this.all.map((fence) => ({ ...fence, properties: { ...fence.properties, width: middle(fence).width } })) });
    this.visits.update(this.all);
    this.options.changed();
  }

  private row(fence: Fence): HTMLLIElement {
    const item = make('li');
    item.dataset.key = fence.properties.name;
    const button = make('button');
    button.type = 'button';
    button.append(make('span', fence.properties.name));
    const rules = rulesInWords(fence.properties);
    if (rules) button.append(make('small', rules));
    button.addEventListener('click', () => {
      const { clientWidth, clientHeight } = this.map.getContainer();
      // On a phone or a tablet the card covers the upper half and grows with its visits; on a
      // larger screen it is at the left.
      const isAbove = isAcross(this.box.getBoundingClientRect(), clientWidth);
      this.fit(fence, isAbove ? { top: clientHeight * 0.58, bottom: clientHeight * 0.06, left: 30, right: 30 } : padding(this.map));
      this.visits.show(fence);
    });
    item.append(button);
    if (this.edits) {
      const edit = make('button', 'Edit');
      edit.type = 'button';
      edit.setAttribute('aria-label', `Edit ${fence.properties.name}`);
      edit.addEventListener('click', () => this.edit(fence));
      item.append(edit);
    }
    return item;
  }

  private fit(fence: Fence, padding: Sides): void {
    this.options.moving();
    const box = new LngLatBounds();
    for (const point of fence.geometry.coordinates.flat(2)) box.extend(point as [number, number]);
    this.map.fitBounds(box, { padding, maxZoom: FIT_ZOOM, duration: 600 });
  }

  /** Moves the map to an outline that is opened, unless its corners can already be dragged. */
  private showOutline(fence: Fence): void {
    const free = padding(this.map);
    const { clientWidth, clientHeight } = this.map.getContainer();
    const places = corners(fence.geometry).map(([lng, lat]) => project(this.map, [lng, lat]));
    const [xs, ys] = [places.map(({ x }) => x), places.map(({ y }) => y)];
    const [west, east, north, south] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const isInView = west >= free.left - SLACK_PX && east <= clientWidth - free.right + SLACK_PX && north >= free.top - SLACK_PX && south <= clientHeight - free.bottom + SLACK_PX;
    const isTiny = Math.max(east - west, south - north) < OUTLINE_PX && this.map.getZoom() < FIT_ZOOM;
    if (!isInView || isTiny) this.fit(fence, free);
  }

  /**
   * Returns the smallest fence at a point of the map; null: there is none, or the form is open. A
   * fence more than `widest` pixels wide has its outline out of view, so the viewer does not mean
   * it.
   */
  at(point: PointLike, widest: number): Fence | null {
    if (this.isEditing || !this.map.getLayer('fences-area')) return null;
    const degrees = (widest * 360) / (512 * 2 ** this.map.getZoom());
    const found = this.map.queryRenderedFeatures(point, { layers: ['fences-area'] }).map(({ properties }) => properties as { name: string; width: number });
    const [smallest] = found.filter(({ width }) => width <= degrees).sort((a, b) => a.width - b.width);
    return this.all.find(({ properties }) => properties.name === smallest?.name) ?? null;
  }

  /** The form is open; the outline of several rings is not drawn. */
  get isEditing(): boolean {
    return !this.form.hidden;
  }

  /** Opens the card with a fence: who is inside and since when. */
  show(fence: Fence): void {
    if (!this.isOpen) this.toggle();
    this.visits.show(fence);
  }

  /** Called when names of drivers have changed. */
  redrawNames(): void {
    this.visits.redraw();
    this.rules.redrawNames();
  }

  /** Called when units or zone have changed. */
  redraw(): void {
    this.drawRows();
    this.visits.update(this.all);
    this.visits.redraw();
  }

  private drawRows(): void {
    replaceRows(this.rows, this.all.map((fence) => this.row(fence)));
  }

  private edit(fence: Fence | null): void {
    if (!this.isEditing) this.failures = [];
    this.closeForm();
    this.edited = fence;
    // An outline of several rings can be changed only in a file; here the fence can be renamed and
    // removed.
    this.isDrawing = fence === null || hasOneRing(fence.geometry);
    this.form.hidden = false;
    this.box.dataset.drawing = String(this.isDrawing);
    this.outlineTools.hidden = !this.isDrawing;
    this.remove.hidden = fence === null;
    this.pastLabel.hidden = fence === null;
    this.past.checked = false;
    this.name.value = fence?.properties.name ?? '';
    this.shownName = this.name.value;
    this.rules.open(fence?.properties ?? (this.options.seesAll ? { drivers: [] } : {}));
    if (fence && this.isDrawing) this.draft.open(corners(fence.geometry));
    this.storedRing = JSON.stringify(this.draft.ring());
    this.say(this.isDrawing ? 'Click the map to set corners. Drag a corner, or use the arrow keys on it, to move it; double-click it, or press Delete on it, to remove it.' : 'This outline has several rings: milepost fences import changes it.');
    if (fence && this.isDrawing) this.showOutline(fence);
    this.name.focus();
    this.warn();
  }

  /** Sets a corner for the viewer. */
  private setCorner(corner: Position): void {
    this.draft.insert(corner, this.edited !== null);
  }

  /** Closes the form; returns whether it had the focus, which then is in the list. */
  private stopEditing(): boolean {
    const hadFocus = this.form.contains(document.activeElement) || this.draft.hasFocus;
    const name = this.edited?.properties.name;
    this.closeForm();
    this.warn();
    if (hadFocus) this.focusRow(name);
    return hadFocus;
  }

  /** Gives the focus to the row of a fence; if there is none, to New. */
  private focusRow(name = ''): void {
    const row = this.rows.querySelector<HTMLElement>(`[data-key="${CSS.escape(name)}"] button`);
    const target = row ?? this.newButton;
    target.focus({ preventScroll: true });
    target.scrollIntoView({ block: 'nearest' });
    this.warn();
  }

  /**
   * Called after a save: a new name has its row only now, and that of the old name is gone. Leaves
   * the focus where the viewer has moved it meanwhile.
   */
  private focusNewRow(name: string): void {
    const { activeElement } = document;
    if (activeElement === null || activeElement === document.body || activeElement === this.newButton) this.focusRow(name);
  }

  private closeForm(): void {
    this.draft.open([]);
    this.closings++;
    this.setSaving(false);
    this.isDrawing = false;
    this.edited = null;
    delete this.box.dataset.drawing;
    this.form.hidden = true;
    this.visits.close();
    this.say('');
  }

  /**
   * Disables the buttons while a save has no answer. Unlike `disabled`, `aria-disabled` lets the
   * pressed button keep the focus.
   */
  private setSaving(isSaving: boolean): void {
    this.isSaving = isSaving;
    for (const button of [this.submit, this.remove]) button.setAttribute('aria-disabled', String(isSaving));
    if (isSaving) this.say('Saving …');
  }

  /** Returns what the form contains, to see whether the viewer changes it. */
  private contents(): string {
    return JSON.stringify([this.name.value, this.past.checked, this.draft.ring(), this.rules.contents()]);
  }

  private async save(isRemoved: boolean): Promise<void> {
    if (this.isSaving) return;
    const was = this.edited?.properties.name;
    const isUntouched = was !== undefined && this.name.value === this.shownName;
    const name = was !== undefined && (isRemoved || isUntouched) ? was : this.name.value.trim();
    if (!name) return this.say('Give the fence a name.');
    if (name !== was && this.all.some((fence) => fence.properties.name === name)) return this.say('There is a fence of this name: edit it, or choose another one.');
    let rules: Rules = {};
    try {
      if (!isRemoved) rules = this.rules.read();
    } catch (error) {
      return this.say((error as Error).message);
    }
    const ring = JSON.stringify(this.draft.ring());
    const isDrawn = ring !== this.storedRing || !this.edited;
    const { valid_from, valid_until } = this.edited?.properties ?? {};
    const properties = { valid_from, valid_until, ...rules, name, ...(was && was !== name ? { was } : {}), ...(isDrawn ? { outline: this.edited?.properties.outline } : {}), rewrite_past: this.past.checked && !isRemoved };
    const drawn = isDrawn ? { geometry: { type: 'MultiPolygon' as const, coordinates: cutRing(this.draft.ring()) } } : {};
    const sent = this.contents();
    this.setSaving(true);
    const { closings } = this;
    /** The viewer has closed the form before the answer, and may have opened another one. */
    const isLate = () => closings !== this.closings;
    try {
      await putFence({ type: 'Feature', properties, ...(isRemoved ? { geometry: null } : drawn) });
      const isChanged = !isLate() && !isRemoved && this.contents() !== sent;
      const hadFocus = !isChanged && !isLate() && this.stopEditing();
      await this.load();
      if (hadFocus) this.focusNewRow(name);
      if (!isChanged || isLate()) return;
      const outline = this.edited?.properties.outline;
      this.edited = this.all.find((fence) => fence.properties.name === name) ?? this.edited;
      // If the outline was not sent, it may be another user's: the next save must not replace it.
      if (this.edited && !isDrawn && outline !== undefined) this.edited = { ...this.edited, properties: { ...this.edited.properties, outline } };
      this.continueEditing(name, rules, ring);
    } catch (error) {
      const why = reason(error);
      const isConflict = error instanceof ApiError && error.status === CONFLICT;
      const isLoaded = isConflict && !isLate() && (await this.loadNewest());
      if (isLate()) return this.tellLate(`${was ?? name} was not ${isRemoved ? 'removed' : 'saved'}: ${why.replace(/^The /, 'the ').replace(/\.$/, '')}.`);
      this.setSaving(false);
      if (isConflict) this.showConflict(why, was!, isLoaded);
      else this.say(why);
    }
  }

  /** Shows a failure of a save whose form is closed. */
  private tellLate(failure: string): void {
    this.failures.push(failure);
    this.say(this.said);
    this.warn();
  }

  /** Shows failures above the map while the box is closed, and above the list while it is open. */
  private warn(): void {
    const hasFailures = this.failures.length > 0;
    this.options.warn(hasFailures && !this.isOpen ? `${this.failures.join(' ')} Make the change again in Fences.` : '');
    // While a form is open, fields do not move. The failures stay until it is closed.
    if (hasFailures && !this.isEditing) this.message.scrollIntoView({ block: 'nearest' });
  }

  /** Writes the message above the list, after the failures. */
  private say(text: string): void {
    this.said = text;
    setText(this.message, [...this.failures, text].filter(Boolean).join(' '));
  }

  /** Called after a save, if the viewer has changed the form since: the next save has the rest. */
  private continueEditing(name: string, rules: Rules, ring: string): void {
    // A name with line breaks, which the field does not show, was saved as it is.
    if (this.shownName !== name.replace(/[\r\n]/g, '')) this.shownName = name;
    this.rules.rebase(rules);
    this.storedRing = ring;
    this.remove.hidden = this.pastLabel.hidden = this.edited === null;
    this.setSaving(false);
    this.say(`${name} was saved. Your changes since then are not saved yet.`);
  }

  /** Requests the fences; returns whether the newest ones are shown. */
  private async loadNewest(): Promise<boolean> {
    const { loads } = this;
    void this.load();
    // Others may be sent meanwhile, and succeed where this one fails.
    for (let waited: unknown = null; waited !== this.lastLoad; await waited) waited = this.lastLoad;
    return this.shownLoad > loads;
  }

  /**
   * Warns that another user has changed the fence meanwhile, and shows both outlines. The next save
   * replaces the other user's. `isLoaded`: their version is shown.
   */
  private showConflict(why: string, name: string, isLoaded: boolean): void {
    if (!isLoaded) return this.say(`${upperFirst(why)}. Their version could not be loaded: save again to try that again, or cancel.`);
    this.edited = this.all.find(({ properties }) => properties.name === name) ?? null;
    // The next save sends the outline even if it is again the one with which the form was opened.
    if (this.isDrawing) this.storedRing = '';
    this.remove.hidden = this.edited === null;
    const advice = this.edited ? 'Both are on the map: save again to replace theirs, or cancel to keep it.' : 'Save again to store yours as a new fence, or cancel.';
    this.say(`${upperFirst(why)}. ${advice}`);
  }
}

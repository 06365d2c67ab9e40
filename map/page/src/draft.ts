// The outline of a fence that is edited: its corners, each with a handle on the map for mouse and
// keyboard, and the changes of the viewer, which can be undone.
import type { Position } from 'geojson';
import { Marker, type Map as MapLibre } from 'maplibre-gl';
import { byId, make, setText } from './dom';
import type { FenceLayers } from './fence-layers';
import { insertion, nearestCopy } from './rings';
import { padding, SLACK_PX } from './room';
import { clampLat, project } from './view';

/** A click is on the outline if a corner there makes it longer by at most this many pixels. */
const ON_OUTLINE_PX = 3;
/** Pixels by which an arrow key moves a corner, without and with Shift. */
const STEP_PX = 2;
const LONG_STEP_PX = 20;
const ARROWS: Partial<Record<string, readonly [right: number, down: number]>> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** `place` is exact; `marker` moves to the copy of the world in view. */
interface Corner {
  marker: Marker;
  place: Position;
}

export class Draft {
  private corners: Corner[] = [];
  /** The corners before each change of the viewer, the newest change last. */
  private changes: Position[][] = [];
  /**
   * The corner that keys have moved since it got the focus. Its moves are one change, as those of a
   * drag are.
   */
  private keyed: Corner | null = null;
  private readonly undoButton = byId('fence-undo', HTMLButtonElement);
  /** Where a key has moved a corner, for screen readers. */
  private readonly said = byId('fence-corner-said', HTMLElement);

  constructor(
    private readonly map: MapLibre,
    private readonly layers: FenceLayers,
    /** Called before the map moves to a corner. */
    private readonly moving: () => void,
  ) {
    this.undoButton.addEventListener('click', () => this.undo());
  }

  /** Replaces the outline with another one, without changes; empty: none is edited. */
  open(places: readonly Position[]): void {
    this.changes = [];
    this.allowUndo();
    this.setCorners(places);
  }

  /** A corner has the focus of the keyboard. */
  get hasFocus(): boolean {
    return this.corners.some(({ marker }) => marker.getElement() === document.activeElement);
  }

  private setCorners(places: readonly Position[]): void {
    this.keyed = null;
    setText(this.said, '');
    for (const { marker } of this.corners) marker.remove();
    this.corners = [];
    for (const corner of places) this.add(corner, corner[0]);
    this.draw();
  }

  /**
   * Sets a corner for the viewer: of a new outline behind the others, of an existing one, or on the
   * outline, between its neighbours.
   */
  insert(corner: Position, isExisting: boolean): void {
    const { index, added } = insertion(this.corners.map(({ place }) => project(this.map, [place[0], place[1]])), project(this.map, [corner[0], corner[1]]));
    this.rememberForUndo();
    this.add(corner, undefined, isExisting || added <= ON_OUTLINE_PX ? index : this.corners.length);
    this.draw();
  }

  /**
   * Adds a corner, on the copy of the world that is nearest to the longitude `near`. The caller
   * draws the draft when it has added all corners.
   */
  private add(corner: Position, near = (this.corners[0]?.place ?? [0])[0], index = this.corners.length): void {
    const element = make('div', '', 'corner');
    element.tabIndex = 0;
    // Of a button, a screen reader would keep the arrow keys for itself.
    element.role = 'application';
    element.setAttribute('aria-roledescription', 'handle');
    // A click on a corner chooses it for the keyboard. It does not set another one, and a double
    // click does not zoom the map.
    element.addEventListener('click', (event) => {
      event.stopPropagation();
      element.focus({ preventScroll: true });
    });
    const remove = () => {
      this.rememberForUndo();
      const index = this.corners.indexOf(added);
      marker.remove();
      this.corners.splice(index, 1);
      this.draw();
      const next = this.corners[index] ?? this.corners.at(-1);
      next?.marker.getElement().focus({ preventScroll: true });
      if (next) this.keepInView(next);
    };
    element.addEventListener('dblclick', (event) => {
      event.stopPropagation();
      remove();
    });
    // Tab has moved the focus here.
    element.addEventListener('keyup', ({ key }) => key === 'Tab' && this.keepInView(added));
    element.addEventListener('blur', () => (this.keyed = null));
    element.addEventListener('keydown', (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      const arrow = ARROWS[event.key];
      if (!arrow && event.key !== 'Delete' && event.key !== 'Backspace') return;
      event.preventDefault();
      // The map would move, too.
      event.stopPropagation();
      const step = event.shiftKey ? LONG_STEP_PX : STEP_PX;
      if (arrow) this.moveByKey(added, arrow[0] * step, arrow[1] * step);
      else remove();
    });
    const marker = new Marker({ element, draggable: true }).setLngLat([corner[0], corner[1]]).addTo(this.map);
    const added: Corner = { marker, place: [nearestCopy(corner[0], near), corner[1]] };
    marker.on('dragstart', () => {
      element.focus({ preventScroll: true });
      this.rememberForUndo();
    });
    marker.on('drag', () => {
      const { lng, lat } = marker.getLngLat();
      added.place = [nearestCopy(lng, added.place[0]), lat];
      this.drawOutline();
    });
    // Tab goes through the corners in the order of the outline.
    this.corners[index]?.marker.getElement().before(element);
    this.corners.splice(index, 0, added);
  }

  /** Moves a corner by pixels. */
  private moveByKey(corner: Corner, right: number, down: number): void {
    if (this.keyed !== corner) this.rememberForUndo();
    this.keyed = corner;
    const { x, y } = project(this.map, [corner.place[0], corner.place[1]]);
    const moved = this.map.unproject([x + right, y + down]);
    const [lng, lat] = [moved.lng, clampLat(moved.lat)];
    corner.place = [nearestCopy(lng, corner.place[0]), lat];
    corner.marker.setLngLat([lng, lat]);
    this.drawOutline();
    this.keepInView(corner);
    setText(this.said, `${this.nameOf(corner)}: ${lat.toFixed(5)}, ${nearestCopy(lng, 0).toFixed(5)}`);
  }

  /**
   * Moves the map if a corner is out of view or under a card, and then by a quarter more. A held
   * arrow key would otherwise move it at each step, and with it the address of the page, whose
   * changes browsers limit.
   */
  private keepInView({ place }: Corner): void {
    const { x, y } = project(this.map, [place[0], place[1]]);
    const { clientWidth, clientHeight } = this.map.getContainer();
    const { left, top, right, bottom } = padding(this.map);
    const by = (at: number, from: number, to: number) => (at < from - SLACK_PX ? at - from - (to - from) / 4 : at > to + SLACK_PX ? at - to + (to - from) / 4 : 0);
    const pan: [number, number] = [by(x, left, clientWidth - right), by(y, top, clientHeight - bottom)];
    if (pan[0] === 0 && pan[1] === 0) return;
    this.moving();
    this.map.panBy(pan, { animate: false });
  }

  /** Called before the viewer changes the outline, to be able to undo it. */
  private rememberForUndo(): void {
    this.keyed = null;
    this.changes.push(this.corners.map(({ place }) => place));
    this.allowUndo();
  }

  /** Allows Undo if there is a change. Unlike `disabled`, `aria-disabled` keeps the focus. */
  private allowUndo(): void {
    this.undoButton.setAttribute('aria-disabled', String(this.changes.length === 0));
  }

  /** Undoes the viewer's last change of the outline. */
  private undo(): void {
    const before = this.changes.pop();
    if (!before) return;
    this.setCorners(before);
    this.allowUndo();
  }

  /** Returns the outline as a closed ring; empty: it has no corner. */
  ring(): Position[] {
    const places = this.corners.map(({ place }) => place);
    return places.length > 0 ? [...places, places[0]] : [];
  }

  private nameOf(corner: Corner): string {
    return `Corner ${this.corners.indexOf(corner) + 1} of ${this.corners.length}`;
  }

  /** Draws the outline, and numbers its corners. */
  private draw(): void {
    for (const corner of this.corners) corner.marker.getElement().setAttribute('aria-label', `${this.nameOf(corner)}: arrow keys move it, Delete removes it`);
    this.drawOutline();
  }

  private drawOutline(): void {
    const geometry = { type: 'MultiPolygon' as const, coordinates: this.corners.length > 1 ? [[this.ring()]] : [] };
    this.layers.setData('fence-draft', { type: 'FeatureCollection', features: [{ type: 'Feature', properties: {}, geometry }] });
  }
}

// The outline of a fence that is edited: its corners, each with a handle on the map, and the
// changes of the viewer, which can be undone.
import type { Position } from 'geojson';
import { Marker, type Map as MapLibre } from 'maplibre-gl';
import { byId, make } from './dom';
import type { FenceLayers } from './fence-layers';
import { insertion, nearestCopy } from './rings';
import { project } from './view';

/** A click is on the outline if a corner there makes it longer by at most this many pixels. */
const ON_OUTLINE_PX = 3;

/** `place` is exact; `marker` moves to the copy of the world in view. */
interface Corner {
  marker: Marker;
  place: Position;
}

export class Draft {
  private corners: Corner[] = [];
  /** The corners before each change of the viewer, the newest change last. */
  private changes: Position[][] = [];
  private readonly undoButton = byId('fence-undo', HTMLButtonElement);

  constructor(
    private readonly map: MapLibre,
    private readonly layers: FenceLayers,
  ) {
    this.undoButton.addEventListener('click', () => this.undo());
  }

  /** Replaces the outline with another one, without changes; empty: none is edited. */
  open(places: readonly Position[]): void {
    this.changes = [];
    this.undoButton.disabled = true;
    this.setCorners(places);
  }

  private setCorners(places: readonly Position[]): void {
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
    element.role = 'button';
    // A click on a corner does not set another one, and a double click does not zoom the map.
    element.addEventListener('click', (event) => event.stopPropagation());
    const remove = () => {
      this.rememberForUndo();
      const index = this.corners.indexOf(added);
      marker.remove();
      this.corners.splice(index, 1);
      this.draw();
      return index;
    };
    element.addEventListener('dblclick', (event) => {
      event.stopPropagation();
      remove();
    });
    element.addEventListener('keydown', (event) => {
      if (event.key !== 'Delete' && event.key !== 'Backspace') return;
      event.preventDefault();
      const index = remove();
      (this.corners[index] ?? this.corners.at(-1))?.marker.getElement().focus();
    });
    const marker = new Marker({ element, draggable: true }).setLngLat([corner[0], corner[1]]).addTo(this.map);
    const added = { marker, place: [nearestCopy(corner[0], near), corner[1]] };
    marker.on('dragstart', () => this.rememberForUndo());
    marker.on('drag', () => {
      const { lng, lat } = marker.getLngLat();
      added.place = [nearestCopy(lng, added.place[0]), lat];
      this.drawOutline();
    });
    this.corners.splice(index, 0, added);
  }

  /** Called before the viewer changes the outline, to be able to undo it. */
  private rememberForUndo(): void {
    this.changes.push(this.corners.map(({ place }) => place));
    this.undoButton.disabled = false;
  }

  /** Undoes the viewer's last change of the outline. */
  private undo(): void {
    const before = this.changes.pop();
    if (!before) return;
    this.setCorners(before);
    this.undoButton.disabled = this.changes.length === 0;
  }

  /** Returns the outline as a closed ring; empty: it has no corner. */
  ring(): Position[] {
    const places = this.corners.map(({ place }) => place);
    return places.length > 0 ? [...places, places[0]] : [];
  }

  /** Draws the outline, and numbers its corners. */
  private draw(): void {
    this.corners.forEach(({ marker }, i) => marker.getElement().setAttribute('aria-label', `Corner ${i + 1} of ${this.corners.length}: Delete removes it`));
    this.drawOutline();
  }

  private drawOutline(): void {
    const geometry = { type: 'MultiPolygon' as const, coordinates: this.corners.length > 1 ? [[this.ring()]] : [] };
    this.layers.setData('fence-draft', { type: 'FeatureCollection', features: [{ type: 'Feature', properties: {}, geometry }] });
  }
}

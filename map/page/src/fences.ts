// Fences: areas with names, on the map and in a list. Whoever may changes them here: corners are set by clicks or at the middle of the
// map, and dragged; ClickHouse keeps them.
import type { FeatureCollection, Position } from 'geojson';
import { LngLatBounds, Marker, type GeoJSONSource, type Map as MapLibre } from 'maplibre-gl';
import { ApiError, fences as ask, putFence } from './api';
import { byId, make, press, say } from './dom';
import { corners, hasOneRing, type Fence } from './rings';

export type { Fence };

const COLOUR = '#b06cf0';

export class Fences {
  isOpen = false;
  /** Clicks on the map set corners. */
  isDrawing = false;
  private all: Fence[] = [];
  private markers: Marker[] = [];
  /** What is edited; null: a new one. */
  private edited: Fence | null = null;
  private readonly box = byId('fences-box', HTMLElement);
  private readonly button = byId('fences', HTMLButtonElement);
  private readonly rows = byId('fences-list', HTMLOListElement);
  private readonly form = byId('fence-form', HTMLFormElement);
  private readonly name = byId('fence-name', HTMLInputElement);
  private readonly said = byId('fences-said', HTMLElement);
  private readonly remove = byId('fence-remove', HTMLButtonElement);
  private readonly past = byId('fence-past', HTMLInputElement);
  private readonly pastLabel = byId('fence-past-label', HTMLLabelElement);
  private readonly outlineTools = byId('fence-outline', HTMLElement);

  constructor(
    private readonly map: MapLibre,
    private readonly edits: boolean,
  ) {
    this.button.addEventListener('click', () => this.toggle());
    byId('fences-close', HTMLButtonElement).addEventListener('click', () => this.toggle());
    byId('fence-new', HTMLButtonElement).addEventListener('click', () => this.draw(null));
    byId('fence-corner', HTMLButtonElement).addEventListener('click', () => this.add(map.getCenter().toArray()));
    byId('fence-undo', HTMLButtonElement).addEventListener('click', () => this.undo());
    byId('fence-cancel', HTMLButtonElement).addEventListener('click', () => this.end());
    this.remove.addEventListener('click', () => void this.store(true));
    this.form.addEventListener('submit', (event) => {
      event.preventDefault();
      void this.store(false);
    });
    map.on('click', ({ lngLat }) => {
      if (this.isDrawing) this.add(lngLat.toArray());
    });
    byId('fence-new', HTMLButtonElement).hidden = !edits;
    void this.load();
  }

  toggle(): void {
    this.isOpen = !this.isOpen;
    this.box.hidden = !this.isOpen;
    press(this.button, this.isOpen);
    this.end();
    if (this.isOpen) {
      void this.load();
      this.box.querySelector<HTMLElement>('button')?.focus();
    } else if (this.box.contains(document.activeElement)) this.button.focus();
  }

  async load(): Promise<void> {
    try {
      this.all = (await ask()).features;
    } catch (error) {
      return say(this.said, error instanceof ApiError ? error.message : 'The server does not answer.');
    }
    if (!this.isDrawing) say(this.said, this.all.length > 0 ? '' : this.edits ? 'There are none yet.' : 'There are none. milepost fences import reads them from a file.');
    this.rows.replaceChildren(...this.all.map((fence) => this.row(fence)));
    byId('fence-names', HTMLDataListElement).replaceChildren(...this.all.map(({ properties }) => Object.assign(make('option'), { value: properties.name })));
    this.show('fences', { type: 'FeatureCollection', features: this.all });
  }

  private row(fence: Fence): HTMLLIElement {
    const item = make('li');
    const look = make('button', fence.properties.name);
    look.type = 'button';
    look.addEventListener('click', () => {
      const box = new LngLatBounds();
      for (const point of fence.geometry.coordinates.flat(2)) box.extend(point as [number, number]);
      this.map.fitBounds(box, { padding: 120, maxZoom: 17, duration: 600 });
    });
    item.append(look);
    if (this.edits) {
      const edit = make('button', 'Edit');
      edit.type = 'button';
      edit.setAttribute('aria-label', `Edit ${fence.properties.name}`);
      edit.addEventListener('click', () => this.draw(fence));
      item.append(edit);
    }
    return item;
  }

  private draw(fence: Fence | null): void {
    this.end();
    this.edited = fence;
    // An outline of several rings is edited in a file; here it can be renamed and removed.
    this.isDrawing = fence === null || hasOneRing(fence.geometry);
    this.form.hidden = false;
    this.box.dataset.drawing = String(this.isDrawing);
    this.outlineTools.hidden = !this.isDrawing;
    this.remove.hidden = fence === null;
    this.pastLabel.hidden = fence === null;
    this.past.checked = false;
    this.name.value = fence?.properties.name ?? '';
    if (fence && this.isDrawing) for (const corner of corners(fence.geometry)) this.add(corner);
    say(this.said, this.isDrawing ? 'Click the map to set corners, drag them to move them.' : 'This outline has several rings: milepost fences import changes it.');
    this.name.focus();
  }

  private add(corner: Position): void {
    const element = make('div', '', 'corner');
    // On a corner, a click sets no other one.
    element.addEventListener('click', (event) => event.stopPropagation());
    const marker = new Marker({ element, draggable: true }).setLngLat([corner[0], corner[1]]).addTo(this.map);
    marker.on('drag', () => this.outline());
    this.markers.push(marker);
    this.outline();
  }

  private undo(): void {
    this.markers.pop()?.remove();
    this.outline();
  }

  private ring(): Position[] {
    const places = this.markers.map((corner) => corner.getLngLat().toArray());
    return places.length > 0 ? [...places, places[0]] : [];
  }

  private outline(): void {
    const geometry = { type: 'MultiPolygon' as const, coordinates: this.markers.length > 1 ? [[this.ring()]] : [] };
    this.show('fence-draft', { type: 'FeatureCollection', features: [{ type: 'Feature', properties: {}, geometry }] });
  }

  private end(): void {
    for (const corner of this.markers) corner.remove();
    this.markers = [];
    this.isDrawing = false;
    this.edited = null;
    delete this.box.dataset.drawing;
    this.form.hidden = true;
    say(this.said, '');
    this.outline();
  }

  private async store(isRemoved: boolean): Promise<void> {
    const was = this.edited?.properties.name;
    const name = isRemoved && was ? was : this.name.value.trim();
    if (!name) return say(this.said, 'Give the fence a name.');
    if (name !== was && this.all.some((fence) => fence.properties.name === name)) return say(this.said, 'There is a fence of this name: edit it, or choose another one.');
    const properties = { ...this.edited?.properties, name, ...(was && was !== name ? { was } : {}), rewrite_past: this.past.checked && !isRemoved };
    const drawn = this.isDrawing ? { type: 'Polygon' as const, coordinates: [this.ring()] } : this.edited!.geometry;
    const geometry = isRemoved ? null : drawn;
    try {
      await putFence({ type: 'Feature', properties, geometry });
      this.end();
      await this.load();
    } catch (error) {
      say(this.said, error instanceof ApiError ? error.message : 'The server does not answer.');
    }
  }

  private show(id: string, data: FeatureCollection): void {
    const source: GeoJSONSource | undefined = this.map.getSource(id);
    if (source) return void source.setData(data);
    this.map.addSource(id, { type: 'geojson', data });
    this.map.addLayer({ id: `${id}-area`, type: 'fill', source: id, paint: { 'fill-color': COLOUR, 'fill-opacity': 0.12 } });
    this.map.addLayer({ id: `${id}-line`, type: 'line', source: id, paint: { 'line-color': COLOUR, 'line-width': 2 } });
  }
}

// A tooltip that names the driver or disc under the pointer. It is hidden from screen readers: the
// panel has the same information.
import type { Map as MapLibre, MapMouseEvent, PointLike } from 'maplibre-gl';
import type { Disc } from './cells';
import { seconds } from './clock';
import { byId, setText } from './dom';
import type { Scene } from './scene';
import { formatSpeed, formatCount } from './words';

export type Picked = { driver: number } | { disc: Disc } | null;

/** Returns the driver or disc that is drawn within `reach` pixels of the pointer. */
export function pickAt(map: MapLibre, scene: Scene, event: MapMouseEvent, reach: number): Picked {
  const { lng, lat } = event.lngLat;
  const corner = map.unproject([event.point.x + reach, event.point.y + reach]);
  const driver = scene.fleet.nearest(lng, lat, Math.abs(corner.lng - lng) || 1e-9, Math.abs(corner.lat - lat) || 1e-9, seconds());
  if (driver !== undefined) return { driver };
  const disc = scene.discAt(event.point.x, event.point.y);
  return disc ? { disc } : null;
}

/** `isClickable`: whether a click beside all drivers shows something. */
export function tip(map: MapLibre, scene: Scene, name: (id: string) => string, isClickable: (point: PointLike) => boolean): void {
  const box = byId('tip', HTMLElement);
  const hide = () => {
    box.hidden = true;
    map.getCanvas().style.cursor = '';
  };
  map.on('mousemove', (event) => {
    const found = scene.isFleetHidden ? null : pickAt(map, scene, event, scene.dotSize() + 4);
    if (!found) {
      hide();
      if (!scene.isFleetHidden && isClickable(event.point)) map.getCanvas().style.cursor = 'pointer';
      return;
    }
    setText(box, 'driver' in found ? describe(scene, found.driver, name) : `${found.disc.count === 1 ? '1 driver' : `${formatCount(found.disc.count)} drivers`}: click to zoom in`);
    box.hidden = false;
    map.getCanvas().style.cursor = 'pointer';
    const left = Math.min(event.point.x + 14, innerWidth - box.offsetWidth - 8);
    box.style.translate = `${left}px ${event.point.y + 14}px`;
  });
  map.on('mouseout', hide);
  map.on('movestart', hide);
}

function describe(scene: Scene, slot: number, name: (id: string) => string): string {
  const speed = scene.fleet.speed[slot];
  return `${name(scene.fleet.ids[slot])}${Number.isNaN(speed) ? '' : `, ${formatSpeed(speed)}`}`;
}

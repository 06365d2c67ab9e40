// Which fence a place is in, or near. Pure.
import type { Position } from 'geojson';
import type { Fence } from './rings';
import { distance } from './words';

/** Farther away a fence says nothing about a place. Metres. */
const NEAR_M = 1_000;
const METRES_PER_DEGREE = 111_320;

export function isInside(ring: readonly Position[], lng: number, lat: number): boolean {
  let inside = false;
  ring.forEach(([ax, ay], i) => {
    const [bx, by] = ring[(i + 1) % ring.length];
    if (ay > lat !== by > lat && lng < ax + ((lat - ay) / (by - ay)) * (bx - ax)) inside = !inside;
  });
  return inside;
}

/** "Depot", "300 m from Depot", or nothing. */
export function placeName(fences: readonly Fence[], lng: number, lat: number): string {
  const has = (fence: Fence) => fence.geometry.coordinates.some(([outline, ...holes]) => isInside(outline, lng, lat) && !holes.some((hole) => isInside(hole, lng, lat)));
  const inside = fences.find(has);
  if (inside) return inside.properties.name;
  let nearest = '';
  let least = NEAR_M;
  for (const fence of fences) {
    for (const [outline] of fence.geometry.coordinates) {
      for (let i = 0; i < outline.length; i++) {
        const far = toSide(outline[i], outline[(i + 1) % outline.length], lng, lat);
        if (far < least) [nearest, least] = [fence.properties.name, far];
      }
    }
  }
  return nearest && `${distance(Math.max(10, Math.round(least / 10) * 10))} from ${nearest}`;
}

/** Metres to the line between two points. */
function toSide(a: Position, b: Position, lng: number, lat: number): number {
  const shrink = Math.cos((lat * Math.PI) / 180);
  const [ax, ay] = [(a[0] - lng) * shrink, a[1] - lat];
  const [bx, by] = [(b[0] - lng) * shrink, b[1] - lat];
  const length = (bx - ax) ** 2 + (by - ay) ** 2;
  const t = length === 0 ? 0 : Math.min(1, Math.max(0, -(ax * (bx - ax) + ay * (by - ay)) / length));
  return Math.hypot(ax + t * (bx - ax), ay + t * (by - ay)) * METRES_PER_DEGREE;
}

/** Where a fence's name is written, and how wide the fence is: degrees. */
export function middle(fence: Fence): { lng: number; lat: number; width: number } {
  const outline = fence.geometry.coordinates[0][0];
  const [lngs, lats] = [outline.map(([lng]) => lng), outline.map(([, lat]) => lat)];
  const [west, east] = [Math.min(...lngs), Math.max(...lngs)];
  return { lng: (west + east) / 2, lat: (Math.min(...lats) + Math.max(...lats)) / 2, width: east - west };
}

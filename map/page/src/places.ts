// Names a place after the fence that it is in or near. Pure.
import type { Position } from 'geojson';
import { nearestCopy, type Fence } from './rings';
import { shorter } from './tiles';
import { distance } from './words';

/** A fence farther away than this does not describe a place. */
const NEAR_M = 1_000;
const METRES_PER_DEGREE = 111_320;

/** Returns whether a place is inside a ring, open or closed. */
export function isInside(ring: readonly Position[], placeLng: number, lat: number): boolean {
  let inside = false;
  const lng = nearestCopy(placeLng, (least(ring) + most(ring)) / 2);
  ring.forEach(([ax, ay], i) => {
    const [bx, by] = ring[(i + 1) % ring.length];
    if (ay > lat !== by > lat && lng < ax + ((lat - ay) / (by - ay)) * (bx - ax)) inside = !inside;
  });
  return inside;
}

/** Returns "Depot", "300 m from Depot", or an empty string if no fence is near. */
export function placeName(fences: readonly Fence[], lng: number, lat: number): string {
  const has = (fence: Fence) => fence.geometry.coordinates.some(([outline, ...holes]) => isInside(outline, lng, lat) && !holes.some((hole) => isInside(hole, lng, lat)));
  const inside = fences.find(has);
  if (inside) return inside.properties.name;
  let nearest = '';
  let least = NEAR_M;
  for (const fence of fences) {
    for (const [outline] of fence.geometry.coordinates) {
      for (let i = 0; i < outline.length; i++) {
        const metres = metresToSide(outline[i], outline[(i + 1) % outline.length], lng, lat);
        if (metres < least) [nearest, least] = [fence.properties.name, metres];
      }
    }
  }
  return nearest && `${distance(Math.max(10, Math.round(least / 10) * 10))} from ${nearest}`;
}

const least = (ring: readonly Position[]): number => Math.min(...ring.map(([lng]) => lng));
const most = (ring: readonly Position[]): number => Math.max(...ring.map(([lng]) => lng));

/** Returns the metres from a place to the line between two points. */
function metresToSide(a: Position, b: Position, lng: number, lat: number): number {
  const shrink = Math.cos((lat * Math.PI) / 180);
  const ax = shorter(a[0] - lng) * shrink;
  const bx = ax + (b[0] - a[0]) * shrink;
  const [ay, by] = [a[1] - lat, b[1] - lat];
  const length = (bx - ax) ** 2 + (by - ay) ** 2;
  const t = length === 0 ? 0 : Math.min(1, Math.max(0, -(ax * (bx - ax) + ay * (by - ay)) / length));
  return Math.hypot(ax + t * (bx - ax), ay + t * (by - ay)) * METRES_PER_DEGREE;
}

/** Returns the place of a fence's name, the width of the fence and its northern edge, in degrees. */
export function middle(fence: Fence): { lng: number; lat: number; width: number; north: number } {
  const outline = fence.geometry.coordinates[0][0];
  const lats = outline.map(([, lat]) => lat);
  const [west, east] = [least(outline), most(outline)];
  return { lng: (west + east) / 2, lat: (Math.min(...lats) + Math.max(...lats)) / 2, width: east - west, north: Math.max(...lats) };
}

// Computes the tiles that a view needs, and the loaded ones that stand in for those that have not
// arrived yet.

export const ZOOM_MAX = 14;

export interface Tile {
  z: number;
  x: number;
  y: number;
}

export interface Bounds {
  /** -180 to 180. */
  west: number;
  south: number;
  /** Above 180 if the area crosses 180°. */
  east: number;
  north: number;
}

export const key = ({ z, x, y }: Tile): string => `${z}/${x}/${y}`;

/** Projects a place to Web Mercator, 0..1 from the north-west corner of the world. */
export function mercator(lat: number, lng: number): [x: number, y: number] {
  const sine = Math.min(0.9999, Math.max(-0.9999, Math.sin((lat * Math.PI) / 180)));
  return [lng / 360 + 0.5, 0.5 - (0.25 * Math.log((1 + sine) / (1 - sine))) / Math.PI];
}

export function unmercator(x: number, y: number): { lat: number; lng: number } {
  return { lat: (Math.atan(Math.sinh(Math.PI * (1 - 2 * y))) * 180) / Math.PI, lng: (x - 0.5) * 360 };
}

/** Normalises a difference of longitudes to the shorter way round: -180 to 180. */
export const shorter = (degrees: number): number => degrees - 360 * Math.round(degrees / 360);

/** Like `shorter`, for x of `mercator`, whose world is 1 wide. */
export const shorterX = (x: number): number => x - Math.round(x);

/** Normalises `west` and `east` of an area as in `Bounds`. */
export function around(west: number, east: number): Pick<Bounds, 'west' | 'east'> {
  if (east - west >= 360) return { west: -180, east: 180 };
  const away = 360 * Math.floor((west + 180) / 360);
  return { west: west - away, east: east - away };
}

/**
 * Returns the tiles that cover an area at this zoom of the map, where a tile is 512 to 1024 pixels
 * wide.
 */
export function inView(bounds: Bounds, zoom: number): Tile[] {
  const z = Math.min(ZOOM_MAX, Math.max(0, Math.floor(zoom)));
  const side = 2 ** z;
  const [left, top] = mercator(bounds.north, bounds.west);
  const [right, bottom] = mercator(bounds.south, bounds.east);
  const clamp = (value: number) => Math.min(side - 1, Math.max(0, Math.floor(value * side)));
  const first = Math.max(0, Math.floor(left * side));
  // 180° belongs to the last tile.
  const last = Math.min(first + side - 1, right === 1 ? side - 1 : Math.floor(right * side));
  const tiles: Tile[] = [];
  for (let y = clamp(top); y <= clamp(bottom); y++) {
    for (let x = first; x <= last; x++) tiles.push({ z, x: x % side, y });
  }
  return tiles;
}

/** Returns whether one tile lies within the other. */
export function overlap(a: Tile, b: Tile): boolean {
  const [low, high] = a.z <= b.z ? [a, b] : [b, a];
  const up = high.z - low.z;
  return high.x >> up === low.x && high.y >> up === low.y;
}

/**
 * Returns the tiles to show: the wanted ones that are loaded, and in place of each missing one the
 * overlapping tiles that were shown before.
 */
export function covering<T extends Tile>(wanted: Tile[], here: ReadonlyMap<string, T>, before: readonly T[]): T[] {
  const shown = new Set<T>();
  for (const tile of wanted) {
    const found = here.get(key(tile));
    if (found) shown.add(found);
    else for (const old of before) if (overlap(old, tile)) shown.add(old);
  }
  return [...shown];
}

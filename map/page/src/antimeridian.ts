// Cuts and joins outlines that cross 180°. On this page their longitudes continue beyond 180°; on
// the server they are cut there, as GeoJSON requires (RFC 7946, 3.1.9). Pure.
import type { MultiPolygon, Position } from 'geojson';

const EDGE = 180;
/** Degrees. A corner this close to the line between its neighbours is not needed. */
const STRAIGHT = 1e-9;

/**
 * Cuts a closed ring at 180° into outlines on the map. A ring that does not cross 180° gives one
 * outline.
 */
export function cutRing(ring: Position[]): MultiPolygon['coordinates'] {
  const west = Math.min(...ring.map(([lng]) => lng));
  const shift = 360 * Math.floor((west + EDGE) / 360);
  const moved = shift === 0 ? ring : ring.map(([lng, lat]) => [lng - shift, lat]);
  if (moved.every(([lng]) => lng <= EDGE)) return [[moved]];
  return [false, true].flatMap((isEast) => side(moved, isEast).map((outline) => [isEast ? outline.map(([lng, lat]) => [lng - 360, lat]) : outline]));
}

/** Returns the outlines of a ring on one side of 180°. */
function side(ring: Position[], isEast: boolean): Position[][] {
  const isHere = ([lng]: Position) => lng > EDGE === isEast;
  /** Parts of the ring on this side, from one crossing to the next. */
  const chains: Position[][] = [];
  const corners = ring.slice(0, -1);
  const begin = corners.findIndex((corner, i) => isHere(corner) && !isHere(corners.at(i - 1)!));
  for (let i = 0; i < corners.length; i++) {
    const [before, corner] = [corners.at((begin + i - 1) % corners.length)!, corners[(begin + i) % corners.length]];
    if (isHere(before) !== isHere(corner)) {
      const crossing = [EDGE, before[1] + ((corner[1] - before[1]) * (EDGE - before[0])) / (corner[0] - before[0])];
      if (isHere(corner)) chains.push([crossing]);
      else add(chains.at(-1)!, crossing);
    }
    if (isHere(corner)) add(chains.at(-1)!, corner);
  }
  // Along 180° the area lies between the first and the second crossing, the third and the fourth,
  // and so on.
  const order = chains.flatMap((chain) => [chain[0][1], chain.at(-1)![1]]).sort((a, b) => a - b);
  const partner = (lat: number) => order[order.indexOf(lat) ^ 1];
  return joinChains(chains, (end) => chains.findIndex((chain) => chain[0][1] === partner(end[1])));
}

/**
 * Joins outlines that were cut at 180°, if their ends match; otherwise returns the geometry
 * unchanged.
 */
export function joinRings(geometry: MultiPolygon): MultiPolygon {
  const { coordinates } = geometry;
  const touches = (edge: number) => coordinates.some(([ring]) => ring.some(([lng]) => lng === edge));
  if (coordinates.length < 2 || coordinates.some(({ length }) => length > 1) || !touches(EDGE) || !touches(-EDGE)) return geometry;
  const inner: MultiPolygon['coordinates'] = [];
  const chains: { path: Position[]; isEast: boolean }[] = [];
  for (const [ring] of coordinates) {
    const isEast = ring.some(([lng]) => lng === -EDGE);
    const edge = isEast ? -EDGE : EDGE;
    const corners = closed(ring).slice(0, -1);
    const isAlong = (i: number) => corners.at(i % corners.length)![0] === edge && corners.at((i + 1) % corners.length)![0] === edge;
    const begin = corners.findIndex((_, i) => isAlong(i + corners.length - 1) && !isAlong(i));
    if (begin < 0) {
      inner.push([ring]);
      continue;
    }
    let path: Position[] = [];
    for (let i = 0; i < corners.length; i++) {
      const [lng, lat] = corners[(begin + i) % corners.length];
      path.push([isEast ? lng + 360 : lng, lat]);
      if (!isAlong(begin + i)) continue;
      if (path.length > 1) chains.push({ path, isEast });
      path = [];
    }
  }
  const next = (end: Position, isEast: boolean) => chains.findIndex(({ path, isEast: other }) => other !== isEast && path[0][1] === end[1]);
  if (chains.length === 0 || chains.some(({ path, isEast }) => next(path.at(-1)!, isEast) < 0)) return geometry;
  const rings = joinChains(chains.map(({ path }) => path), (end, i) => next(end, chains[i].isEast));
  return { type: 'MultiPolygon', coordinates: [...inner, ...rings.map((ring) => [straightened(ring)])] };
}

/** Joins chains to closed rings. `next` returns the index of the chain that follows. */
function joinChains(chains: Position[][], next: (end: Position, i: number) => number): Position[][] {
  const rings: Position[][] = [];
  const remaining = new Set(chains.keys());
  for (const first of chains.keys()) {
    if (!remaining.has(first)) continue;
    const ring: Position[] = [];
    for (let i = first; remaining.delete(i); i = next(chains[i].at(-1)!, i)) for (const corner of chains[i]) add(ring, corner);
    rings.push(closed(ring));
  }
  return rings;
}

const isSame = (a: Position | undefined, b: Position) => a !== undefined && a[0] === b[0] && a[1] === b[1];

function add(path: Position[], corner: Position): void {
  if (!isSame(path.at(-1), corner)) path.push(corner);
}

const closed = (ring: Position[]): Position[] => (isSame(ring[0], ring.at(-1)!) ? ring : [...ring, ring[0]]);

/** Removes the corners at 180° that the cut has added. */
function straightened(ring: Position[]): Position[] {
  const corners = ring.slice(0, -1);
  const isFromCut = ([lng, lat]: Position, i: number) => {
    if (lng !== EDGE) return false;
    const [[ax, ay], [bx, by]] = [corners.at(i - 1)!, corners[(i + 1) % corners.length]];
    const length = Math.hypot(bx - ax, by - ay);
    return Math.abs((bx - ax) * (lat - ay) - (by - ay) * (lng - ax)) <= STRAIGHT * length && (ax - lng) * (bx - lng) < 0;
  };
  return closed(corners.filter((corner, i) => !isFromCut(corner, i)));
}

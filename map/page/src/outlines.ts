// Unpacks the land and borders that land.ts packs: each point is a step from the previous one, on
// an integer grid.
import type { MultiLineString, MultiPolygon, Position } from 'geojson';

export interface Land {
  scale: number[];
  translate: number[];
  /** Polygons of closed rings of x, y, x, y … */
  land: number[][][];
  borders: number[][];
}

export interface Outlines {
  land: MultiPolygon;
  coast: MultiLineString;
  borders: MultiLineString;
}

export function outlines({ scale, translate, land, borders }: Land): Outlines {
  const unpack = (steps: number[]): Position[] => {
    const line: Position[] = [];
    for (let i = 0, x = 0, y = 0; i < steps.length; i += 2) {
      x += steps[i];
      y += steps[i + 1];
      line.push([x * scale[0] + translate[0], y * scale[1] + translate[1]]);
    }
    return line;
  };
  const polygons = land.map((polygon) => polygon.map(unpack));
  return {
    land: { type: 'MultiPolygon', coordinates: polygons },
    coast: { type: 'MultiLineString', coordinates: polygons.flat().flatMap(coast) },
    borders: { type: 'MultiLineString', coordinates: borders.map(unpack) },
  };
}

/** Returns a ring without its edges along 180° and the pole, where it was cut. */
function coast(ring: Position[]): Position[][] {
  const lines: Position[][] = [];
  let line: Position[] = [];
  for (const point of ring) {
    const before = line.at(-1);
    if (before && isCut(before) && isCut(point)) {
      if (line.length > 1) lines.push(line);
      line = [];
    }
    line.push(point);
  }
  if (line.length > 1) lines.push(line);
  return lines;
}

const isCut = ([lng, lat]: Position): boolean => Math.abs(lng) > 179.999 || lat < -89.9;

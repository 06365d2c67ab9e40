// Decodes the binary tiles of /api/tiles and /api/cells: a header of 16 bytes, then columns, little
// endian. docs/map.md has the format.
import type { Tile } from './tiles';

export interface Points {
  kind: 'points';
  now: number;
  n: number;
  lat: Float64Array;
  lng: Float64Array;
  /** Unix seconds. */
  ts: Float64Array;
  /** m/s, NaN if unknown. */
  speed: Float32Array;
  /** Degrees clockwise from north, NaN if unknown. */
  heading: Float32Array;
  ids: string[];
}

export interface Cells {
  kind: 'cells';
  now: number;
  n: number;
  lat: Float64Array;
  lng: Float64Array;
  /** Unix seconds of the newest fix. */
  ts: Float64Array;
  count: Float64Array;
  /** Mean, m/s, NaN if unknown. */
  speed: Float32Array;
}

/** A tile in a response of /api/tiles. */
export interface Part extends Tile {
  version: bigint;
  body: ArrayBuffer;
}

const PART_HEADER = 24;
const VERSION = 1;
const HEADER = 16;
const UNKNOWN = 65535;

/** Splits a response of /api/tiles into its tiles. Throws if the last one is cut short. */
export function parts(answer: ArrayBuffer): Part[] {
  const found: Part[] = [];
  for (let at = 0; at < answer.byteLength; ) {
    const body = at + PART_HEADER;
    const header = body <= answer.byteLength ? new DataView(answer, at, PART_HEADER) : null;
    at = body + (header?.getUint32(12, true) ?? 0);
    if (!header || at > answer.byteLength) throw new Error('an answer is cut short');
    const [z, x, y] = [0, 4, 8].map((offset) => header.getUint32(offset, true));
    found.push({ z, x, y, version: header.getBigUint64(16, true), body: answer.slice(body, at) });
  }
  return found;
}

/** Decodes a tile. Throws if the bytes are not a whole tile of this version. */
export function decode(body: ArrayBuffer): Points | Cells {
  if (body.byteLength < HEADER) throw new Error(`a tile of ${body.byteLength} bytes has no header`);
  const view = new DataView(body);
  if (view.getUint8(0) !== VERSION) throw new Error(`tile version ${view.getUint8(0)}: this page is older or newer than its server, reload it`);
  const n = view.getUint32(4, true);
  const now = view.getFloat64(8, true);
  const columns = new Columns(body, n);
  const lat = columns.scaled(Int32Array, 1e-7);
  const lng = columns.scaled(Int32Array, 1e-7);
  const ts = columns.scaled(Uint32Array, 1);
  switch (view.getUint8(1)) {
    case 0: {
      const speed = columns.hundredths();
      const heading = columns.hundredths();
      return { kind: 'points', now, n, lat, lng, ts, speed, heading, ids: columns.strings() };
    }
    case 1:
      return { kind: 'cells', now, n, lat, lng, ts, count: columns.scaled(Uint32Array, 1), speed: columns.hundredths() };
    default:
      throw new Error(`a tile of kind ${view.getUint8(1)} is unknown`);
  }
}

type Ints = typeof Int32Array | typeof Uint32Array | typeof Uint16Array | typeof Uint8Array;

/**
 * Reads one column after the other; each begins at a multiple of 4 bytes. Requires a little-endian
 * machine, as the page's WebGL code does.
 */
class Columns {
  private at = HEADER;

  constructor(
    private readonly body: ArrayBuffer,
    private readonly n: number,
  ) {}

  scaled(type: Ints, unit: number): Float64Array {
    const raw = this.raw(type);
    // Divides, because 257617000 / 1e7 is the double 25.7617, and 257617000 * 1e-7 is not.
    const divisor = Math.round(1 / unit);
    return Float64Array.from(raw, (value) => value / divisor);
  }

  /** Reads hundredths; 65535, for unknown, becomes NaN. */
  hundredths(): Float32Array {
    return Float32Array.from(this.raw(Uint16Array), (value) => (value === UNKNOWN ? NaN : value / 100));
  }

  strings(): string[] {
    const lengths = this.raw(Uint8Array);
    let total = 0;
    for (const length of lengths) total += length;
    const bytes = new Uint8Array(this.body, this.place(total), total);
    const all = new TextDecoder().decode(bytes);
    const ids: string[] = new Array(this.n);
    const ascii = all.length === total;
    let from = 0;
    for (let i = 0; i < this.n; i++) {
      const to = from + lengths[i];
      // Slicing one string is ten times as fast as decoding each id.
      ids[i] = ascii ? all.slice(from, to) : new TextDecoder().decode(bytes.subarray(from, to));
      from = to;
    }
    return ids;
  }

  private raw(type: Ints): Int32Array | Uint32Array | Uint16Array | Uint8Array {
    return new type(this.body, this.place(this.n * type.BYTES_PER_ELEMENT), this.n);
  }

  private place(bytes: number): number {
    const start = (this.at + 3) & ~3;
    if (bytes > 0 && start + bytes > this.body.byteLength) throw new Error('a tile is cut short');
    this.at = start + bytes;
    return bytes > 0 ? start : 0;
  }
}

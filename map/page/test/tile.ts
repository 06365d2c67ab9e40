// Encodes tiles as the server does.

export interface Row {
  lat: number;
  lng: number;
  ts: number;
  speed?: number;
  heading?: number;
  id?: string;
  count?: number;
}

const bytes = (array: Int32Array | Uint32Array | Uint16Array | Uint8Array) => new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
const hundredths = (values: (number | undefined)[]) => bytes(Uint16Array.from(values, (value) => (value === undefined ? 65535 : Math.round(value * 100))));

export function encode(kind: 'points' | 'cells', rows: Row[], now = 1_700_000_000_000): ArrayBuffer {
  const header = new ArrayBuffer(16);
  const view = new DataView(header);
  view.setUint8(0, 1);
  view.setUint8(1, kind === 'points' ? 0 : 1);
  view.setUint32(4, rows.length, true);
  view.setFloat64(8, now, true);
  const columns = [
    new Uint8Array(header),
    bytes(Int32Array.from(rows, ({ lat }) => Math.round(lat * 1e7))),
    bytes(Int32Array.from(rows, ({ lng }) => Math.round(lng * 1e7))),
    bytes(Uint32Array.from(rows, ({ ts }) => ts)),
  ];
  const speeds = hundredths(rows.map(({ speed }) => speed));
  if (kind === 'cells') columns.push(bytes(Uint32Array.from(rows, ({ count }) => count ?? 1)), speeds);
  else {
    const ids = rows.map(({ id }) => Buffer.from(id ?? ''));
    columns.push(speeds, hundredths(rows.map(({ heading }) => heading)), Uint8Array.from(ids, (id) => id.length), Buffer.concat(ids));
  }
  const padded = columns.flatMap((column) => [column, new Uint8Array(-column.length & 3)]);
  // No padding after the last column.
  return Uint8Array.from(Buffer.concat(padded.slice(0, -1))).buffer;
}

/** Encodes a response of /api/tiles. */
export function answer(...tiles: { z: number; x: number; y: number; version: bigint; body: ArrayBuffer }[]): ArrayBuffer {
  const pieces = tiles.map(({ z, x, y, version, body }) => {
    const header = new DataView(new ArrayBuffer(24));
    [z, x, y, body.byteLength].forEach((number, i) => header.setUint32(i * 4, number, true));
    header.setBigUint64(16, version, true);
    return Buffer.concat([Buffer.from(header.buffer), Buffer.from(body)]);
  });
  return Uint8Array.from(Buffer.concat(pieces)).buffer;
}

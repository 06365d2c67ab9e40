// Turns a topic and a payload into rows of fleet.positions, by milepost's input contract and with its reject reasons.

const TOPIC = /^drivers\/([A-Za-z0-9._:-]{1,64})\/gps$/;
const FIX_AGE_MAX_MS = 30 * 86_400_000;
const FIX_FUTURE_MAX_MS = 5 * 60_000;
const POINTS_MAX = 10_000;
// The type's largest value means unknown.
const UNKNOWN = { speed_cms: 65_535, heading_cdeg: 65_535, alt_dm: 2_147_483_647, acc_dm: 65_535 };

/** Thrown for a rejected message or point; `reason` is a label of the metric. */
export class Refusal extends Error {
  constructor(reason) {
    super(reason);
    this.reason = reason;
  }
}

/** Calls `onRow` for a valid point and `onRefusal` for an invalid one; throws a Refusal if it rejects the message. */
export function decode(topic, payload, receivedAt, onRow, onRefusal) {
  const driverId = TOPIC.exec(topic)?.[1];
  if (driverId === undefined) throw new Refusal('bad_topic');
  let message;
  try {
    message = JSON.parse(payload.toString());
  } catch {
    throw new Refusal(payload.length === 0 ? 'empty' : 'invalid_json');
  }
  if (!Array.isArray(message)) {
    onRow(toRow(message, driverId, receivedAt));
    return;
  }
  if (message.length === 0) throw new Refusal('wrong_shape');
  if (message.length > POINTS_MAX) throw new Refusal('too_many_points');
  for (const point of message) {
    try {
      onRow(toRow(point, driverId, receivedAt));
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      onRefusal(error);
    }
  }
}

function toRow(point, driverId, receivedAt) {
  if (point === null || typeof point !== 'object' || Array.isArray(point)) throw new Refusal('wrong_shape');
  const { lat, lng = point.lon, driver_id } = point;
  if (driver_id !== undefined && driver_id !== null && driver_id !== driverId) throw new Refusal('driver_mismatch');
  if (typeof lat !== 'number' || typeof lng !== 'number') throw new Refusal('missing_field');
  if (lat < -90 || lat > 90) throw new Refusal('lat_range');
  if (lng < -180 || lng > 180) throw new Refusal('lng_range');
  if (lat === 0 && lng === 0) throw new Refusal('null_island');
  return {
    driver_id: driverId,
    ts: timestamp(point.ts, receivedAt) / 1e3,
    seq: Number.isInteger(point.seq) && point.seq >= 0 && point.seq <= 4_294_967_295 ? point.seq : 0,
    lat_e7: Math.round(lat * 1e7),
    lng_e7: Math.round(lng * 1e7),
    speed_cms: scaled(point.speed, 0, 200, 100, UNKNOWN.speed_cms),
    heading_cdeg: scaled(point.heading === 360 ? 0 : point.heading, 0, 360, 100, UNKNOWN.heading_cdeg),
    alt_dm: scaled(point.alt, -1_000, 100_000, 10, UNKNOWN.alt_dm),
    acc_dm: scaled(point.acc, 0, 6_553.4, 10, UNKNOWN.acc_dm),
    received_at: receivedAt / 1e3,
  };
}

/** Returns milliseconds since the epoch. Rows have seconds, because DateTime64(3) reads a JSON number as seconds. */
function timestamp(ts, receivedAt) {
  if (ts === undefined || ts === null) return receivedAt;
  const ms = typeof ts === 'number' ? epochMs(ts) : Date.parse(ts);
  if (!Number.isFinite(ms)) throw new Refusal('bad_ts');
  if (ms < receivedAt - FIX_AGE_MAX_MS) throw new Refusal('too_old');
  if (ms > receivedAt + FIX_FUTURE_MAX_MS) throw new Refusal('too_new');
  return ms;
}

function epochMs(ts) {
  if (ts < 1e11) return Math.round(ts * 1e3);
  if (ts < 1e14) return Math.round(ts);
  return Math.floor(ts < 1e17 ? ts / 1e3 : ts / 1e6);
}

function scaled(value, min, max, factor, unknown) {
  return typeof value === 'number' && value >= min && value <= max ? Math.round(value * factor) : unknown;
}

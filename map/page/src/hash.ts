// The part of the address after '#': place, driver, day, so that a link shows somebody else the same.

export interface Place {
  zoom: number;
  lat: number;
  lng: number;
}

export interface Shared {
  place: Place | null;
  driver: string | null;
  /** Of its track: `2026-11-22`, or `hour`, the last one; null: no track. */
  day: string | null;
}

export function parse(hash: string): Shared {
  const fields = new URLSearchParams(hash.replace(/^#/, ''));
  const day = fields.get('day');
  return {
    place: parsePlace(fields.get('at')),
    driver: fields.get('driver') || null,
    day: day !== null && /^(hour|\d{4}-\d{2}-\d{2})$/.test(day) ? day : null,
  };
}

export function format({ place, driver, day }: Shared): string {
  const fields: string[] = [];
  if (place) {
    // A pixel at zoom z is about 10^-(z·0.3) degrees.
    const digits = Math.min(6, Math.max(1, Math.ceil(place.zoom * 0.31)));
    fields.push(`at=${place.zoom.toFixed(1)}/${place.lat.toFixed(digits)}/${place.lng.toFixed(digits)}`);
  }
  if (driver) fields.push(`driver=${encodeURIComponent(driver)}`);
  if (driver && day) fields.push(`day=${day}`);
  return fields.length ? `#${fields.join('&')}` : '';
}

function parsePlace(text: string | null): Place | null {
  const numbers = text?.split('/').map((part) => (part.trim() === '' ? NaN : Number(part)));
  if (!numbers || numbers.length !== 3 || !numbers.every(Number.isFinite)) return null;
  const [zoom, lat, lng] = numbers;
  if (zoom < 0 || zoom > 24 || Math.abs(lat) > 85.06 || Math.abs(lng) > 180) return null;
  return { zoom, lat, lng };
}

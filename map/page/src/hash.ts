// The part of the URL after '#': place, driver, day and group, so that a link shows another viewer
// the same view.

export interface Place {
  zoom: number;
  lat: number;
  lng: number;
}

export interface Shared {
  place: Place | null;
  driver: string | null;
  /** Day of the track, such as `2026-11-22`, or `hour` for the last hour; null: no track. */
  day: string | null;
  /** The only group that the map shows; empty: every group. */
  group: string;
}

export function parse(hash: string): Shared {
  const fields = new URLSearchParams(hash.replace(/^#/, ''));
  const day = fields.get('day');
  return {
    place: parsePlace(fields.get('at')),
    driver: fields.get('driver') || null,
    day: day !== null && /^(hour|\d{4}-\d{2}-\d{2})$/.test(day) ? day : null,
    group: fields.get('group') ?? '',
  };
}

export function format({ place, driver, day, group }: Shared): string {
  const fields: string[] = [];
  if (place) {
    // A pixel at zoom z is about 10^-(z·0.3) degrees.
    const digits = Math.min(6, Math.max(1, Math.ceil(place.zoom * 0.31)));
    fields.push(`at=${place.zoom.toFixed(1)}/${place.lat.toFixed(digits)}/${place.lng.toFixed(digits)}`);
  }
  if (driver) fields.push(`driver=${encodeURIComponent(driver)}`);
  if (driver && day) fields.push(`day=${day}`);
  if (group) fields.push(`group=${encodeURIComponent(group)}`);
  return fields.length ? `#${fields.join('&')}` : '';
}

function parsePlace(text: string | null): Place | null {
  const numbers = text?.split('/').map((part) => (part.trim() === '' ? NaN : Number(part)));
  if (!numbers || numbers.length !== 3 || !numbers.every(Number.isFinite)) return null;
  const [zoom, lat, lng] = numbers;
  if (zoom < 0 || zoom > 24 || Math.abs(lat) > 85.06 || Math.abs(lng) > 180) return null;
  return { zoom, lat, lng };
}

/**
 * Returns the URL with which a guest opens the page. Without a `hash` it has no place, so that the
 * map opens where the guest's drivers are.
 */
export function guestLink(href: string, link: string, hash = ''): string {
  const url = new URL(href);
  url.search = new URLSearchParams({ link }).toString();
  url.hash = hash;
  return url.href;
}

/**
 * Returns what a link to a list shows: the group, if it is the only filter, so that later members
 * are included; otherwise the listed drivers. Null: there are none, or more than `most`.
 */
export function linkTo(filter: URLSearchParams, drivers: readonly string[], most: number): { drivers?: string[]; groups?: string[] } | null {
  const set = [...filter].filter(([, value]) => value !== '');
  if (set.length === 1 && set[0][0] === 'group') return { groups: [set[0][1]] };
  return drivers.length > 0 && drivers.length <= most ? { drivers: [...drivers] } : null;
}

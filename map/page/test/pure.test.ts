import { afterEach, describe, expect, test } from 'vitest';
import type { Track } from '../src/api';
import { problem } from '../src/banner';
import { join, radius } from '../src/cells';
import { colour, stops } from '../src/colours';
import { decode, type Cells } from '../src/decode';
import { format, guestLink, linkTo, parse } from '../src/hash';
import { scale } from '../src/heat';
import { driversAt } from '../src/past';
import { stayText } from '../src/stay';
import { covering, inView, key, mercator, overlap, unmercator, type Tile } from '../src/tiles';
import { indexAt, pieces, speedCurve, spotAt, summary } from '../src/track';
import { insertion } from '../src/rings';
import { extent } from '../src/whereabouts';
import { ago, clock, daySpan, distance, duration, isoDay, motion, formatSpeed, setUnit, shortCount, compassPoint } from '../src/words';
import { instant, local, minutes, setZone, zoneShort } from '../src/zone';
import { encode } from './tile';

describe('words', () => {
  test('ages', () => expect([0, 12.9, 60, 3599, 7200, 90_000].map(ago)).toEqual(['just now', '12 s ago', '1 minute ago', '59 minutes ago', '2 hours ago', '1 day ago']));
  test('durations', () => expect([-1, 42, 90, 3600, 4800, 171_000, 172_800, 180_000].map(duration)).toEqual(['0 s', '42 s', '2 min', '1 h', '1 h 20 min', '47 h 30 min', '2 days', '2 days 2 h']));
  test('a stay says since when, with the date of another day, or at least how long', () => {
    const now = Date.parse('2026-11-22T14:05:00Z');
    const stay = (hours: number, is_at_least = false) => stayText({ ts: now, since: now - hours * 3_600_000, is_at_least }, now, now);
    setZone('UTC');
    expect([stay(2), stay(15.5), stay(744, true)]).toEqual(['Standing since 12:05 (2 h)', 'Standing since 21 Nov, 22:35 (15 h 30 min)', 'Standing for at least 31 days']);
    const silentFor = (hours: number) => stayText({ ts: now, since: now - 7_200_000, is_at_least: false }, now, now + hours * 3_600_000);
    expect([silentFor(1), silentFor(72)]).toEqual(['Standing since 12:05 (2 h)', 'Standing since 22 Nov, 12:05 (2 h)']);
    setZone('');
  });
  test('compass points', () => expect([0, 22, 23, 227, 337, 338, 360, -90].map(compassPoint)).toEqual(['north', 'north', 'north-east', 'south-west', 'north-west', 'north', 'north', 'west']));
  test('motion', () => {
    expect(motion(12, 227)).toBe('Moving at 43 km/h, heading south-west');
    expect(motion(0.2, 227)).toBe('Standing');
    expect(motion(null, null)).toBe('Speed unknown');
    expect(formatSpeed(0)).toBe('0 km/h');
  });
  test('counts', () => expect([7, 999, 1000, 1250, 12_345, 999_600, 1_234_567].map(shortCount)).toEqual(['7', '999', '1k', '1.3k', '12k', '1M', '1.2M']));
  test('a day lasts from midnight to midnight, and 30 February does not exist', () => {
    const span = daySpan('2026-11-22')!;
    expect(isoDay(span.from)).toBe('2026-11-22');
    expect(isoDay(span.to - 1)).toBe('2026-11-22');
    expect(isoDay(span.to)).toBe('2026-11-23');
    expect([daySpan('2026-02-30'), daySpan('today'), daySpan('2026-13-01')]).toEqual([null, null, null]);
  });
});

describe('units and zones', () => {
  afterEach(() => {
    setUnit('');
    setZone('');
  });
  test('speeds are converted to the viewer’s unit', () => {
    const formatted = ['km/h', 'mph', 'knots', 'furlongs'].map((unit) => (setUnit(unit), [formatSpeed(20), distance(900), distance(5000)].join(' ')));
    expect(formatted).toEqual(['72 km/h 900 m 5.0 km', '45 mph 900 m 3.1 mi', '39 knots 900 m 2.7 nmi', '72 km/h 900 m 5.0 km']);
  });
  test('a day begins at midnight of the zone, even when the clocks change', () => {
    const hours = (day: string) => (daySpan(day)!.to - daySpan(day)!.from) / 3_600_000;
    setZone('Europe/Vienna');
    expect([hours('2026-03-29'), hours('2026-03-30'), hours('2026-10-25')]).toEqual([23, 24, 25]);
    expect(new Date(daySpan('2026-07-01')!.from).toISOString()).toBe('2026-06-30T22:00:00.000Z');
    setZone('Pacific/Auckland');
    expect(new Date(daySpan('2026-07-01')!.from).toISOString()).toBe('2026-06-30T12:00:00.000Z');
    // Midnight is skipped, or occurs twice: every hour is in one day.
    for (const [zone, day, length] of [['America/Santiago', '2026-09-06', 23], ['Africa/Cairo', '2026-04-24', 23], ['America/Havana', '2026-11-01', 25], ['Asia/Amman', '2021-10-29', 25]] as const) {
      setZone(zone);
      const { from, to } = daySpan(day)!;
      expect([isoDay(from), isoDay(from - 1) < day, isoDay(to - 1), hours(day)], zone).toEqual([day, true, day, length]);
    }
    setZone('Asia/Kolkata');
    expect([clock(0), isoDay(-1), zoneShort(0)]).toEqual(['05:30:00', '1970-01-01', 'GMT+5:30']);
  });
  test('a local time round-trips', () => {
    for (const zone of ['UTC', 'Asia/Kolkata', 'America/St_Johns', 'nowhere']) {
      setZone(zone);
      for (const ms of [0, 1_780_000_000_000, 1_795_000_000_000]) expect(instant(local(ms)), `${zone} ${ms}`).toBe(ms);
    }
    expect(instant('yesterday')).toBeNaN();
  });
  test('a year of which only the first digits are typed is no day', () => {
    setZone('Europe/Prague');
    for (const year of ['0000', '0002', '0020', '0202']) expect([instant(`${year}-11-29T22:59`), daySpan(`${year}-11-29`)], year).toEqual([NaN, null]);
    expect(daySpan('2026-11-29')).not.toBeNull();
  });
});

test('a span in minutes contains the whole last minute', () => {
  for (const now of ['2026-11-22T14:03:00.000Z', '2026-11-22T14:03:59.999Z', '2026-03-29T01:00:30.000Z'].map(Date.parse)) {
    const begin = now - 4 * 3_600_000;
    const [from, to] = minutes(begin, now).map(instant);
    expect(from).toBeLessThanOrEqual(begin);
    expect(from).toBeGreaterThan(begin - 60_000);
    expect(to).toBeGreaterThan(now);
    expect(to).toBeLessThanOrEqual(now + 60_000);
  }
});

describe('the hash of the URL', () => {
  test('round-trips', () => {
    const shared = { place: { zoom: 12.3, lat: 25.7617, lng: -80.1918 }, driver: 'a/b&c d', day: '2026-11-22', group: 'Praha jih & Kurýr' };
    expect(parse(format(shared))).toEqual(shared);
    expect(parse(format({ ...shared, day: 'hour' })).day).toBe('hour');
  });
  test('is ignored if it is invalid', () => {
    for (const hash of ['', '#', '#at=1/2', '#at=x/y/z', '#at=99/0/0', '#at=3/89/0', '#at=//', '#day=yesterday']) {
      expect(parse(hash), hash).toEqual({ place: null, driver: null, day: null, group: '' });
    }
  });
});

describe('tiles', () => {
  test('a view has the tiles that cover it', () => {
    expect(inView({ west: -180, south: -85, east: 180, north: 85 }, 1).map(key)).toEqual(['1/0/0', '1/1/0', '1/0/1', '1/1/1']);
    expect(inView({ west: -80.2, south: 25.7, east: -80.1, north: 25.8 }, 10.9).map(key)).toEqual(['10/283/435', '10/284/435', '10/283/436', '10/284/436']);
    expect(inView({ west: 0, south: 0, east: 0.0001, north: 0.0001 }, 19)[0].z).toBe(14);
  });
  test('mercator round-trips', () => {
    const [x, y] = mercator(25.7617, -80.1918);
    const { lat, lng } = unmercator(x, y);
    expect(lat).toBeCloseTo(25.7617, 9);
    expect(lng).toBeCloseTo(-80.1918, 9);
  });
  test('until a tile has loaded, the tiles shown before stand in for it', () => {
    const parent = { z: 3, x: 1, y: 2 };
    const children: Tile[] = [{ z: 4, x: 2, y: 4 }, { z: 4, x: 3, y: 4 }];
    expect(overlap(parent, children[0])).toBe(true);
    expect(overlap(parent, { z: 4, x: 4, y: 4 })).toBe(false);
    expect(covering(children, new Map([[key(children[0]), children[0]]]), [parent])).toEqual([children[0], parent]);
    expect(covering(children, new Map(children.map((tile) => [key(tile), tile])), [parent])).toEqual(children);
    expect(covering([parent], new Map(), children)).toEqual(children);
  });
});

describe('cells', () => {
  const tile = (...rows: Parameters<typeof encode>[1]) => decode(encode('cells', rows)) as Cells;
  test('joined cells keep every driver, and weight their means', () => {
    const [disc, ...more] = join([tile({ lat: 1, lng: 1, ts: 5, count: 3, speed: 10 }, { lat: 2, lng: 2, ts: 9, count: 1, speed: 2 }, { lat: 1, lng: 2, ts: 1, count: 4 })], 1);
    expect(more).toEqual([]);
    expect(disc).toMatchObject({ count: 8, ts: 9 });
    expect(disc.speed).toBeCloseTo(8);
    const far = join([tile({ lat: 1, lng: 1, ts: 5, count: 3 }, { lat: -40, lng: 90, ts: 9, count: 1 })], 0.1);
    expect(far.map(({ count, speed }) => [count, speed])).toEqual([[3, NaN], [1, NaN]]);
  });
  test('discs of two tiles stay apart at their border without losing drivers', () => {
    // A town across the border of two tiles, as a row of cells each.
    const rows = Array.from({ length: 400 }, (_, i) => ({ lat: ((i * 0.618034) % 1) - 0.5, lng: ((i * 0.754878) % 1) - 0.5, ts: 1, count: 1 + (i % 3) }));
    const reach = 0.0003;
    const discs = join([tile(...rows.filter(({ lng }) => lng < 0)), tile(...rows.filter(({ lng }) => lng >= 0))], reach);
    expect(discs.reduce((sum, { count }) => sum + count, 0)).toBe(rows.reduce((sum, { count }) => sum + count, 0));
    const places = discs.map(({ lat, lng }) => mercator(lat, lng));
    places.forEach(([x, y], i) => {
      for (const [otherX, otherY] of places.slice(0, i)) expect(Math.hypot(x - otherX, y - otherY)).toBeGreaterThan(reach * 0.999);
    });
    expect(discs.length).toBeGreaterThan(10);
    expect(radius(1_000_000)).toBeLessThanOrEqual(32);
    expect(radius(1)).toBeLessThan(radius(2));
  });
});

test('a ramp has exactly its own colours at its stops', () => {
  for (const by of ['speed', 'age'] as const) {
    for (const { at, dark } of stops(by)) expect(colour(by, 'dark', at / 3.6, at).slice(0, 3), `${by} ${at}`).toEqual([...dark]);
  }
  expect(colour('speed', 'light', NaN, 0)).toEqual(colour('speed', 'light', 0, 0));
});

test('one device far away does not zoom the map out', () => {
  const city = Array.from({ length: 999 }, (_, i) => ({ lat: 25 + i / 10_000, lng: -80 - i / 10_000, ts: 1, id: `${i}` }));
  const box = extent([decode(encode('points', [...city, { lat: 0, lng: 0, ts: 1, id: 'lost' }]))])!;
  expect(box.east).toBeLessThan(-79.9);
  expect(box.south).toBeGreaterThan(24.9);
  expect(extent([])).toBeNull();
});

describe('a track', () => {
  // Along the equator, a fix each 10 s; nothing between 30 and 60.
  const ts = [0, 10_000, 20_000, 30_000, 60_000, 70_000];
  const track: Track = {
    driver_id: 'a',
    from: 0,
    to: 80_000,
    sql: '',
    truncated: false,
    points: { ts, lat: ts.map(() => 0), lng: [0, 0.001, 0.002, 0.002, 0.005, 0.006], speed: [10, 10, null, 0, 10, 10] },
    episodes: [
      { kind: 'trip', from: 0, to: 20_000, lat: 0, lng: 0, distance_m: 222 },
      { kind: 'stop', from: 20_000, to: 30_000, lat: 0, lng: 0.002, distance_m: 0 },
      { kind: 'gap', from: 30_000, to: 60_000, lat: 0, lng: 0.002, distance_m: 0 },
      { kind: 'trip', from: 60_000, to: 70_000, lat: 0, lng: 0.005, distance_m: 111 },
    ],
  };
  test('puts the driver between two fixes', () => {
    expect(spotAt(track, 5_000)).toMatchObject({ lat: 0, lng: 0.0005, heading: 90, kind: 'trip', speed: 10 });
    expect(spotAt(track, 25_000)).toMatchObject({ lng: 0.002, heading: null, kind: 'stop' });
  });
  test('leaves the driver at the last known place in a gap', () => expect(spotAt(track, 45_000)).toMatchObject({ lng: 0.002, heading: null, kind: 'gap' }));
  test('has its first or last place outside its span, and none without points', () => {
    expect(spotAt(track, -5)).toMatchObject({ lng: 0 });
    expect(spotAt(track, 99_000)).toMatchObject({ lng: 0.006 });
    expect(spotAt({ ...track, points: { ts: [], lat: [], lng: [], speed: [] } }, 0)).toBeNull();
  });
  test('is divided by a gap', () => {
    expect(pieces(track)).toEqual([[0, 3], [4, 5]]);
    expect(pieces({ ...track, episodes: [] })).toEqual([[0, 5]]);
  });
  test('has an index at each moment', () => expect([-1, 0, 9_999, 10_000, 70_000, 1e9].map((ms) => indexAt(ts, ms))).toEqual([-1, 0, 0, 1, 5, 5]));
  test('has sums of its episodes', () => expect(summary(track)).toEqual({ metres: 333, movingMs: 30_000, stops: 1, gaps: 1 }));
  test('has only the part of a trip that is in its span', () => {
    const long: Track = {
      ...track,
      from: 0,
      to: 60_000,
      points: { ts: [0, 30_000, 60_000], lat: [0, 0, 0.001], lng: [0, 0.001, 0.001], speed: [4, 4, 4] },
      episodes: [{ kind: 'trip', from: -600_000, to: 120_000, lat: 0, lng: 0, distance_m: 63_000 }],
    };
    const { metres, movingMs } = summary(long);
    expect([Math.round(metres), movingMs]).toEqual([5_250, 60_000]);
  });
  test('has a speed curve where the speed is known, and not across a gap', () => {
    const curve = speedCurve(track, 0, 80_000, 8);
    expect([...curve]).toEqual([10, 10, NaN, 0, NaN, NaN, 10, 10]);
  });
});

test('a replay shows each driver at its newest fix, until it is silent', () => {
  const minutes = (...of: number[]) => of.map((one) => one * 60_000);
  const past = { from: 0, to: 6_000_000, step: 60_000, truncated: false, ids: ['a', 'b'], driver: [0, 1, 0], ts: minutes(0.5, 0.9, 1.5), lat: [1, 2, 3], lng: [4, 5, 6], speed: [null, 0, 0.4] };
  const at = (ms: number) => Object.fromEntries(driversAt(past, ms).ids.map((id, i) => [id, driversAt(past, ms).lat[i]]));
  expect(minutes(0, 1, 2, 11, 20).map(at)).toEqual([{}, { a: 1, b: 2 }, { a: 3, b: 2 }, { a: 3 }, {}]);
});

test('in a short span no driver vanishes between two fixes', () => {
  // Five minutes in 240 steps; a fix every 30 s; one driver stands and one drives.
  const ts = Array.from({ length: 10 }, (_, i) => i * 30_000);
  const past = { from: 0, to: 300_000, step: 1_250, truncated: false, ids: ['stands', 'drives'], driver: [...ts.map(() => 0), ...ts.map(() => 1)], ts: [...ts, ...ts], lat: [...ts, ...ts], lng: [...ts, ...ts], speed: [...ts.map(() => 0), ...ts.map(() => 12)] };
  for (let ms = 1; ms < 270_000; ms += 1_250) expect(driversAt(past, ms).n, String(ms)).toBe(2);
});

test('a replay hides a moving driver that has left the area', () => {
  const minute = 60_000;
  const past = (end: number, truncated: boolean, ...at: number[]) => {
    const ts = at.map((one) => one * minute);
    return { from: 0, to: end * minute, step: minute, truncated, ids: ['a'], driver: ts.map(() => 0), ts, lat: ts, lng: ts, speed: ts.map(() => 12) };
  };
  const shown = (of: ReturnType<typeof past>, ...at: number[]) => at.map((one) => driversAt(of, one * minute).n);
  expect(shown(past(100, false, 0.5), 1, 2, 3, 5)).toEqual([1, 1, 0, 0]);
  // A driver with rare fixes is shown until its next one, and a driver that returns is shown again.
  expect(shown(past(100, false, 0.5, 9.5, 40), 5, 9, 10, 14, 40.001)).toEqual([1, 1, 1, 0, 1]);
  // What happens after the end is unknown.
  expect(shown(past(8, false, 0.5), 5, 8)).toEqual([1, 1]);
  expect(shown(past(100, true, 0.5, 6), 5, 10)).toEqual([1, 1]);
});

test('the scale of the heatmap has numbers', () => {
  const cells = (...counts: number[]) => decode(encode('cells', counts.map((count) => ({ lat: 1, lng: 1, ts: 1, count })))) as Cells;
  expect([scale(cells(1, 120, 8)), scale(cells(1)), scale(cells())]).toEqual([[1, 10, 120], [1], [1]]);
});

test('the banner has the start of an outage, and changes once a minute', () => {
  const at = (state: 'ok' | 'stale' | 'away', seconds: number) => problem({ state, since: 1_700_000_000_000, now: 1_700_000_000_000 + seconds * 1000 });
  expect(at('ok', 5)).toBe('');
  expect(at('away', 5)).toMatch(/^ClickHouse has not answered since \d\d:\d\d:\d\d\. /);
  expect(at('away', 5)).toBe(at('away', 59));
  expect(at('stale', 200)).toMatch(/for 3 minutes/);
  expect(at('stale', 200_000)).toMatch(/ since 1[45] Nov 2023, \d\d:\d\d:\d\d, for 2 days\. /);
});

describe('a guest link', () => {
  const filter = (fields: Record<string, string>) => new URLSearchParams({ find: '', group: '', stopped: '', ...fields });
  test('has no place and no driver of the viewer who made it', () => expect(guestLink('https://fleet.example/map/?link=old#at=3/1/2&driver=d1', 'a.b')).toBe('https://fleet.example/map/?link=a.b'));
  test('has the place of one driver, if it is given', () => expect(guestLink('https://fleet.example/map/?link=old#at=3/1/2', 'a.b', '#at=9.0/1/2&driver=d1')).toBe('https://fleet.example/map/?link=a.b#at=9.0/1/2&driver=d1'));
  test('names only the group, so that later members are included', () => expect(linkTo(filter({ group: 'north' }), ['d1'], 50)).toEqual({ groups: ['north'] }));
  test('names the drivers of any other filter', () => expect(linkTo(filter({ group: 'north', find: 'a' }), ['d1', 'd2'], 50)).toEqual({ drivers: ['d1', 'd2'] }));
  test('is not made for no drivers, or for more than it may name', () => {
    expect(linkTo(filter({ find: 'x' }), [], 50)).toBeNull();
    expect(linkTo(filter({ find: 'x' }), ['d1', 'd2', 'd3'], 2)).toBeNull();
  });
});

describe('a new corner', () => {
  const square = [{ x: 0, y: 0 }, { x: 100, y: 0 }, { x: 100, y: 100 }, { x: 0, y: 100 }];
  test('of an outline is between the corners next to it', () => {
    expect(insertion(square, { x: 50, y: -10 }).index).toBe(1);
    expect(insertion(square, { x: 120, y: 50 }).index).toBe(2);
    expect(insertion(square, { x: 50, y: 130 }).index).toBe(3);
    expect(insertion(square, { x: -5, y: 50 }).index).toBe(4);
  });
  test('is on the outline if that does not become longer', () => {
    expect(insertion(square, { x: 100, y: 40 })).toEqual({ index: 2, added: 0 });
    expect(insertion([], { x: 1, y: 1 }).index).toBe(0);
    expect(insertion([{ x: 0, y: 0 }], { x: 1, y: 1 }).index).toBe(1);
  });
});

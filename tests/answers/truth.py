"""What the views must answer, computed the slow way: no SQL, distances by Vincenty's formulae on WGS84 (Survey Review, 1975).

A fix is a dictionary: driver, ms (epoch), lat, lng; optional seq, speed, received (ms).
"""
from __future__ import annotations

import math
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

GAP_MS, STILL_MS, STILL_M = 3_600_000, 180_000, 200
MARGIN_MS = 12 * 3_600_000
QUARTER_MS, NEAR_MS = 900_000, 3 * 3_600_000
A, F = 6378137.0, 1 / 298.257223563
B = A * (1 - F)


def metres(lat1, lng1, lat2, lng2) -> float:
    """Vincenty's inverse formula: the shortest way between two points that are not antipodes."""
    u1, u2 = (math.atan((1 - F) * math.tan(math.radians(lat))) for lat in (lat1, lat2))
    difference = math.radians((lng2 - lng1 + 540) % 360 - 180)
    lam = difference
    for _ in range(200):
        sin_s = math.hypot(math.cos(u2) * math.sin(lam),
                           math.cos(u1) * math.sin(u2) - math.sin(u1) * math.cos(u2) * math.cos(lam))
        if sin_s == 0:
            return 0.0
        cos_s = math.sin(u1) * math.sin(u2) + math.cos(u1) * math.cos(u2) * math.cos(lam)
        sin_a = math.cos(u1) * math.cos(u2) * math.sin(lam) / sin_s
        cos2_a = 1 - sin_a**2
        cos_2m = cos_s - 2 * math.sin(u1) * math.sin(u2) / cos2_a if cos2_a else 0.0
        c, s = F / 16 * cos2_a * (4 + F * (4 - 3 * cos2_a)), math.atan2(sin_s, cos_s)
        before = lam
        lam = difference + (1 - c) * F * sin_a * (s + c * sin_s * (cos_2m + c * cos_s * (2 * cos_2m**2 - 1)))
        if abs(lam - before) < 1e-13:
            break
    big_a, big_b = series(cos2_a)
    return B * big_a * (s - delta_s(big_b, sin_s, cos_s, cos_2m))


def series(cos2_a):
    u = cos2_a * (A * A - B * B) / (B * B)
    return (1 + u / 16384 * (4096 + u * (-768 + u * (320 - 175 * u))),
            u / 1024 * (256 + u * (-128 + u * (74 - 47 * u))))


def delta_s(b, sin_s, cos_s, cos_2m):
    return b * sin_s * (cos_2m + b / 4 * (cos_s * (2 * cos_2m**2 - 1)
                                          - b / 6 * cos_2m * (4 * sin_s**2 - 3) * (4 * cos_2m**2 - 3)))


def ahead(lat, lng, bearing, distance) -> tuple[float, float]:
    """Vincenty's direct formula: where one is after so many metres on this bearing (degrees clockwise from north)."""
    azimuth, u1 = math.radians(bearing), math.atan((1 - F) * math.tan(math.radians(lat)))
    s1, sin_a = math.atan2(math.tan(u1), math.cos(azimuth)), math.cos(u1) * math.sin(azimuth)
    cos2_a = 1 - sin_a**2
    big_a, big_b = series(cos2_a)
    s = distance / (B * big_a)
    for _ in range(50):
        cos_2m = math.cos(2 * s1 + s)
        s = distance / (B * big_a) + delta_s(big_b, math.sin(s), math.cos(s), cos_2m)
    x = math.sin(u1) * math.sin(s) - math.cos(u1) * math.cos(s) * math.cos(azimuth)
    lat2 = math.atan2(math.sin(u1) * math.cos(s) + math.cos(u1) * math.sin(s) * math.cos(azimuth),
                      (1 - F) * math.hypot(sin_a, x))
    lam = math.atan2(math.sin(s) * math.sin(azimuth),
                     math.cos(u1) * math.cos(s) - math.sin(u1) * math.sin(s) * math.cos(azimuth))
    c = F / 16 * cos2_a * (4 + F * (4 - 3 * cos2_a))
    cos_2m = math.cos(2 * s1 + s)
    turn = lam - (1 - c) * F * sin_a * (s + c * math.sin(s) * (cos_2m + c * math.cos(s) * (2 * cos_2m**2 - 1)))
    return math.degrees(lat2), (lng + math.degrees(turn) + 540) % 360 - 180


def on_three_axes(lat, lng):
    """Earth-centred metres."""
    e2 = F * (2 - F)
    n = A / math.sqrt(1 - e2 * math.sin(math.radians(lat)) ** 2)
    return (n * math.cos(math.radians(lat)) * math.cos(math.radians(lng)),
            n * math.cos(math.radians(lat)) * math.sin(math.radians(lng)), n * (1 - e2) * math.sin(math.radians(lat)))


def diagonal(points) -> float:
    axes = list(zip(*(on_three_axes(*point) for point in points)))
    return math.sqrt(sum((max(axis) - min(axis)) ** 2 for axis in axes))


def middle(points) -> tuple[float, float]:
    x, y, z = (sum(axis) / len(axis) for axis in zip(*(on_three_axes(*point) for point in points)))
    return math.degrees(math.atan2(z, (1 - F) ** 2 * math.hypot(x, y))), math.degrees(math.atan2(y, x))


def by_driver(fixes, since=-math.inf, until=math.inf) -> dict[str, list[dict]]:
    """Each fix once, in order."""
    drivers: dict[str, dict] = {}
    for fix in fixes:
        lat, lng = round(fix["lat"] * 1e7) / 1e7, round(fix["lng"] * 1e7) / 1e7
        if since <= fix["ms"] < until:
            identity = (fix["ms"], fix.get("seq", 0), lat, lng)
            drivers.setdefault(fix["driver"], {})[identity] = {**fix, "lat": lat, "lng": lng}
    return {driver: [unique[key] for key in sorted(unique)] for driver, unique in drivers.items()}


def legs(track: list[dict], reach_ms=math.inf) -> list[dict]:
    """The ways between neighbours, each a gap, a part of a stop, or a part of a trip; with metres. A stop is where its fixes are that
    are less than reach_ms from the trip."""
    ways = [{"a": a, "b": b, "kind": "gap" if b["ms"] - a["ms"] > GAP_MS else "trip"} for a, b in zip(track, track[1:])]
    for last in range(len(ways)):
        # The ways that end in the 180 s before this fix, and no gap: do they last so long, and stay so small?
        end, first = ways[last]["b"]["ms"], last
        while first >= 0 and ways[first]["b"]["ms"] > end - STILL_MS:
            first -= 1
        peer = last
        while peer + 1 < len(ways) and ways[peer + 1]["b"]["ms"] == end:
            peer += 1
        lately = [way for way in ways[first + 1:peer + 1]]
        joined = [way for way in lately if way["kind"] != "gap"]
        points = [(fix["lat"], fix["lng"]) for way in joined for fix in (way["a"], way["b"])]
        points += [(way["b"]["lat"], way["b"]["lng"]) for way in lately if way["kind"] == "gap"]
        if joined and min(way["a"]["ms"] for way in joined) <= end - STILL_MS and diagonal(points) <= STILL_M:
            for way in joined:
                way["kind"] = "stop"
    for way in ways:
        way["metres"], way["untracked"] = 0.0, 0.0
    for run in runs(ways):
        first, last = ways.index(run[0]), ways.index(run[-1])
        if run[0]["kind"] == "gap":
            run[0]["untracked"] = between(run[0]["a"], run[0]["b"])
        if run[0]["kind"] == "trip":
            for way in run:
                way["metres"] = between(way["a"], way["b"])
            if first > 0 and ways[first - 1]["kind"] == "stop":
                run[0]["metres"] += metres(*stop_middle(ways, first - 1, -1, reach_ms), run[0]["a"]["lat"], run[0]["a"]["lng"])
            if last + 1 < len(ways) and ways[last + 1]["kind"] == "stop":
                run[-1]["metres"] += metres(run[-1]["b"]["lat"], run[-1]["b"]["lng"], *stop_middle(ways, last + 1, 1, reach_ms))
    return ways


def between(a, b):
    return metres(a["lat"], a["lng"], b["lat"], b["lng"])


def stop_middle(ways, start, step, reach_ms):
    points, place = [], start
    while 0 <= place < len(ways) and ways[place]["kind"] == "stop" and abs(ways[place]["b"]["ms"] - ways[start]["b"]["ms"]) < reach_ms:
        points.append((ways[place]["b"]["lat"], ways[place]["b"]["lng"]))
        place += step
    return middle(points)


def runs(ways):
    """Ways of the same kind, together; a gap is alone."""
    together: list[list[dict]] = []
    for way in ways:
        if together and together[-1][-1]["kind"] == way["kind"] != "gap":
            together[-1].append(way)
        else:
            together.append([way])
    return together


def episodes(fixes, since, until) -> list[dict]:
    """What `episodes` says, in the order of driver and time; times as epoch milliseconds."""
    found = []
    for driver, track in sorted(by_driver(fixes, since - MARGIN_MS, until + MARGIN_MS).items()):
        for run in runs(legs(track)):
            began, ended = run[0]["a"]["ms"], run[-1]["b"]["ms"]
            if ended > since and began < until:
                found.append({"driver_id": driver, "kind": run[0]["kind"], "began": began, "ended": ended, "fixes": len(run),
                              "metres": sum(way["metres"] for way in run), "untracked_m": sum(way["untracked"] for way in run)})
    return found


def silences(fixes, seconds, since, until, now) -> list[dict]:
    """Those that touch the window, as far as twelve hours outside; without an end where nobody was heard of again by then."""
    found = []
    for driver, track in by_driver(fixes, since - MARGIN_MS, until + MARGIN_MS).items():
        for fix, following in zip(track, [*track[1:], None]):
            ended = following and following["ms"]
            lasts = ((ended or min(until, now)) - fix["ms"]) / 1000
            if lasts > seconds and fix["ms"] < until and (ended is None or ended > since):
                way = following and between(fix, following)
                found.append({"driver_id": driver, "began": fix["ms"], "ended": ended, "seconds": lasts, "metres": way})
    return found


def whole_episodes(fixes) -> dict[tuple, dict]:
    """What `trips` and `stops` say, by driver, kind and first fix (epoch milliseconds)."""
    found = {}
    for driver, track in by_driver(fixes).items():
        for run in runs(legs(track, STILL_MS)):
            kind, first, last = run[0]["kind"], run[0]["a"], run[-1]["b"]
            if kind == "gap":
                continue
            place, to_place = (first["lat"], first["lng"]), (last["lat"], last["lng"])
            if kind == "stop":
                place = to_place = middle([(way["b"]["lat"], way["b"]["lng"]) for way in run])
            assert (driver, kind, first["ms"]) not in found
            found[driver, kind, first["ms"]] = {
                "ended": last["ms"], "fixes": len(run), "metres": sum(way["metres"] for way in run), "place": place, "to_place": to_place,
                "speed_max": max((way["b"]["speed"] for way in run if way["b"].get("speed") is not None), default=None)}
    return found


def days(fixes, since_day, until_day, tz) -> dict[tuple[str, str], dict]:
    """What `days` says of the local days from one up to, not including, another."""
    zone, found = ZoneInfo(tz), {}

    def day_of(ms):
        return datetime.fromtimestamp(ms / 1000, zone).date()

    def midnight(day):
        return round(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() * 1000)

    since, until = midnight(since_day), midnight(until_day)
    for driver, track in by_driver(fixes, since - MARGIN_MS, until + MARGIN_MS).items():
        def of(day):
            return found.setdefault((driver, day.isoformat()), dict.fromkeys(
                ("fixes", "metres", "untracked_m", "moving_s", "standing_s", "trips", "stops"), 0))
        for fix in track:
            of(day_of(fix["ms"]))["fixes"] += 1
        for run in runs(legs(track)):
            if run[0]["kind"] != "gap":
                of(day_of(run[0]["a"]["ms"]))["trips" if run[0]["kind"] == "trip" else "stops"] += 1
            for way in run:
                began, ended = way["a"]["ms"], way["b"]["ms"]
                of(day_of(ended))["untracked_m"] += way["untracked"]
                if way["kind"] == "gap":
                    continue
                cut = midnight(day_of(ended))
                pieces = [(began, cut), (cut, ended)] if began < cut else [(began, ended)]
                for piece_began, piece_ended in pieces:
                    share = (piece_ended - piece_began) / (ended - began) if ended > began else 1
                    day = of(day_of(piece_began))
                    day["metres"] += way["metres"] * share
                    day["moving_s" if way["kind"] == "trip" else "standing_s"] += (piece_ended - piece_began) / 1000
    return {key: day for key, day in found.items()
            if since_day.isoformat() <= key[1] < until_day.isoformat() and (day["fixes"] or day["moving_s"] or day["standing_s"])}


def quarters(fixes) -> dict[tuple[str, int], dict]:
    """What `driver_quarters` says; a quarter as its epoch seconds."""
    names = ("fixes", "distance_m", "untracked_m", "moving_s", "tracked_s", "speed_sum", "speed_count", "missing")
    found: dict[tuple[str, int], dict] = {}
    for driver, track in by_driver(fixes).items():
        def of(ms):
            return found.setdefault((driver, ms // QUARTER_MS * 900), {**dict.fromkeys(names, 0), "speed_max": None})
        for fix in track:
            quarter = of(fix["ms"])
            quarter["fixes"] += 1
            if fix.get("speed") is not None:
                quarter["speed_sum"] += fix["speed"]
                quarter["speed_count"] += 1
                quarter["speed_max"] = max(quarter["speed_max"] or 0, fix["speed"])
        for way in legs(track, STILL_MS):
            began, ended = way["a"]["ms"], way["b"]["ms"]
            if ended - began <= NEAR_MS:
                of(ended)["untracked_m"] += way["untracked"]
                seqs = way["a"].get("seq", 0), way["b"].get("seq", 0)
                of(ended)["missing"] += seqs[1] - seqs[0] - 1 if 0 < seqs[0] < seqs[1] else 0
            if way["kind"] == "gap":
                continue
            at = began
            while True:
                until = min(ended, at // QUARTER_MS * QUARTER_MS + QUARTER_MS)
                quarter = of(at)
                quarter["distance_m"] += way["metres"] * ((until - at) / (ended - began) if ended > began else 1)
                quarter["moving_s"] += (until - at) / 1000 if way["kind"] == "trip" else 0
                quarter["tracked_s"] += (until - at) / 1000
                at = until
                if at >= ended:
                    break
    return found

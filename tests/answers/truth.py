"""What the views must answer, computed the slow way: no SQL, distances by Vincenty's formulae on WGS84 (Survey Review, 1975).

A fix is a dictionary: driver, ms (epoch), lat, lng; optional seq, speed, acc, received (ms).
"""
from __future__ import annotations

import math
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

GAP_MS, STOP_MS, STOP_M, LOOK_MS = 3_600_000, 180_000, 100, 15_000
JUMP_MPS, JUMP_M, ACC_M_MAX = 100, 100, 200
SILENCE_MARGIN_MS = 12 * 3_600_000
QUARTER_MS, DAY_MS, SEQ_MARGIN_MS = 900_000, 86_400_000, 2 * 3_600_000
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


def between(a, b):
    return metres(a["lat"], a["lng"], b["lat"], b["lng"])


def apart(a, b) -> float:
    """The straight line through the earth."""
    return math.dist(on_three_axes(a["lat"], a["lng"]), on_three_axes(b["lat"], b["lng"]))


def is_impossible(a, b) -> bool:
    return apart(a, b) > JUMP_M + JUMP_MPS * (b["ms"] - a["ms"]) / 1000


def reasons(track: list[dict]) -> list[str]:
    """Why each fix is dropped, or ''."""
    why = ["inaccurate" if (fix.get("acc") or 0) > ACC_M_MAX else "" for fix in track]
    accurate = [place for place, reason in enumerate(why) if not reason]
    for before, place, after in zip(accurate, accurate[1:], accurate[2:]):
        a, fix, b = track[before], track[place], track[after]
        soon = fix["ms"] - a["ms"] <= GAP_MS and b["ms"] - fix["ms"] <= GAP_MS
        if soon and is_impossible(a, fix) and is_impossible(fix, b) and not is_impossible(a, b):
            why[place] = "jump"
    return why


def good(track: list[dict]) -> list[dict]:
    return [fix for fix, reason in zip(track, reasons(track)) if not reason]


def stops_of_a_day(fixes: list[dict], day: int) -> list[tuple[int, int, tuple[float, float]]]:
    """First and last place in fixes, and where, of each stop of the UTC day."""
    looks, bins = [], set()
    for place, fix in enumerate(fixes):
        if fix["ms"] // DAY_MS == day and fix["ms"] // LOOK_MS not in bins:
            bins.add(fix["ms"] // LOOK_MS)
            looks.append(place)
    found, stay = [], []

    def close():
        if stay and fixes[stay[-1]]["ms"] - fixes[stay[0]]["ms"] >= STOP_MS:
            early = [fixes[place] for place in stay if fixes[place]["ms"] - fixes[stay[0]]["ms"] <= STOP_MS]
            found.append((stay[0], stay[-1], middle([(fix["lat"], fix["lng"]) for fix in early])))
    for place in looks:
        after_gap = place > 0 and fixes[place]["ms"] - fixes[place - 1]["ms"] > GAP_MS
        if stay and (after_gap or apart(fixes[stay[0]], fixes[place]) > STOP_M):
            close()
            stay = []
        stay.append(place)
    close()
    return found


def legs(track: list[dict]) -> list[dict]:
    """The ways between good neighbours: a, b, kind, metres, and `place` of those that stand."""
    fixes = good(track)
    stop_of: dict[int, tuple] = {}
    for day in {fix["ms"] // DAY_MS for fix in fixes}:
        for first, last, place in stops_of_a_day(fixes, day):
            stop_of.update((at, (day, first, place)) for at in range(first, last + 1))
    ways = []
    for at, (a, b) in enumerate(zip(fixes, fixes[1:])):
        way = {"a": a, "b": b, "metres": 0.0, "untracked": 0.0, "place": None}
        ends = [(fix["lat"], fix["lng"]) for fix in (a, b)]
        midnight = b["ms"] // DAY_MS * DAY_MS
        if b["ms"] - a["ms"] > GAP_MS or is_impossible(a, b):
            way["kind"] = "gap"
            way["untracked"] = metres(*ends[0], *ends[1])
            way["is_known"] = b["ms"] // DAY_MS - a["ms"] // DAY_MS <= 1
        elif a["ms"] < midnight:
            around = [fix for fix in fixes if abs(fix["ms"] - midnight) <= STOP_MS] + [a]
            way["kind"] = "stop" if all(apart(fix, b) <= STOP_M for fix in around) else "trip"
            way["metres"] = metres(*ends[0], *ends[1]) if way["kind"] == "trip" else 0.0
            if way["kind"] == "stop":
                way["place"] = stop_of[at + 1][2] if at + 1 in stop_of else ends[1]
        elif at in stop_of and stop_of[at] == stop_of.get(at + 1):
            way["kind"], way["place"] = "stop", stop_of[at][2]
        else:
            places = [stop_of[place][2] if place in stop_of else end for place, end in zip((at, at + 1), ends)]
            way["kind"], way["metres"] = "trip", metres(*places[0], *places[1])
        ways.append(way)
    return ways


def runs(ways):
    """Ways of the same kind, together; a gap is alone."""
    together: list[list[dict]] = []
    for way in ways:
        if together and together[-1][-1]["kind"] == way["kind"] != "gap":
            together[-1].append(way)
        else:
            together.append([way])
    return [run for run in together if run[0].get("is_known", True)]


def episodes(fixes, since=-math.inf, until=math.inf) -> list[dict]:
    """What `episodes` says, in the order of driver and time; times as epoch milliseconds."""
    found = []
    for driver, track in sorted(by_driver(fixes).items()):
        for run in runs(legs(track)):
            began, ended = run[0]["a"]["ms"], run[-1]["b"]["ms"]
            if ended > since and began < until:
                speeds = [way["b"]["speed"] for way in run if way["b"].get("speed") is not None]
                ends = [(fix["lat"], fix["lng"]) for fix in (run[0]["a"], run[-1]["b"])]
                stops = [way["place"] for way in run if way["place"]]  # one for each day of a stop over midnight, and the fix at midnight
                found.append({"driver_id": driver, "kind": run[0]["kind"], "began": began, "ended": ended, "fixes": len(run),
                              "metres": sum(way["metres"] for way in run), "untracked_m": sum(way["untracked"] for way in run),
                              "speed_max": max(speeds, default=None),
                              "from": stops or ends[:1], "to": stops or ends[1:]})
    return found


def pieces(way, cuts):
    """The shares of a way, each with its moment, cut by what `cuts` gives for a moment: the next cut after it."""
    began, ended, at = way["a"]["ms"], way["b"]["ms"], way["a"]["ms"]
    if began == ended:
        return [(at, 1.0, 0.0)]
    found = []
    while at < ended:
        until = min(ended, cuts(at))
        found.append((at, (until - at) / (ended - began), (until - at) / 1000))
        at = until
    return found


def days(fixes, since_day, until_day, tz) -> dict[tuple[str, str], dict]:
    """What `days` says of the local days from one up to, not including, another."""
    zone, found = ZoneInfo(tz), {}

    def day_of(ms):
        return datetime.fromtimestamp(ms / 1000, zone).date()

    def next_midnight(ms):
        day = day_of(ms) + timedelta(days=1)
        return round(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() * 1000)

    def of(day):
        return found.setdefault((driver, day.isoformat()), dict.fromkeys(
            ("fixes", "metres", "untracked_m", "moving_s", "standing_s", "trips", "stops"), 0))
    for driver, track in by_driver(fixes).items():
        for fix in track:
            of(day_of(fix["ms"]))["fixes"] += 1
        for run in runs(legs(track)):
            if run[0]["kind"] != "gap":
                of(day_of(run[0]["a"]["ms"]))[run[0]["kind"] + "s"] += 1
            for way in run:
                of(day_of(way["b"]["ms"]))["untracked_m"] += way["untracked"]
                for at, share, seconds in pieces(way, next_midnight) if way["kind"] != "gap" else []:
                    of(day_of(at))["metres"] += way["metres"] * share
                    of(day_of(at))["moving_s" if way["kind"] == "trip" else "standing_s"] += seconds
    return {key: day for key, day in found.items() if since_day.isoformat() <= key[1] < until_day.isoformat()}


def quarters(fixes) -> dict[tuple[str, int], dict]:
    """What `driver_quarters` says; a quarter as its epoch seconds."""
    names = ("fixes", "distance_m", "moving_s", "tracked_s", "speed_sum", "speed_count", "missing")
    found: dict[tuple[str, int], dict] = {}
    for driver, track in by_driver(fixes).items():
        def of(ms):
            return found.setdefault((driver, ms // QUARTER_MS * 900), {**dict.fromkeys(names, 0), "speed_max": None})
        for before, fix, reason in zip([None, *track], track, reasons(track)):
            quarter = of(fix["ms"])
            quarter["fixes"] += 1
            if before and before["ms"] >= fix["ms"] // DAY_MS * DAY_MS - SEQ_MARGIN_MS and 0 < before.get("seq", 0) < fix.get("seq", 0):
                quarter["missing"] += fix["seq"] - before["seq"] - 1
            if fix.get("speed") is not None and not reason:
                quarter["speed_sum"] += fix["speed"]
                quarter["speed_count"] += 1
                quarter["speed_max"] = max(quarter["speed_max"] or 0, fix["speed"])
        for way in legs(track):
            for at, share, seconds in pieces(way, lambda ms: ms // QUARTER_MS * QUARTER_MS + QUARTER_MS) if way["kind"] != "gap" else []:
                of(at)["distance_m"] += way["metres"] * share
                of(at)["moving_s"] += seconds if way["kind"] == "trip" else 0
                of(at)["tracked_s"] += seconds
    return found


def silences(fixes, seconds, since, until, now) -> list[dict]:
    """Those that touch the window, as far as twelve hours outside; without an end where nobody was heard of again by then."""
    found = []
    for driver, track in by_driver(fixes, since - SILENCE_MARGIN_MS, until + SILENCE_MARGIN_MS).items():
        for fix, following in zip(track, [*track[1:], None]):
            ended = following and following["ms"]
            lasts = ((ended or min(until, now)) - fix["ms"]) / 1000
            if lasts > seconds and fix["ms"] < until and (ended is None or ended > since):
                way = following and between(fix, following)
                found.append({"driver_id": driver, "began": fix["ms"], "ended": ended, "seconds": lasts, "metres": way})
    return found

"""Computes the rows that the views must return, without SQL.

Distances: Vincenty's formulae on WGS84 (Survey Review, 1975).

A fix is a dictionary: driver, ms (epoch), lat, lng; optional seq, speed, acc, received (ms).
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

# Constants of the definition of trips, as in sql/360. CORNER_TURN_MAX is in radians.
GAP_MS, SAMPLING_MS, MINUTE_MS, JUMP_M = 3_600_000, 15_000, 60_000, 100
ZERO_SPEED_MPS, ZERO_SPEED_MS, ZERO_SPEED_M, RUN_MS = 0.1, 30_000, 1000, 45_000
MOVING_MPS, MOVING_MS = 2.5, 60_000
FALSE_SPEED_S, BRAKE_MPS2 = 60, 8
ASLEEP_MS_MAX, JUMP_MS_MAX = 7_200_000, 120_000
SLOT_M, SLOT_S_MAX, PATH_SHARE = 37, 64, 0.7
CORNER_LEG_M, CORNER_TURN_MAX, CORNER_SHARE, CORNER_TIME_SHARE = 32, 2.2, 0.75, 0.9
ARC_SHARE, CREEP_S = 1 / 3, 120
# Longest silence, in UTC days, after which the views still connect the fixes before and after it.
SILENCE_DAYS_MAX = 3
# How far the view `gaps` reads beyond either end of its window.
SILENCE_MARGIN_MS = 12 * 3_600_000
QUARTER_MS, DAY_MS, MARGIN_MS = 900_000, 86_400_000, 2 * 3_600_000
# WGS84: semi-major axis in metres, flattening, semi-minor axis.
A, F = 6378137.0, 1 / 298.257223563
B = A * (1 - F)


def metres(lat1, lng1, lat2, lng2) -> float:
    """Returns the shortest distance between two points, by Vincenty's inverse formula.

    The distance is in metres. The points must not be antipodes.
    """
    u1, u2 = (math.atan((1 - F) * math.tan(math.radians(lat))) for lat in (lat1, lat2))
    difference = math.radians((lng2 - lng1 + 540) % 360 - 180)
    lam = difference
    for _ in range(200):
        sin_s = math.hypot(
            math.cos(u2) * math.sin(lam),
            math.cos(u1) * math.sin(u2) - math.sin(u1) * math.cos(u2) * math.cos(lam),
        )
        if sin_s == 0:
            return 0.0
        cos_s = math.sin(u1) * math.sin(u2) + math.cos(u1) * math.cos(u2) * math.cos(lam)
        sin_a = math.cos(u1) * math.cos(u2) * math.sin(lam) / sin_s
        cos2_a = 1 - sin_a**2
        cos_2m = cos_s - 2 * math.sin(u1) * math.sin(u2) / cos2_a if cos2_a else 0.0
        c, s = F / 16 * cos2_a * (4 + F * (4 - 3 * cos2_a)), math.atan2(sin_s, cos_s)
        before = lam
        lam = difference + (1 - c) * F * sin_a * (
            s + c * sin_s * (cos_2m + c * cos_s * (2 * cos_2m**2 - 1))
        )
        if abs(lam - before) < 1e-13:
            break
    big_a, big_b = vincenty_coefficients(cos2_a)
    return B * big_a * (s - arc_correction(big_b, sin_s, cos_s, cos_2m))


def vincenty_coefficients(cos2_a):
    u = cos2_a * (A * A - B * B) / (B * B)
    return (1 + u / 16384 * (4096 + u * (-768 + u * (320 - 175 * u))),
            u / 1024 * (256 + u * (-128 + u * (74 - 47 * u))))


def arc_correction(b, sin_s, cos_s, cos_2m):
    return (
        b
        * sin_s
        * (
            cos_2m
            + b
            / 4
            * (
                cos_s * (2 * cos_2m**2 - 1)
                - b / 6 * cos_2m * (4 * sin_s**2 - 3) * (4 * cos_2m**2 - 3)
            )
        )
    )


def destination(lat, lng, bearing, distance) -> tuple[float, float]:
    """Returns the point at this distance and bearing, by Vincenty's direct formula.

    The distance is in metres, and the bearing in degrees clockwise from north.
    """
    azimuth, u1 = math.radians(bearing), math.atan((1 - F) * math.tan(math.radians(lat)))
    s1, sin_a = math.atan2(math.tan(u1), math.cos(azimuth)), math.cos(u1) * math.sin(azimuth)
    cos2_a = 1 - sin_a**2
    big_a, big_b = vincenty_coefficients(cos2_a)
    s = distance / (B * big_a)
    for _ in range(50):
        cos_2m = math.cos(2 * s1 + s)
        s = distance / (B * big_a) + arc_correction(big_b, math.sin(s), math.cos(s), cos_2m)
    x = math.sin(u1) * math.sin(s) - math.cos(u1) * math.cos(s) * math.cos(azimuth)
    lat2 = math.atan2(math.sin(u1) * math.cos(s) + math.cos(u1) * math.sin(s) * math.cos(azimuth),
                      (1 - F) * math.hypot(sin_a, x))
    lam = math.atan2(math.sin(s) * math.sin(azimuth),
                     math.cos(u1) * math.cos(s) - math.sin(u1) * math.sin(s) * math.cos(azimuth))
    c = F / 16 * cos2_a * (4 + F * (4 - 3 * cos2_a))
    cos_2m = math.cos(2 * s1 + s)
    turn = lam - (1 - c) * F * sin_a * (
        s + c * math.sin(s) * (cos_2m + c * math.cos(s) * (2 * cos_2m**2 - 1))
    )
    return math.degrees(lat2), (lng + math.degrees(turn) + 540) % 360 - 180


def earth_centred(lat, lng):
    """Returns earth-centred coordinates in metres."""
    e2 = F * (2 - F)
    n = A / math.sqrt(1 - e2 * math.sin(math.radians(lat)) ** 2)
    return (
        n * math.cos(math.radians(lat)) * math.cos(math.radians(lng)),
        n * math.cos(math.radians(lat)) * math.sin(math.radians(lng)),
        n * (1 - e2) * math.sin(math.radians(lat)),
    )


def mean_position(points) -> tuple[float, float]:
    """Returns the mean position of points."""
    return degrees_of(
        tuple(sum(axis) / len(axis) for axis in zip(*(earth_centred(*point) for point in points)))
    )


def by_driver(fixes, since=-math.inf, until=math.inf) -> dict[str, list[dict]]:
    """Returns the distinct fixes of each driver, in the order of their times."""
    drivers: dict[str, dict] = {}
    for fix in fixes:
        lat, lng = round(fix["lat"] * 1e7) / 1e7, round(fix["lng"] * 1e7) / 1e7
        if since <= fix["ms"] < until:
            identity = (fix["ms"], fix.get("seq", 0), lat, lng)
            drivers.setdefault(fix["driver"], {})[identity] = {**fix, "lat": lat, "lng": lng}
    return {driver: [unique[key] for key in sorted(unique)] for driver, unique in drivers.items()}


def fix_distance(a, b) -> float:
    """Returns the distance between two fixes on the surface of the earth, in metres."""
    return metres(a["lat"], a["lng"], b["lat"], b["lng"])


def straight_metres(a, b) -> float:
    """Returns the length of the straight line through the earth between two fixes, in metres."""
    return math.dist(earth_centred(a["lat"], a["lng"]), earth_centred(b["lat"], b["lng"]))


@dataclass
class Rules:
    """The limits of the preset car, as in `trip_rules_in_force`."""
    speed_max: float = 60
    radius_m: float = 100
    stop_s: float = 180
    trip_m: float = 200
    trip_s: float = 300
    spike_s: float = 60
    acc_max: float = 200


RULES = Rules()


def is_impossible(a, b, rules=RULES) -> bool:
    """Returns whether the leg from a to b is too long for the time between the two fixes."""
    # If a device sends times without seconds, up to a minute is between two fixes of one minute.
    ms = MINUTE_MS if a["ms"] == b["ms"] and a["ms"] % MINUTE_MS == 0 else b["ms"] - a["ms"]
    return straight_metres(a, b) > JUMP_M + rules.speed_max * ms / 1000


def speed_between(a, b) -> float:
    return straight_metres(a, b) * 1000 / max(1, abs(b["ms"] - a["ms"]))


def reasons(track: list[dict], rules=RULES) -> list[str]:
    """Returns the reason why each fix is dropped; '' if it is kept.

    To judge the fixes of a UTC day, also reads the fixes of two hours before and after the day.
    """
    found = {}
    for day in {fix["ms"] // DAY_MS for fix in track}:
        since, until = day * DAY_MS - MARGIN_MS, (day + 1) * DAY_MS + MARGIN_MS
        near = [index for index, fix in enumerate(track) if since <= fix["ms"] < until]
        accurate = [index for index in near if (track[index].get("acc") or 0) <= rules.acc_max]
        fixes = [track[index] for index in accurate]
        for at, index in enumerate(accurate):
            if track[index]["ms"] // DAY_MS == day:
                found[index] = "jump" if is_jump(fixes, at, rules) else ""
    return [found.get(index, "inaccurate") for index in range(len(track))]


def is_jump(fixes: list[dict], at: int, rules) -> bool:
    """Returns whether the accurate fix with this index is a jump."""

    def neighbour(step):
        """Returns the fix `step` places later (if negative: earlier), or None."""
        return fixes[at + step] if 0 <= at + step < len(fixes) else None

    def can_drive(a, b):
        """Returns whether a vehicle can drive from a to b.

        Returns false if a fix is None, or if the fixes are more than an hour apart.
        """
        return (
            a is not None
            and b is not None
            and b["ms"] - a["ms"] <= GAP_MS
            and not is_impossible(a, b, rules)
        )

    def are_at_one_place(a, b):
        """Returns whether both fixes exist and are at the same place."""
        return a is not None and b is not None and straight_metres(a, b) <= rules.radius_m

    older, before, fix, after, later = (neighbour(step) for step in (-2, -1, 0, 1, 2))
    if after is None:
        return False
    is_after_silence = before is None or fix["ms"] - before["ms"] > GAP_MS
    leaves_too_fast = after["ms"] - fix["ms"] <= GAP_MS and is_impossible(fix, after, rules)
    # The first fix after a silence cannot be compared with the fix before the silence. The first
    # fix is a jump if the next two fixes agree with each other, but not with the first fix, and the
    # next fix is nearer to where the silence began.
    is_next_nearer = before is None or straight_metres(before, after) < straight_metres(before, fix)
    if is_after_silence and leaves_too_fast and can_drive(after, later) and is_next_nearer:
        return True
    if before is None:
        return False
    if (
        not is_after_silence
        and leaves_too_fast
        and is_impossible(before, fix, rules)
        and not is_impossible(before, after, rules)
    ):
        return True
    leg_to, leg_from = straight_metres(before, fix), straight_metres(fix, after)
    direct = straight_metres(before, after)
    if min(leg_to, leg_from) <= JUMP_M:
        return False
    pace_before = speed_between(older, before) if older else 0
    pace_after = speed_between(after, later) if later else 0

    def pace_limit(first, third, fourth):
        """Returns a limit for the pace between the first and the second neighbour.

        If the second neighbour is a wrong fix, that pace is too high. So the limit is the higher
        of two other paces: from the first neighbour straight to the third, and from the third to
        the fourth.
        """
        if not third:
            return math.inf
        return max(speed_between(first, third), speed_between(third, fourth) if fourth else 0)

    capped_before = min(pace_before, pace_limit(before, neighbour(-3), neighbour(-4)))
    capped_after = min(pace_after, pace_limit(after, neighbour(3), neighbour(4)))
    pace_around = max(capped_before, capped_after, speed_between(before, after))
    is_detour = direct < 0.6 * (leg_to + leg_from) and after["ms"] - before["ms"] <= JUMP_MS_MAX
    slower_leg = min(speed_between(before, fix), speed_between(fix, after))
    if is_detour and slower_leg > 1.5 * pace_around + 5:
        return True
    if direct > rules.radius_m:
        return False
    # The device itself reports that it stands, and the next fix is back at the same place.
    stands = all(
        each.get("speed") is not None and each["speed"] < ZERO_SPEED_MPS
        for each in (before, fix, after)
    )
    is_soon = fix["ms"] - before["ms"] <= ASLEEP_MS_MAX and after["ms"] - fix["ms"] <= ASLEEP_MS_MAX
    if (
        stands
        and is_soon
        and max(leg_to, leg_from) <= ZERO_SPEED_M
        and (are_at_one_place(older, before) or are_at_one_place(after, later))
    ):
        return True
    # The first fix after a silence is wrong if the next fix comes soon, and is where the silence
    # began.
    return (
        is_after_silence
        and after["ms"] - fix["ms"] <= JUMP_MS_MAX
        and speed_between(fix, after) > 1.5 * pace_after + 5
    )


def kept_fixes(track: list[dict], rules=RULES) -> list[dict]:
    """Returns the fixes that are not dropped, each with its `true_speed`.

    `true_speed` is the speed that the device sent, or None if the device sent no speed or a false
    one.
    """
    fixes = [fix for fix, reason in zip(track, reasons(track, rules)) if not reason]
    return [{**fix, "true_speed": None if is_false_speed(before, fix, after) else fix.get("speed")}
            for before, fix, after in zip([None, *fixes], fixes, [*fixes[1:], None])]


def is_false_speed(before, fix, after) -> bool:
    """Returns whether the neighbouring fixes prove that the device sent a false speed.

    Both neighbours are too near for a vehicle that drives at this speed, or brakes from it. They
    sent less than a quarter of this speed, or no speed.
    """
    if not before or not after or fix.get("speed") is None:
        return False
    speed = round(fix["speed"] * 100) / 100
    times = [(b["ms"] - a["ms"]) / 1000 for a, b in ((before, fix), (fix, after))]
    nearest = min(speed**2 / (2 * BRAKE_MPS2), speed * min(times) / 4)
    return (
        max(times) <= FALSE_SPEED_S
        and 4 * max(before.get("speed") or 0, after.get("speed") or 0) < speed
        and max(straight_metres(before, fix), straight_metres(fix, after)) < nearest
    )


def samples_of_a_day(fixes: list[dict], day: int, rules=RULES) -> tuple[list[int], list[int]]:
    """Returns the indices of the fixes of the UTC day, and those of its samples.

    A sample is the first fix of the day, the first in an interval of SAMPLING_MS, or the first
    after an impossible leg.
    """
    today = [index for index, fix in enumerate(fixes) if fix["ms"] // DAY_MS == day]
    intervals = [fixes[index]["ms"] // SAMPLING_MS for index in today]
    return today, [
        index
        for index, before, interval in zip(today, [None, *intervals], intervals)
        if interval != before or is_impossible(fixes[index - 1], fixes[index], rules)
    ]


def stops_of_a_day(
    fixes: list[dict], day: int, rules=RULES
) -> list[tuple[int, int, tuple[float, float, float]]]:
    """Returns the stops of the UTC day.

    Each has the indices of its first and last fix, and its place in earth-centred coordinates.
    """
    today, samples = samples_of_a_day(fixes, day, rules)
    axes = {at: earth_centred(fixes[at]["lat"], fixes[at]["lng"]) for at in samples}
    # A speed of 0 is ignored if the device sends no other speed all day and moves farther than
    # ZERO_SPEED_M.
    sends_other_speeds = any((fixes[at].get("speed") or 0) >= ZERO_SPEED_MPS for at in samples)
    stays_near = all(math.dist(axes[samples[0]], axes[at]) <= ZERO_SPEED_M for at in samples)
    is_zero_speed_credible = sends_other_speeds or stays_near

    def is_still(at):
        """Returns whether the device credibly reports speed 0 at this fix."""
        speed = fixes[at].get("speed")
        return is_zero_speed_credible and speed is not None and speed < ZERO_SPEED_MPS

    def is_silence(at):
        """Returns whether a silence precedes the fix with this index.

        Returns True for the first fix, and for the index after the last fix.
        """
        return not 0 < at < len(fixes) or fixes[at]["ms"] - fixes[at - 1]["ms"] > GAP_MS

    def is_gap(at):
        """Returns whether a silence or an impossible leg precedes the fix with this index."""
        return is_silence(at) or is_impossible(fixes[at - 1], fixes[at], rules)

    def is_parking(at):
        """Returns whether the silence before this fix is parking.

        It is if it began today, and ended within trip_m of where it began.
        """
        return (
            is_silence(at)
            and at - 1 in today
            and straight_metres(fixes[at - 1], fixes[at]) <= rules.trip_m
        )

    # A run is a series of consecutive samples within a radius of the run's first sample. A gap ends
    # a run. is_doubted: for each run, whether it began with a speed of 0 that was not believed: the
    # device was too far away from the run before, or that run was doubted, too. In such a run,
    # speeds of 0 have no effect.
    runs: list[list[int]] = []
    is_doubted: list[bool] = []
    for before, at in zip([None, *samples], samples):
        if before is not None and not is_gap(at):
            follows_pause = fixes[at]["ms"] - fixes[at - 1]["ms"] >= rules.stop_s * 1000
            radius = rules.radius_m
            if follows_pause:
                is_near = straight_metres(fixes[at - 1], fixes[at]) <= rules.trip_m
                radius = rules.trip_m + (rules.radius_m if is_near else 0)
            stands = (
                is_still(at)
                and is_still(before)
                and fixes[at]["ms"] - fixes[before]["ms"] <= ZERO_SPEED_MS
            )
            away = math.dist(axes[runs[-1][0]], axes[at])
            # A driver who creeps through a jam also sends speeds of 0, but the distance grows.
            elapsed_s = (fixes[at]["ms"] - fixes[runs[-1][0]]["ms"]) / 1000
            creep_m = rules.radius_m * elapsed_s / rules.stop_s
            creeps = elapsed_s > CREEP_S and away > creep_m
            is_believed = stands and not is_doubted[-1] and away <= ZERO_SPEED_M
            if away <= radius or is_believed and not creeps:
                runs[-1].append(at)
                continue
            is_doubted.append(stands and not is_believed)
        else:
            is_doubted.append(False)
        runs.append([at])
    index_of = {at: number for number, at in enumerate(samples)}

    def moving_ms(after, until):
        """Returns for how long the driver moves between two samples, in milliseconds.

        The speed at each sample is measured over three legs.
        """
        moved = 0
        for number in range(index_of[after] + 1, index_of[until]):
            begin, end = samples[max(number - 1, 0)], samples[min(number + 2, len(samples) - 1)]
            legs_ms = max(fixes[end]["ms"] - fixes[begin]["ms"], 1)
            speed = math.dist(axes[begin], axes[end]) / legs_ms * 1000
            leg_ms = fixes[samples[number]]["ms"] - fixes[samples[number - 1]]["ms"]
            moved += leg_ms if speed >= MOVING_MPS and leg_ms <= GAP_MS else 0
        return moved

    def is_stop(stay):
        return stay["is_kept"] or stay["ended"] - stay["began"] >= rules.stop_s * 1000

    def candidates(stays):
        """Returns the stays that the next run may continue.

        These are the last stay and, if the last stay is too short for a stop, also the last stop.
        """
        if not stays or is_stop(stays[-1]):
            return stays[-1:]
        return stays[-1:] + [each for each in stays if is_stop(each)][-1:]

    def belong_together(former, stay):
        """Returns whether two stays, with an absence between them, are the same stop."""
        long = [each["ended"] - each["began"] >= rules.stop_s * 1000 for each in (former, stay)]
        distance_max = rules.trip_m if all(long) else rules.radius_m / (1 if any(long) else 2)
        absence_max_s = rules.trip_s if any(long) else rules.spike_s
        return (
            math.dist(former["place"], stay["place"]) <= distance_max
            and stay["began"] - former["ended"] <= absence_max_s * 1000
            and moving_ms(former["last_sample"], stay["first"]) < MOVING_MS
        )

    # A stay is a run, or several runs that belong to the same stop. is_kept: the stay counts as a
    # stop even if it is short, because it is next to parking, or fills the time between two
    # silences.
    stays: list[dict] = []
    for number, run in enumerate(runs):
        next_at = runs[number + 1][0] if number + 1 < len(runs) else today[-1] + 1
        began = fixes[run[0]]["ms"]
        last = next_at - 1 if next_at not in today or is_gap(next_at) else run[-1]
        precedes_parking = next_at in today and is_parking(next_at)
        fills_time_between_silences = is_silence(next_at)
        is_kept = (
            precedes_parking
            or is_silence(run[0])
            and (is_parking(run[0]) or fills_time_between_silences)
        )
        if fixes[run[-1]]["ms"] - began < RUN_MS and not is_kept:
            continue
        # The place of a run is the mean of its samples in its first stop_s seconds.
        early = [axes[at] for at in run if fixes[at]["ms"] - began <= rules.stop_s * 1000]
        stay = {
            "first": run[0],
            "last": last,
            "began": began,
            "ended": fixes[run[-1]]["ms"],
            "is_kept": is_kept,
            "last_sample": run[-1],
            "place": tuple(sum(axis) / len(axis) for axis in zip(*early)),
        }
        former = next((each for each in candidates(stays) if belong_together(each, stay)), None)
        if former:
            del stays[stays.index(former) + 1:]
            former.update(
                last_sample=run[-1],
                last=stay["last"],
                ended=stay["ended"],
                is_kept=former["is_kept"] or is_kept,
            )
        else:
            stays.append(stay)
    return [(stay["first"], stay["last"], stay["place"]) for stay in stays if is_stop(stay)]


def slots_of_a_day(fixes: list[dict], day: int, rules=RULES) -> dict[int, tuple]:
    """Returns the time slot of each fix of the UTC day, by the index of the fix.

    The mean position of the fixes in a slot is one point of the route. A slot covers about SLOT_M
    metres of the route, and lasts for at most SLOT_S_MAX seconds.
    """
    today, samples = samples_of_a_day(fixes, day, rules)
    found, sample = {}, -1
    for index in today:
        if sample + 1 < len(samples) and samples[sample + 1] == index:
            sample += 1
            near = [fixes[at] for at in samples[max(sample - 1, 0):sample + 3]]
            # In a hairpin bend, the straight line is much shorter than the route along the legs.
            legs_m = sum(straight_metres(a, b) for a, b in zip(near, near[1:]))
            route_m = max(straight_metres(near[0], near[-1]), PATH_SHARE * legs_m)
            pace = route_m * 1000 / max(1, near[-1]["ms"] - near[0]["ms"])
            length = 1
            while length < SLOT_S_MAX and length * pace < SLOT_M:
                length *= 2
        ms = fixes[index]["ms"]
        found[index] = (length, ms // (1000 * length), ms // QUARTER_MS)
    return found


def legs(track: list[dict], rules=RULES) -> list[dict]:
    """Returns the legs between neighbouring good fixes or, in a trip, between points of the route.

    A leg has `a` and `b` (the fixes at its ends), `kind`, `metres`, `untracked` (metres of a gap),
    `fixes` (those after a, up to b) and, if the driver stands, `place`. A gap, and parking, also
    have `is_known`: whether it is short enough for the views to show it.
    """
    fixes = kept_fixes(track, rules)
    stop_of: dict[int, tuple] = {}
    slot_of: dict[int, tuple] = {}
    for day in {fix["ms"] // DAY_MS for fix in fixes}:
        for first, last, place in stops_of_a_day(fixes, day, rules):
            stop_of.update((at, (day, first, place)) for at in range(first, last + 1))
        slot_of.update(slots_of_a_day(fixes, day, rules))

    def kind_of(at):
        """Returns the kind of the leg that ends at the fix with this index."""
        if not 0 < at < len(fixes):
            return None
        a, b = fixes[at - 1], fixes[at]
        midnight = b["ms"] // DAY_MS * DAY_MS
        if b["ms"] - a["ms"] > GAP_MS or is_impossible(a, b, rules):
            return "gap"
        if a["ms"] < midnight:
            around = [fix for fix in fixes if abs(fix["ms"] - midnight) <= rules.stop_s * 1000]
            stands = all(straight_metres(fix, b) <= rules.radius_m for fix in [*around, a])
            # A leg across midnight is measured from fix to fix, so it has kinds of its own.
            return "night stop" if stands else "night trip"
        return "stop" if at in stop_of and stop_of[at] == stop_of.get(at - 1) else "trip"

    kinds = [kind_of(at) for at in range(len(fixes) + 1)]
    axes = [earth_centred(fix["lat"], fix["lng"]) for fix in fixes]
    # Points of the route: for each point, the indices of its fixes.
    points: list[list[int]] = []
    for at in range(len(fixes)):
        # A fix is a point of the route by itself if it is in a stop, or if the leg before or after
        # it is not in a trip of the day.
        is_alone = kinds[at] != "trip" or at in stop_of or kinds[at + 1] != "trip"
        before = points[-1][-1] if points else None
        if (
            not is_alone
            and before is not None
            and kinds[before] == "trip"
            and before not in stop_of
            and kinds[before + 1] == "trip"
            and slot_of[before] == slot_of[at]
        ):
            points[-1].append(at)
        else:
            points.append([at])

    def place_of(members):
        """Returns the place of the stop, or the mean position of the fixes with these indices."""
        if members[0] in stop_of:
            return stop_of[members[0]][2]
        return tuple(sum(axis) / len(axis) for axis in zip(*(axes[at] for at in members)))

    places = [place_of(members) for members in points]
    found = []
    for number in range(1, len(points)):
        members = points[number]
        a, b = fixes[members[0] - 1], fixes[members[-1]]
        kind = kinds[members[0]]
        leg = {
            "a": a,
            "b": b,
            "metres": 0.0,
            "untracked": 0.0,
            "place": None,
            "kind": kind.split()[-1],
            "fixes": [fixes[at] for at in members],
        }
        raw = metres(a["lat"], a["lng"], b["lat"], b["lng"])
        if kind == "gap":
            leg["is_known"] = b["ms"] // DAY_MS - a["ms"] // DAY_MS <= SILENCE_DAYS_MAX
            is_silence = b["ms"] - a["ms"] > GAP_MS
            if is_silence and straight_metres(a, b) <= rules.trip_m and leg["is_known"]:
                leg["kind"], leg["place"], leg["is_silent"] = "stop", (a["lat"], a["lng"]), True
            else:
                leg["untracked"] = raw
        elif kind == "night trip":
            leg["metres"] = raw
        elif kind == "night stop":
            is_in_stop = members[0] in stop_of
            leg["place"] = degrees_of(places[number]) if is_in_stop else (b["lat"], b["lng"])
        elif kind == "stop":
            leg["place"] = degrees_of(places[number])
        else:

            def step(which):
                """Returns the vector and the time of the leg to the point with this number.

                Returns None if the leg is not in a trip.
                """
                if not 0 < which < len(points) or kinds[points[which][0]] != "trip":
                    return None
                since, until = (fixes[points[each][-1]]["ms"] for each in (which - 1, which))
                vector = tuple(end - start for start, end in zip(places[which - 1], places[which]))
                return vector, until - since

            begin, end = degrees_of(places[number - 1]), degrees_of(places[number])
            steps = [step(number + offset) for offset in range(-2, 3)]
            factor = bend(*steps, places[number])
            leg["metres"] = metres(*begin, *end) * factor
        found.append(leg)
    return found


def turn_between(before, after, up) -> float:
    """Returns the angle by which the route turns between two legs, positive to the left.

    Returns 0 if one of the legs is not in a trip, or has no length.
    """
    if before is None or after is None:
        return 0.0
    u, v = before[0], after[0]
    lengths = math.hypot(*u) * math.hypot(*v)
    if lengths == 0:
        return 0.0
    cross = (u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0])
    side = sum(x * y for x, y in zip(cross, up))
    cosine = sum(x * y for x, y in zip(u, v)) / lengths
    return math.copysign(math.acos(max(-1.0, min(1.0, cosine))), side)


def bend(second_before, before, leg, after, second_after, up) -> float:
    """Returns the factor by which a leg is longer than its straight line.

    If the route turns only at the two ends of the leg, the vehicle drove round a corner: the point
    where the lines through the two neighbouring legs meet. If the route turns by the same angle at
    the next two points, too, the route is an arc, and half of each turn belongs to the neighbouring
    leg. Each leg is a pair of a vector and a time.
    """
    if before is None or after is None or math.hypot(*leg[0]) < CORNER_LEG_M:
        return 1.0
    # If a neighbouring leg is short and quick, the device sends a fix wherever it turns. So the leg
    # itself is straight.
    if any(
        math.hypot(*vector) < CORNER_LEG_M and ms < CORNER_TIME_SHARE * leg[1]
        for vector, ms in (before, after)
    ):
        return 1.0
    begin, end = turn_between(before, leg, up), turn_between(leg, after, up)
    if begin * end <= 0:
        return 1.0
    side = math.copysign(1.0, begin)
    outer = [
        side * turn_between(second_before, before, up),
        side * turn_between(after, second_after, up),
    ]
    begin, end = abs(begin), abs(end)
    turns = [begin, end, *(max(0.0, turn) for turn in outer)]
    # 1 on a circle, 0 at a corner.
    evenness = min(turns) / max(turns)
    begin, end = begin * (1 - evenness / 2), end * (1 - evenness / 2)
    if begin + end >= CORNER_TURN_MAX:
        return 1.0
    share = evenness * ARC_SHARE + (1 - evenness) * CORNER_SHARE
    return 1 + share * ((math.sin(begin) + math.sin(end)) / math.sin(begin + end) - 1)


def degrees_of(axes) -> tuple[float, float]:
    """Returns the latitude and longitude of earth-centred coordinates."""
    x, y, z = axes
    lat = math.atan2(z, (1 - F) ** 2 * math.hypot(x, y))
    return math.degrees(lat), math.degrees(math.atan2(y, x))


def runs(route):
    """Groups consecutive legs of the same kind; each gap is a group of its own.

    Leaves out gaps of more than SILENCE_DAYS_MAX days.
    """
    groups: list[list[dict]] = []
    for leg in route:
        if groups and groups[-1][-1]["kind"] == leg["kind"] != "gap":
            groups[-1].append(leg)
        else:
            groups.append([leg])
    return [run for run in groups if run[0]["kind"] != "gap" or run[0]["is_known"]]


def episodes(fixes, since=-math.inf, until=math.inf) -> list[dict]:
    """Returns the rows that the view `episodes` must return, ordered by driver and time.

    Times are epoch milliseconds. `from` and `to` are lists of places: the episode may begin at any
    place in `from`, and end at any place in `to`.
    """
    found = []
    for driver, track in sorted(by_driver(fixes).items()):
        for run in runs(legs(track)):
            began, ended = run[0]["a"]["ms"], run[-1]["b"]["ms"]
            if ended > since and began < until:
                speeds = [
                    fix["true_speed"]
                    for leg in run
                    for fix in leg["fixes"]
                    if fix["true_speed"] is not None
                ]
                ends = [(fix["lat"], fix["lng"]) for fix in (run[0]["a"], run[-1]["b"])]
                # A stop across midnight has several places: one for each day, and one at midnight.
                stops = [leg["place"] for leg in run if leg["place"]]
                found.append(
                    {
                        "driver_id": driver,
                        "kind": run[0]["kind"],
                        "began": began,
                        "ended": ended,
                        "fixes": sum(len(leg["fixes"]) for leg in run),
                        "metres": sum(leg["metres"] for leg in run),
                        "untracked_m": sum(leg["untracked"] for leg in run),
                        "speed_max": max(speeds, default=None),
                        "from": stops or ends[:1],
                        "to": stops or ends[1:],
                    }
                )
    return found


def pieces(leg, next_cut):
    """Splits a leg at the cuts.

    Returns the pieces, each with its start, its share of the leg's duration, and its duration in
    seconds. `next_cut` is a function that returns the first cut after a time.
    """
    began, ended, at = leg["a"]["ms"], leg["b"]["ms"], leg["a"]["ms"]
    if began == ended:
        return [(at, 1.0, 0.0)]
    found = []
    while at < ended:
        until = min(ended, next_cut(at))
        found.append((at, (until - at) / (ended - began), (until - at) / 1000))
        at = until
    return found


def days(fixes, since_day, until_day, tz) -> dict[tuple[str, str], dict]:
    """Returns the rows that the view `days` must return, by driver and local day.

    The days are those from since_day up to, but not including, until_day.
    """
    zone, found = ZoneInfo(tz), {}
    sums = ("metres", "untracked_m", "moving_s", "standing_s", "silent_s")
    names = ("fixes", *sums, "trips", "stops")

    def day_of(ms):
        return datetime.fromtimestamp(ms / 1000, zone).date()

    def next_midnight(ms):
        day = day_of(ms) + timedelta(days=1)
        return round(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() * 1000)

    def row_of(day):
        return found.setdefault((driver, day.isoformat()), dict.fromkeys(names, 0))

    for driver, track in by_driver(fixes).items():
        for fix in track:
            row_of(day_of(fix["ms"]))["fixes"] += 1
        for run in runs(legs(track)):
            if run[0]["kind"] != "gap":
                row_of(day_of(run[0]["a"]["ms"]))[run[0]["kind"] + "s"] += 1
            for leg in run:
                row_of(day_of(leg["b"]["ms"]))["untracked_m"] += leg["untracked"]
                duration = "moving_s" if leg["kind"] == "trip" else "standing_s"
                is_gap = leg["kind"] == "gap"
                for at, share, seconds in [] if is_gap else pieces(leg, next_midnight):
                    row = row_of(day_of(at))
                    row["metres"] += leg["metres"] * share
                    row[duration] += seconds
                    row["silent_s"] += seconds if leg.get("is_silent") else 0
    return {
        key: day
        for key, day in found.items()
        if since_day.isoformat() <= key[1] < until_day.isoformat()
    }


def quarters(fixes) -> dict[tuple[str, int], dict]:
    """Returns the rows that the view `driver_quarters` must return.

    The keys are the driver and the start of the quarter of an hour, in epoch seconds.
    """
    names = ("fixes", "distance_m", "moving_s", "tracked_s", "speed_sum", "speed_count", "missing")
    found: dict[tuple[str, int], dict] = {}
    for driver, track in by_driver(fixes).items():

        def quarter_of(ms):
            empty = {**dict.fromkeys(names, 0), "speed_max": None}
            return found.setdefault((driver, ms // QUARTER_MS * 900), empty)

        def next_quarter(ms):
            return ms // QUARTER_MS * QUARTER_MS + QUARTER_MS

        for before, fix in zip([None, *track], track):
            quarter = quarter_of(fix["ms"])
            quarter["fixes"] += 1
            if (
                before
                and before["ms"] >= fix["ms"] // DAY_MS * DAY_MS - MARGIN_MS
                and 0 < before.get("seq", 0) < fix.get("seq", 0)
            ):
                quarter["missing"] += fix["seq"] - before["seq"] - 1
        for fix in kept_fixes(track):
            if fix["true_speed"] is not None:
                quarter = quarter_of(fix["ms"])
                quarter["speed_sum"] += fix["true_speed"]
                quarter["speed_count"] += 1
                quarter["speed_max"] = max(quarter["speed_max"] or 0, fix["true_speed"])
        for leg in legs(track):
            is_counted = leg["kind"] != "gap" and not leg.get("is_silent")
            for at, share, seconds in pieces(leg, next_quarter) if is_counted else []:
                quarter_of(at)["distance_m"] += leg["metres"] * share
                quarter_of(at)["moving_s"] += seconds if leg["kind"] == "trip" else 0
                quarter_of(at)["tracked_s"] += seconds
    return found


def silences(fixes, seconds, since, until, now) -> list[dict]:
    """Returns the silences of more than `seconds` that overlap the window from `since` to `until`.

    Reads the fixes of up to twelve hours before and after the window. `ended` is None if no fix
    follows within these twelve hours. `since`, `until` and `now` are in epoch milliseconds.
    """
    found = []
    tracks = by_driver(fixes, since - SILENCE_MARGIN_MS, until + SILENCE_MARGIN_MS)
    for driver, track in tracks.items():
        for fix, following in zip(track, [*track[1:], None]):
            ended = following and following["ms"]
            duration_s = ((ended or min(until, now)) - fix["ms"]) / 1000
            if duration_s > seconds and fix["ms"] < until and (ended is None or ended > since):
                distance_m = following and fix_distance(fix, following)
                found.append(
                    {
                        "driver_id": driver,
                        "began": fix["ms"],
                        "ended": ended,
                        "seconds": duration_s,
                        "metres": distance_m,
                    }
                )
    return found

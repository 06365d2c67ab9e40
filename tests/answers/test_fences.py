"""Tests geofences against a ray-casting test of each fix."""
from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta

import truth
from devices import Device, epoch_ms, fleet

YEAR_2026 = {"from": "2026-01-01", "to": "2027-01-01", "tz": "UTC"}


def inside(lat: float, lng: float, polygons) -> bool:
    """Returns whether a point is in one of the polygons and in none of its holes."""
    def in_ring(ring):
        crossings = 0
        for (x1, y1), (x2, y2) in zip(ring, ring[1:] + ring[:1]):
            if (y1 > lat) != (y2 > lat) and lng < (x2 - x1) * (lat - y1) / (y2 - y1) + x1:
                crossings += 1
        return crossings % 2 == 1
    return any(in_ring(rings[0]) and not any(map(in_ring, rings[1:])) for rings in polygons)


def insert_fence(db, name, polygons, since="1970-01-01 00:00:00", until="2200-01-01 00:00:00"):
    text = str([[[tuple(point) for point in ring] for ring in rings] for rings in polygons])
    db.ask(
        "INSERT INTO {db}.fences (name, valid_from, valid_until, polygons) "
        f"VALUES ('{name}', '{since}', '{until}', {text})"
    )


def visits_of(db, fence="", driver="", **window):
    values = ", ".join(
        f"{name} = {value!r}"
        for name, value in {"fence": fence, "driver": driver, **(window or YEAR_2026)}.items()
    )
    rows = db.rows(
        "SELECT *, toUnixTimestamp64Milli(entered) AS since, "
        f"toUnixTimestamp64Milli(left_at) AS until FROM {{db}}_ask.fence_visits({values})"
    )
    return sorted(
        (row["fence"], row["driver_id"], row["since"], row["until"], row["fixes"]) for row in rows
    )


def expected_visits(fixes, fences):
    """Returns the visits that the view must return, as `visits_of` does.

    A visit ends if the driver is outside between two fixes inside that are more than a minute
    apart, or if a silence ends more than 210 m from where it began.
    """
    found = []
    for driver, track in truth.by_driver(fixes).items():
        track = [fix for fix in track if (fix.get("acc") or 0) <= 200]
        for name, polygons in fences.items():
            run, last = [], 0
            for index, fix in enumerate(track):
                if not inside(fix["lat"], fix["lng"], polygons):
                    continue
                quiet_ms = fix["ms"] - run[-1]["ms"] if run else 0
                was_outside = index > last + 1 and quiet_ms > 60_000
                went_silent = quiet_ms > truth.GAP_MS and truth.fix_distance(run[-1], fix) > 210
                if run and (was_outside or went_silent):
                    found.append((name, driver, run[0]["ms"], run[-1]["ms"], len(run)))
                    run = []
                run.append(fix)
                last = index
            if run:
                found.append((name, driver, run[0]["ms"], run[-1]["ms"], len(run)))
    return sorted(found)


def star(chance, lat, lng, size):
    """Returns the outline of a random star around a point."""
    turns = sorted(chance.uniform(0, 2 * math.pi) for _ in range(chance.randrange(4, 12)))
    return [
        [
            lng + size * chance.uniform(0.2, 1) * math.cos(turn),
            lat + size * chance.uniform(0.2, 1) * math.sin(turn),
        ]
        for turn in turns
    ]


def test_visits_match_ray_casting_of_each_fix(db):
    chance, fixes = random.Random(5), [fix for device in fleet() for fix in device.fixes]
    db.insert(fixes)
    db.insert(chance.sample(fixes, 500))
    fences = {}
    for number in range(48):
        near = chance.choice(fixes)
        size = chance.choice([0.003, 0.03, 0.3, 4])
        outline = star(chance, near["lat"], near["lng"], size)
        hole = [
            [near["lng"] + dx * size / 20, near["lat"] + dy * size / 20]
            for dx, dy in ((-1, -1), (1, -1), (1, 1), (-1, 1))
        ]
        if number % 3 == 0:
            polygons = [[outline, hole]]
        else:
            polygons = [[outline], [star(chance, near["lat"] + size, near["lng"], size)]]
        fences[f"f{number:02}"] = polygons
    for name, polygons in fences.items():
        insert_fence(db, name, polygons)
    expected = expected_visits(fixes, fences)
    assert len(expected) > 100 and len({visit[0] for visit in expected}) > 25
    assert visits_of(db) == expected
    fence, driver = expected[0][:2]
    assert visits_of(db, fence=fence, driver=driver) == [
        visit for visit in expected if visit[:2] == (fence, driver)
    ]


def test_visits_use_the_newest_polygon_while_the_fence_is_valid(db):
    square = [[[10.99, 47.99], [11.01, 47.99], [11.01, 48.01], [10.99, 48.01]]]
    db.insert(Device("d1", "2026-06-01T08:00:00", 48, 11, every=60).stand(7200).fixes)
    insert_fence(db, "moved", [[[[0, 0], [1, 0], [1, 1]]]])
    assert visits_of(db) == []
    insert_fence(db, "moved", [square])
    insert_fence(db, "an hour", [square], "2026-06-01 08:30:00", "2026-06-01 09:30:00")
    start = epoch_ms("2026-06-01T08:00:00")
    assert visits_of(db) == [
        ("an hour", "d1", start + 1_800_000, start + 5_340_000, 60),
        ("moved", "d1", start, start + 7_200_000, 121),
    ]
    # A visit that is partly in the window is returned whole; a visit outside the window is not
    # returned.
    window = {"from": "2026-06-01 09:00", "to": "2026-06-01 09:01", "tz": "UTC"}
    assert visits_of(db, fence="moved", **window) == [
        ("moved", "d1", start, start + 7_200_000, 121)
    ]
    assert visits_of(db, **{**window, "from": "2026-06-01 12:00", "to": "2026-06-01 13:00"}) == []


def test_dropped_fixes_neither_begin_nor_end_visits(db):
    """A jump into a fence is no visit, and neither is an inaccurate fix in the fence.

    A jump out of a fence does not end the visit.
    """
    began = epoch_ms("2026-06-01 10:00:00")
    area = [[[11.0, 47.99], [11.02, 47.99], [11.02, 48.01], [11.0, 48.01]]]
    insert_fence(db, "far", [area])
    insert_fence(db, "home", [[[[11.5, 47.99], [11.52, 47.99], [11.52, 48.01], [11.5, 48.01]]]])
    # One fix is a jump of 37 km. Another fix is as far away, with an accuracy of 500 m.
    fixes = [
        {
            "driver": "parked",
            "ms": began + minute * 60_000,
            "lat": 48.0,
            "lng": 11.01 if minute == 30 else 11.51,
            "speed": 0,
        }
        for minute in range(120)
    ]
    fixes.append(
        {
            "driver": "parked",
            "ms": began + 90 * 60_000 + 5_000,
            "lat": 48.0,
            "lng": 11.01,
            "acc": 500,
        }
    )
    db.insert(fixes)
    # Before the day is computed, jumps are not recognised.
    assert [visit[0] for visit in visits_of(db)] == ["far", "home", "home"]
    db.refresh()
    assert visits_of(db) == [("home", "parked", began, began + 119 * 60_000, 119)]


DEPOT = [[[11.49, 47.99], [11.51, 47.99], [11.51, 48.01], [11.49, 48.01]]]


def weekend(driver: str, metres: float = 0, ended: str = "2026-06-08T07:00:00") -> Device:
    """Stands at the depot on Friday until 18:00, and is silent until `ended`, Monday 7:00.

    The next fix is `metres` away from the depot.
    """
    began = epoch_ms("2026-06-05T17:30:00")
    device = Device(driver, "2026-06-05T17:30:00", 48, 11.5, every=60).stand(1800)
    monday = Device(driver, ended, *truth.destination(48, 11.5, 90, metres), every=60)
    monday.drive(90, 10, 1800)
    assert device.fixes[-1]["ms"] == began + 1_800_000
    device.fixes += [{**fix, "seq": fix["seq"] + 100} for fix in monday.fixes]
    return device


def test_silent_weekend_inside_is_part_of_a_visit(db):
    """A silence that ends where it began counts as parking.

    So a driver who parked in the fence is inside on the days without a fix, too.
    """
    insert_fence(db, "depot", [DEPOT])
    slept, moved_bay, left = weekend("slept"), weekend("bay", 150), weekend("left", 600)
    home = [{**fix, "driver": "home", "lng": fix["lng"] + 0.1} for fix in slept.fixes]
    db.insert(slept.fixes + moved_bay.fixes + left.fixes + home)
    db.refresh()
    friday, monday = epoch_ms("2026-06-05T18:00:00"), epoch_ms("2026-06-08T07:00:00")
    for since, until in (
        ("2026-06-06", "2026-06-07"),
        ("2026-06-07", "2026-06-08"),
        ("2026-06-06", "2026-06-08"),
        ("2026-06-07 10:00", "2026-06-07 10:01"),
    ):
        visits = visits_of(db, fence="depot", **{"from": since, "to": until, "tz": "UTC"})
        assert {visit[1] for visit in visits} == {"slept", "bay"}, (since, until, visits)
        for _, _, entered, left_at, _ in visits:
            assert entered <= friday and left_at >= monday, (since, until, visits)
    # If the window includes both days with fixes, the visit has its true begin and end. A driver
    # who left during the silence has two visits: one that ends on Friday, and one on Monday.
    assert {visit[1]: visit[2:4] for visit in visits_of(db, fence="depot", driver="slept")} == {
        "slept": (epoch_ms("2026-06-05T17:30:00"), monday + 60_000)
    }
    assert [visit[2:4] for visit in visits_of(db, fence="depot", driver="left")] == [
        (epoch_ms("2026-06-05T17:30:00"), friday),
        (monday, monday),
    ]
    weekend_days = {"from": "2026-06-06", "to": "2026-06-08", "tz": "UTC"}
    assert visits_of(db, fence="depot", driver="left", **weekend_days) == []


def test_visit_is_open_while_the_newest_fix_is_inside(db):
    """Three vans are silent at the depot: for a moment, for 20 hours and for 60 hours.

    One van has been silent for five days, and two are elsewhere now.
    """
    insert_fence(db, "depot", [DEPOT])
    now = datetime.now(UTC).replace(microsecond=0, tzinfo=None)
    # Hours since the last fix of each van at the depot.
    silent_h = {
        "moment": 0,
        "night": 20,
        "weekend": 60,
        "old": 120,
        "left": 20,
        "woke up elsewhere": 20,
    }
    vans = {}
    for driver, hours in silent_h.items():
        start = (now - timedelta(hours=hours, minutes=20)).isoformat()
        vans[driver] = Device(driver, start, 48, 11.42, every=60)
        vans[driver].drive(90, 10, 600).stand(600, noise_m=1)
    vans["left"].drive(90, 10, 600)
    vans["woke up elsewhere"].silent(10 * 3600).jump(48, 11.6).stand(60)
    for van in vans.values():
        db.insert(van.fixes)
    db.refresh()
    def found(since_h, until_h):
        window = {
            "from": str(now - timedelta(hours=since_h)),
            "to": str(now - timedelta(hours=until_h)),
            "tz": "UTC",
        }
        return {visit[1]: visit[2:] for visit in visits_of(db, fence="depot", **window)}
    visits = found(1, 0)
    assert set(visits) == {"moment", "night", "weekend"}, visits
    for driver, visit in visits.items():
        assert visit[1] == vans[driver].fixes[-1]["ms"]
    arrived = vans["night"].fixes[10]["ms"]  # with a window of an hour, this is the end of the trip
    assert (
        abs(visits["night"][0] - arrived) <= 60_000
        and 60_000 <= arrived - found(30, 0)["night"][0] < 360_000
    )
    assert set(found(50, 40)) == {"weekend"} and set(found(100, 80)) == set()
    for van in (vans["night"], vans["weekend"]):
        db.insert(
            Device(van.driver, (now - timedelta(minutes=2)).isoformat(), 48, 11.6, every=60)
            .stand(60)
            .fixes
        )
    db.refresh()
    assert set(found(1, 0)) == {"moment"}


def test_visit_begins_after_an_absence_without_a_trip(db):
    """The van drives to the depot, and is elsewhere and back again without a trip.

    Its device is silent while it moves. Hours later it still stands at the depot.
    """
    insert_fence(db, "depot", [DEPOT])
    van = Device("van", "2026-06-05T08:00:00", 48, 11.42, every=60)
    van.drive(90, 10, 600).stand(600, noise_m=1)
    arrived = van.fixes[10]["ms"]
    van.silent(4 * 3600).jump(48, 11.8).stand(1200, noise_m=1)
    van.silent(4 * 3600).jump(48, 11.5).stand(1200, noise_m=1)
    returned = van.fixes[41]["ms"]
    asleep = [{**fix, "driver": "asleep", "lng": min(fix["lng"], 11.5)} for fix in van.fixes]
    last = van.fixes[-1]["ms"]
    van.silent(40 * 3600).stand(60)
    asleep += [{**fix, "driver": "asleep"} for fix in van.fixes if fix["ms"] > last]
    db.insert(van.fixes + asleep)
    db.refresh()
    window = {"from": "2026-06-06 10:00", "to": "2026-06-06 11:00", "tz": "UTC"}
    visits = {visit[1]: visit[2:4] for visit in visits_of(db, fence="depot", **window)}
    assert visits["van"] == (returned, van.fixes[-1]["ms"])
    # A van that stays at the depot through all these silences is there since its arrival.
    assert abs(visits["asleep"][0] - arrived) <= 60_000

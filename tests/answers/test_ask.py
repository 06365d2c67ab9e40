"""Tests the parameterised views against truth.py."""
from __future__ import annotations

import random
import time

import pytest

import truth
from conftest import Refused
from devices import Device, epoch_ms, square
from test_definition import ask, near_enough

VIEWS = {
    "track": "driver, from, to, tz",
    "episodes": "driver, from, to, tz",
    "days": "driver, from, to, tz",
    "driver_days": "driver, since, until",
    "near": "lat, lng, metres, driver, from, to, tz",
    "gaps": "driver, seconds, from, to, tz",
    "speeding": "driver, speed, from, to, tz",
    "heatmap": "driver, south, west, north, east, letters, from, to, tz",
    "fence_visits": "fence, driver, from, to, tz",
    "in_box": "south, west, north, east",
    "heard_since": "since, tz",
    "health": "driver, from, to, tz",
}
EARLY_JUNE = {"from": "2026-05-31", "to": "2026-06-04", "tz": "UTC"}


def test_comment_of_each_view_lists_its_parameters(shared_db):
    found = dict(line.split("\t") for line in shared_db.ask(
        "SELECT name, comment FROM system.tables WHERE database = '{db}_ask'").splitlines())
    assert set(found) == set(VIEWS)
    for view, parameters in VIEWS.items():
        assert found[view].startswith(f"{view}({parameters})"), found[view]


def test_time_is_read_in_the_zone_or_by_its_own_offset(computed_fleet):
    db, _ = computed_fleet

    def fix_count(since, tz):
        window = {"from": since, "to": "2026-06-02", "tz": tz}
        (row,) = ask(db, "track", "count() AS n", driver="lunch", **window)
        return row["n"]

    expected = fix_count("2026-06-01 11:30:00", "UTC")
    assert 0 < expected < fix_count("2026-06-01", "UTC")
    for since, tz in (
        ("2026-06-01T13:30:00", "Europe/Berlin"),
        ("2026-06-01T11:30:00Z", "Asia/Kolkata"),
        ("2026-06-01T17:00:00+05:30", "Europe/Berlin"),
        (str(epoch_ms("2026-06-01T11:30:00") // 1000), "Europe/Berlin"),
        (str(epoch_ms("2026-06-01T11:30:00")), "America/New_York"),
    ):
        assert fix_count(since, tz) == expected, (since, tz)
    for since, tz in (
        ("yesterday", "UTC"),
        ("2026-13-01", "UTC"),
        ("", "UTC"),
        ("2026-06-01", "Europe/Berlinn"),
    ):
        with pytest.raises(Refused):
            fix_count(since, tz)


@pytest.mark.parametrize("view, arguments", [
    ("track", {}), ("near", {"lat": 48.1, "lng": 11.5, "metres": 1e7}), ("gaps", {"seconds": 1}),
    ("speeding", {"speed": 1.0}), ("health", {}),
])
def test_empty_driver_selects_all_and_a_name_uses_the_index(db, view, arguments):
    many = [
        {
            "driver": f"d{number % 50:02}",
            "ms": epoch_ms("2026-06-01T08:00:00") + number * 1000,
            "lat": 48.1 + number / 1e5,
            "lng": 11.5,
            "speed": 20,
        }
        for number in range(60_000)
    ]
    db.insert(many)

    def call(driver, **window):
        """Returns a call of the view with its arguments, as SQL."""
        values = {**arguments, "driver": driver, **EARLY_JUNE, **window}
        text = ", ".join(f"{name} = {value!r}" for name, value in values.items())
        return f"{{db}}_ask.{view}({text})"

    def drivers_and_rows(driver):
        """Returns the drivers of the answer, and the number of rows that the engine read."""
        drivers = "arrayStringConcat(arraySort(groupUniqArray(driver_id)), ',')"
        text, summary = db.answer(f"SELECT {drivers} FROM {call(driver)}")
        return text.decode().strip(), int(summary["read_rows"])

    all_drivers, all_rows = drivers_and_rows("")
    assert len(all_drivers.split(",")) == 50
    for names in ("d07", "d07,d31"):
        drivers, rows = drivers_and_rows(names)
        assert drivers == names and rows < all_rows / 2, (rows, all_rows)
    assert drivers_and_rows("nobody")[0] == ""
    an_hour = {"from": "2026-06-01 10:00", "to": "2026-06-01 11:00"}
    plan = db.ask(f"EXPLAIN indexes = 1 SELECT count() FROM {call('', **an_hour)}")
    assert "ts in [" in plan, plan


def test_track_and_health_match_truth(computed_fleet):
    db, fixes = computed_fleet
    tracks = truth.by_driver(
        fixes, epoch_ms("2026-05-31T00:00:00"), epoch_ms("2026-06-04T00:00:00")
    )
    found = ask(
        db,
        "track",
        "driver_id, toUnixTimestamp64Milli(ts) AS ms, seq, lat, lng, metres, seconds, dropped",
        "ORDER BY driver_id, ms, seq, lat, lng",
        driver="",
        **EARLY_JUNE,
    )
    assert len(found) == sum(map(len, tracks.values()))
    row_number = 0
    missing, restarts = {}, {}
    for driver in sorted(tracks):
        before = last_good = None
        for fix, reason in zip(tracks[driver], truth.reasons(tracks[driver])):
            row, row_number = found[row_number], row_number + 1
            assert (row["driver_id"], row["ms"], row["lat"], row["lng"], row["dropped"]) == (
                driver,
                fix["ms"],
                fix["lat"],
                fix["lng"],
                reason,
            )
            expected = truth.fix_distance(last_good, fix) if last_good and not reason else 0
            assert near_enough(row["metres"], expected), (row, expected)
            last_good = last_good if reason else fix
            if before and fix["seq"] > before["seq"]:
                missing[driver] = missing.get(driver, 0) + fix["seq"] - before["seq"] - 1
            if before and fix["seq"] < before["seq"]:
                restarts[driver] = restarts.get(driver, 0) + 1
            before = fix
    health = {row["driver_id"]: row for row in ask(db, "health", driver="", **EARLY_JUNE)}
    for driver, track in tracks.items():
        assert health[driver]["fixes"] == len(track)
        assert (health[driver]["missing"], health[driver]["restarts"]) == (
            missing.get(driver, 0),
            restarts.get(driver, 0),
        ), driver
        assert health[driver]["without_speed"] == sum(fix["speed"] is None for fix in track)
    assert sum(missing.values()) > 0 and sum(restarts.values()) > 0


@pytest.mark.parametrize(("since", "until", "has_open_gap"), [
    ("2026-05-31T00:00:00", "2026-06-04T00:00:00", True),  # everything
    ("2026-06-01T07:00:00", "2026-06-01T08:00:00", False),  # in the middle of many silences
    ("2026-06-01T10:00:00", "2026-06-01T10:00:01", True),
])
def test_gaps_returns_whole_and_open_gaps(computed_fleet, since, until, has_open_gap):
    db, fixes = computed_fleet
    window = {"from": since, "to": until, "tz": "UTC"}
    columns = (
        "driver_id, toUnixTimestamp64Milli(began) AS began_ms, "
        "toUnixTimestamp64Milli(ended) AS ended_ms, seconds, metres"
    )
    found = ask(
        db,
        "gaps",
        columns,
        "ORDER BY driver_id, began_ms, ended_ms",
        driver="",
        seconds=1000,
        **window,
    )
    expected = truth.silences(
        fixes, 1000, epoch_ms(since), epoch_ms(until), round(time.time() * 1000)
    )
    expected.sort(key=lambda row: (row["driver_id"], row["began"]))
    assert [(row["driver_id"], row["began_ms"], row["ended_ms"], row["seconds"]) for row in found] \
        == [(row["driver_id"], row["began"], row["ended"], row["seconds"]) for row in expected]
    for row, silence in zip(found, expected):
        assert (
            row["metres"] == silence["metres"]
            if silence["metres"] is None
            else near_enough(row["metres"], silence["metres"])
        )
    assert any(row["ended"] for row in expected)
    assert any(row["ended"] is None for row in expected) == has_open_gap


def test_open_gap_lasts_until_now(db):
    now = round(time.time() * 1000)
    db.insert(
        [
            {"driver": driver, "ms": now - seconds * 1000, "lat": 1, "lng": 2}
            for driver, seconds in (("late", 2000), ("well", 5))
        ]
    )
    day = {"from": str(now - 86_400_000), "to": str(now + 86_400_000), "tz": "UTC"}
    rows = ask(db, "gaps", "driver_id, ended, seconds", driver="", seconds=600, **day)
    assert [(row["driver_id"], row["ended"]) for row in rows] == [("late", None)]
    assert 2000 <= rows[0]["seconds"] < 2600


def test_health_shows_clock_ahead_late_fixes_and_missing_numbers(db):
    device = square()
    ahead = [{**fix, "driver": "ahead", "received": fix["ms"] - 3_600_000} for fix in device.fixes]
    late = [
        {**fix, "driver": "late", "received": fix["ms"] + (90_000 if fix["seq"] % 10 == 0 else 500)}
        for fix in device.fixes
    ]
    holes = [{**fix, "driver": "holes"} for fix in device.fixes if fix["seq"] % 24 != 5]
    db.insert(ahead + late + holes)
    rows = {row["driver_id"]: row for row in ask(db, "health", driver="", **EARLY_JUNE)}
    assert rows["ahead"]["ahead_s"] == 3600 and rows["late"]["ahead_s"] == 0
    assert (
        rows["late"]["late"] == sum(fix["seq"] % 10 == 0 for fix in device.fixes)
        and rows["late"]["lag_max_s"] == 90
    )
    assert rows["late"]["lag_p50_s"] == 0.5
    assert rows["holes"]["missing"] == sum(fix["seq"] % 24 == 5 for fix in device.fixes)


def test_speeding_has_equal_rows_before_and_after_the_roll_up(db):
    """Each row of `speeding` covers a period, from its first fast fix to its last one.

    The view returns the same rows before the roll-up has computed a day, and after. It does not
    read the fixes of a computed day if the highest speed of the day is too low.
    """
    device = (
        Device("fast", "2026-06-01T08:00:00", 48, 11, every=10)
        .drive(0, 20, 60)
        .drive(0, 31, 100)
        .drive(0, 25, 30)
        .drive(0, 33, 50)
    )
    device.silent(400).drive(0, 34, 20).drive(0, 27.78, 900)
    # One of the fast fixes has no speed: an unknown speed does not end the period.
    device.fixes[10]["speed"] = None
    db.insert(device.fixes)
    # Seconds, fixes and highest speed of each period.
    expected = [(90, 9, 31), (40, 5, 33), (10, 2, 34)]
    for driver in ("fast", "new"):
        rows = ask(
            db,
            "speeding",
            rest="WHERE driver_id = 'fast' ORDER BY began",
            driver="",
            speed=27.78,
            **EARLY_JUNE,
        )
        assert [(row["seconds"], row["fixes"], round(row["speed_max"])) for row in rows] == expected
        (row,) = ask(
            db,
            "speeding",
            rest="ORDER BY began DESC LIMIT 1",
            driver="fast",
            speed=27.77,
            **EARLY_JUNE,
        )
        assert row["seconds"] == 910 and abs(row["speed_max"] - 34) < 1e-6
        if driver == "fast":
            db.refresh()
            db.insert([{**fix, "driver": "new"} for fix in device.fixes])
    of_new = "WHERE driver_id = 'new'"
    assert len(ask(db, "speeding", rest=of_new, driver="", speed=27.78, **EARLY_JUNE)) == 3
    for speed, reads_fixes in ((27.78, True), (34.1, False)):
        _, summary = db.answer(
            f"SELECT * FROM {{db}}_ask.speeding(driver = '', speed = {speed}, "
            "from = '2026-06-01', to = '2026-06-02', tz = 'UTC')"
        )
        assert (int(summary["read_rows"]) >= len(device.fixes)) == reads_fixes, (speed, summary)


def test_near_matches_distances_computed_per_fix(db):
    chance, place = random.Random(7), (52.52, 13.405)
    fixes = [
        {
            "driver": f"d{chance.randrange(40)}",
            "ms": epoch_ms("2026-06-01T08:00:00") + number * 1000,
            "speed": None,
            "lat": place[0] + chance.gauss(0, 0.02),
            "lng": place[1] + chance.gauss(0, 0.03),
        }
        for number in range(4000)
    ]
    db.insert(fixes)
    for radius in (50, 800, 5000):
        within: dict[str, list[float]] = {}
        for driver, track in truth.by_driver(fixes).items():
            distances = [truth.metres(fix["lat"], fix["lng"], *place) for fix in track]
            if min(distances) <= radius:
                within[driver] = [metres for metres in distances if metres <= radius]
        rows = {
            row["driver_id"]: row
            for row in ask(
                db,
                "near",
                lat=place[0],
                lng=place[1],
                metres=float(radius),
                driver="",
                **EARLY_JUNE,
            )
        }
        assert {driver: row["fixes"] for driver, row in rows.items()} == {
            driver: len(distances) for driver, distances in within.items()
        }
        assert all(
            near_enough(rows[driver]["nearest_m"], min(distances))
            for driver, distances in within.items()
        )


def test_equal_fixes_are_told_apart_by_their_time(db):
    """A parked device sends one place again and again, and a fast one the same speed.

    The answer is the first of the equal fixes, in whatever order they arrived.
    """
    began = epoch_ms("2026-06-01T08:00:00")
    fixes = [
        {
            "driver": "parked",
            "ms": began + number * 1000,
            "lat": 52.52,
            "lng": 13.405,
            "speed": 0,
        }
        for number in range(300)
    ]
    fixes += [
        {**fix, "driver": "fast", "lng": 13.405 + number / 2000, "speed": 30}
        for number, fix in enumerate(fixes)
    ]
    random.Random(2).shuffle(fixes)
    for part in range(5):
        db.insert(fixes[part::5])
    (row,) = ask(
        db,
        "near",
        "toUnixTimestamp64Milli(nearest) AS ms",
        lat=52.52,
        lng=13.405,
        metres=50.0,
        driver="parked",
        **EARLY_JUNE,
    )
    assert row["ms"] == began
    (row,) = ask(db, "speeding", driver="fast", speed=27.78, **EARLY_JUNE)
    assert (row["fixes"], row["lat"], row["lng"]) == (300, 52.52, 13.405)


@pytest.mark.parametrize(
    "box",
    [
        (-30.0, 170.0, 30.0, -170.0),
        (-30.0, -170.0, 30.0, 170.0),
        (80.0, -180.0, 90.0, 180.0),
        (-60.0, 170.0, 60.0, 180.0),
        (-60.0, -180.0, 60.0, -170.0),
    ],
)
def test_in_box_heatmap_and_heard_since_match_each_fix(db, box):
    chance, newest, fixes = random.Random(3), {}, []
    for number in range(600):
        fix = {
            "driver": f"d{number % 150}",
            "ms": epoch_ms("2026-06-01T08:00:00") + chance.randrange(10**7),
            "lat": round(chance.uniform(-90, 90), 6),
            "lng": round(chance.uniform(-180, 180), 6),
        }
        if number % 5 == 0:
            fix["lng"] = chance.choice((-180, 180))  # both are the same meridian
        fixes.append(fix)
        newest[fix["driver"]] = max(
            newest.get(fix["driver"], fix), fix, key=lambda each: each["ms"]
        )
    for part in range(4):
        db.insert(fixes[part::4])
    south, west, north, east = box

    def inside(fix):
        # The box extends eastward from `west`. If it crosses the antimeridian, add 360 degrees to
        # `east`.
        east_end = east if west <= east else east + 360
        return south <= fix["lat"] <= north and any(
            west <= fix["lng"] + turn <= east_end for turn in (-360, 0, 360)
        )

    rows = ask(db, "in_box", "driver_id", south=south, west=west, north=north, east=east)
    assert {row["driver_id"] for row in rows} == {
        driver for driver, fix in newest.items() if inside(fix)
    }
    cells = ask(
        db,
        "heatmap",
        driver="",
        south=south,
        west=west,
        north=north,
        east=east,
        letters=3,
        **EARLY_JUNE,
    )
    assert sum(row["fixes"] for row in cells) == sum(map(inside, fixes))
    assert all(len(row["cell"]) == 3 for row in cells)
    since = epoch_ms("2026-06-01T09:30:00")
    rows = ask(
        db,
        "heard_since",
        "driver_id, lat, timeZoneOf(ts) AS ts_zone, timeZoneOf(received_at) AS received_zone, "
        "timeZoneOf(inserted_at) AS inserted_zone",
        since="2026-06-01 11:30",
        tz="Europe/Berlin",
    )
    assert {
        row[zone] for row in rows for zone in ("ts_zone", "received_zone", "inserted_zone")
    } == {"Europe/Berlin"}
    assert {row["driver_id"]: row["lat"] for row in rows} == {
        driver: fix["lat"] for driver, fix in newest.items() if fix["ms"] >= since
    }

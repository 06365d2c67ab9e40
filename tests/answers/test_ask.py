"""The parameterised views, against truth.py."""
from __future__ import annotations

import random
import time
from datetime import date

import pytest

import truth
from conftest import Refused
from devices import Device, epoch_ms, fleet, lunch, square

VIEWS = {
    "track": "driver, from, to, tz", "episodes": "driver, from, to, tz", "days": "driver, from, to, tz", "legs": "driver, from, to, tz",
    "near": "lat, lng, metres, driver, from, to, tz", "was_near": "lat, lng, metres, driver, from, to, tz", "gaps": "driver, seconds, from, to, tz",
    "speeding": "driver, speed, from, to, tz", "heatmap": "south, west, north, east, letters, from, to, tz",
    "fence_visits": "fence, driver, from, to, tz", "in_box": "south, west, north, east", "heard_since": "since, tz", "health": "driver, from, to, tz",
}
WHOLE = {"from": "2026-05-31", "to": "2026-06-04", "tz": "UTC"}


def near_enough(found: float, expected: float) -> bool:
    return abs(found - expected) <= 1e-4 * abs(expected) + 0.02


def ask(db, view: str, what: str = "*", rest: str = "", **parameters) -> list[dict]:
    values = ", ".join(f"{name} = {value!r}" for name, value in parameters.items())
    return db.rows(f"SELECT {what} FROM {{db}}_ask.{view}({values}) {rest}", date_time_output_format="iso")


def episodes_of(db, driver="", **window) -> list[dict]:
    what = "driver_id, kind, toUnixTimestamp64Milli(began) AS b, toUnixTimestamp64Milli(ended) AS e, seconds, metres, untracked_m, fixes, lat, lng"
    rows = ask(db, "episodes", what, "ORDER BY driver_id, b, e, metres, untracked_m", driver=driver, **window)
    return [{**row, "began": row["b"], "ended": row["e"]} for row in rows]


def same_episodes(found: list[dict], expected: list[dict]) -> None:
    def key(row):
        return row["driver_id"], row["began"], row["ended"], row["metres"] + row["untracked_m"]
    found, expected = sorted(found, key=key), sorted(expected, key=key)
    names = ("driver_id", "kind", "began", "ended", "fixes")
    assert [[row[name] for name in names] for row in found] == [[row[name] for name in names] for row in expected]
    for one, other in zip(found, expected):
        assert near_enough(one["metres"], other["metres"]), (one, other)
        assert near_enough(one["untracked_m"], other["untracked_m"]), (one, other)


@pytest.fixture(scope="module")
def everybody(shared_db):
    """The fleet, each fix inserted twice or more, in parts that overlap, in no order."""
    fixes = [fix for device in fleet() for fix in device.fixes]
    chance = random.Random(1)
    for part in range(3):
        some = [fix for fix in fixes if part == 0 or chance.random() < 0.6]
        chance.shuffle(some)
        shared_db.insert(some)
    return shared_db, fixes


def test_every_view_is_there_with_its_parameters_in_its_comment(shared_db):
    found = dict(line.split("\t") for line in shared_db.ask(
        "SELECT name, comment FROM system.tables WHERE database = '{db}_ask'").splitlines())
    assert set(found) == set(VIEWS)
    for view, parameters in VIEWS.items():
        assert found[view].startswith(f"{view}({parameters})"), found[view]


def test_trips_stops_and_gaps_are_what_was_driven(everybody):
    db, fixes = everybody
    expected = truth.episodes(fixes, epoch_ms("2026-01-01T00:00:00"), epoch_ms("2027-01-01T00:00:00"))
    assert {"trip", "stop", "gap"} == {row["kind"] for row in expected} and len(expected) > 100
    same_episodes(episodes_of(db, **{"from": "2026-01-01", "to": "2027-01-01", "tz": "UTC"}), expected)


def test_known_ways(everybody):
    db, _ = everybody
    (trip,) = episodes_of(db, "square", **WHOLE)
    assert trip["kind"] == "trip" and trip["seconds"] == 1200 and near_enough(trip["metres"], 14_400)
    there, meal, back = episodes_of(db, "lunch", **WHOLE)
    assert [there["kind"], meal["kind"], back["kind"]] == ["trip", "stop", "trip"]
    # At 10 m/s the last 200 m before a stop, and the first after it, are within its box.
    assert 2700 <= meal["seconds"] <= 2740 and abs(there["metres"] - 18_000) < 20 and abs(back["metres"] - 18_000) < 20
    table = lunch().fixes[1800 // 5]
    assert truth.metres(meal["lat"], meal["lng"], table["lat"], table["lng"]) < 5
    assert meal["metres"] == 0
    kinds = [row["kind"] for row in episodes_of(db, "silent", **WHOLE)]
    assert kinds == ["trip", "gap", "trip", "stop", "trip"]


@pytest.mark.parametrize("driver", ["dateline", "pole"])
def test_the_antimeridian_and_the_pole_are_no_edge(everybody, driver):
    db, fixes = everybody
    own = [fix for fix in fixes if fix["driver"] == driver]
    there, stop, on = episodes_of(db, driver, **WHOLE)
    assert [there["kind"], stop["kind"], on["kind"]] == ["trip", "stop", "trip"]
    assert there["metres"] + on["metres"] < 35_000
    place = truth.middle([(fix["lat"], fix["lng"]) for fix in own if fix["speed"] == 0 and fix["seq"] > 1])
    for radius in (20, 300, 4000):
        (row,) = ask(db, "near", lat=place[0], lng=place[1], metres=float(radius), driver=driver, **WHOLE)
        away = [truth.metres(fix["lat"], fix["lng"], *place) for fix in own]
        assert row["fixes"] == sum(one <= radius for one in away) and near_enough(row["nearest_m"], min(away))


def test_durations_add_up_to_last_minus_first(everybody):
    db, fixes = everybody
    for driver, track in truth.by_driver(fixes).items():
        window = {"from": "2026-01-01", "to": "2027-01-01", "tz": "UTC"}
        assert sum(row["seconds"] for row in episodes_of(db, driver, **window)) * 1000 == track[-1]["ms"] - track[0]["ms"]


@pytest.mark.parametrize("since, until", [("2026-06-01T11:40:00", "2026-06-01T11:50:00"), ("2026-06-01T03:00:00", "2026-06-02T09:30:00")])
def test_any_window_gives_the_same_trips(everybody, since, until):
    """What touches the window, whole, where it is within the twelve hours outside that are read, too."""
    db, fixes = everybody
    window = {"from": since, "to": until, "tz": "UTC"}
    same_episodes(episodes_of(db, **window), truth.episodes(fixes, epoch_ms(since), epoch_ms(until)))
    everything = episodes_of(db, **WHOLE)
    touching = [row for row in everything if row["ended"] > epoch_ms(since) and row["began"] < epoch_ms(until)
                and row["began"] > epoch_ms(since) - 8 * 3_600_000 and row["ended"] < epoch_ms(until) + 8 * 3_600_000]
    found = {(row["driver_id"], row["began"], row["ended"], row["kind"]) for row in episodes_of(db, **window)}
    assert touching and found >= {(row["driver_id"], row["began"], row["ended"], row["kind"]) for row in touching}


@pytest.mark.parametrize("tz, since, until", [
    ("Europe/Berlin", date(2026, 5, 31), date(2026, 6, 5)), ("America/New_York", date(2026, 5, 31), date(2026, 6, 5)),
    ("Europe/Berlin", date(2026, 10, 24), date(2026, 10, 27)), ("America/New_York", date(2026, 3, 7), date(2026, 3, 10)),
    ("Asia/Kolkata", date(2026, 6, 1), date(2026, 6, 2)),
])
def test_days_are_those_of_the_time_zone(everybody, tz, since, until):
    db, fixes = everybody
    rows = ask(db, "days", driver="", tz=tz, **{"from": since.isoformat(), "to": until.isoformat()})
    found = {(row["driver_id"], row["day"]): row for row in rows}
    expected = truth.days(fixes, since, until, tz)
    assert set(found) == set(expected) and expected
    for key, day in expected.items():
        for name in ("fixes", "trips", "stops"):
            assert found[key][name] == day[name], (key, name, found[key], day)
        for name in ("metres", "untracked_m", "moving_s", "standing_s"):
            assert near_enough(found[key][name], day[name]), (key, name, found[key], day)


def test_a_day_of_25_hours_and_one_of_23(everybody):
    db, _ = everybody
    window = {"from": "2026-10-25", "to": "2026-10-26", "tz": "Europe/Berlin"}
    (day,) = ask(db, "days", driver="autumn-berlin", **window)
    assert day["standing_s"] == 25 * 3600
    window = {"from": "2026-03-08", "to": "2026-03-09", "tz": "America/New_York"}
    (day,) = ask(db, "days", driver="spring-new-york", **window)
    assert day["standing_s"] == 23 * 3600


def test_days_are_whole_whatever_the_window(everybody):
    db, _ = everybody
    whole = ask(db, "days", driver="night", tz="Europe/Berlin", **{"from": "2026-06-01", "to": "2026-06-03"})
    pieces = [row for window in (("2026-06-01 12:00", "2026-06-01 12:01"), ("2026-06-02 23:00", "2026-06-02 23:30"))
              for row in ask(db, "days", driver="night", tz="Europe/Berlin", **dict(zip(("from", "to"), window)))]
    assert len(whole) == 2
    for one, other in zip(sorted(whole, key=str), sorted(pieces, key=str)):
        assert all(near_enough(one[name], other[name]) if isinstance(one[name], float) else one[name] == other[name] for name in one)


@pytest.mark.parametrize("seed", range(3))
def test_a_late_day_in_pieces_in_any_order_becomes_the_same(db, seed):
    chance, fixes = random.Random(seed), lunch().fixes + square().fixes
    pieces = [fixes[start:start + 97] for start in range(0, len(fixes), 97)]
    chance.shuffle(pieces)
    there = []
    for number, piece in enumerate(pieces):
        db.insert(piece)
        there += piece
        if number in (2, 6, len(pieces) - 1):
            same_episodes(episodes_of(db, **WHOLE), truth.episodes(there, epoch_ms("2026-05-31T00:00:00"), epoch_ms("2026-06-04T00:00:00")))


def test_a_time_is_understood_in_the_zone_or_by_its_own_offset(everybody):
    db, _ = everybody
    def fixes(since, tz):
        (row,) = ask(db, "track", "count() AS n", driver="lunch", tz=tz, **{"from": since, "to": "2026-06-02"})
        return row["n"]
    moment = fixes("2026-06-01 11:30:00", "UTC")
    assert 0 < moment < fixes("2026-06-01", "UTC")
    for since, tz in (("2026-06-01T13:30:00", "Europe/Berlin"), ("2026-06-01T11:30:00Z", "Asia/Kolkata"),
                      ("2026-06-01T17:00:00+05:30", "Europe/Berlin"), (str(epoch_ms("2026-06-01T11:30:00") // 1000), "Europe/Berlin"),
                      (str(epoch_ms("2026-06-01T11:30:00")), "America/New_York")):
        assert fixes(since, tz) == moment, (since, tz)
    for since, tz in (("yesterday", "UTC"), ("2026-13-01", "UTC"), ("", "UTC"), ("2026-06-01", "Europe/Berlinn")):
        with pytest.raises(Refused):
            fixes(since, tz)


@pytest.mark.parametrize("view, more", [
    ("track", {}), ("episodes", {}), ("days", {}), ("near", {"lat": 48.1, "lng": 11.5, "metres": 1e7}), ("gaps", {"seconds": 1}),
    ("speeding", {"speed": 1.0}), ("health", {}),
])
def test_no_name_is_all_drivers_and_names_keep_the_index(db, view, more):
    many = [{"driver": f"d{number % 50:02}", "ms": epoch_ms("2026-06-01T08:00:00") + number * 1000, "lat": 48.1 + number / 1e5, "lng": 11.5,
             "speed": 20} for number in range(60_000)]
    db.insert(many)
    def drivers_and_rows(driver):
        values = ", ".join(f"{name} = {value!r}" for name, value in {**more, "driver": driver, **WHOLE}.items())
        text, summary = db.answer(f"SELECT arrayStringConcat(arraySort(groupUniqArray(driver_id)), ',') FROM {{db}}_ask.{view}({values})")
        return text.decode().strip(), int(summary["read_rows"])
    everybody, all_rows = drivers_and_rows("")
    assert len(everybody.split(",")) == 50
    for some in ("d07", "d07,d31"):
        drivers, rows = drivers_and_rows(some)
        assert drivers == some and rows < all_rows / 2, (rows, all_rows)
    assert drivers_and_rows("nobody")[0] == ""
    plan = db.ask(f"EXPLAIN indexes = 1 SELECT count() FROM {{db}}_ask.{view}("
                  + ", ".join(f"{name} = {value!r}" for name, value in {**more, "driver": "", "from": "2026-06-01 10:00", "to": "2026-06-01 11:00", "tz": "UTC"}.items()) + ")")
    assert "ts in [" in plan, plan


def test_track_and_health(everybody):
    db, fixes = everybody
    tracks = truth.by_driver(fixes, epoch_ms("2026-05-31T00:00:00"), epoch_ms("2026-06-04T00:00:00"))
    found = ask(db, "track", "driver_id, toUnixTimestamp64Milli(ts) AS ms, seq, lat, lng, metres, seconds", "ORDER BY driver_id, ms, seq, lat, lng",
                driver="", **WHOLE)
    assert len(found) == sum(map(len, tracks.values()))
    at = 0
    missing, restarts = {}, {}
    for driver in sorted(tracks):
        before = None
        for fix in tracks[driver]:
            row, at = found[at], at + 1
            assert (row["driver_id"], row["ms"], row["lat"], row["lng"]) == (driver, fix["ms"], fix["lat"], fix["lng"])
            expected = truth.between(before, fix) if before else 0
            assert near_enough(row["metres"], expected), (row, expected)
            if before and fix["seq"] > before["seq"]:
                missing[driver] = missing.get(driver, 0) + fix["seq"] - before["seq"] - 1
            if before and fix["seq"] < before["seq"]:
                restarts[driver] = restarts.get(driver, 0) + 1
            before = fix
    health = {row["driver_id"]: row for row in ask(db, "health", driver="", **WHOLE)}
    for driver, track in tracks.items():
        assert health[driver]["fixes"] == len(track)
        assert (health[driver]["missing"], health[driver]["restarts"]) == (missing.get(driver, 0), restarts.get(driver, 0)), driver
        assert health[driver]["without_speed"] == sum(fix["speed"] is None for fix in track)
    assert sum(missing.values()) > 0 and sum(restarts.values()) > 0


@pytest.mark.parametrize(("since", "until"), [
    ("2026-05-31T00:00:00", "2026-06-04T00:00:00"),  # everything
    ("2026-06-01T07:00:00", "2026-06-01T08:00:00"),  # in the middle of a silence, of many
    ("2026-06-01T10:00:00", "2026-06-01T10:00:01"),
])
def test_gaps_are_whole_and_those_without_an_end_are_told(everybody, since, until):
    db, fixes = everybody
    window = {"from": since, "to": until, "tz": "UTC"}
    what = "driver_id, toUnixTimestamp64Milli(began) AS b, toUnixTimestamp64Milli(ended) AS e, seconds, metres"
    found = ask(db, "gaps", what, "ORDER BY driver_id, b, e", driver="", seconds=1000, **window)
    expected = truth.silences(fixes, 1000, epoch_ms(since), epoch_ms(until), round(time.time() * 1000))
    expected.sort(key=lambda row: (row["driver_id"], row["began"]))
    assert [(row["driver_id"], row["b"], row["e"], row["seconds"]) for row in found] \
        == [(row["driver_id"], row["began"], row["ended"], row["seconds"]) for row in expected]
    for row, true in zip(found, expected):
        assert row["metres"] == true["metres"] if true["metres"] is None else near_enough(row["metres"], true["metres"])
    assert any(row["ended"] for row in expected)
    assert any(row["ended"] is None for row in expected) or since.endswith("07:00:00")


def test_who_is_silent_now_is_silent_until_now(db):
    now = round(time.time() * 1000)
    db.insert([{"driver": driver, "ms": now - seconds * 1000, "lat": 1, "lng": 2} for driver, seconds in (("late", 2000), ("well", 5))])
    day = {"from": str(now - 86_400_000), "to": str(now + 86_400_000), "tz": "UTC"}
    rows = ask(db, "gaps", "driver_id, ended, seconds", driver="", seconds=600, **day)
    assert [(row["driver_id"], row["ended"]) for row in rows] == [("late", None)]
    assert 2000 <= rows[0]["seconds"] < 2600


def test_health_sees_a_clock_ahead_late_fixes_and_holes(db):
    device = square()
    ahead = [{**fix, "driver": "ahead", "received": fix["ms"] - 3_600_000} for fix in device.fixes]
    late = [{**fix, "driver": "late", "received": fix["ms"] + (90_000 if fix["seq"] % 10 == 0 else 500)} for fix in device.fixes]
    holes = [{**fix, "driver": "holes"} for fix in device.fixes if fix["seq"] % 24 != 5]
    db.insert(ahead + late + holes)
    rows = {row["driver_id"]: row for row in ask(db, "health", driver="", **WHOLE)}
    assert rows["ahead"]["ahead_s"] == 3600 and rows["late"]["ahead_s"] == 0
    assert rows["late"]["late"] == sum(fix["seq"] % 10 == 0 for fix in device.fixes) and rows["late"]["lag_max_s"] == 90
    assert rows["late"]["lag_p50_s"] == 0.5
    assert rows["holes"]["missing"] == sum(fix["seq"] % 24 == 5 for fix in device.fixes)
    # A clock an hour ahead moves the trip, and changes nothing else in it.
    same = {row["driver_id"]: row for row in episodes_of(db, **WHOLE)}
    assert same["ahead"]["metres"] == same["late"]["metres"] and same["ahead"]["seconds"] == 1200


def test_speeding_is_one_row_from_first_to_last(db):
    device = Device("fast", "2026-06-01T08:00:00", 48, 11, every=10).drive(0, 20, 60).drive(0, 31, 100).drive(0, 25, 30).drive(0, 33, 50)
    device.silent(400).drive(0, 34, 20)
    device.fixes[10]["speed"] = None  # among the fast ones: says nothing
    db.insert(device.fixes)
    rows = ask(db, "speeding", rest="ORDER BY began", driver="", speed=27.78, **WHOLE)
    assert [(row["seconds"], row["fixes"], round(row["speed_max"])) for row in rows] == [(90, 9, 31), (40, 5, 33), (10, 2, 34)]


def test_near_is_exact_among_many(db):
    chance, place = random.Random(7), (52.52, 13.405)
    fixes = [{"driver": f"d{chance.randrange(40)}", "ms": epoch_ms("2026-06-01T08:00:00") + number * 1000, "speed": None,
              "lat": place[0] + chance.gauss(0, 0.02), "lng": place[1] + chance.gauss(0, 0.03)} for number in range(4000)]
    db.insert(fixes)
    for radius in (50, 800, 5000):
        within: dict[str, list[float]] = {}
        for driver, track in truth.by_driver(fixes).items():
            away = [truth.metres(fix["lat"], fix["lng"], *place) for fix in track]
            if min(away) <= radius:
                within[driver] = [one for one in away if one <= radius]
        rows = {row["driver_id"]: row for row in ask(db, "near", lat=place[0], lng=place[1], metres=float(radius), driver="", **WHOLE)}
        assert {driver: row["fixes"] for driver, row in rows.items()} == {driver: len(away) for driver, away in within.items()}
        assert all(near_enough(rows[driver]["nearest_m"], min(away)) for driver, away in within.items())


@pytest.mark.parametrize("box", [(-30.0, 170.0, 30.0, -170.0), (-30.0, -170.0, 30.0, 170.0), (80.0, -180.0, 90.0, 180.0)])
def test_boxes_and_heard_since(db, box):
    chance, newest, fixes = random.Random(3), {}, []
    for number in range(600):
        fix = {"driver": f"d{number % 150}", "ms": epoch_ms("2026-06-01T08:00:00") + chance.randrange(10**7),
               "lat": round(chance.uniform(-90, 90), 6), "lng": round(chance.uniform(-180, 180), 6)}
        fixes.append(fix)
        newest[fix["driver"]] = max(newest.get(fix["driver"], fix), fix, key=lambda one: one["ms"])
    for part in range(4):
        db.insert(fixes[part::4])
    south, west, north, east = box
    def inside(fix):
        across = west <= fix["lng"] <= east if west <= east else fix["lng"] >= west or fix["lng"] <= east
        return south <= fix["lat"] <= north and across
    rows = ask(db, "in_box", "driver_id", south=south, west=west, north=north, east=east)
    assert {row["driver_id"] for row in rows} == {driver for driver, fix in newest.items() if inside(fix)}
    cells = ask(db, "heatmap", south=south, west=west, north=north, east=east, letters=3, **WHOLE)
    assert sum(row["fixes"] for row in cells) == sum(map(inside, fixes)) and all(len(row["cell"]) == 3 for row in cells)
    since = epoch_ms("2026-06-01T09:30:00")
    rows = ask(db, "heard_since", "driver_id, lat", since="2026-06-01 11:30", tz="Europe/Berlin")
    assert {row["driver_id"]: row["lat"] for row in rows} == {driver: fix["lat"] for driver, fix in newest.items() if fix["ms"] >= since}

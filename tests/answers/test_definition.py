"""Tests that trips, stops, distances, quarters and days match truth.py, and each other."""
from __future__ import annotations

import random
import time
from datetime import date

import pytest

import truth
from devices import Device, epoch_ms, flight, jumper, lunch, square, walker

YEAR_2026 = {"from": "2026-01-01", "to": "2027-01-01", "tz": "UTC"}
ZONES = ("Europe/Berlin", "Asia/Kathmandu", "America/New_York", "UTC")


def near_enough(found: float, expected: float) -> bool:
    return abs(found - expected) <= 1e-4 * abs(expected) + 0.02


def ask(db, view: str, what: str = "*", rest: str = "", **parameters) -> list[dict]:
    values = ", ".join(f"{name} = {value!r}" for name, value in parameters.items())
    return db.rows(
        f"SELECT {what} FROM {{db}}_ask.{view}({values}) {rest}", date_time_output_format="iso"
    )


def episodes_of(db, driver="", **window) -> list[dict]:
    rows = ask(
        db,
        "episodes",
        "*, toUnixTimestamp64Milli(began) AS since, toUnixTimestamp64Milli(ended) AS until",
        driver=driver,
        **(window or YEAR_2026),
    )
    return [{**row, "began": row["since"], "ended": row["until"]} for row in rows]


def assert_same_episodes(found: list[dict], expected: list[dict]) -> None:
    """Asserts that the rows of the view `episodes` equal those of `truth.episodes`."""

    def key(row):
        return (
            row["driver_id"],
            row["began"],
            row["ended"],
            row["kind"],
            row["fixes"],
            row["metres"] + row["untracked_m"],
        )

    found, expected = sorted(found, key=key), sorted(expected, key=key)
    names = ("driver_id", "kind", "began", "ended", "fixes")
    assert [[row[name] for name in names] for row in found] == [
        [row[name] for name in names] for row in expected
    ]
    for row, truth_row in zip(found, expected):
        both = row, truth_row
        for name in ("metres", "untracked_m"):
            assert near_enough(row[name], truth_row[name]), both
        assert (row["speed_max"] is None) == (truth_row["speed_max"] is None), both
        assert abs((row["speed_max"] or 0) - (truth_row["speed_max"] or 0)) < 0.006, both
        for lat, lng, places in (("lat", "lng", "from"), ("to_lat", "to_lng", "to")):
            distances = [truth.metres(row[lat], row[lng], *place) for place in truth_row[places]]
            assert min(distances) < 1, both


def assert_same_quarters(db, fixes) -> None:
    rows = db.rows("SELECT *, toUnixTimestamp(quarter) AS epoch FROM {db}.driver_quarters")
    found, expected = {(row["driver_id"], row["epoch"]): row for row in rows}, truth.quarters(fixes)
    assert len(found) == len(rows) and set(found) == set(expected)
    for key, quarter in expected.items():
        for name, value in quarter.items():
            assert near_enough(found[key][name] or 0, value or 0), (key, name, found[key], quarter)


def assert_same_days(db, fixes, since: date, until: date, tz: str) -> None:
    rows = ask(db, "days", driver="", tz=tz, **{"from": since.isoformat(), "to": until.isoformat()})
    found = {(row["driver_id"], row["day"]): row for row in rows}
    expected = truth.days(fixes, since, until, tz)
    assert set(found) == set(expected) and expected
    for key, day in expected.items():
        for name, value in day.items():
            assert near_enough(found[key][name], value), (key, name, found[key], day)


def test_trips_stops_and_gaps_match_truth(computed_fleet):
    db, fixes = computed_fleet
    expected = truth.episodes(fixes)
    assert {"trip", "stop", "gap"} == {row["kind"] for row in expected} and len(expected) > 200
    assert_same_episodes(episodes_of(db), expected)


def test_quarters_match_truth(computed_fleet):
    assert_same_quarters(*computed_fleet)


@pytest.mark.parametrize("tz", ZONES)
def test_days_match_truth(computed_fleet, tz):
    db, fixes = computed_fleet
    for since, until in (
        (date(2026, 5, 31), date(2026, 6, 5)),
        (date(2026, 10, 24), date(2026, 10, 27)),
        (date(2026, 3, 7), date(2026, 3, 10)),
    ):
        assert_same_days(db, fixes, since, until, tz)


def test_quarters_days_trips_and_totals_agree(computed_fleet):
    """For each driver and in each zone, distances, durations and numbers of fixes agree.

    Distances differ by less than a centimetre, durations by less than a hundredth of a second. The
    numbers of fixes are equal.
    """
    db, fixes = computed_fleet
    sums = {}
    for what, sql in {
        "quarters": "SELECT driver_id, sum(distance_m) AS metres, sum(moving_s) AS moving, "
        "sum(tracked_s) AS tracked, sum(fixes) AS n FROM {db}.driver_quarters GROUP BY ALL",
        "episodes": "SELECT driver_id, sum(metres) AS metres, "
        "sumIf(seconds, kind = 'trip') AS moving FROM {db}_ask.episodes(driver = '', "
        "from = '2026-01-01', to = '2027-01-01', tz = 'UTC') GROUP BY ALL",
        "trips": "SELECT driver_id, sum(metres) AS metres, sum(seconds) AS moving "
        "FROM {db}.trips GROUP BY ALL",
        "all parts": "SELECT driver_id, sumArray(arrayMap((m, k) -> if(k = 'trip', m, 0), "
        "parts.metres, parts.kind)) AS metres FROM {db}.driver_days_state FINAL GROUP BY ALL",
        **{
            f"days in {tz}": "SELECT driver_id, sum(metres) AS metres, sum(moving_s) AS moving, "
            "sum(moving_s + standing_s - silent_s) AS tracked, sum(fixes) AS n "
            "FROM {db}_ask.days(driver = '', from = '2026-01-01', to = '2027-01-01', "
            f"tz = '{tz}') GROUP BY ALL"
            for tz in ZONES
        },
    }.items():
        sums[what] = {row["driver_id"]: row for row in db.rows(sql)}
    standing = {
        what: {row["driver_id"]: row["seconds"] for row in db.rows(sql)}
        for what, sql in {
            "stops": "SELECT driver_id, sum(seconds) AS seconds FROM {db}.stops GROUP BY ALL "
            "HAVING seconds > 0",
            "days": "SELECT driver_id, sum(standing_s) AS seconds FROM {db}_ask.days(driver = '', "
            "from = '2026-01-01', to = '2027-01-01', tz = 'UTC') GROUP BY ALL HAVING seconds > 0",
        }.items()
    }
    assert standing["stops"].keys() == standing["days"].keys()
    assert all(
        abs(seconds - standing["days"][driver]) < 0.01
        for driver, seconds in standing["stops"].items()
    )
    assert (
        len(sums["quarters"]) == len(truth.by_driver(fixes))
        and sum(row["metres"] for row in sums["quarters"].values()) > 1e6
    )
    for what, rows in sums.items():
        for driver, row in rows.items():
            for name in row.keys() - {"driver_id"}:
                assert abs(row[name] - sums["quarters"][driver][name]) < 0.01, (
                    what,
                    name,
                    row,
                    sums["quarters"][driver],
                )


def test_slow_and_interrupted_movements_are_measured(computed_fleet):
    db, _ = computed_fleet
    (walk,) = episodes_of(db, "walker")
    assert (
        walk["kind"] == "trip"
        and walk["seconds"] == 7200
        and abs(walk["metres"] - walker().fixes[-1]["seq"] * 5 + 5) < 1
    )
    rounds = episodes_of(db, "courier")
    assert [row["kind"] for row in rounds].count("stop") == 20
    # The mileage of the courier is not exact: it is measured from the place of one stop to the
    # place of the next stop, and a driver may begin and end a stop up to 100 m away from its place.
    assert abs(sum(row["metres"] for row in rounds) - 20 * 400) < 150
    assert abs(sum(row["metres"] for row in episodes_of(db, "jam")) - (2 * 4500 + 1440)) < 250


def test_wrong_fixes_do_not_change_the_figures_of_a_day(db):
    device = jumper()
    fixes = [fix for fix in device.fixes if fix["ms"] < epoch_ms("2026-06-01T12:30:00")]
    db.insert(fixes)
    db.refresh()
    (trip,) = episodes_of(db)
    assert (
        abs(trip["metres"] - 3000) < 1
        and trip["speed_max"] == 10
        and trip["fixes"] == len(fixes) - 4
    )
    (day,) = ask(db, "days", driver="", **YEAR_2026)
    assert (
        abs(day["metres"] - 3000) < 1
        and day["untracked_m"] == 0
        and day["speed_max"] == 10
        and day["fixes"] == len(fixes)
    )
    dropped = ask(
        db,
        "track",
        "seq, dropped, metres",
        "WHERE dropped != '' ORDER BY seq",
        driver="jumper",
        **YEAR_2026,
    )
    assert [(row["seq"], row["dropped"], row["metres"]) for row in dropped] == [
        (21, "jump", 0),
        (31, "jump", 0),
        (41, "inaccurate", 0),
    ]
    (track,) = ask(db, "track", "sum(metres) AS metres, count() AS n", driver="jumper", **YEAR_2026)
    assert abs(track["metres"] - 3000) < 1 and track["n"] == len(fixes)
    assert ask(db, "speeding", driver="", speed=90.0, **YEAR_2026) == []


def test_impossible_move_without_return_is_a_gap(computed_fleet):
    db, _ = computed_fleet
    rows = sorted(episodes_of(db, "flight"), key=lambda row: row["began"])
    assert [row["kind"] for row in rows] == ["trip", "gap", "trip", "gap", "trip"]
    assert (
        abs(rows[0]["metres"] - 6000) < 1
        and abs(rows[2]["metres"] - 5950) < 1
        and rows[1]["untracked_m"] > 400_000
    )
    assert len(flight().fixes) == sum(row["fixes"] for row in rows) + 1


def test_place_of_a_stop_is_where_the_driver_stood(computed_fleet):
    db, _ = computed_fleet
    outward, meal, back = sorted(episodes_of(db, "lunch"), key=lambda row: row["began"])
    assert [outward["kind"], meal["kind"], back["kind"]] == ["trip", "stop", "trip"]
    assert (
        2700 <= meal["seconds"] <= 2740
        and abs(outward["metres"] - 18_000) < 20
        and abs(back["metres"] - 18_000) < 20
    )
    arrival = lunch().fixes[1800 // 5]
    assert (
        truth.metres(meal["lat"], meal["lng"], arrival["lat"], arrival["lng"]) < 5
        and meal["metres"] == 0
    )
    (trip,) = episodes_of(db, "square")
    assert trip["kind"] == "trip" and trip["seconds"] == 1200 and abs(trip["metres"] - 14_400) < 10


@pytest.mark.parametrize("driver", ["dateline", "pole"])
def test_trips_across_the_antimeridian_and_the_pole_are_found(computed_fleet, driver):
    db, fixes = computed_fleet
    first, stop, last = sorted(episodes_of(db, driver), key=lambda row: row["began"])
    assert [first["kind"], stop["kind"], last["kind"]] == ["trip", "stop", "trip"]
    assert first["metres"] + last["metres"] < 35_000
    place = truth.mean_position(
        [
            (fix["lat"], fix["lng"])
            for fix in fixes
            if fix["driver"] == driver and fix["speed"] == 0 and fix["seq"] > 1
        ]
    )
    for radius in (20, 300, 4000):
        (row,) = ask(
            db, "near", lat=place[0], lng=place[1], metres=float(radius), driver=driver, **YEAR_2026
        )
        distances = [
            truth.metres(fix["lat"], fix["lng"], *place) for fix in fixes if fix["driver"] == driver
        ]
        assert row["fixes"] == sum(metres <= radius for metres in distances)
        assert near_enough(row["nearest_m"], min(distances))


def test_every_window_returns_the_same_episodes_and_days(computed_fleet):
    """If a part of an episode or of a day is in the window, the view returns all of it."""
    db, _ = computed_fleet
    names = ("driver_id", "kind", "began", "ended", "metres", "untracked_m", "lat", "lng")

    def rounded(row):
        values = (row[name] for name in names)
        return tuple(round(value, 3) if isinstance(value, float) else value for value in values)

    everything = {rounded(row) for row in episodes_of(db)}
    for since, until in (
        ("2026-06-01T11:40:00", "2026-06-01T11:50:00"),
        ("2026-06-01T03:00:00", "2026-06-02T09:30:00"),
        ("2026-06-02T00:00:00", "2026-06-02T00:00:01"),
    ):
        found = {
            rounded(row) for row in episodes_of(db, **{"from": since, "to": until, "tz": "UTC"})
        }
        assert found and found <= everything
        assert found >= {
            (driver, kind, began, ended, *values)
            for driver, kind, began, ended, *values in everything
            if ended > epoch_ms(since)
            and began < epoch_ms(until)
            and driver not in ("autumn-berlin", "spring-new-york")
        }
    whole = ask(
        db, "days", driver="night", tz="Europe/Berlin", **{"from": "2026-06-01", "to": "2026-06-03"}
    )
    pieces = [
        row
        for window in (
            ("2026-06-01 12:00", "2026-06-01 12:01"),
            ("2026-06-02 23:00", "2026-06-02 23:30"),
        )
        for row in ask(
            db, "days", driver="night", tz="Europe/Berlin", **dict(zip(("from", "to"), window))
        )
    ]
    assert len(whole) == 2 and sorted(whole, key=str) == sorted(pieces, key=str)


@pytest.mark.parametrize(
    "driver, day, next_day, tz, hours",
    [
        ("autumn-berlin", "2026-10-25", "2026-10-26", "Europe/Berlin", 25),
        ("spring-new-york", "2026-03-08", "2026-03-09", "America/New_York", 23),
    ],
)
def test_day_has_25_or_23_hours_if_the_clocks_change(
    computed_fleet, driver, day, next_day, tz, hours
):
    (row,) = ask(computed_fleet[0], "days", driver=driver, tz=tz, **{"from": day, "to": next_day})
    assert row["standing_s"] == hours * 3600
    stop = max(episodes_of(computed_fleet[0], driver), key=lambda row: row["seconds"])
    assert stop["kind"] == "stop" and stop["seconds"] == 48 * 3600


@pytest.mark.parametrize("seed", range(2))
def test_order_of_inserts_does_not_change_the_figures(db, seed):
    """The fixes are inserted in random order, some of them twice, with refreshes in between.

    After each refresh, the figures are those of the fixes inserted so far.
    """
    chance = random.Random(seed)
    slow = (
        Device("slow", "2026-06-01T20:00:00", 48, 11, every=1500)
        .drive(40, 3, 9000)
        .silent(4000)
        .drive(40, 3, 3000)
        .silent(8000)
        .drive(10, 1, 6000)
    )
    fixes = lunch().fixes + square().fixes + slow.fixes
    fixes += [{**fix, "driver": "later", "ms": fix["ms"] + 44_000_000} for fix in lunch().fixes]
    pieces = [fixes[start:start + 161] for start in range(0, len(fixes), 161)]
    pieces += chance.sample(pieces, 2) + [[fix] for fix in chance.sample(slow.fixes, 5)]
    chance.shuffle(pieces)
    arrived = []
    for number, piece in enumerate(pieces):
        db.insert(piece)
        arrived += piece
        if number in (3, 8, 11, len(pieces) - 1):
            db.refresh()
            assert_same_episodes(episodes_of(db), truth.episodes(arrived))
            assert_same_quarters(db, arrived)
    assert db.ask("SELECT pending FROM {db}.rollups") == "0\n"


@pytest.mark.parametrize("start", ["22:10:00", "23:50:00"])
def test_drive_over_midnight_matches_truth_after_each_third(db, start):
    """The fixes are inserted in three steps, every third fix at a time.

    After the first step, the drive from 23:50 begins with the leg across midnight: the trip must
    begin at the fix before midnight, not at the fix after midnight.
    """
    device = Device("third", f"2026-06-01T{start}", 48, 11, every=300)
    device.drive(20, 10, 9000).stand(1200).drive(200, 10, 4500)
    arrived = []
    for third in range(3):
        db.insert(device.fixes[third::3])
        arrived += device.fixes[third::3]
        db.refresh()
        expected = truth.episodes(arrived)
        assert_same_episodes(episodes_of(db), expected)
        assert_same_quarters(db, arrived)
        assert_same_days(db, arrived, date(2026, 6, 1), date(2026, 6, 4), "Europe/Berlin")
        trips = db.rows(
            "SELECT toUnixTimestamp64Milli(began) AS since, lat, lng, to_lat, to_lng FROM "
            "{db}.trips ORDER BY began"
        )
        expected_trips = [episode for episode in expected if episode["kind"] == "trip"]
        for trip, episode in zip(trips, expected_trips, strict=True):
            assert trip["since"] == episode["began"]
            assert (
                truth.metres(trip["lat"], trip["lng"], *episode["from"][0]) < 1
                and truth.metres(trip["to_lat"], trip["to_lng"], *episode["to"][0]) < 1
            )


def test_setting_the_server_clock_back_loses_no_insert(db):
    """The clock is first an hour ahead, then right, then 90 days behind.

    So a later insert seems older than the last computation of its day. The day must be computed
    again nevertheless.
    """
    now = round(time.time() * 1000)
    device = square().fixes
    for part, ahead_ms in enumerate((3_600_000, 0, -90 * 86_400_000)):
        # A scheduled refresh must not compute the day before `pending` is read.
        db.ask("SYSTEM STOP VIEW {db}.driver_days_mv")
        db.insert(device[part::3], inserted_at=(now + ahead_ms) / 1000)
        db.count_parts()
        assert db.ask("SELECT pending FROM {db}.rollups") == "1\n"
        db.refresh()
    assert_same_quarters(db, device)
    assert db.ask("SELECT pending FROM {db}.rollups") == "0\n"


def test_backlog_is_computed_in_pieces_and_refresh_writes_one_part(db):
    """Runs the query of the view driver_days_mv with a limit of 300 rows instead of 5 million.

    So each run of the query computes only some of the six drivers' days. Then tests with the views
    themselves that each refresh writes one data part.
    """
    db.ask("SYSTEM STOP MERGES {db}.driver_days_state")
    fixes = [{**fix, "driver": f"d{number}"} for number in range(6) for fix in square().fixes]
    db.insert(fixes)
    db.count_parts()
    sql = db.ask(
        "SELECT as_select FROM system.tables WHERE database = '{db}' AND name = 'driver_days_mv' "
        "FORMAT TSVRaw"
    )
    assert "< 5000000" in sql
    backlog = [6]
    while backlog[-1] > 0:
        db.ask(
            "INSERT INTO {db}.driver_days_state (day, driver_id, parts, rows, rules, trip_m, "
            "derived_cms, derived, computed_at) "
            + sql.replace("< 5000000", "< 300")
        )
        backlog.append(int(db.ask("SELECT pending FROM {db}.rollups")))
        assert backlog[-1] < backlog[-2]
    assert len(backlog) > 2
    assert_same_quarters(db, fixes)
    db.ask("TRUNCATE TABLE {db}.driver_days_state")
    db.insert(
        [
            {
                "driver": f"m{number}",
                "ms": epoch_ms("2026-06-01T08:00:00") + number * 40_000,
                "lat": 48,
                "lng": 11,
            }
            for number in range(70_000)
        ]
    )
    db.refresh()
    # Every refresh, scheduled or not, wrote a single data part. So all of its rows become visible
    # at the same time.
    sql = "SELECT uniqExact(_part) = uniqExact(computed_at), count() >= 70000 FROM {db}."
    assert db.ask(sql + "driver_days_state") == "1\t1\n"


def test_roll_up_is_scheduled(shared_db):
    shared_db.ask("SYSTEM WAIT VIEW {db}.driver_days_mv")
    rows = shared_db.rows(
        "SELECT view, exception, toUnixTimestamp(next_refresh_time) - toUnixTimestamp(now()) AS "
        "seconds FROM system.view_refreshes WHERE database = '{db}' ORDER BY view"
    )
    assert [row["view"] for row in rows] == ["driver_days_mv", "touched_mv"]
    assert all(row["exception"] == "" and row["seconds"] <= 300 for row in rows)

"""Tests what a dispatcher expects of stops, trips and mileage.

The days are simulated, so their stops, trips and mileage are known. The fixes have the errors of
real receivers (corpus.py).
"""
from __future__ import annotations

import pytest

import truth
from corpus import Score, corpus
from devices import Device
from test_definition import ask, episodes_of, assert_same_episodes, assert_same_quarters
from test_fences import insert_fence, visits_of

DEPOT = [[[10.99, 47.99], [11.01, 47.99], [11.01, 48.01], [10.99, 48.01]]]
JUNE = {"from": "2026-06-01", "to": "2026-07-01", "tz": "UTC"}


def stops_and_trips(db, driver=""):
    rows = episodes_of(db, driver)
    stops = [row for row in rows if row["kind"] == "stop"]
    return stops, [row for row in rows if row["kind"] == "trip"]


@pytest.mark.parametrize("has_speed", [True, False])
def test_parked_car_with_wrong_fixes_does_not_move(db, has_speed):
    car = Device("car", "2026-06-01T08:00:00", 48, 11, every=15).stand(8 * 3600)
    for number, fix in enumerate(car.fixes):
        fix["speed"] = 0.0 if has_speed else None
        if number % 240 == 100:
            metres = 889 if number == 340 else 300
            fix["lat"], fix["lng"] = truth.destination(48, 11, number % 360, metres)
    db.insert(car.fixes)
    db.refresh()
    stops, trips = stops_and_trips(db)
    assert (len(stops), trips) == (1, []) and stops[0]["seconds"] == 8 * 3600
    (day,) = ask(db, "days", driver="", **JUNE)
    assert (day["metres"], day["trips"], day["stops"], day["standing_s"]) == (0, 0, 1, 8 * 3600)


def test_night_of_silence_in_the_depot_is_one_stop_and_one_visit(db):
    van = Device("van", "2026-06-01T17:00:00", 48.05, 11, every=15).drive(180, 10, 540).stand(240)
    van.silent(12 * 3600).stand(120).drive(0, 10, 600)
    db.insert(van.fixes)
    db.refresh()
    stops, trips = stops_and_trips(db)
    assert (
        len(stops) == 1
        and len(trips) == 2
        and 12 * 3600 + 240 <= stops[0]["seconds"] <= 12 * 3600 + 400
    )
    days = ask(db, "days", "day, standing_s, silent_s, stops", "ORDER BY day", driver="", **JUNE)
    assert [row["stops"] for row in days] == [1, 0]
    assert sum(row["silent_s"] for row in days) == 12 * 3600 + 15
    assert abs(sum(row["standing_s"] for row in days) - stops[0]["seconds"]) < 0.01
    insert_fence(db, "depot", [DEPOT])
    assert len(visits_of(db, fence="depot", **JUNE)) == 1


def test_silent_weekend_is_standing_time_on_each_day(db):
    van = (
        Device("van", "2026-06-05T15:00:00", 48, 11, every=15, tz="Europe/Berlin")
        .drive(90, 10, 900)
        .stand(60)
        .silent(62 * 3600)
        .drive(90, 10, 900)
    )
    db.insert(van.fixes)
    db.refresh()
    days = {
        row["day"]: row for row in ask(db, "days", driver="", **{**JUNE, "tz": "Europe/Berlin"})
    }
    assert [days[f"2026-06-0{day}"]["standing_s"] for day in (6, 7)] == [86_400, 86_400]
    assert days["2026-06-06"]["fixes"] == 0
    assert [days[f"2026-06-0{day}"]["speed_max"] for day in (6, 7)] == [None, None]
    assert sum(row["stops"] for row in days.values()) == 1


def test_parked_device_that_wakes_hourly_has_no_trips(db):
    van = Device("van", "2026-06-01T03:00:00", 48, 11, every=30)
    for _ in range(8):
        van.stand(60, noise_m=12).silent(2 * 3600)
    db.insert(van.fixes)
    db.refresh()
    stops, trips = stops_and_trips(db)
    assert (len(stops), trips) == (1, [])


def test_new_rules_apply_to_days_that_are_already_computed(db):
    fixes = []
    for driver in ("courier", "other"):
        fixes += (
            Device(driver, "2026-06-01T08:00:00", 48, 11, every=10)
            .drive(90, 10, 600)
            .stand(200)
            .drive(90, 10, 600)
            .fixes
        )
    db.insert(fixes)
    db.refresh()
    assert len(stops_and_trips(db)[0]) == 2
    db.ask("INSERT INTO {db}.trip_rules (driver_id, preset, stop_s) VALUES ('courier', 'car', 600)")
    db.refresh()
    assert [row["driver_id"] for row in stops_and_trips(db)[0]] == ["other"]
    db.ask("INSERT INTO {db}.trip_rules (preset) VALUES ('truck')")  # its stop_s is five minutes
    # The fleet's limits apply to courier again.
    db.ask("INSERT INTO {db}.trip_rules (driver_id, preset) VALUES ('courier', '')")
    db.refresh()
    assert stops_and_trips(db)[0] == []
    in_force = db.ask("SELECT preset, speed_max, stop_s FROM {db}.trip_rules_in_force")
    assert in_force == "truck\t40\t300\n"


def test_labelled_days_match_truth(db):
    """The views and truth.py agree on noise, wrong fixes, tunnels and sleeping devices."""
    fixes = [fix for labelled in corpus(rates=(5, 30), errors=(15,)) for fix in labelled.fixes]
    db.insert(fixes)
    db.refresh()
    assert_same_episodes(episodes_of(db), truth.episodes(fixes))
    assert_same_quarters(db, fixes)


def test_mileage_of_a_device_that_sends_at_each_turn_matches_the_route(db):
    """The vehicle drives around blocks of 288 m.

    It sends a fix where the heading has changed by 30 degrees.
    """
    turning = Device("turning", "2026-06-01T08:00:00", 48, 11, every=15).stand(600)
    for number in range(40):
        turning.every = 2
        turning.drive(90 * number + 30, 5, 2).drive(90 * number + 60, 5, 2)
        turning.every = 24
        turning.drive(90 * number + 90, 12, 24)
    turning.every = 15
    fixes = turning.stand(600, noise_m=0).fixes
    db.insert(fixes)
    db.refresh()
    assert_same_episodes(episodes_of(db), truth.episodes(fixes))
    assert_same_quarters(db, fixes)
    (day,) = ask(db, "days", driver="turning", **JUNE)
    assert day["metres"] == pytest.approx(40 * 308, rel=0.015)


def test_stops_of_a_device_that_sends_every_75_metres_are_found(db):
    """The device sends nothing while it stands.

    Each stop is ten minutes between two fixes that are 75 m apart.
    """
    car = Device("car", "2026-06-01T08:00:00", 48, 11, every=5.5)
    for number in range(13):
        car.drive(90, 75 / 5.5, 5.5 * (40 + number)).silent(600)
    fixes = car.drive(90, 75 / 5.5, 220).fixes
    db.insert(fixes)
    db.refresh()
    assert_same_episodes(episodes_of(db), truth.episodes(fixes))
    stops, trips = stops_and_trips(db)
    assert (len(stops), len(trips)) == (13, 14), stops
    assert all(600 <= row["seconds"] <= 640 for row in stops), stops


def test_hairpin_bends_are_not_averaged_away(db):
    """A pass road with a fix every second.

    Thirty times, 200 m are followed by a bend of 180 degrees with a radius of 14 m.
    """
    car = Device("pass", "2026-06-01T08:00:00", 46.5, 10.4, every=1).stand(600, noise_m=0)
    bearing = 0
    for number in range(30):
        car.drive(bearing, 10, 20)
        for _ in range(9):
            bearing += 20 * (-1) ** number
            car.drive(bearing, 5, 1)
    fixes = car.stand(600, noise_m=0).fixes
    db.insert(fixes)
    db.refresh()
    assert_same_episodes(episodes_of(db), truth.episodes(fixes))
    (day,) = ask(db, "days", driver="pass", **JUNE)
    assert day["metres"] == pytest.approx(30 * 245, rel=0.1)


def scored(labelled) -> Score:
    found = truth.episodes(labelled.fixes)
    stops = [(row["began"], row["ended"]) for row in found if row["kind"] == "stop"]
    return Score().add(
        labelled,
        stops,
        sum(row["metres"] for row in found),
        sum(row["kind"] == "trip" for row in found),
    )


@pytest.mark.parametrize(
    "labelled", corpus(rates=(5, 15, 30), errors=(3, 15)), ids=lambda labelled: labelled.driver
)
def test_figures_of_a_labelled_day_match_its_labels(labelled):
    score = scored(labelled)
    assert score.f1 >= 0.95, score
    assert abs(score.trips - score.true_trips) <= 1, score
    assert score.mileage_error <= 0.05, score.mileage_error


def test_mileage_of_all_labelled_days_is_within_two_percent():
    scores = [scored(labelled) for labelled in corpus(rates=(5, 15, 30), errors=(3, 8, 15))]
    errors = [score.mileage_error for score in scores if score.true_metres]
    assert sum(errors) / len(errors) <= 0.02


def test_speed_is_derived_if_the_device_sends_none(db):
    """Trains that drive at 31 m/s for ten minutes count as speeding, although they send no speed.

    They send a fix every 1, 15 or 60 s. Cars with a wrong fix or an impossible move do not count.
    """
    for every, seconds in ((1, 600), (15, 600), (60, 600)):
        train = (
            Device(f"train{every}", "2026-06-01T08:00:00", 48, 11, every=every)
            .stand(600)
            .drive(0, 15, 300)
            .drive(0, 31, seconds)
            .drive(0, 15, 300)
        )
        db.insert([{**fix, "speed": None} for fix in train.fixes])
    parked = Device("parked", "2026-06-01T08:00:00", 48, 11, every=15).stand(3600)
    parked.fixes[100].update(dict(zip(("lat", "lng"), truth.destination(48, 11, 90, 3_000))))
    moved = Device("moved", "2026-06-01T08:00:00", 48, 11, every=15).stand(900).drive(0, 15, 300)
    elsewhere = Device("moved", "2026-06-01T08:20:15", 49, 11, every=15).stand(900)
    db.insert([{**fix, "speed": None} for fix in parked.fixes + moved.fixes + elsewhere.fixes])
    db.refresh()
    rows = ask(
        db,
        "speeding",
        "driver_id, began, seconds, speed_max, is_derived",
        "ORDER BY driver_id",
        driver="",
        speed=27.78,
        **JUNE,
    )
    assert [row["driver_id"] for row in rows] == ["train1", "train15", "train60"], rows
    for row in rows:
        assert (
            row["is_derived"]
            and abs(row["seconds"] - 600) <= 60
            and abs(row["speed_max"] - 31) < 0.1
        ), row
    assert ask(db, "speeding", driver="", speed=40, **JUNE) == []
    days = ask(
        db,
        "days",
        "driver_id, day, speed_max, speed_derived_max",
        "WHERE driver_id = 'train15' ORDER BY day",
        driver="",
        **JUNE,
    )
    assert [(row["speed_max"], round(row["speed_derived_max"], 1)) for row in days] == [
        (None, 31)
    ], days
    night = (
        Device("night", "2026-06-03T21:30:00", 48, 11, every=15)
        .drive(0, 31, 600)
        .stand(900)
        .drive(0, 15, 1200)
    )
    db.insert([{**fix, "speed": None} for fix in night.fixes])
    db.refresh()
    days = ask(
        db,
        "days",
        "day, speed_derived_max",
        "ORDER BY day",
        driver="night",
        **{**JUNE, "tz": "Europe/Berlin"},
    )
    assert [(row["day"], round(row["speed_derived_max"])) for row in days] == [
        ("2026-06-03", 31),
        ("2026-06-04", 15),
    ], days
    fast = Device("sent", "2026-06-02T08:00:00", 48, 11, every=15).drive(0, 31, 600)
    db.insert(fast.fixes)
    (row,) = ask(db, "speeding", driver="sent", speed=27.78, **JUNE)
    assert not row["is_derived"]
    db.refresh()
    (row,) = ask(db, "days", "speed_max, speed_derived_max", driver="sent", **JUNE)
    assert row == {"speed_max": 31, "speed_derived_max": None}
    track = ask(
        db, "track", "speed, speed_derived, seconds", "ORDER BY ts", driver="train15", **JUNE
    )
    assert all(row["speed"] is None for row in track) and track[0]["speed_derived"] is None
    assert (
        abs(max(row["speed_derived"] for row in track[1:]) - 31) < 0.1
        and track[1]["speed_derived"] < 2
    )
    assert all(
        row["speed_derived"] is None
        for row in ask(db, "track", "speed_derived", driver="sent", **JUNE)
    )

"""Tests kinds of days that corpus.py does not have, and that were not used to choose the limits.

Exceptions: the days with arcs, with creeping and with impossible legs were used to choose the rules
that they test. Days, episodes and quarters must agree with each other, and with the simulated
truth.
"""
from __future__ import annotations

import math
import random

from corpus import START_MS, Journey, Labelled, Score, fixes_of, town_car, walker
from devices import epoch_ms
from test_definition import ask

JUNE = {"from": "2026-05-25", "to": "2026-07-01", "tz": "UTC"}
HOUR = 3600


def drifting(fixes: list[dict], metres: float, memory_s: float) -> list[dict]:
    """Adds the error of a receiver between tall buildings to the fixes.

    metres: root mean square of the error. memory_s: time constant with which the error drifts.
    """
    chance, north, east, ms = random.Random("drift"), 0.0, 0.0, fixes[0]["ms"]
    found = []
    for fix in fixes:
        decay = math.exp((ms - fix["ms"]) / 1000 / memory_s)
        deviation = metres / math.sqrt(2) * math.sqrt(1 - decay * decay)
        north, east = (decay * error + chance.gauss(0, deviation) for error in (north, east))
        ms = fix["ms"]
        found.append(
            {
                **fix,
                "lat": fix["lat"] + north / 111_200,
                "lng": fix["lng"] + east / (111_320 * math.cos(math.radians(fix["lat"]))),
            }
        )
    return found


def later(fixes: list[dict], ms: int) -> list[dict]:
    return [{**fix, "ms": fix["ms"] + ms} for fix in fixes]


def wrap_longitudes(fixes: list[dict]) -> list[dict]:
    return [{**fix, "lng": (fix["lng"] + 180) % 360 - 180} for fix in fixes]


def depots() -> Journey:
    """Drives between two depots 150 m apart, by a route of 4 km."""
    day = Journey("depots").stand(1800)
    for turn in range(4):
        for bearing in (0.7, 2.3, 3.8, 5.4):
            day.heading = bearing
            day.drive(1000, 12, (150, 400), wobble=0.0, turn=0.0)
        day.heading = 0.7 + math.pi * turn
        day.drive(150, 8, (150, 151), wobble=0.0, turn=0.0).stand(1200)
    return day


def ferry_asleep() -> tuple[list[dict], Journey]:
    """A car drives to a port and goes 40 km by ship, twice.

    Its device is silent on board, for two hours.
    """
    day = Journey("ferry asleep").stand(1200)
    aboard = []
    for _ in range(2):
        day.drive(12_000, 14, (200, 800)).stand(400)
        began, rolled = len(day.states), day.metres
        for _ in range(2 * HOUR):
            day._step(40_000 / 2 / HOUR)
        day.speed, day.metres = 0.0, rolled  # the wheels stood
        aboard.append((began, len(day.states)))
        day.stand(300).drive(9000, 14, (200, 800)).stand(HOUR)
    fixes = fixes_of("ferry asleep", day, 15, 5, has_speed=False)
    seconds = [(fix["ms"] - fixes[0]["ms"]) / 1000 + 15 for fix in fixes]
    return [
        fix for fix, second in zip(fixes, seconds) if not any(a <= second <= b for a, b in aboard)
    ], day


def figures(db, driver: str) -> dict:
    """Returns a driver's figures.

    Asserts that days, days of another zone, episodes and quarters agree.
    """
    days = ask(db, "days", driver=driver, **JUNE)
    local = ask(db, "days", driver=driver, **{**JUNE, "tz": "Asia/Kolkata"})
    episodes = ask(db, "episodes", rest="ORDER BY began", driver=driver, **JUNE)
    (quarters,) = db.rows(
        f"SELECT sum(distance_m) AS metres, sum(moving_s) AS moving_s FROM {{db}}.driver_quarters "
        f"WHERE driver_id = '{driver}'"
    )
    trips = [row for row in episodes if row["kind"] == "trip"]
    stops = [row for row in episodes if row["kind"] == "stop"]
    metres = sum(row["metres"] for row in days)
    for other in (
        sum(row["metres"] for row in local),
        sum(row["metres"] for row in trips),
        quarters["metres"],
    ):
        assert abs(metres - other) < 0.5 + metres * 1e-5, (metres, other)
    moving = sum(row["moving_s"] for row in days)
    for other in (
        sum(row["moving_s"] for row in local),
        sum(row["seconds"] for row in trips),
        quarters["moving_s"],
    ):
        assert abs(moving - other) < 0.5, (moving, other)
    standing = sum(row["standing_s"] for row in days)
    for other in (sum(row["standing_s"] for row in local), sum(row["seconds"] for row in stops)):
        assert abs(standing - other) < 0.5, (standing, other)
    assert sum(row["trips"] for row in days) == len(trips)
    assert sum(row["stops"] for row in days) == len(stops)
    gaps = sum(row["untracked_m"] for row in episodes if row["kind"] == "gap")
    assert abs(sum(row["untracked_m"] for row in days) - gaps) < 0.5
    for episode, following in zip(episodes, episodes[1:]):
        assert episode["ended"] == following["began"], (episode, following)
    return {"metres": metres, "stops": stops, "trips": trips, "gap_m": gaps}


def test_figures_of_held_out_days_match_the_truth(db):
    """The fixes are 15 s apart, with errors of 5 to 8 m.

    Two devices are between tall buildings. Their positions also drift, by 15 or 25 m, with a time
    constant of two minutes.
    """
    car, feet, yards, east = town_car("held out"), walker(), depots(), town_car("held out")
    # For each driver: the true day, the fixes, and by how many milliseconds the fixes are later
    # than the true day.
    days = {
        "canyon car": (car, drifting(fixes_of("c", car, 15, 8, has_speed=False), 25, 120), 0),
        "canyon walker": (feet, drifting(fixes_of("w", feet, 15, 5, has_speed=False), 15, 120), 0),
        "midnight": (car, later(fixes_of("m", car, 15, 8), 18 * HOUR * 1000), 18 * HOUR * 1000),
        "depots": (yards, fixes_of("d", yards, 15, 5, has_speed=False), 0),
        "180": (
            east,
            wrap_longitudes(
                [{**fix, "lng": fix["lng"] + 180 - 13.4} for fix in fixes_of("x", east, 15, 8)]
            ),
            0,
        ),
        "ferry": (*reversed(ferry_asleep()), 0),
    }
    for driver, (_, fixes, _) in days.items():
        db.insert([{**fix, "driver": driver} for fix in fixes])
    db.refresh()
    for driver, (day, _, shift_ms) in days.items():
        found = figures(db, driver)
        labelled = Labelled(driver, 0, 0, [{"driver": driver}], day)
        spans = [
            (epoch_ms(row["began"]) - shift_ms, epoch_ms(row["ended"]) - shift_ms)
            for row in found["stops"]
        ]
        result = Score().add(labelled, spans, found["metres"], len(found["trips"]))
        assert result.f1 == 1 and abs(found["metres"] / day.metres - 1) < 0.02, (driver, result)
        # The route of the ship is unknown, so each of the two gaps is as long as a straight
        # crossing: 40 km.
        assert abs(found["gap_m"] - (80_000 if driver == "ferry" else 0)) < 200, (
            driver,
            found["gap_m"],
        )


def jam() -> Journey:
    """Stands for 20 s after every 25 m of a kilometre, between two drives of 5 km."""
    day = Journey("jam").stand(1200).drive(5000, 14, (500, 900), light=0)
    for _ in range(40):
        day.drive(25, 6, (25, 26), wobble=0.002, turn=0, light=0).stand(20)
    return day.drive(5000, 14, (500, 900), light=0).stand(1200)


def test_arcs_have_the_length_of_the_route_and_creeping_is_no_stop(db):
    ring = Journey("ring").stand(1200).circle(40_000, 2000, 33).stand(1200)
    track = Journey("track").stand(1200).circle(10_000, 150, 20).stand(1200)
    days = {
        **{f"ring {rate}": (ring, fixes_of("r", ring, rate, 3)) for rate in (5, 15, 30)},
        **{f"track {rate}": (track, fixes_of("t", track, rate, 3)) for rate in (1, 5)},
        **{f"jam {rate}": (jam(), fixes_of("j", jam(), rate, 4)) for rate in (5, 10, 15, 30)},
    }
    for driver, (_, fixes) in days.items():
        db.insert([{**fix, "driver": driver} for fix in fixes])
    db.refresh()
    for driver, (day, _) in days.items():
        found = figures(db, driver)
        assert len(found["stops"]) == 2 and len(found["trips"]) == 1, (driver, found["stops"])
        assert abs(found["metres"] / day.metres - 1) < 0.02, (driver, found["metres"], day.metres)


def test_impossible_leg_of_a_parked_vehicle_causes_no_trip(db):
    """A parked vehicle is suddenly 2.2 km away, where it is parked, too."""
    for every_s in (3, 10):
        for phase_s in (0, 4):
            seconds = range(phase_s, phase_s + 3600, every_s)
            fixes = [
                {
                    "driver": f"{every_s}/{phase_s}",
                    "ms": START_MS + second * 1000,
                    "seq": number + 1,
                    "lat": 52.5 if number < len(seconds) / 2 else 52.52,
                    "lng": 13.4,
                    "speed": 0.0,
                }
                for number, second in enumerate(seconds)
            ]
            db.insert(fixes)
    db.refresh()
    for driver in ("3/0", "3/4", "10/0", "10/4"):
        found = figures(db, driver)
        assert not found["trips"] and len(found["stops"]) == 2, (driver, found)


def test_hours_that_arrive_in_reverse_order_give_the_same_day(db):
    car = town_car("held out")
    fixes = later(fixes_of("late", car, 15, 8), 18 * HOUR * 1000)  # over midnight
    db.insert([{**fix, "driver": "in order"} for fix in fixes])
    size = len(fixes) // 4 + 1
    pieces = [fixes[at:at + size] for at in range(0, len(fixes), size)]
    for piece in reversed(pieces):
        db.insert([{**fix, "driver": "late"} for fix in reversed(piece)])
        db.refresh()
    assert figures(db, "late") == {
        key: [{**row, "driver_id": "late"} for row in value] if isinstance(value, list) else value
        for key, value in figures(db, "in order").items()
    }

"""Runs the weekly questions of docs/analysts.md, on days whose answers are known."""
from __future__ import annotations

import json

import pytest

from devices import epoch_ms
from test_queries import DOCUMENT, for_test_database

TZ = "Europe/Berlin"
# Length of a degree of longitude at 52.51 degrees north, in metres.
METRES_PER_DEGREE = 67_700
YARD = [[13.40, 52.50], [13.42, 52.50], [13.42, 52.52], [13.40, 52.52], [13.40, 52.50]]


def report(name: str) -> str:
    """Returns the query below this heading of docs/analysts.md."""
    text = DOCUMENT.read_text()
    return text[text.index(f"### {name}\n"):].split("```sql\n", 1)[1].split("```", 1)[0].rstrip()


def ask(db, name: str) -> list[dict]:
    sql = for_test_database(report(name)) + " FORMAT JSONEachRow"
    lines = db.ask(sql, output_format_json_quote_64bit_integers="0").splitlines()
    return [json.loads(line) for line in lines]


def fixes(begin: str, seconds: range, lat=52.51, lng=13.41, speed=0.0, driver="anna") -> list[dict]:
    """Returns a fix for each number in `seconds`: that many seconds after `begin`.

    lng and speed (m/s) are numbers, or functions of that number.
    """
    began = epoch_ms(begin, TZ)
    value_at = lambda value, second: value(second) if callable(value) else value
    return [
        {
            "driver": driver,
            "ms": began + second * 1000,
            "lat": lat,
            "lng": value_at(lng, second),
            "speed": value_at(speed, second),
        }
        for second in seconds
    ]


def lng_from(begin: float):
    """Returns the longitude of a driver who drives east at 15 m/s, as a function of the second.

    The driver has driven for `begin` seconds before second 0.
    """
    return lambda second: 13.41 + (second + begin) * 15 / METRES_PER_DEGREE


def test_time_in_a_zone_is_cut_at_local_midnight(db):
    polygons = str([[[tuple(point) for point in YARD]]])
    db.ask(
        f"INSERT INTO {{db}}.fences (name, valid_from, valid_until, polygons) VALUES ('yard', "
        f"'2026-01-01 00:00:00', '2027-01-01 00:00:00', {polygons})"
    )
    east = lambda second: 13.45
    db.insert(fixes("2026-06-01T22:00:00", range(0, 3600, 15), lng=east))
    db.insert(fixes("2026-06-01T23:00:00", range(0, 3 * 3600, 15)))
    db.insert(fixes("2026-06-02T02:00:15", range(0, 3600, 15), lng=east))
    db.refresh()
    found = {row["local_day"]: row["minutes"] for row in ask(db, "Time in a zone")}
    assert found == {
        "2026-06-01": pytest.approx(60, abs=1),
        "2026-06-02": pytest.approx(120, abs=1),
    }


def test_shift_lasts_from_the_first_trip_to_the_end_of_the_last(db):
    db.insert(fixes("2026-06-01T07:00:00", range(0, 3600, 15)))
    db.insert(fixes("2026-06-01T08:00:00", range(0, 1800, 15), lng=lng_from(0), speed=15.0))
    db.insert(fixes("2026-06-01T08:30:00", range(0, 3600, 15), lng=lng_from(1800)(0)))
    db.insert(fixes("2026-06-01T09:30:00", range(0, 900, 15), lng=lng_from(1800), speed=15.0))
    db.insert(fixes("2026-06-01T09:45:00", range(0, 3600, 15), lng=lng_from(2700)(0)))
    db.refresh()
    (row,) = ask(db, "Shifts")
    assert (row["local_day"], row["trips"]) == ("2026-06-01", 2)
    assert row["driving_min"] == pytest.approx(45, abs=3)
    assert row["shift_min"] == pytest.approx(105, abs=3)
    (month,) = ask(db, "Kilometres of a month")
    assert (
        month["month"] == "2026-06-01"
        and month["km"] == pytest.approx(40.5, abs=1)
        and month["days"] == 1
    )


def test_shift_over_midnight_is_one_shift(db):
    db.insert(fixes("2026-06-01T19:30:00", range(0, 1800, 15)))
    db.insert(fixes("2026-06-01T20:00:00", range(0, 1800, 15), lng=lng_from(0), speed=15.0))
    db.insert(fixes("2026-06-01T20:30:00", range(0, 5 * 3600, 60), lng=lng_from(1800)(0)))
    db.insert(fixes("2026-06-02T01:30:00", range(0, 1800, 15), lng=lng_from(1800), speed=15.0))
    db.insert(fixes("2026-06-02T02:00:00", range(0, 18 * 3600, 300), lng=lng_from(3600)(0)))
    db.insert(fixes("2026-06-02T20:00:00", range(0, 1800, 15), lng=lng_from(3600), speed=15.0))
    db.insert(fixes("2026-06-02T20:30:00", range(0, 3600, 15), lng=lng_from(5400)(0)))
    db.refresh()
    shifts = [(row["local_day"], row["trips"], row["shift_min"]) for row in ask(db, "Shifts")]
    assert shifts == [
        ("2026-06-01", 2, pytest.approx(360, abs=5)),
        ("2026-06-02", 1, pytest.approx(30, abs=5)),
    ]


def test_idling_counts_ignition_without_motion(db):
    db.insert(
        fixes("2026-06-01T10:00:00", range(0, 900, 15))
        + fixes(
            "2026-06-01T10:15:00",
            range(0, 600, 15),
            speed=10.0,
            lng=lambda second: 13.41 + second * 10 / METRES_PER_DEGREE,
        )
    )
    db.insert(fixes("2026-06-01T10:00:00", range(0, 1800, 15), driver="ben"))
    # The attribute as `keep` stores it.
    db.ask(
        "INSERT INTO {db}.positions "
        "(driver_id, ts, seq, lat_e7, lng_e7, speed_cms, received_at, attributes) "
        "SELECT driver_id, ts, seq + 1, lat_e7, lng_e7, speed_cms, received_at, "
        "map('ignition', 'true') FROM {db}.positions WHERE driver_id = 'anna'"
    )
    db.ask(
        "ALTER TABLE {db}.positions DELETE WHERE driver_id = 'anna' AND seq = 0 "
        "SETTINGS mutations_sync = 2"
    )
    assert ask(db, "Idling") == [{"driver_id": "anna", "local_day": "2026-06-01", "idling_min": 15}]


@pytest.mark.parametrize(
    "column", ["toUInt8(1)", "true", "materialize(CAST('on', 'Nullable(Enum8(\\'on\\' = 1))'))"]
)
def test_idling_counts_a_field_of_any_type(db, column):
    db.insert(fixes("2026-06-01T10:00:00", range(0, 900, 15)))
    sql = for_test_database(report("Idling")).replace("attributes['ignition']", column)
    assert db.ask(sql) == "anna\t2026-06-01\t15\n"


def test_harsh_braking_is_above_three_metres_per_second_squared(db):
    speeds = [20.0, 20.0, 12.0, 11.0, 5.0, 5.0]
    metres = [0, 40, 72, 95, 111, 121]
    began = epoch_ms("2026-06-01T10:00:00", TZ)
    db.insert(
        [
            {
                "driver": "anna",
                "ms": began + 2000 * n,
                "lat": 52.51,
                "lng": 13.41 + metres[n] / METRES_PER_DEGREE,
                "speed": speed,
            }
            for n, speed in enumerate(speeds)
        ]
    )
    assert [(row["from_kmh"], row["to_kmh"]) for row in ask(db, "Harsh braking")] == [(72, 43)]


def test_reports_of_a_day_leave_out_what_began_before_it(db):
    """Anna works from 21:00 on 31 May to 01:30, and then stands in the yard.

    Ben stands in the yard over midnight.
    """
    polygons = str([[[tuple(point) for point in YARD]]])
    db.ask(
        f"INSERT INTO {{db}}.fences (name, valid_from, valid_until, polygons) VALUES ('yard', "
        f"'2026-01-01 00:00:00', '2027-01-01 00:00:00', {polygons})"
    )
    db.insert(fixes("2026-05-31T12:00:00", range(0, 9 * 3600, 300)))
    db.insert(fixes("2026-05-31T21:00:00", range(0, 1800, 15), lng=lng_from(0), speed=15.0))
    db.insert(fixes("2026-05-31T21:30:00", range(0, 2 * 3600, 60), lng=lng_from(1800)(0)))
    db.insert(
        fixes(
            "2026-05-31T23:30:00",
            range(0, 7200, 15),
            lng=lambda second: lng_from(1800)(0) - second * 3.75 / METRES_PER_DEGREE,
            speed=3.75,
        )
    )
    db.insert(fixes("2026-06-01T01:30:00", range(0, 12 * 3600, 300)))
    db.insert(fixes("2026-05-31T20:00:00", range(0, 6 * 3600, 60), driver="ben"))
    db.refresh()
    assert ask(db, "Shifts") == []
    assert [(row["driver_id"], row["local_day"]) for row in ask(db, "Time in a zone")] == [
        ("anna", "2026-06-01"),
        ("ben", "2026-06-01"),
    ]
    assert ask(db, "Trips of a day") == []


def test_false_speed_of_a_parked_car_is_no_harsh_braking(db):
    db.insert(
        fixes(
            "2026-06-01T10:00:00",
            range(0, 600),
            speed=lambda second: 60.0 if second == 300 else 0.0,
        )
    )
    assert ask(db, "Harsh braking") == []

"""Tests the tables that operators edit with INSERT.

The newest row counts, even if it repeats an earlier row. Rows with senseless values are refused.
"""
import pytest

from conftest import Refused

FENCE = (
    "INSERT INTO {db}.fences (name, valid_from, polygons) VALUES ('depot', '2026-01-01 00:00:00', "
    "[[[(13.0, 52.0), (13.%s, 52.0), (13.1, 52.1)]]])"
)
RULE = "INSERT INTO {db}.trip_rules (preset) VALUES ('%s')"
NAME = (
    'INSERT INTO {db}.drivers (driver_id, name) FORMAT JSONEachRow\n{"driver_id":"d7","name":"%s"}'
)


@pytest.mark.parametrize(
    "statement, values, query",
    [
        (RULE, ("truck", "car"), "SELECT preset FROM {db}.trip_rules FINAL"),
        (NAME, ("Anna", "Anna B."), "SELECT name FROM {db}.drivers FINAL"),
        (
            FENCE,
            ("1", "2"),
            "SELECT substring(toString(tupleElement(polygons[1][1][2], 1)), 4) FROM {db}.fences "
            "FINAL",
        ),
    ],
)
def test_newest_value_wins_even_if_it_repeats_an_earlier_one(db, statement, values, query):
    first, second = values
    for value in (first, second, first, second, second, first):
        db.ask(statement % value)
        assert db.ask(query).strip() == value


@pytest.mark.parametrize(
    "limit",
    ["stop_s = 0", "stop_s = -1", "stop_s = nan", "speed_max = 0", "radius_m = inf", "trip_s = -5"],
)
def test_senseless_limit_is_refused(db, limit):
    column, value = limit.split(" = ")
    with pytest.raises(Refused, match="limits"):
        db.ask(
            f"INSERT INTO {{db}}.trip_rules (driver_id, preset, {column}) VALUES ('d7', 'car', "
            f"{value})"
        )
    db.ask("INSERT INTO {db}.trip_rules (driver_id, preset, stop_s) VALUES ('d7', 'car', 45)")

"""Tests that `fixes` and `last_positions` return correct rows before data parts are merged.

Also tests which conditions on `fixes` ClickHouse checks first (PREWHERE), and that the views have
comments for analysts.
"""
from __future__ import annotations

import json
import random

import pytest


START = 1_790_000_000_000
DRIVERS = 400
PARTS = 6


@pytest.fixture(scope="module")
def wanderers(shared_db):
    """Returns a database with several data parts that are not merged, and each driver's newest fix.

    Each part has a fix of every driver, at a random time and place.
    """
    shared_db.ask("SYSTEM STOP MERGES {db}.positions")
    shared_db.ask("SYSTEM STOP MERGES {db}.last_positions_state")
    chance, newest = random.Random(19), {}
    for _ in range(PARTS):
        fixes = []
        for number in range(DRIVERS):
            fix = {
                "driver": f"d{number}",
                "ms": START + chance.randrange(10**6),
                "seq": chance.randrange(9),
                "lat": round(chance.uniform(-90, 90), 5),
                "lng": round(chance.uniform(-180, 180), 5),
            }
            fixes.append(fix)
            newest[fix["driver"]] = max(
                newest.get(fix["driver"], fix), fix, key=lambda each: (each["ms"], each["seq"])
            )
        shared_db.insert(fixes)
    return shared_db, newest


def count_in_band(newest):
    return sum(10 <= fix["lat"] <= 40 for fix in newest.values())


def test_last_positions_shows_the_newest_fix_while_parts_are_not_merged(wanderers):
    db, newest = wanderers
    parts = db.ask(
        "SELECT count() FROM system.parts "
        "WHERE database = '{db}' AND table = 'last_positions_state' AND active"
    )
    assert int(parts) > 1
    found = {
        row["driver_id"]: (row["lat"], row["lng"])
        for row in db.rows("SELECT * FROM {db}.last_positions")
    }
    assert found == {driver: (fix["lat"], fix["lng"]) for driver, fix in newest.items()}
    box = "SELECT count() FROM {db}.last_positions WHERE lat BETWEEN 10 AND 40"
    for subcolumns in "01":
        for prewhere in "01":
            settings = {
                "optimize_functions_to_subcolumns": subcolumns,
                "optimize_move_to_prewhere_if_final": prewhere,
            }
            assert int(db.ask(box, **settings)) == count_in_band(newest), settings


def test_comment_of_last_positions_state_warns_of_wrong_queries(wanderers):
    """These queries give wrong results.

    If a later ClickHouse makes one of them correct, remove its warning from the table's comment and
    docs/analysts.md.
    """
    db, newest = wanderers
    for condition in ("FINAL PREWHERE lat BETWEEN 10 AND 40", "WHERE lat BETWEEN 10 AND 40"):
        wrong = int(db.ask(f"SELECT count() FROM {{db}}.last_positions_state {condition}"))
        assert wrong != count_in_band(newest), condition
    comment = db.ask(
        "SELECT comment FROM system.tables WHERE database = '{db}' AND name = "
        "'last_positions_state'"
    )
    assert all(word in comment for word in ("last_positions instead", "PREWHERE", "without FINAL"))


@pytest.fixture(scope="module")
def ties():
    """Returns rows of a few drivers, and the rank of each driver's newest row.

    Many rows of a driver have the same ts, seq or place, and some have all of them in common.
    """
    chance = random.Random(30)
    rows = [
        {
            "driver_id": f"d{chance.randrange(40)}",
            "ts": chance.choice([-5, 0, START, START + 1]) / 1000,
            "seq": chance.choice([0, 1, 2**32 - 1]),
            "lat_e7": chance.choice([-9 * 10**8, 0, 9 * 10**8]),
            "lng_e7": chance.choice([-18 * 10**8, -1, 18 * 10**8]),
            "received_at": (START + chance.randrange(3)) / 1000,
            "speed_cms": chance.choice([0, 65535]),
            "attributes": {"battery": str(chance.randrange(3))},
        }
        for _ in range(3000)
    ]

    def rank(row):
        return row["ts"], row["seq"], row["lat_e7"], row["lng_e7"], row["received_at"]

    newest = {}
    for row in rows:
        newest[row["driver_id"]] = max(newest.get(row["driver_id"], row), row, key=rank)
    return rows, {driver: rank(row) for driver, row in newest.items()}


@pytest.mark.parametrize("optimize_on_insert", ["0", "1"])
@pytest.mark.parametrize("is_merged", [False, True])
def test_order_of_inserts_does_not_change_last_positions(db, ties, optimize_on_insert, is_merged):
    """The rows are inserted in two random orders, and a third of them twice."""
    rows, newest = ties
    answers = []
    for seed in (1, 2):
        chance = random.Random(seed)
        for table in ("positions", "last_positions_state"):
            db.ask(f"TRUNCATE TABLE {{db}}.{table}")
        db.ask("SYSTEM STOP MERGES {db}.last_positions_state")
        shuffled = chance.sample(rows, len(rows)) + chance.sample(rows, len(rows) // 3)
        for part in range(8):
            lines = "\n".join(json.dumps(row) for row in shuffled[part::8])
            db.ask(
                f"INSERT INTO {{db}}.positions FORMAT JSONEachRow {lines}",
                optimize_on_insert=optimize_on_insert,
            )
        stored = int(db.ask("SELECT count() FROM {db}.last_positions_state"))
        stored_max = 8 * len(newest)
        assert stored <= stored_max, "the view must pass on at most one row per driver and insert"
        if is_merged:
            db.ask("SYSTEM START MERGES {db}.last_positions_state")
            db.ask("OPTIMIZE TABLE {db}.last_positions_state FINAL")
            assert int(db.ask("SELECT count() FROM {db}.last_positions_state")) == len(newest)
        answers.append(
            {
                row["driver_id"]: row
                for row in db.rows(
                    "SELECT driver_id, toUnixTimestamp64Milli(ts) / 1000 AS ts, seq, lat, lng, "
                    "speed, toUnixTimestamp64Milli(received_at) / 1000 AS received_at, "
                    "attributes FROM {db}.last_positions"
                )
            }
        )
    assert answers[0] == answers[1]
    found = {
        driver: (
            row["ts"],
            row["seq"],
            round(row["lat"] * 1e7),
            round(row["lng"] * 1e7),
            row["received_at"],
        )
        for driver, row in answers[0].items()
    }
    assert found == newest


def test_last_positions_has_the_attributes_of_the_newest_fix(db):
    insert = "INSERT INTO {db}.positions (driver_id, ts, attributes) VALUES "
    db.ask(insert + "('d', '2026-06-01 08:00:00', {'battery': '80', 'ignition': 'on'})")
    db.ask(insert + "('d', '2026-06-01 08:00:10', {'battery': '79'})")
    db.ask(insert + "('d', '2026-06-01 08:00:05', {'battery': '99', 'ignition': 'off'})")
    assert db.ask("SELECT attributes FROM {db}.last_positions") == "{'battery':'79'}\n"


def test_only_conditions_on_the_sorting_key_are_in_prewhere(wanderers):
    db, _ = wanderers
    plan = db.ask(
        "EXPLAIN actions = 1 SELECT count() FROM {db}.fixes "
        "WHERE lat BETWEEN 10 AND 11 AND speed > 3"
    )
    prewhere = [line for line in plan.splitlines() if "Prewhere filter column:" in line]
    assert len(prewhere) == 1 and "lat_e7" in prewhere[0] and "speed" not in prewhere[0], plan


def test_older_row_of_the_same_fix_is_never_returned(db):
    db.ask("SYSTEM STOP MERGES {db}.positions")
    fix = {"driver": "d1", "ms": START, "lat": 1, "lng": 2}
    db.insert([{**fix, "speed": 30}])
    db.insert([{**fix, "speed": 2}])
    assert db.ask("SELECT speed FROM {db}.fixes") == "2\n"
    assert db.ask("SELECT count() FROM {db}.fixes WHERE speed > 3") == "0\n"
    assert db.ask("SELECT count() FROM {db}.fixes WHERE lat = 1") == "1\n"


def test_duplicate_fix_of_one_insert_is_returned_once(db):
    db.ask("SYSTEM STOP MERGES {db}.positions")
    row = "('d', '2026-06-01 08:00:00', 10, {'battery': '%s'})"
    db.ask(
        "INSERT INTO {db}.positions (driver_id, ts, lat_e7, attributes) "
        f"VALUES {row % 1}, {row % 2}",
        optimize_on_insert="0",
    )
    assert db.ask("SELECT count() FROM {db}.positions") == "2\n", "the insert must keep both rows"
    assert db.ask("SELECT count(), any(attributes['battery']) FROM {db}.fixes") == "1\t2\n"
    assert db.ask("SELECT count() FROM {db}.last_positions") == "1\n"


@pytest.mark.parametrize(
    "view", ["fixes", "last_positions", "driver_quarters", "trips", "stops", "rollups"]
)
def test_view_and_its_columns_have_comments(shared_db, view):
    has_comment = (
        "SELECT comment != '' FROM system.tables "
        f"WHERE database = '{{db}}' AND name = '{view}'"
    )
    assert shared_db.ask(has_comment) == "1\n"
    uncommented = (
        "SELECT name FROM system.columns "
        f"WHERE database = '{{db}}' AND table = '{view}' AND comment = ''"
    )
    assert shared_db.ask(uncommented) == ""


def test_join_use_nulls_of_a_profile_changes_no_answer(day):
    """Analysts like to set it for all users, and then it applies to refreshes, too."""
    (roll_up,) = day.rows(
        "SELECT as_select AS sql FROM system.tables "
        "WHERE database = '{db}' AND name = 'driver_days_mv'"
    )
    day.ask(f"SELECT * FROM ({roll_up['sql']}) FORMAT Null", join_use_nulls="1")
    health = (
        "SELECT sum(dropped) FROM {db}_ask.health(driver = 'nobody,anna', from = '2026-05-30', "
        "to = '2026-06-02', tz = 'UTC')"
    )
    assert day.ask(health, join_use_nulls="1") == day.ask(health) == "0\n"

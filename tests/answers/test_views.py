"""`fixes` and `last_positions`: right while parts are not merged yet, fast, and with words for those who browse."""
from __future__ import annotations

import random

import pytest

START = 1_790_000_000_000
DRIVERS = 400
PARTS = 6


@pytest.fixture(scope="module")
def wanderers(shared_db):
    """Drivers who are somewhere else in each of several parts, the parts in no order of time. And each one's newest fix."""
    shared_db.ask("SYSTEM STOP MERGES {db}.positions")
    shared_db.ask("SYSTEM STOP MERGES {db}.last_positions_state")
    chance, newest = random.Random(19), {}
    for _ in range(PARTS):
        fixes = []
        for number in range(DRIVERS):
            fix = {"driver": f"d{number}", "ms": START + chance.randrange(10**6), "seq": chance.randrange(9),
                   "lat": round(chance.uniform(-90, 90), 5), "lng": round(chance.uniform(-180, 180), 5)}
            fixes.append(fix)
            newest[fix["driver"]] = max(newest.get(fix["driver"], fix), fix, key=lambda one: (one["ms"], one["seq"]))
        shared_db.insert(fixes)
    return shared_db, newest


def in_the_north(newest):
    return sum(10 <= fix["lat"] <= 40 for fix in newest.values())


def test_last_positions_shows_the_newest_of_each_while_parts_are_not_merged(wanderers):
    db, newest = wanderers
    assert int(db.ask("SELECT count() FROM system.parts WHERE database = '{db}' AND table = 'last_positions_state' AND active")) > 1
    found = {row["driver_id"]: (row["lat"], row["lng"]) for row in db.rows("SELECT * FROM {db}.last_positions")}
    assert found == {driver: (fix["lat"], fix["lng"]) for driver, fix in newest.items()}
    box = "SELECT count() FROM {db}.last_positions WHERE lat BETWEEN 10 AND 40"
    for subcolumns in "01":
        for prewhere in "01":
            settings = {"optimize_functions_to_subcolumns": subcolumns, "optimize_move_to_prewhere_if_final": prewhere}
            assert int(db.ask(box, **settings)) == in_the_north(newest), settings


def test_what_must_not_be_done_with_the_state_is_wrong_and_says_so(wanderers):
    """The day one of these becomes right, the comments of 013 and 014 and docs/analysts.md can lose a warning."""
    db, newest = wanderers
    for condition in (
        "FINAL WHERE last.lat_e7 BETWEEN 100000000 AND 400000000",
        "FINAL PREWHERE tupleElement(last, 'lat_e7') BETWEEN 100000000 AND 400000000",
        "WHERE tupleElement(last, 'lat_e7') BETWEEN 100000000 AND 400000000",
    ):
        wrong = int(db.ask(f"SELECT count() FROM {{db}}.last_positions_state {condition}"))
        assert wrong != in_the_north(newest), condition
    comment = db.ask("SELECT comment FROM system.tables WHERE database = '{db}' AND name = 'last_positions_state'")
    assert all(word in comment for word in ("last_positions instead", "last.lat_e7", "PREWHERE", "without FINAL"))


def test_a_condition_on_fixes_is_tested_early_only_where_that_is_right(wanderers):
    db, _ = wanderers
    plan = db.ask("EXPLAIN actions = 1 SELECT count() FROM {db}.fixes WHERE lat BETWEEN 10 AND 11 AND speed > 3")
    early = [line for line in plan.splitlines() if "Prewhere filter column:" in line]
    assert len(early) == 1 and "lat_e7" in early[0] and "speed" not in early[0], plan


def test_an_older_row_of_the_same_fix_does_not_come_back(db):
    db.ask("SYSTEM STOP MERGES {db}.positions")
    fix = {"driver": "d1", "ms": START, "lat": 1, "lng": 2}
    db.insert([{**fix, "speed": 30}])
    db.insert([{**fix, "speed": 2}])
    assert db.ask("SELECT speed FROM {db}.fixes") == "2\n"
    assert db.ask("SELECT count() FROM {db}.fixes WHERE speed > 3") == "0\n"
    assert db.ask("SELECT count() FROM {db}.fixes WHERE lat = 1") == "1\n"


@pytest.mark.parametrize("view", ["fixes", "last_positions", "driver_quarters", "trips", "stops", "cell_quarters", "rollups"])
def test_a_view_and_its_columns_say_what_they_are(shared_db, view):
    assert shared_db.ask(f"SELECT comment != '' FROM system.tables WHERE database = '{{db}}' AND name = '{view}'") == "1\n"
    silent = f"SELECT name FROM system.columns WHERE database = '{{db}}' AND table = '{view}' AND comment = ''"
    assert shared_db.ask(silent) == ""

"""The roll-ups: the same as truth.py says, whatever came when, and however often it was counted."""
from __future__ import annotations

import random

import pytest

import truth
from devices import Device, epoch_ms, fleet, lunch, square

COUNTED = ("fixes", "speed_count", "missing")
MEASURED = ("distance_m", "untracked_m", "moving_s", "tracked_s", "speed_sum")


def pending(db, name: str = "driver_quarters") -> int:
    return int(db.ask(f"SELECT pending FROM {{db}}.rollups WHERE name = '{name}'"))


def quarters_of(db) -> dict:
    rows = db.rows("SELECT *, toUnixTimestamp(quarter) AS epoch FROM {db}.driver_quarters")
    found = {(row["driver_id"], row["epoch"]): row for row in rows}
    assert len(found) == len(rows)
    return found


def same_quarters(found: dict, expected: dict) -> None:
    assert set(found) == set(expected) and expected
    for key, quarter in expected.items():
        row = found[key]
        assert [row[name] for name in COUNTED] == [quarter[name] for name in COUNTED], (key, row, quarter)
        for name in MEASURED:
            assert abs(row[name] - quarter[name]) <= 1e-4 * abs(quarter[name]) + 0.02, (key, name, row, quarter)
        assert (row["speed_max"] is None) == (quarter["speed_max"] is None)
        assert abs((row["speed_max"] or 0) - (quarter["speed_max"] or 0)) < 0.006, (key, row, quarter)


def statement_of(db, view: str = "driver_quarters", **instead: tuple[str, str]) -> str:
    """The view's own SELECT, with other constants."""
    sql = db.ask(f"SELECT as_select FROM system.tables WHERE database = '{{db}}' AND name = '{view}_mv' FORMAT TSVRaw")
    for old, new in instead.values():
        assert old in sql, (old, sql)
        sql = sql.replace(old, new)
    return f"INSERT INTO {{db}}.{view}_state " + sql


@pytest.fixture(scope="module")
def everybody(shared_db):
    """The fleet, each fix inserted twice or more, in parts that overlap, in no order; counted once."""
    shared_db.ask("SYSTEM STOP MERGES {db}.driver_quarters_state")
    fixes = [fix for device in fleet() for fix in device.fixes]
    chance = random.Random(1)
    for part in range(3):
        some = [fix for fix in fixes if part == 0 or chance.random() < 0.6]
        chance.shuffle(some)
        shared_db.insert(some)
    assert pending(shared_db) > 0
    shared_db.refresh()
    return shared_db, fixes


def test_quarters_are_what_was_driven(everybody):
    db, fixes = everybody
    expected = truth.quarters(fixes)
    same_quarters(quarters_of(db), expected)
    assert pending(db) == 0
    for name in (*COUNTED, *MEASURED):
        assert sum(quarter[name] for quarter in expected.values()) > 0, name


def test_a_refresh_is_one_part_and_counted_again_it_is_the_same(everybody):
    """So that it is there whole, or not at all: rows of several months, and of more than one block."""
    db, fixes = everybody
    def parts():
        return int(db.ask("SELECT count() FROM system.parts WHERE database = '{db}' AND table = 'driver_quarters_state' AND active"))
    before = parts()
    many = [{"driver": f"m{number}", "ms": epoch_ms("2026-06-01T08:00:00"), "lat": 48, "lng": 11} for number in range(70_000)]
    db.insert(many)
    db.refresh()
    assert parts() == before + 1
    same_quarters(quarters_of(db), truth.quarters(fixes + many))


def test_quarters_add_up_to_days(everybody):
    """Of every zone; but for the metres from a stop's middle to its last three minutes."""
    db, _ = everybody
    for tz in ("Europe/Berlin", "Asia/Kolkata", "America/New_York"):
        days = db.rows(f"SELECT * FROM {{db}}_ask.days(driver = '', from = '2026-01-01', to = '2027-01-01', tz = '{tz}')")
        sums = {(row["driver_id"], row["day"]): row for row in db.rows(
            f"SELECT driver_id, toDate(quarter, '{tz}') AS day, sum(fixes) AS fixes, sum(distance_m) AS metres, sum(moving_s) AS moving_s, "
            "sum(tracked_s) - moving_s AS standing_s FROM {db}.driver_quarters GROUP BY driver_id, day")}
        for day in days:
            row = sums[day["driver_id"], day["day"]]
            assert row["fixes"] == day["fixes"]
            for name in ("moving_s", "standing_s"):
                assert abs(row[name] - day[name]) < 0.1, (tz, day, row)
            if not day["driver_id"].startswith("wild"):  # their stops wander
                assert abs(row["metres"] - day["metres"]) <= 25 * day["stops"] + 0.1, (tz, day, row)


@pytest.mark.parametrize("seed", range(4))
def test_pieces_in_any_order_become_the_same(db, seed):
    """Late, twice, a day late, and counted in between: always what truth says of that which is there. Without the ten minutes of
    overlap, in which all of this happens: they would count again what another fix does not touch."""
    db.ask("SYSTEM WAIT VIEW {db}.driver_quarters_mv")
    count = statement_of(db, overlap=("inserted_at > (done_until - toIntervalMinute(10))", "inserted_at > (done_until - toIntervalMillisecond(10))"))
    chance = random.Random(seed)
    slow = Device("slow", "2026-06-01T03:00:00", 48, 11, every=1500).drive(40, 3, 9000).silent(4000).drive(40, 3, 3000).silent(8000)
    slow.drive(10, 1, 6000).silent(12_000).drive(10, 2, 4500)
    fixes = lunch().fixes + square().fixes + slow.fixes
    fixes += [{**fix, "driver": "later", "ms": fix["ms"] + 86_400_000} for fix in fixes if fix["driver"] == "lunch"]
    pieces = [fixes[start:start + 61] for start in range(0, len(fixes), 61)]
    pieces += chance.sample(pieces, 5)
    pieces += [[fix] for fix in chance.sample(slow.fixes, 9)]
    chance.shuffle(pieces)
    there = []
    for piece in pieces:
        db.insert(piece)
        there += piece
        if chance.random() < 0.2:
            db.ask(count)
            same_quarters(quarters_of(db), truth.quarters(there))
    db.ask(count)
    same_quarters(quarters_of(db), truth.quarters(fixes))


def test_what_is_committed_after_its_time_is_found(db):
    """inserted_at is when an insert begins; a refresh may come before it ends."""
    db.insert(square().fixes)
    db.refresh()
    late = [{**fix, "driver": "late"} for fix in square().fixes]
    lines = ", ".join(f"('late', {fix['ms']} / 1000, {fix['seq']}, {round(fix['lat'] * 1e7)}, {round(fix['lng'] * 1e7)}, {round(fix['speed'] * 100)}, "
                      f"0, 0, 0, now(), now64(3) - INTERVAL 5 MINUTE)" for fix in late)
    db.ask("INSERT INTO {db}.positions (driver_id, ts, seq, lat_e7, lng_e7, speed_cms, heading_cdeg, alt_dm, acc_dm, received_at, inserted_at) "
           f"VALUES {lines}")
    db.refresh()
    same_quarters(quarters_of(db), truth.quarters(square().fixes + late))


def test_a_backlog_is_worked_off_in_pieces(db):
    """The view's own statement, with 500 fixes at once for 20 million."""
    db.refresh()
    fixes = lunch().fixes + square().fixes
    chance = random.Random(2)
    chance.shuffle(fixes)
    for start in range(0, len(fixes), 100):
        db.insert(fixes[start:start + 100])
    count = statement_of(db, at_once=("20000000", "500"))
    backlog = [pending(db)]
    while backlog[-1] > 0:
        db.ask(count)
        backlog.append(pending(db))
        assert backlog[-1] < backlog[-2]
    assert len(backlog) > 3
    same_quarters(quarters_of(db), truth.quarters(fixes))


def test_it_runs_by_itself(db):
    """Every hour; it has run once when the table is made."""
    when = "SELECT toUnixTimestamp(next_refresh_time) - toUnixTimestamp(now()), exception FROM system.view_refreshes WHERE database = '{db}' AND view = 'driver_quarters_mv'"
    db.ask("SYSTEM WAIT VIEW {db}.driver_quarters_mv")
    seconds, exception = db.ask(when).rstrip("\n").split("\t")
    assert 0 <= int(seconds) <= 3600 and exception == ""

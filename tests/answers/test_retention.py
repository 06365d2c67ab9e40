"""Tests that days whose fixes expire keep their figures while `rollups_days` keeps the roll-up."""
from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from conftest import migrated
from devices import Device

POSITIONS_DAYS = 400


@pytest.mark.parametrize("is_prolonged", [False, True])
def test_new_rules_do_not_apply_to_days_whose_fixes_expire(engine, monkeypatch, is_prolonged):
    """The first half of each day is deleted, as the TTL of positions does to the oldest day.

    is_prolonged: positions_days is raised before the rules change.
    """
    monkeypatch.setenv("MILEPOST__CLICKHOUSE__RETENTION__ROLLUPS_DAYS", "1000")
    db = migrated(engine)
    db.ask("SYSTEM STOP MERGES {db}.touched")  # the oldest day has expired there
    today = datetime.now(UTC).date()
    days = {days_ago: today - timedelta(days_ago) for days_ago in (POSITIONS_DAYS - 1, 300)}
    for day in days.values():
        drive = Device("anna", f"{day}T08:00:00", 48, 11, every=10).drive(90, 10, 7200)
        db.insert(drive.fixes, inserted_at=int(time.time()) - 3600)
    db.refresh()

    def kilometres():
        rows = db.rows(
            "SELECT day, round(sum(distance_m) / 1000) AS km FROM {db}.driver_quarters GROUP BY day"
        )
        return {row["day"]: row["km"] for row in rows}

    expiring, kept = map(str, days.values())
    assert kilometres() == {expiring: 72, kept: 72}
    db.ask("ALTER TABLE {db}.positions DELETE WHERE toHour(ts) < 9 SETTINGS mutations_sync = 2")
    db.ask("SYSTEM START MERGES {db}.touched")
    if is_prolonged:
        db.ask("OPTIMIZE TABLE {db}.touched FINAL")
        db.ask("ALTER TABLE {db}.positions MODIFY TTL toDateTime(ts) + toIntervalDay(1000)")
    db.ask("INSERT INTO {db}.trip_rules (preset) VALUES ('truck')")
    db.refresh()
    assert kilometres() == {expiring: 72, kept: 36}


def test_day_whose_counts_expire_is_not_computed_again(db):
    """The rows of a day in `touched` may expire one after the other, because parts merge alone."""
    day = datetime.now(UTC).date() - timedelta(100)
    drive = Device("anna", f"{day}T08:00:00", 48, 11, every=10).drive(90, 10, 7200)
    db.insert(drive.fixes, inserted_at=int(time.time()) - 3600)
    db.refresh()
    computed = db.ask("SELECT max(computed_at) FROM {db}.driver_days_state")
    db.ask(
        "ALTER TABLE {db}.touched UPDATE rows = rows - 1 WHERE driver_id = 'anna'",
        mutations_sync="2",
    )
    assert db.ask("SELECT pending, behind_s FROM {db}.rollups") == "0\t0\n"
    db.refresh()
    assert db.ask("SELECT max(computed_at) FROM {db}.driver_days_state") == computed

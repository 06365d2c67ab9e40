"""Tests that `touched` counts the rows of each driver and day from data parts of positions."""
from __future__ import annotations

import pytest

from conftest import Database, migrated, running_engine
from devices import epoch_ms

NOON = epoch_ms("2026-06-01T12:00:00")
DAY_MS = 86_400_000


def fixes(driver: str, first: int, count: int = 10, day: int = 0) -> list[dict]:
    """Returns `count` fixes, numbered from `first`, on the day `day` days after 1 June 2026."""
    return [
        {"driver": driver, "ms": NOON + day * DAY_MS + n * 1000, "seq": n, "lat": 48, "lng": 11}
        for n in range(first, first + count)
    ]


def count_rows(db: Database) -> dict[str, int]:
    """Counts the new data parts, and returns the number of counted rows by driver."""
    db.count_parts()
    found = db.rows(
        "SELECT driver_id, sum(rows) AS rows FROM {db}.touched "
        "WHERE day < '2049-01-01' GROUP BY driver_id"
    )
    return {row["driver_id"]: row["rows"] for row in found}


def test_each_row_counts_once_despite_merges_and_mutations(db):
    for first in (0, 10, 20):
        db.insert(fixes("a", first))
        # Fixes of an earlier month are in another partition. The inserts alternate, so the block
        # numbers of the two partitions alternate, too.
        db.insert(fixes("b", first, day=-40))
    assert count_rows(db) == {"a": 30, "b": 30}
    assert count_rows(db) == {"a": 30, "b": 30}, "a second count must add nothing"
    db.ask("OPTIMIZE TABLE {db}.positions FINAL")
    assert count_rows(db) == {"a": 30, "b": 30}, "a merge must add nothing"
    db.ask("ALTER TABLE {db}.positions DELETE WHERE seq = 3", mutations_sync="2")
    assert count_rows(db) == {"a": 30, "b": 30}, "a mutation must add nothing"
    db.ask("OPTIMIZE TABLE {db}.positions FINAL")
    assert count_rows(db) == {"a": 30, "b": 30}, "a merge of one part must add nothing"


def test_rows_merged_before_counting_are_counted(db):
    db.insert(fixes("a", 0))
    assert count_rows(db) == {"a": 10}
    for first in (0, 10, 20):
        db.insert(fixes("c", first))
    db.ask("OPTIMIZE TABLE {db}.positions FINAL")
    found = count_rows(db)
    assert (
        found["c"] == 30 and found["a"] >= 10
    ), "all new rows must count, and old rows of a mixed part may count again"
    assert count_rows(db) == found


def test_fix_that_is_sent_again_with_another_speed_counts(db):
    db.insert(fixes("a", 0))
    assert count_rows(db) == {"a": 10}
    db.insert([{**fixes("a", 0)[0], "speed": 40, "received": NOON + 99}])
    assert count_rows(db) == {"a": 11}


def test_rows_inserted_after_a_truncate_are_counted(db):
    for first in (0, 10):
        db.insert(fixes("a", first))
    assert count_rows(db) == {"a": 20}
    db.ask("TRUNCATE TABLE {db}.positions")
    db.insert(fixes("b", 0))
    assert count_rows(db)["b"] == 10


def test_rows_with_reused_block_numbers_are_counted(tmp_path):
    """A restarted server continues after the highest block number of the existing data parts.

    If there are no data parts, the server uses the old numbers again.
    """
    with running_engine(tmp_path) as (url, _):
        db = migrated(url)
        for first in (0, 10):
            db.insert(fixes("a", first))
        assert count_rows(db) == {"a": 20}
        db.ask("SYSTEM STOP VIEW {db}.touched_mv")
        db.ask("TRUNCATE TABLE {db}.positions SYNC")
    with running_engine(tmp_path) as (url, _):
        db = Database(url, db.name)
        db.insert(fixes("b", 0))
        assert count_rows(db) == {"a": 20, "b": 10}


@pytest.mark.parametrize("counted_before", [True, False])
def test_counts_of_the_former_view_are_kept(db, counted_before):
    """The former view of sql/101 left counts in `touched`, but no record of the counted parts.

    It has counted the parts that are older than the view of sql/304. So these must not count again.
    """
    db.insert(fixes("a", 0))
    assert count_rows(db) == {"a": 10}
    # Move the time of the view's creation by an hour, so that the part is older than the view (it
    # was counted before) or newer.
    age = "- INTERVAL 1 HOUR" if not counted_before else "+ INTERVAL 1 HOUR"
    sql = db.ask(
        "SELECT as_select FROM system.tables WHERE database = '{db}' AND name = 'touched_mv' "
        "FORMAT TSVRaw"
    )
    db.ask("ALTER TABLE {db}.touched DELETE WHERE day = '2049-01-01'", mutations_sync="2")
    assert "metadata_modification_time" in sql
    db.ask(
        "INSERT INTO {db}.touched (day, driver_id, rows, touched_at, speed_max, seen) "
        + sql.replace(
            "SELECT metadata_modification_time", f"SELECT metadata_modification_time {age}", 1
        )
    )
    assert count_rows(db) == {"a": 10 if counted_before else 20}
    db.insert(fixes("a", 10))
    assert count_rows(db) == {"a": 20 if counted_before else 30}


def test_rollups_shows_that_counting_stopped(db):
    db.insert(fixes("a", 0))
    db.refresh()
    assert db.ask("SELECT pending, behind_s FROM {db}.rollups") == "0\t0\n"
    db.ask(
        "ALTER TABLE {db}.touched UPDATE touched_at = touched_at - INTERVAL 1 HOUR "
        "WHERE day = '2049-01-01'",
        mutations_sync="2",
    )
    assert db.ask("SELECT pending, behind_s BETWEEN 3600 AND 3900 FROM {db}.rollups") == "0\t1\n"

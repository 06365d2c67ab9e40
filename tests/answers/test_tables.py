"""`trips`, `stops` and `cell_quarters`: the same as truth.py says, whatever came when, and however often it was counted."""
from __future__ import annotations

import random

import pytest

import truth
from conftest import Refused
from devices import Device, epoch_ms, fleet, lunch, square, wild
from test_rollups import pending, statement_of


def found_in(db) -> dict:
    rows = db.rows(
        "SELECT 'trip' AS kind, driver_id, began, ended, seconds, metres, fixes, lat, lng, to_lat, to_lng, speed_max, "
        "toUnixTimestamp64Milli(began) AS since, toUnixTimestamp64Milli(ended) AS until FROM {db}.trips UNION ALL "
        "SELECT 'stop', driver_id, began, ended, seconds, 0, fixes, lat, lng, lat, lng, NULL, "
        "toUnixTimestamp64Milli(began), toUnixTimestamp64Milli(ended) FROM {db}.stops")
    found = {(row["driver_id"], row["kind"], row["since"]): row for row in rows}
    assert len(found) == len(rows)
    return found


def same_episodes(found: dict, expected: dict) -> None:
    assert set(found) == set(expected) and expected
    for key, episode in expected.items():
        row = found[key]
        assert (row["until"], row["fixes"]) == (episode["ended"], episode["fixes"]), (key, row, episode)
        assert row["seconds"] == (episode["ended"] - key[2]) / 1000
        assert abs(row["metres"] - episode["metres"]) <= 1e-4 * episode["metres"] + 0.02, (key, row, episode)
        for place, lat, lng in (("place", "lat", "lng"), ("to_place", "to_lat", "to_lng")):
            assert truth.metres(row[lat], row[lng], *episode[place]) < 0.1, (key, row, episode)
        if key[1] == "trip":
            assert (row["speed_max"] is None) == (episode["speed_max"] is None)
            assert abs((row["speed_max"] or 0) - (episode["speed_max"] or 0)) < 0.006, (key, row, episode)


def long_ways() -> list[dict]:
    """Trips and stops of many hours, over many edges of three hours."""
    weekend = Device("weekend", "2026-06-05T15:00:00", 52.5, 13.4, every=120).drive(90, 15, 7200).stand(140_000).drive(270, 15, 7200)
    train = Device("train", "2026-06-01T00:10:00", 48, 2, every=300).drive(60, 40, 40_000).stand(3000).drive(60, 40, 60_000)
    return weekend.fixes + train.fixes


def pentagon() -> list[dict]:
    """Across one of the cells of H3 that have five sides, in the Arabian Sea."""
    return Device("pentagon", "2026-06-01T08:00:00", 10.44, 58.155).drive(20, 5, 900).fixes


@pytest.fixture(scope="module")
def everybody(shared_db):
    """The fleet, each fix inserted twice or more, in parts that overlap, in no order; counted once."""
    fixes = [fix for device in fleet() for fix in device.fixes] + long_ways() + pentagon()
    chance = random.Random(1)
    for part in range(3):
        some = [fix for fix in fixes if part == 0 or chance.random() < 0.6]
        chance.shuffle(some)
        shared_db.insert(some)
    assert pending(shared_db, "trips and stops") > 0
    shared_db.refresh()
    return shared_db, fixes


def test_trips_and_stops_are_what_was_driven(everybody):
    db, fixes = everybody
    expected = truth.whole_episodes(fixes)
    assert len(expected) > 100 and {key[1] for key in expected} == {"trip", "stop"}
    assert max(episode["ended"] - key[2] for key, episode in expected.items()) > 24 * 3_600_000
    same_episodes(found_in(db), expected)
    assert pending(db, "trips and stops") == 0


def test_they_are_those_of_the_view_episodes(everybody):
    """But for the metres to the middle of a stop, which is that of three minutes here; and for what is longer than its twelve hours more."""
    db, _ = everybody
    rows = db.rows("SELECT driver_id, kind, toUnixTimestamp64Milli(began) AS since, toUnixTimestamp64Milli(ended) AS until, fixes "
                   "FROM {db}_ask.episodes(driver = '', from = '2026-01-01', to = '2027-01-01', tz = 'UTC') WHERE kind != 'gap'")
    found = {key: (row["until"], row["fixes"]) for key, row in found_in(db).items()}
    assert found == {(row["driver_id"], row["kind"], row["since"]): (row["until"], row["fixes"]) for row in rows}


def counting(db, **more):
    """A refresh of both by the views' own statements, without the ten minutes of overlap, in which all of a test happens: they would
    count again what nothing touched."""
    for view in ("driver_blocks_mv", "episodes_mv"):
        db.ask(f"SYSTEM WAIT VIEW {{db}}.{view}")
    blocks = statement_of(db, "driver_blocks", overlap=("inserted_at > (done_until - toIntervalMinute(10))", "inserted_at > (done_until - toIntervalMillisecond(10))"),
                          **more.get("blocks", {}))
    episodes = statement_of(db, "episodes", overlap=("inserted_until > (done_until - toIntervalMinute(10))", "inserted_until > done_until"),
                            **more.get("episodes", {}))

    def count():
        db.ask(blocks)
        db.ask(episodes)
    return count


@pytest.mark.parametrize("seed", range(2))
def test_pieces_in_any_order_become_the_same(db, seed):
    """Late, twice, days late, and counted in between: what is there by then is what truth says of it. A late piece rejoins a trip that was
    split, splits a stop, moves the beginning of something that lasts for days; what vanished is gone."""
    count, chance = counting(db), random.Random(seed)
    fixes = long_ways() + wild(seed).fixes
    out_again = Device("weekend", "2026-06-06T08:00:00", 52.9, 13.4, every=60).drive(0, 9, 1200)
    fixes += [{**fix, "seq": fix["seq"] + 10_000, "ms": fix["ms"] + 30_000} for fix in out_again.fixes]
    pieces = []
    at = 0
    while at < len(fixes):
        size = chance.choice((1, 7, 30, 80, 200))
        pieces.append(fixes[at:at + size])
        at += size
    pieces += chance.sample(pieces, 5)
    chance.shuffle(pieces)
    there, seen, was_there = [], set(), set()
    for number, piece in enumerate(pieces):
        db.insert(piece)
        there += piece
        if number % 8 == 7 or number + 1 == len(pieces):
            count()
            expected = truth.whole_episodes(there)
            seen |= was_there - set(expected)
            was_there = set(expected)
            same_episodes(found_in(db), expected)
    assert seen, "nothing vanished: nothing is proven"
    same_episodes(found_in(db), truth.whole_episodes(fixes))


def test_a_row_of_pieces_depends_on_the_fixes_alone(db):
    """Not on what was touched when: all at once gives the same rows as the pieces, and so do the glued ones."""
    rows = "SELECT * EXCEPT (computed_at, inserted_until) FROM {db}.%s FINAL ORDER BY ALL"
    fixes, count = long_ways(), counting(db)
    for start in range(0, len(fixes), 300):
        db.insert(fixes[start:start + 300])
        count()
    in_pieces = [db.ask(rows % table) for table in ("driver_blocks_state", "episodes_state")]
    for table in ("driver_blocks_state", "episodes_state"):
        db.ask(f"TRUNCATE TABLE {{db}}.{table}")
    count()
    assert [db.ask(rows % table) for table in ("driver_blocks_state", "episodes_state")] == in_pieces
    assert db.ask("SELECT countIf(is_through) > 10 FROM {db}.driver_blocks_state FINAL") == "1\n"


def test_what_is_committed_after_its_time_is_found(db):
    """inserted_at is when an insert begins; a refresh may come before it ends."""
    db.insert(square().fixes)
    db.refresh("driver_blocks_mv", "episodes_mv")
    late = [{**fix, "driver": "late"} for fix in square().fixes]
    lines = ", ".join(f"('late', {fix['ms']} / 1000, {fix['seq']}, {round(fix['lat'] * 1e7)}, {round(fix['lng'] * 1e7)}, {round(fix['speed'] * 100)}, "
                      f"0, 0, 0, now(), now64(3) - INTERVAL 5 MINUTE)" for fix in late)
    db.ask("INSERT INTO {db}.positions (driver_id, ts, seq, lat_e7, lng_e7, speed_cms, heading_cdeg, alt_dm, acc_dm, received_at, inserted_at) "
           f"VALUES {lines}")
    db.refresh("driver_blocks_mv", "episodes_mv")
    same_episodes(found_in(db), truth.whole_episodes(square().fixes + late))


def test_a_backlog_is_worked_off_in_pieces(db):
    """The views' own statements, with 900 fixes at once for 20 million, and 40 blocks for 5 million."""
    count = counting(db, blocks={"at_once": ("20000000", "900")}, episodes={"at_once": ("5000000", "40")})
    fixes, chance = lunch().fixes + long_ways(), random.Random(2)
    chance.shuffle(fixes)
    for start in range(0, len(fixes), 300):
        db.insert(fixes[start:start + 300])
    backlog = [pending(db, "trips and stops")]
    while backlog[-1] > 0:
        count()
        backlog.append(pending(db, "trips and stops"))
        assert backlog[-1] < backlog[-2]
    assert len(backlog) > 3
    same_episodes(found_in(db), truth.whole_episodes(fixes))


def test_a_range_of_time_and_a_driver_are_found_by_the_index(everybody):
    """As a BI tool asks: by conditions on the columns."""
    db, _ = everybody
    for table, time in (("trips", "began"), ("stops", "began"), ("cell_quarters", "quarter")):
        plan = db.ask(f"EXPLAIN indexes = 1 SELECT * FROM {{db}}.{table} WHERE {time} >= '2026-06-05' AND {time} < '2026-06-06' "
                      f"AND {'cell = 1' if table == 'cell_quarters' else 'driver_id = 1::String'} FORMAT TSVRaw")
        (condition,) = [line for line in plan.splitlines() if "Condition:" in line]
        assert f"toDate({time}) in" in condition and ("cell in" if table == "cell_quarters" else "driver_id") in condition, plan


def test_it_runs_by_itself_and_in_this_order(db):
    for view in ("driver_quarters", "driver_blocks", "episodes", "cell_quarters"):
        db.ask(f"SYSTEM WAIT VIEW {{db}}.{view}_mv")
    rows = db.rows("SELECT view, exception, toUnixTimestamp(next_refresh_time) - toUnixTimestamp(now()) AS seconds FROM system.view_refreshes "
                   "WHERE database = '{db}'")
    assert {row["view"] for row in rows} == {"driver_quarters_mv", "driver_blocks_mv", "episodes_mv", "cell_quarters_mv"}
    assert all(row["exception"] == "" and 0 <= row["seconds"] <= 3600 for row in rows), rows
    assert "DEPENDS ON {db}.driver_blocks_mv".replace("{db}", db.name) in db.ask("SHOW CREATE TABLE {db}.episodes_mv FORMAT TSVRaw")


def cells_of(db) -> dict:
    rows = db.rows("SELECT *, toUnixTimestamp(quarter) AS epoch FROM {db}.cell_quarters")
    found = {(row["driver_id"], row["epoch"], row["cell"]): row for row in rows}
    assert len(found) == len(rows)
    return found


def same_cells(db, fixes) -> None:
    """Each fix is in one cell, near its middle; each driver's quarters hold as many as truth says."""
    counts: dict[tuple, int] = {}
    for (driver, epoch, _), row in cells_of(db).items():
        counts[driver, epoch] = counts.get((driver, epoch), 0) + row["fixes"]
    expected = {key: quarter["fixes"] for key, quarter in truth.quarters(fixes).items() if quarter["fixes"]}
    assert counts == expected


def test_cells_hold_who_was_there(everybody):
    db, fixes = everybody
    same_cells(db, fixes)
    assert pending(db, "cell_quarters") == 0
    places: dict[tuple, list] = {}
    for (driver, epoch, _), row in cells_of(db).items():
        places.setdefault((driver, epoch), []).append((row["cell_lat"], row["cell_lng"], row["fixes"]))
    for driver, track in truth.by_driver(fixes).items():
        for fix in track[::7]:
            there = places[driver, fix["ms"] // 900_000 * 900]
            assert min(truth.metres(fix["lat"], fix["lng"], lat, lng) for lat, lng, _ in there) < 700, fix


def test_cells_are_counted_again_however_late(db):
    db.ask("SYSTEM WAIT VIEW {db}.cell_quarters_mv")
    count = statement_of(db, "cell_quarters", overlap=("inserted_at > (done_until - toIntervalMinute(10))", "inserted_at > (done_until - toIntervalMillisecond(10))"),
                         at_once=("20000000", "300"))
    fixes, chance = lunch().fixes + square().fixes, random.Random(3)
    pieces = [fixes[start:start + 97] for start in range(0, len(fixes), 97)]
    pieces += pieces[:4]
    chance.shuffle(pieces)
    for piece in pieces:
        db.insert(piece)
        if chance.random() < 0.3:
            db.ask(count)
    while pending(db, "cell_quarters") > 0:
        db.ask(count)
    same_cells(db, fixes)


def near(db, view: str, lat: float, lng: float, metres: float, **window) -> tuple[list[dict], int]:
    values = ", ".join(f"{name} = {value!r}" for name, value in {"lat": lat, "lng": lng, "metres": metres, "driver": "", **window}.items())
    text, summary = db.answer(f"SELECT * FROM {{db}}_ask.{view}({values}) ORDER BY driver_id FORMAT JSONEachRow")
    return text, int(summary["read_rows"])


def test_who_was_near_by_cells_is_who_was_near(everybody):
    """Everywhere: at the pole, across 180 degrees, in the cells with five sides."""
    db, fixes = everybody
    chance, found = random.Random(7), 0
    whole = {"from": "2026-01-01", "to": "2027-01-01", "tz": "UTC"}
    for number in range(32):
        driver = ("pole", "dateline", "pentagon", "")[number % 4]
        fix = chance.choice([one for one in fixes if one["driver"] == driver] or fixes)
        place = truth.ahead(fix["lat"], fix["lng"], chance.uniform(0, 360), chance.uniform(0, 900))
        metres = chance.choice([20.0, 200.0, 299.0, 301.0, 1000.0, 5000.0])
        since = fix["ms"] - chance.randrange(900_000)
        window = {"from": str(since), "to": str(since + 1_800_000), "tz": "UTC"} if chance.random() < 0.3 else whole
        expected = near(db, "near", *place, metres, **window)[0]
        assert near(db, "was_near", *place, metres, **window)[0] == expected, (place, metres, window)
        found += expected != b""
    assert found > 12
    with pytest.raises(Refused, match="50 km"):
        near(db, "was_near", 1.0, 1.0, 51_000.0, **whole)


def test_who_was_near_by_cells_reads_little(db):
    """60 drivers about a town: the fixes of few of them are looked at."""
    chance, fixes = random.Random(8), []
    for number in range(60):
        lat, lng = 52.5 + chance.uniform(-0.3, 0.3), 13.4 + chance.uniform(-0.5, 0.5)
        fixes += [{"driver": f"d{number:03}", "ms": epoch_ms("2026-06-01T08:00:00") + step * 10_000, "lat": lat + step * 1e-6, "lng": lng}
                  for step in range(700)]
    db.insert(fixes)
    db.refresh("cell_quarters_mv")
    window = {"from": "2026-06-01 09:00", "to": "2026-06-01 10:00", "tz": "UTC"}
    (answer, rows), (expected, all_rows) = (near(db, view, fixes[0]["lat"], fixes[0]["lng"], 200.0, **window) for view in ("was_near", "near"))
    assert answer == expected != b"" and rows < all_rows / 2, (rows, all_rows)

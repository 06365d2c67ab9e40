"""What analysts' questions cost: milepost's tables and views beside the obvious schema, in one engine, on the same fixes.

    make bench-sql          (BENCH_DRIVERS=1000 BENCH_DAYS=20 BENCH_LAST=1000000 BENCH_RUNS=3)

The obvious schema: one ReplacingMergeTree of plain columns, asked with FINAL, a month a partition. Each driver sends a fix every 20 s
for 2 hours and 46 minutes a day, 500 a day; 5 % of the fixes come twice. "live": every day is a part or two, as if nothing had been
merged; "merged": one part a month. Then BENCH_LAST drivers' last positions, in eight parts. Each question runs BENCH_RUNS times in
a row; the least time and the least CPU count (files are in the page cache). CPU is the engine's, user and system, in ticks of 10 ms;
ratios are of CPU, because others use the machine, too. "before": the views as they were before migrations 012 and 013. Prints Markdown.
"""
from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/answers"))
from conftest import Database, migrated, running_engine  # noqa: E402

DRIVERS, DAYS, LAST, RUNS = (int(os.environ.get(f"BENCH_{name}", default)) for name, default in
                             (("DRIVERS", 1000), ("DAYS", 20), ("LAST", 1_000_000), ("RUNS", 3)))
FIXES_A_DAY = 500
DAY = "from = '2026-06-10', to = '2026-06-11', tz = 'UTC'"
HOUR = "from = '2026-06-10 09:00', to = '2026-06-10 10:00', tz = 'UTC'"
MONTH = "from = '2026-06-01', to = '2026-07-01', tz = 'UTC'"
DAY_TS = "ts >= '2026-06-10 00:00:00' AND ts < '2026-06-11 00:00:00'"
HOUR_TS = "ts >= '2026-06-10 09:00:00' AND ts < '2026-06-10 10:00:00'"
POINT = "52.52", "13.40"

OBVIOUS = """CREATE TABLE {db}.obvious
(
    driver_id String, ts DateTime64(3, 'UTC'), seq UInt32, lat Float64, lng Float64, speed Nullable(Float32),
    heading Nullable(Float32), alt Nullable(Float32), acc Nullable(Float32), received_at DateTime64(3, 'UTC'),
    inserted_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree PARTITION BY toYYYYMM(ts) ORDER BY (driver_id, ts, seq, lat, lng)"""

# Every third hour of the way somebody stands for a while; the others drive about the town, each on an arc of its own.
FIXES = """
    WITH number % {fixes} AS step, intDiv(number, {fixes}) AS who, step + {day} * {fixes} AS moved_to,
        toUInt64(intDiv(moved_to, 180) * 120 + least(moved_to % 180, 120)) AS along,
        along * 0.0035 / (1 + who % 7) + who AS angle
    SELECT
        concat('driver-', leftPad(toString(who), 6, '0')) AS driver_id,
        toDateTime64('2026-06-01 08:00:00', 3, 'UTC') + toIntervalDay({day}) + toIntervalMillisecond(step * 20000 + who % 20000) AS ts,
        toUInt32(moved_to + 1) AS seq,
        toInt32((52.52 + sin(angle) * (who % 97 + 3) / 900) * 1e7 + cityHash64(number, {day}) % 300) AS lat_e7,
        toInt32((13.40 + cos(angle) * (who % 89 + 3) / 500) * 1e7 + cityHash64(number, {day}, 1) % 300) AS lng_e7,
        toUInt16(if(moved_to % 180 < 120, 400 + cityHash64(number, 2) % 2600, 0)) AS speed_cms,
        toUInt16(cityHash64(intDiv(number, 8)) % 36000) AS heading_cdeg, toInt32(340 + cityHash64(number, 3) % 40) AS alt_dm,
        toUInt16(30 + cityHash64(number, 4) % 60) AS acc_dm, ts + toIntervalMillisecond(300 + cityHash64(number, 5) % 900) AS received_at
    FROM numbers({count})"""
COLUMNS = "driver_id, ts, seq, lat_e7, lng_e7, speed_cms, heading_cdeg, alt_dm, acc_dm, received_at"
PLAIN = ("driver_id, ts, seq, lat_e7 / 1e7, lng_e7 / 1e7, speed_cms / 100, heading_cdeg / 100, alt_dm / 10, acc_dm / 10, received_at")

# The views as they were.
BEFORE = [
    """CREATE VIEW {db}.fixes_before AS SELECT driver_id, ts, seq, lat, lng, speed, heading, alt, acc, received_at, inserted_at, attributes
    FROM {db}.positions FINAL SETTINGS do_not_merge_across_partitions_select_final = 1""",
    """CREATE VIEW {db}.last_positions_before AS SELECT driver_id, newest.ts AS ts, newest.lat_e7 / 1e7 AS lat, newest.lng_e7 / 1e7 AS lng
    FROM (SELECT driver_id, max(last) AS newest FROM {db}.last_positions_state GROUP BY driver_id)""",
]

WAY = """SELECT driver_id, sum(way) FROM (
    SELECT driver_id, geoDistance(lagInFrame(lng, 1, lng) OVER w, lagInFrame(lat, 1, lat) OVER w, lng, lat) AS way
    FROM {{db}}.obvious FINAL WHERE {when}
    WINDOW w AS (PARTITION BY driver_id ORDER BY ts, seq ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)) GROUP BY driver_id"""
NEAR = "geoDistance(lng, lat, {lng}, {lat}) <= 200"

# Question, ours, the obvious, what was before (where it was another).
QUESTIONS = [
    ("one driver's day: count, mean speed",
     f"SELECT count(), avg(speed) FROM {{db}}.fixes WHERE driver_id = 'driver-000042' AND {DAY_TS}",
     f"SELECT count(), avg(speed) FROM {{db}}.obvious FINAL WHERE driver_id = 'driver-000042' AND {DAY_TS}", None),
    ("one driver's trips and stops of a day",
     f"SELECT * FROM {{db}}_ask.episodes(driver = 'driver-000042', {DAY})", None, None),
    ("who was within 200 m, one hour",
     f"SELECT * FROM {{db}}_ask.near(lat = {POINT[0]}, lng = {POINT[1]}, metres = 200, driver = '', {HOUR})",
     f"SELECT driver_id, count() FROM {{db}}.obvious FINAL WHERE {HOUR_TS} AND {NEAR.format(lat=POINT[0], lng=POINT[1])} GROUP BY driver_id",
     f"SELECT driver_id, count() FROM {{db}}.fixes_before WHERE {HOUR_TS} AND {NEAR.format(lat=POINT[0], lng=POINT[1])} GROUP BY driver_id"),
    ("who was within 200 m, one hour, by cells",
     f"SELECT * FROM {{db}}_ask.was_near(lat = {POINT[0]}, lng = {POINT[1]}, metres = 200, driver = '', {HOUR})",
     f"SELECT driver_id, count() FROM {{db}}.obvious FINAL WHERE {HOUR_TS} AND {NEAR.format(lat=POINT[0], lng=POINT[1])} GROUP BY driver_id", None),
    ("stops of more than ten minutes, one day, by the view", f"SELECT * FROM {{db}}_ask.episodes(driver = '', {DAY}) WHERE kind = 'stop' AND seconds > 600",
     None, None),
    ("stops of more than ten minutes, one day, from the table",
     "SELECT * FROM {db}.stops WHERE began >= '2026-06-10' AND began < '2026-06-11' AND seconds > 600", None, None),
    ("way of each driver, one day, noise and all",
     f"SELECT driver_id, sum(metres) FROM {{db}}_ask.track(driver = '', {DAY}) GROUP BY driver_id", WAY.format(when=DAY_TS), None),
    ("way, time, trips, stops of each driver, one day",
     f"SELECT * FROM {{db}}_ask.days(driver = '', {DAY})", None, None),
    ("way of each driver, all days, noise and all",
     f"SELECT driver_id, sum(metres) FROM {{db}}_ask.track(driver = '', {MONTH}) GROUP BY driver_id", WAY.format(when="1"), None),
    ("distance of each driver, all days, from the roll-up",
     "SELECT driver_id, sum(distance_m) FROM {db}.driver_quarters WHERE quarter >= '2026-06-01' AND quarter < '2026-07-01' GROUP BY driver_id",
     WAY.format(when="1"), None),
    ("faster than 100 km/h, one day",
     f"SELECT * FROM {{db}}_ask.speeding(driver = '', speed = 27.78, {DAY})",
     f"SELECT driver_id, ts, speed FROM {{db}}.obvious FINAL WHERE speed > 27.78 AND {DAY_TS}", None),
    ("heatmap of one day",
     f"SELECT * FROM {{db}}_ask.heatmap(south = -90, west = -180, north = 90, east = 180, letters = 6, {DAY})",
     f"SELECT geohashEncode(lng, lat, 6) AS cell, count(), uniqExact(driver_id) FROM {{db}}.obvious FINAL WHERE {DAY_TS} GROUP BY cell", None),
]

# The same of a great many drivers' last positions; the obvious schema has none but the newest of all fixes, which is not asked here.
LAST_QUESTIONS = [
    ("where is everyone", "SELECT driver_id, ts, lat, lng FROM {db}.last_positions", "SELECT driver_id, ts, lat, lng FROM {db}.last_positions_before"),
    ("where is one driver", "SELECT ts, lat, lng FROM {db}.last_positions WHERE driver_id = 'driver-0004242'",
     "SELECT ts, lat, lng FROM {db}.last_positions_before WHERE driver_id = 'driver-0004242'"),
    ("who is in a box now", "SELECT driver_id FROM {db}_ask.in_box(south = 52, west = 10, north = 54, east = 15)",
     "SELECT driver_id FROM {db}.last_positions_before WHERE lat BETWEEN 52 AND 54 AND lng BETWEEN 10 AND 15"),
    ("who was heard of in the last hour", "SELECT driver_id FROM {db}_ask.heard_since(since = '2026-06-10 23:00', tz = 'UTC')",
     "SELECT driver_id FROM {db}.last_positions_before WHERE ts >= '2026-06-10 23:00:00'"),
]
LAST_ROWS = """INSERT INTO {{db}}.last_positions_state
    SELECT concat('driver-', leftPad(toString(number), 7, '0')), CAST((
        toDateTime64('2026-06-01 00:00:00', 3, 'UTC') + toIntervalSecond(cityHash64(number, {part}) % 864000), number % 1000,
        toInt32(cityHash64(number, {part}, 1) % 1800000000) - 900000000, toInt32(toInt64(cityHash64(number, {part}, 2) % 3600000000) - 1800000000),
        100, 100, 100, 10, now64(3)) AS Tuple(ts DateTime64(3, 'UTC'), seq UInt32, lat_e7 Int32, lng_e7 Int32, speed_cms UInt16,
        heading_cdeg UInt16, alt_dm Int32, acc_dm UInt16, received_at DateTime64(3, 'UTC')))
    FROM numbers({count}) WHERE cityHash64(number, {part}, 3) % 2 = 0"""
BULK = {"max_insert_block_size": "2000000", "min_insert_block_size_rows": "2000000", "max_memory_usage": "0"}


def fill(db: Database) -> int:
    """Both schemas with the same rows; returns how many fixes there are."""
    db.ask(OBVIOUS)
    for table in ("positions", "last_positions_state", "obvious"):
        db.ask(f"SYSTEM STOP MERGES {{db}}.{table}")
    for day in range(DAYS):
        for count, some in ((DRIVERS * FIXES_A_DAY, "1"), (DRIVERS * FIXES_A_DAY, "cityHash64(driver_id, seq) % 20 = 0")):
            rows = FIXES.format(day=day, fixes=FIXES_A_DAY, count=count)
            db.ask(f"INSERT INTO {{db}}.positions ({COLUMNS}) SELECT {COLUMNS} FROM ({rows}) WHERE {some}", **BULK)
            names = "driver_id, ts, seq, lat, lng, speed, heading, alt, acc, received_at"
            db.ask(f"INSERT INTO {{db}}.obvious ({names}) SELECT {PLAIN} FROM ({rows}) WHERE {some}", **BULK)
    return DRIVERS * FIXES_A_DAY * DAYS


def cpu_ms(process) -> int:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1000 // os.sysconf("SC_CLK_TCK")


def measure(db, process, sql) -> tuple[float, float, int]:
    """Milliseconds, milliseconds of CPU, rows read; of the fastest run."""
    times, cpus = [], []
    for _ in range(RUNS):
        cpu, began = cpu_ms(process), time.monotonic()
        _, summary = db.answer(sql, default_format="Null")
        times.append((time.monotonic() - began) * 1000)
        cpus.append(cpu_ms(process) - cpu)
    return min(times), min(cpus), int(summary["read_rows"])


def ratio(other, ours) -> str:
    """Of CPU. A tick is the least that can be told."""
    return f"{max(other[1], 10) / max(ours[1], 10):.1f}" if other else "–"


def cells(measured) -> str:
    if measured is None:
        return "| – | – | – "
    return f"| {measured[0]:.0f} | {measured[1]:.0f} | {measured[2]:,} "


def table(db, process, state: str) -> None:
    print(f"\n{state}:\n")
    print("| question | CPU, obvious ÷ ours | ours: ms | CPU ms | rows read | obvious: ms | CPU ms | rows read | before: ms | CPU ms | rows read |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for question, ours, obvious, before in QUESTIONS:
        one, other, old = (sql and measure(db, process, sql) for sql in (ours, obvious, before))
        print(f"| {question} | {ratio(other, one)} {cells(one)}{cells(other)}{cells(old)}|", flush=True)


def last_table(db, process, state: str) -> None:
    print(f"\n{state}:\n")
    print("| question | CPU, before ÷ now | now: ms | CPU ms | rows read | before: ms | CPU ms | rows read |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for question, now, before in LAST_QUESTIONS:
        one, other = measure(db, process, now), measure(db, process, before)
        print(f"| {question} | {ratio(other, one)} {cells(one)}{cells(other)}|", flush=True)


# Name, the views that fill it, the tables that they fill.
ROLL_UPS = [
    ("driver_quarters", ["driver_quarters"], ["driver_quarters_state"]),
    ("trips and stops", ["driver_blocks", "episodes"], ["driver_blocks_state", "episodes_state"]),
    ("cell_quarters", ["cell_quarters"], ["cell_quarters_state"]),
]


def roll_up(db, process, fixes: int) -> None:
    """What the refreshable views do every hour, here for all fixes at once."""
    for name, views, tables in ROLL_UPS:
        for view in views:
            db.ask(f"SYSTEM WAIT VIEW {{db}}.{view}_mv")
        cpu, began = cpu_ms(process), time.monotonic()
        db.refresh(*(f"{view}_mv" for view in views))
        seconds, cpu = time.monotonic() - began, cpu_ms(process) - cpu
        assert db.ask(f"SELECT pending FROM {{db}}.rollups WHERE name = '{name}'") == "0\n", name
        size = sum(bytes_a_fix(db, table, fixes) for table in tables)
        print(f"{name} filled in {seconds:.0f} s, {cpu / 1000:.1f} s of CPU, {size:.2f} bytes a fix", flush=True)
    for table in ("driver_quarters", "cell_quarters"):
        assert int(db.ask(f"SELECT sum(fixes) FROM {{db}}.{table}")) == fixes, table


def bytes_a_fix(db, name: str, fixes: int) -> float:
    size = db.ask(f"SELECT sum(bytes_on_disk) FROM system.parts WHERE database = '{{db}}' AND table = '{name}' AND active")
    return int(size) / fixes


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, running_engine(Path(folder)) as (url, process):
        db = migrated(url)
        for statement in BEFORE:
            db.ask(statement)
        began = time.monotonic()
        fixes = fill(db)
        stored = int(db.ask("SELECT count() FROM {db}.fixes"))
        assert stored == fixes == int(db.ask("SELECT count() FROM {db}.obvious FINAL")), (stored, fixes)
        print(f"{fixes:,} fixes of {DRIVERS:,} drivers in {DAYS} days, 5 % twice; filled in {time.monotonic() - began:.0f} s")
        roll_up(db, process, fixes)
        table(db, process, "Live")
        for name in ("positions", "last_positions_state", "obvious"):
            db.ask(f"SYSTEM START MERGES {{db}}.{name}")
            db.ask(f"OPTIMIZE TABLE {{db}}.{name} FINAL")
        table(db, process, "Merged")
        ours, obvious = bytes_a_fix(db, "positions", fixes), bytes_a_fix(db, "obvious", fixes)
        print(f"\nBytes a fix, merged: {ours:.1f} ours, {obvious:.1f} the obvious schema: {ours / obvious:.2f}.")

        db = migrated(url)
        for statement in BEFORE:
            db.ask(statement)
        db.ask("SYSTEM STOP MERGES {db}.last_positions_state")
        for part in range(8):
            db.ask(LAST_ROWS.format(part=part, count=LAST), **BULK)
        rows = int(db.ask("SELECT count() FROM {db}.last_positions_state"))
        last_table(db, process, f"Last positions of {LAST:,} drivers, {rows:,} rows in eight parts")
        db.ask("SYSTEM START MERGES {db}.last_positions_state")
        db.ask("OPTIMIZE TABLE {db}.last_positions_state FINAL")
        last_table(db, process, "The same, merged")


if __name__ == "__main__":
    main()

"""Measures what analysts' questions cost: milepost's tables and views, and plain SQL on the obvious schema, in one engine, on the same fixes.

    make bench ARGS='--what sql'                                  a quarter of an hour, longer on a busy machine
    make bench ARGS='--what sql -- --millions 40'                 40 million fixes in each set, eight times as long, 13 GiB of memory at most
    make bench ARGS='--what sql -- --only last'                   only this part: sparse, dense, last
    make bench ARGS='--what sql -- --questions track'             questions that contain this word (a regular expression)

There are two sets of fixes, of 30 days each. "sparse": each driver sends a fix every 30 s for two and a half hours a day,
so a month of one driver fills about one granule. "dense": every second for two hours a day. 5 % of the fixes are sent
twice. The obvious schema is one ReplacingMergeTree of plain columns, with a partition per month, queried with FINAL.
"live": each day has one or two parts, as if nothing had been merged. "merged": each partition has one part. The run fails
if milepost and plain SQL return different numbers of rows; to a question that begins with "faster", milepost may return a
fifth fewer. Each question runs BENCH_RUNS (2) times in a row; the lowest time and the lowest CPU time count (files are in
the page cache). CPU time is the engine's, user and system. Ratios are of CPU time, because other processes use the machine
as well.

"last": the last positions of BENCH_LAST drivers, in eight parts. Prints Markdown to stdout, and progress to stderr.
"""
from __future__ import annotations

import argparse
import dataclasses
import os
import re
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/answers"))
from conftest import Database, migrated, running_engine  # noqa: E402

LAST, RUNS = (int(os.environ.get(f"BENCH_{name}", default)) for name, default in (("LAST", 1_000_000), ("RUNS", 2)))


@dataclasses.dataclass
class Fleet:
    name: str
    drivers: int
    fixes_a_day: int
    every_ms: int
    days: int = 30

    @property
    def fixes(self) -> int:
        return self.drivers * self.fixes_a_day * self.days


def fleets(fixes: float) -> list[Fleet]:
    """Returns a sparse and a dense fleet, each with about this many fixes."""
    kinds = (("sparse", 300, 30_000), ("dense", 7_200, 1_000))
    return [Fleet(name, max(1, round(fixes / 30 / a_day)), a_day, every_ms) for name, a_day, every_ms in kinds]


DAY = "from = '2026-06-10', to = '2026-06-11', tz = 'UTC'"
HOUR = "from = '2026-06-10 09:00', to = '2026-06-10 10:00', tz = 'UTC'"
DAY_TS = "ts >= '2026-06-10 00:00:00' AND ts < '2026-06-11 00:00:00'"
HOUR_TS = "ts >= '2026-06-10 09:00:00' AND ts < '2026-06-10 10:00:00'"
MONTH_TS = "ts >= '2026-06-01 00:00:00' AND ts < '2026-07-01 00:00:00'"
POINT = "52.52", "13.40"

OBVIOUS = """CREATE TABLE {db}.obvious
(
    driver_id String, ts DateTime64(3, 'UTC'), seq UInt32, lat Float64, lng Float64, speed Nullable(Float32),
    heading Nullable(Float32), alt Nullable(Float32), acc Nullable(Float32), received_at DateTime64(3, 'UTC'),
    inserted_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree PARTITION BY toYYYYMM(ts) ORDER BY (driver_id, ts, seq, lat, lng)"""

# Each driver moves about the town on its own arc, and stands still for the last third of every 180 fixes.
FIXES = """
    WITH number % {fixes} AS step, intDiv(number, {fixes}) AS who, step + {day} * {fixes} AS moved_to,
        toUInt64(intDiv(moved_to, 180) * 120 + least(moved_to % 180, 120)) AS along,
        along * 0.0035 / (1 + who % 7) + who AS angle
    SELECT
        concat('driver-', leftPad(toString(who), 6, '0')) AS driver_id,
        toDateTime64('2026-06-01 08:00:00', 3, 'UTC') + toIntervalDay({day}) + toIntervalMillisecond(step * {every} + who % {every}) AS ts,
        toUInt32(moved_to + 1) AS seq,
        toInt32((52.52 + sin(angle) * (who % 97 + 3) / 900) * 1e7 + cityHash64(number, {day}) % 300) AS lat_e7,
        toInt32((13.40 + cos(angle) * (who % 89 + 3) / 500) * 1e7 + cityHash64(number, {day}, 1) % 300) AS lng_e7,
        toUInt16(if(moved_to % 180 < 120, 400 + cityHash64(number, {day}, 2) % 2600, 0)) AS speed_cms,
        toUInt16(cityHash64(intDiv(number, 8), {day}) % 36000) AS heading_cdeg, toInt32(340 + cityHash64(number, {day}, 3) % 40) AS alt_dm,
        toUInt16(30 + cityHash64(number, {day}, 4) % 60) AS acc_dm, ts + toIntervalMillisecond(300 + cityHash64(number, {day}, 5) % 900) AS received_at
    FROM numbers({count})"""
COLUMNS = "driver_id, ts, seq, lat_e7, lng_e7, speed_cms, heading_cdeg, alt_dm, acc_dm, received_at"
NAMES = "driver_id, ts, seq, lat, lng, speed, heading, alt, acc, received_at"
PLAIN = ("driver_id, ts, seq, lat_e7 / 1e7, lng_e7 / 1e7, speed_cms / 100, heading_cdeg / 100, alt_dm / 10, acc_dm / 10, received_at")

DISTANCE = """SELECT driver_id, sum(leg_m) FROM (
    SELECT driver_id, geoDistance(lagInFrame(lng, 1, lng) OVER w, lagInFrame(lat, 1, lat) OVER w, lng, lat) AS leg_m
    FROM {{db}}.obvious FINAL WHERE {when}
    WINDOW w AS (PARTITION BY driver_id ORDER BY ts, seq ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)) GROUP BY driver_id"""
GAPS = """SELECT driver_id, ts AS began, if(has_end, next_ts, NULL) AS ended,
        dateDiff('millisecond', ts, if(has_end, next_ts, least({until}, now64(3)))) / 1000 AS seconds, lat, lng, next_lat, next_lng,
        if(has_end, geoDistance(lng, lat, next_lng, next_lat), NULL) AS metres
    FROM (
        SELECT driver_id, ts, lat, lng, leadInFrame(ts) OVER w AS next_ts, leadInFrame(lat) OVER w AS next_lat, leadInFrame(lng) OVER w AS next_lng,
            next_ts > ts AS has_end
        FROM {{db}}.obvious FINAL WHERE ts >= {since} - INTERVAL 12 HOUR AND ts < {until} + INTERVAL 12 HOUR
        WINDOW w AS (PARTITION BY driver_id ORDER BY ts, seq, lat, lng ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING))
    WHERE seconds > 600 AND ts < {until} AND (NOT has_end OR next_ts > {since})"""
HEALTH = """SELECT driver_id, count(), sumIf(seq - before - 1, before > 0 AND seq > before), countIf(seq > 0 AND seq < before), countIf(lag > 60000),
        quantilesExact(0.5, 0.95)(lag), max(lag), min(lag), countIf(speed IS NULL)
    FROM (
        SELECT driver_id, seq, speed, dateDiff('millisecond', ts, received_at) AS lag,
            lagInFrame(seq) OVER (PARTITION BY driver_id ORDER BY ts, seq, lat, lng ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS before
        FROM {{db}}.obvious FINAL WHERE {when})
    GROUP BY driver_id"""
TRACK = """SELECT driver_id, ts, seq, lat, lng, speed, heading, alt, acc,
        is_good * dateDiff('millisecond', lagInFrame(ts, 1, ts) OVER w, ts) / 1000 AS seconds,
        is_good * geoDistance(lagInFrame(lng, 1, lng) OVER w, lagInFrame(lat, 1, lat) OVER w, lng, lat) AS metres, if(is_good, '', 'inaccurate') AS dropped
    FROM (SELECT *, acc IS NULL OR acc <= 200 AS is_good FROM {{db}}.obvious FINAL WHERE {when})
    WINDOW w AS (PARTITION BY driver_id, is_good ORDER BY ts, seq, lat, lng ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"""
FAST = """SELECT driver_id, min(ts) AS began, max(ts) AS ended, dateDiff('millisecond', began, ended) / 1000 AS seconds, count(), max(speed),
        argMax(lat, speed), argMax(lng, speed)
    FROM (
        SELECT *, sum(begins) OVER (PARTITION BY driver_id ORDER BY ts, seq, lat, lng ROWS UNBOUNDED PRECEDING) AS run
        FROM (
            SELECT driver_id, ts, seq, lat, lng, speed, speed > toFloat32({speed}) AS is_fast,
                NOT lagInFrame(is_fast) OVER w OR dateDiff('millisecond', lagInFrame(ts) OVER w, ts) > 180000 AS begins
            FROM {{db}}.obvious FINAL WHERE {when} AND speed IS NOT NULL AND (acc IS NULL OR acc <= 200)
            WINDOW w AS (PARTITION BY driver_id ORDER BY ts, seq, lat, lng ROWS BETWEEN 1 PRECEDING AND CURRENT ROW))
        WHERE is_fast)
    GROUP BY driver_id, run"""
NEAR = """SELECT driver_id, min(ts), max(ts), count(), min(away), argMin(ts, away)
    FROM (SELECT driver_id, ts, geoDistance(lng, lat, {lng}, {lat}) AS away FROM {{db}}.obvious FINAL WHERE {when})
    WHERE away <= 200 GROUP BY driver_id"""
MONTH = "from = '2026-06-01', to = '2026-07-01', tz = 'UTC'"
# Each entry: the question, milepost's SQL, and plain SQL that returns as many rows from the obvious schema, or None if plain
# SQL has no equivalent. Only the roll-up knows which fixes are jumps, but these sets have no jumps.
# `speeding` leaves out speeds of devices that hardly move: see `assert_same_rows`.
QUESTIONS = [
    ("one driver's month: count, mean speed",
     f"SELECT count(), avg(speed) FROM {{db}}.fixes WHERE driver_id = 'driver-000001' AND {MONTH_TS}",
     f"SELECT count(), avg(speed) FROM {{db}}.obvious FINAL WHERE driver_id = 'driver-000001' AND {MONTH_TS}"),
    ("track of all, a day", f"SELECT * FROM {{db}}_ask.track(driver = '', {DAY})", TRACK.format(when=DAY_TS)),
    ("track of all, a month", f"SELECT * FROM {{db}}_ask.track(driver = '', {MONTH})", TRACK.format(when=MONTH_TS)),
    ("who was within 200 m, one hour",
     f"SELECT * FROM {{db}}_ask.near(lat = {POINT[0]}, lng = {POINT[1]}, metres = 200, driver = '', {HOUR})",
     NEAR.format(lat=POINT[0], lng=POINT[1], when=HOUR_TS)),
    ("silences of ten minutes, a day", f"SELECT * FROM {{db}}_ask.gaps(driver = '', seconds = 600, {DAY})",
     GAPS.format(since="toDateTime64('2026-06-10', 3, 'UTC')", until="toDateTime64('2026-06-11', 3, 'UTC')")),
    ("silences of ten minutes, a month", f"SELECT * FROM {{db}}_ask.gaps(driver = '', seconds = 600, {MONTH})",
     GAPS.format(since="toDateTime64('2026-06-01', 3, 'UTC')", until="toDateTime64('2026-07-01', 3, 'UTC')")),
    ("health, a day", f"SELECT * FROM {{db}}_ask.health(driver = '', {DAY})", HEALTH.format(when=DAY_TS)),
    ("health, a month", f"SELECT * FROM {{db}}_ask.health(driver = '', {MONTH})", HEALTH.format(when=MONTH_TS)),
    ("heatmap of a month",
     f"SELECT * FROM {{db}}_ask.heatmap(driver = '', south = -90, west = -180, north = 90, east = 180, letters = 6, {MONTH})",
     f"SELECT geohashEncode(lng, lat, 6) AS cell, count(), uniqExact(driver_id) FROM {{db}}.obvious FINAL WHERE {MONTH_TS} GROUP BY cell"),
    ("faster than 100 km/h, a day: in most quarters of an hour", f"SELECT * FROM {{db}}_ask.speeding(driver = '', speed = 27.78, {DAY})", FAST.format(speed=27.78, when=DAY_TS)),
    ("faster than 130 km/h, a month: never", f"SELECT * FROM {{db}}_ask.speeding(driver = '', speed = 36.11, {MONTH})", FAST.format(speed=36.11, when=MONTH_TS)),
    ("days of all, a day: metres", f"SELECT driver_id, metres FROM {{db}}_ask.days(driver = '', {DAY})", DISTANCE.format(when=DAY_TS)),
    ("days of all, a month: metres", f"SELECT driver_id, sum(metres) FROM {{db}}_ask.days(driver = '', {MONTH}) GROUP BY driver_id", DISTANCE.format(when=MONTH_TS)),
    ("trips and stops of a driver's day", f"SELECT * FROM {{db}}_ask.episodes(driver = 'driver-000001', {DAY})", None),
    ("stops of more than ten minutes, a month", "SELECT * FROM {db}.stops WHERE began >= '2026-06-01' AND began < '2026-07-01' AND seconds > 600", None),
    ("mean speed of the fleet in each quarter of an hour, a month, from the roll-up",
     "SELECT quarter, sum(speed_sum) / sum(speed_count) FROM {db}.driver_quarters WHERE day >= '2026-06-01' AND day < '2026-07-01' GROUP BY quarter",
     "SELECT toStartOfFifteenMinutes(ts) AS quarter, avg(speed) FROM {db}.obvious FINAL GROUP BY quarter"),
]

# In the obvious schema a last position is the newest of all fixes of a driver. That query is not measured here.
LAST_QUESTIONS = [
    ("where is everyone", "SELECT driver_id, ts, lat, lng FROM {db}.last_positions"),
    ("where is one driver", "SELECT ts, lat, lng FROM {db}.last_positions WHERE driver_id = 'driver-0004242'"),
    ("who is in a box now", "SELECT driver_id FROM {db}_ask.in_box(south = 52, west = 10, north = 54, east = 15)"),
    ("who was heard of in the last hour", "SELECT driver_id FROM {db}_ask.heard_since(since = '2026-06-10 23:00', tz = 'UTC')"),
]
LAST_ROWS = """INSERT INTO {{db}}.last_positions_state (driver_id, ts, seq, lat_e7, lng_e7, speed_cms, heading_cdeg, alt_dm, acc_dm, received_at)
    SELECT concat('driver-', leftPad(toString(number), 7, '0')),
        toDateTime64('2026-06-01 00:00:00', 3, 'UTC') + toIntervalSecond(cityHash64(number, {part}) % 864000), number % 1000,
        toInt32(cityHash64(number, {part}, 1) % 1800000000) - 900000000, toInt32(toInt64(cityHash64(number, {part}, 2) % 3600000000) - 1800000000),
        100, 100, 100, 10, now64(3)
    FROM numbers({count}) WHERE cityHash64(number, {part}, 3) % 2 = 0"""
BULK = {"max_insert_block_size": "2000000", "min_insert_block_size_rows": "2000000", "max_memory_usage": "0"}


def print_progress(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def fill(db: Database, fleet: Fleet) -> None:
    """Fills `positions` and `obvious` with the same rows, as if inserted an hour ago: the roll-up computes rows of the last
    ten minutes twice."""
    db.ask(OBVIOUS)
    db.ask("SYSTEM STOP VIEW {db}.driver_days_mv")
    tables = (("positions", COLUMNS + ", inserted_at", COLUMNS + ", now64(3) - INTERVAL 1 HOUR"), ("obvious", NAMES, PLAIN))
    for table, _, _ in tables:
        db.ask(f"SYSTEM STOP MERGES {{db}}.{table}")
    for day in range(fleet.days):
        count = fleet.drivers * fleet.fixes_a_day
        for condition in ("1", "cityHash64(driver_id, seq) % 20 = 0"):
            rows = FIXES.format(day=day, fixes=fleet.fixes_a_day, every=fleet.every_ms, count=count)
            for table, names, values in tables:
                db.ask(f"INSERT INTO {{db}}.{table} ({names}) SELECT {values} FROM ({rows}) WHERE {condition}", **BULK)
    print_progress(f"{fleet.name}: {fleet.days} days are filled")


def cpu_ms(process) -> float:
    """Returns the CPU time of a process from its CPU clock (clock_getcpuclockid), which counts nanoseconds, not ticks."""
    return time.clock_gettime(~process.pid << 3 | 2) * 1000


@dataclasses.dataclass
class Cost:
    """Lowest time and lowest CPU time of the runs. Rows and bytes read are those of the last run."""
    ms: float
    cpu_ms: float
    rows: int
    bytes: int

    def cells(self) -> str:
        return f"| {self.ms:.0f} | {self.cpu_ms:.0f} | {self.rows:,} | {self.bytes / 1e6:.1f} "


def measure(db, process, sql) -> Cost:
    """Runs the query RUNS times. `process` is the engine."""
    times, cpus = [], []
    for _ in range(RUNS):
        cpu, began = cpu_ms(process), time.monotonic()
        _, summary = db.answer(sql, default_format="Null")
        times.append((time.monotonic() - began) * 1000)
        cpus.append(cpu_ms(process) - cpu)
    return Cost(min(times), min(cpus), int(summary["read_rows"]), int(summary["read_bytes"]))


def assert_same_rows(db, question: str, sql: str, plain: str) -> None:
    milepost_rows, plain_rows = (int(db.ask(f"SELECT count() FROM ({query})")) for query in (sql, plain))
    # The speeds of this fleet are random. `speeding` leaves out a high speed if the device hardly moves.
    fewest = 0.8 * plain_rows if question.startswith("faster") else plain_rows
    assert fewest <= milepost_rows <= plain_rows, f"{question}: {milepost_rows} rows of milepost, {plain_rows} of plain SQL"


def ratio(milepost: Cost, plain: Cost | None) -> str:
    """Returns milepost's CPU time divided by that of plain SQL."""
    return f"{milepost.cpu_ms / plain.cpu_ms:.2f}" if plain else "–"


def print_table(db, process, state: str, wanted: re.Pattern) -> None:
    print(f"\n{state}:\n")
    print("| question | CPU, milepost ÷ plain | milepost: ms | CPU ms | rows read | MB read | plain: ms | CPU ms | rows read | MB read |")
    print("|---|" + "--:|" * 9)
    for question, sql, plain_sql in QUESTIONS:
        if not wanted.search(question):
            continue
        milepost, plain = measure(db, process, sql), plain_sql and measure(db, process, plain_sql)
        print(f"| {question} | {ratio(milepost, plain)} {milepost.cells()}{plain.cells() if plain else '| – | – | – | – '}|", flush=True)
        print_progress(f"{state}: {question}")


def print_last_table(db, process, state: str) -> None:
    print(f"\n{state}:\n")
    print("| question | ms | CPU ms | rows read | MB read |")
    print("|---|" + "--:|" * 4)
    for question, sql in LAST_QUESTIONS:
        print(f"| {question} {measure(db, process, sql).cells()}|", flush=True)


def roll_up(db, process, fixes: int) -> None:
    """Refreshes the roll-up until no day waits. In production, it refreshes every five minutes."""
    cpu, began, pending = cpu_ms(process), time.monotonic(), 1
    while pending:
        db.refresh()
        pending = int(db.ask("SELECT pending FROM {db}.rollups"))
        print_progress(f"{pending:,} days of drivers are pending")
    seconds, cpu = time.monotonic() - began, cpu_ms(process) - cpu
    print(f"driver_days filled in {seconds:.0f} s, {cpu / 1000:.1f} s of CPU, {bytes_a_fix(db, 'driver_days_state', fixes):.2f} bytes a fix", flush=True)
    assert int(db.ask("SELECT sum(fixes) FROM {db}.driver_quarters")) == fixes
    empty_cpus = []
    for _ in range(3):
        cpu = cpu_ms(process)
        db.refresh()
        empty_cpus.append(cpu_ms(process) - cpu)
    print(f"a refresh without new fixes takes {min(empty_cpus) / 1000:.2f} s of CPU, nearly all of it for planning", flush=True)


def bytes_a_fix(db, name: str, fixes: int) -> float:
    size = db.ask(f"SELECT sum(bytes_on_disk) FROM system.parts WHERE database = '{{db}}' AND table = '{name}' AND active")
    return int(size) / fixes


def measure_questions(url: str, process, fleet: Fleet, wanted: re.Pattern) -> None:
    db, began = migrated(url), time.monotonic()
    fill(db, fleet)
    for sql in ("SELECT count() FROM {db}.fixes", "SELECT count() FROM {db}.obvious FINAL"):
        assert int(db.ask(sql)) == fleet.fixes, sql
    print(f"\n**{fleet.name}**: {fleet.fixes:,} fixes of {fleet.drivers:,} drivers in {fleet.days} days, one every {fleet.every_ms / 1000:g} s, "
          f"5 % twice; two tables filled in {time.monotonic() - began:.0f} s")
    roll_up(db, process, fleet.fixes)
    for question, sql, plain in QUESTIONS:
        if plain and wanted.search(question):
            assert_same_rows(db, question, sql, plain)
    print_table(db, process, f"{fleet.name}, live", wanted)
    for name in ("positions", "obvious"):
        db.ask(f"SYSTEM START MERGES {{db}}.{name}")
        db.ask(f"OPTIMIZE TABLE {{db}}.{name} FINAL")
        print_progress(f"{db.name}.{name} is merged")
    print_table(db, process, f"{fleet.name}, merged", wanted)
    size, obvious = (bytes_a_fix(db, name, fleet.fixes) for name in ("positions", "obvious"))
    print(f"\n{fleet.name}, bytes a fix, merged: {size:.2f}, {obvious:.2f} the obvious schema: {size / obvious:.2f} of it.")
    db.ask("DROP DATABASE {db} SYNC")


def measure_last_positions(url: str, process) -> None:
    db = migrated(url)
    db.ask("SYSTEM STOP MERGES {db}.last_positions_state")
    for part in range(8):
        db.ask(LAST_ROWS.format(part=part, count=LAST), **BULK)
    rows = int(db.ask("SELECT count() FROM {db}.last_positions_state"))
    print_last_table(db, process, f"Last positions of {LAST:,} drivers, {rows:,} rows in eight parts")
    db.ask("SYSTEM START MERGES {db}.last_positions_state")
    db.ask("OPTIMIZE TABLE {db}.last_positions_state FINAL")
    print_last_table(db, process, "The same, merged")


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--millions", type=float, default=5, metavar="N", help="millions of fixes in each set (5)")
    arguments.add_argument("--only", choices=("sparse", "dense", "last"), help="only this part")
    arguments.add_argument("--questions", type=re.compile, default="", metavar="REGEX", help="only questions that match this")
    arguments = arguments.parse_args()
    # Enough to sort a month of tracks; and at least 8 GiB, because refreshes make the engine's count of used memory drift upwards.
    os.environ["CLICKHOUSE_MEMORY_BYTES_MAX"] = str(max(8, round(arguments.millions / 3)) << 30)
    is_selected = lambda part: arguments.only in (None, part)  # noqa: E731
    with tempfile.TemporaryDirectory() as folder, running_engine(Path(folder)) as (url, process):
        for fleet in fleets(arguments.millions * 1e6):
            if is_selected(fleet.name):
                measure_questions(url, process, fleet, arguments.questions)
        if is_selected("last"):
            measure_last_positions(url, process)


if __name__ == "__main__":
    main()

"""Measures what a position costs ClickHouse, in milepost's tables and in the story's schema, with milepost's real inserts and all merges.

    make bench ARGS='--what inserts'                                three rounds of 1, 4 and 16 members: twenty minutes
    make bench ARGS='--what inserts -- --rounds 1 --members 1'      a quick look
    make bench ARGS='--what inserts -- --set BATCH__MEMBERS_AGE_MAX=8s'  the same with a setting of milepost

The schemas take turns on one engine. "milepost" is the schema that `migrate` creates. "story" is a MergeTree and, behind
a view, an AggregatingMergeTree of argMax states, both with fsync. "null" is a table that stores nothing: it shows what
the engine and its HTTP front need to read the rows. Each turn starts the given number of members in one share group, with
one connection each, and waits until their start is over. A turn publishes at the same total rate through Mosquitto, waits until every row is stored and every
merge has ended, and reads the CPU time of the engine's process. Roll-ups do not run meanwhile. The cost of a schema is
its CPU time minus the CPU time of "null". A ratio compares turns of the same round; the table shows the median over the
rounds, and the lowest and highest ratio. Fails if a row is missing. Prints Markdown to stdout, and progress to stderr.
"""
from __future__ import annotations

import argparse
import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests/answers"))
from conftest import OPENER, Database, free_port, migrated, running_engine  # noqa: E402

START_SECONDS_MAX, STORED_SECONDS_MAX, MERGED_SECONDS_MAX = 60, 60, 120
AFTER_START_SECONDS = 5  # the queries of the members' start are not a cost of positions
SCHEMAS = ("null", "story", "milepost")
COLUMNS = """driver_id String, ts DateTime64(3, 'UTC'), seq UInt32, lat_e7 Int32, lng_e7 Int32, speed_cms UInt16, heading_cdeg UInt16,
    alt_dm Int32, acc_dm UInt16, received_at DateTime64(3, 'UTC'), attributes Map(LowCardinality(String), String)"""
FSYNC = "SETTINGS fsync_after_insert = 1, fsync_part_directory = 1"
STATES = "lat_e7 Int32, lng_e7 Int32, speed_cms UInt16, heading_cdeg UInt16"
STORY = [
    f"CREATE TABLE {{db}}.positions ({COLUMNS}) ENGINE = MergeTree PARTITION BY toYYYYMM(ts) ORDER BY (driver_id, ts) {FSYNC}",
    "CREATE TABLE {db}.story_last (driver_id String, ts SimpleAggregateFunction(max, DateTime64(3, 'UTC')), "
    + ", ".join(f"{name} AggregateFunction(argMax, {kind}, DateTime64(3, 'UTC'))" for name, kind in (it.split() for it in STATES.split(", ")))
    + f") ENGINE = AggregatingMergeTree ORDER BY driver_id {FSYNC}",
    "CREATE MATERIALIZED VIEW {db}.story_mv TO {db}.story_last AS SELECT driver_id, max(it.ts) AS ts, "
    + ", ".join(f"argMaxState(it.{name}, it.ts) AS {name}" for name in (it.split()[0] for it in STATES.split(", ")))
    + " FROM {db}.positions AS it GROUP BY driver_id",
]


def print_progress(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def cpu_s(process) -> float:
    """Returns the CPU time of a process, from its CPU clock (clock_getcpuclockid)."""
    return time.clock_gettime(~process.pid << 3 | 2)


def create(url: str, schema: str) -> Database:
    """Creates a database with the tables of this schema."""
    db = migrated(url)
    if schema == "milepost":
        for view in ("touched_mv", "driver_days_mv"):  # a refresh in one turn only would distort the comparison
            db.ask(f"SYSTEM WAIT VIEW {{db}}.{view}")
            db.ask(f"SYSTEM STOP VIEW {{db}}.{view}")
        return db
    for view in ("last_positions_mv", "touched_mv", "driver_days_mv"):
        db.ask(f"DROP VIEW IF EXISTS {{db}}.{view} SYNC")
    db.ask("DROP TABLE {db}.positions SYNC")
    for sql in STORY if schema == "story" else [f"CREATE TABLE {{db}}.positions ({COLUMNS}) ENGINE = Null"]:
        db.ask(sql)
    return db


@contextlib.contextmanager
def running_broker(state: Path):
    port = free_port()
    environment = {**os.environ, "MQTT_PORT": str(port), "STATE_DIR": str(state)}
    with open(state / "broker.log", "wb") as log:
        process = subprocess.Popen([REPOSITORY / "lab/local/broker"], env=environment, stdout=log, stderr=log)
    try:
        yield port
    finally:
        process.terminate()
        process.wait(timeout=30)


@contextlib.contextmanager
def running_members(args, count: int, db: Database, mqtt: int, run: str, folder: Path):
    """Starts the members, and yields their processes and HTTP ports when all are ready."""
    members, ports = [], [free_port() for _ in range(count)]
    try:
        for number in range(count):
            settings = {
                "CLICKHOUSE__URL": db.url, "CLICKHOUSE__DATABASE": db.name, "MQTT__URL": f"mqtt://127.0.0.1:{mqtt}", "MQTT__CONNECTIONS": "1",
                "MQTT__CLIENT_ID": f"{run}-{number}", "MQTT__GROUP": run, "HTTP__LISTEN": f"127.0.0.1:{ports[number]}",
                "SHUTDOWN__PEERS": ",".join(f"127.0.0.1:{port}" for port in ports),
                "SHUTDOWN__LEAVE": "true", "SHUTDOWN__GRACE": "5s", **dict(it.split("=", 1) for it in args.set),
            }
            environment = {**os.environ, **{f"MILEPOST__{key}": value for key, value in settings.items()}}
            with open(folder / f"{run}-{number}.log", "wb") as log:
                members.append(subprocess.Popen([args.milepost, "run"], env=environment, stdout=log, stderr=log, cwd=folder))
        deadline = time.monotonic() + START_SECONDS_MAX
        for port, process in zip(ports, members):
            while True:
                with contextlib.suppress(OSError):
                    OPENER.open(f"http://127.0.0.1:{port}/readyz", timeout=5).read()
                    break
                assert process.poll() is None and time.monotonic() < deadline, (folder / f"{run}-0.log").read_text()[-2000:]
                time.sleep(0.1)
        yield members, ports
    finally:
        for process in members:
            process.terminate()
        for process in members:
            process.wait(timeout=30)


def metric(ports: list[int], name: str) -> float:
    text = "\n".join(OPENER.open(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode() for port in ports)
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE))


@dataclass
class Turn:
    """Figures of one turn: CPU of the engine in µs a row, inserts a second, and CPU of the members in µs a row."""
    us_a_row: float
    inserts_s: float
    members_us: float


def turn(args, engine, db: Database, schema: str, count: int, mqtt: int, run: str, folder: Path) -> Turn:
    with running_members(args, count, db, mqtt, run, folder) as (members, ports):
        time.sleep(AFTER_START_SECONDS)
        settle(db)
        before, began, members_cpu = cpu_s(engine), time.monotonic(), sum(map(cpu_s, members))
        fleet = subprocess.run(
            [args.loadgen, "fleet", "--broker", f"127.0.0.1:{mqtt}", "--run", run, "--drivers", str(args.drivers), "--rate", str(args.rate),
             "--duration", f"{args.seconds}s", "--manifest", folder / f"{run}.json"], capture_output=True, text=True)
        assert fleet.returncode == 0, fleet.stderr
        sent, deadline = round(args.rate * args.seconds), time.monotonic() + STORED_SECONDS_MAX
        while metric(ports, "milepost_positions_inserted_total") < sent:
            assert time.monotonic() < deadline, f"{schema}: {metric(ports, 'milepost_positions_inserted_total'):.0f} of {sent} rows are stored"
            time.sleep(0.2)
        seconds, members_cpu = time.monotonic() - began, sum(map(cpu_s, members)) - members_cpu
        inserts = metric(ports, "milepost_batch_rows_count")
        settle(db)
        cpu = cpu_s(engine) - before
    stored = 0 if schema == "null" else int(db.ask("SELECT uniqExact(driver_id, seq) FROM {db}.positions WHERE driver_id LIKE '%" + run + "%'"))
    assert stored == (0 if schema == "null" else sent), f"{schema}: {stored} of {sent} rows are stored"
    return Turn(cpu / sent * 1e6, inserts / seconds, members_cpu / sent * 1e6)


def settle(db: Database) -> None:
    """Waits until no merge runs."""
    deadline = time.monotonic() + MERGED_SECONDS_MAX
    while (merges := int(db.ask("SELECT count() FROM system.merges"))) > 0:
        assert time.monotonic() < deadline, f"{merges} merges still run after {MERGED_SECONDS_MAX} s: their CPU would be missing"
        time.sleep(0.5)


def touched_cost_us(engine, db: Database) -> float:
    """Returns the CPU time in µs a row that the view behind `touched` needs to count the rows of all turns."""
    rows, before = int(db.ask("SELECT count() FROM {db}.positions")), cpu_s(engine)
    for verb in ("START", "WAIT", "REFRESH", "WAIT"):
        db.ask(f"SYSTEM {verb} VIEW {{db}}.touched_mv")
    return (cpu_s(engine) - before) / rows * 1e6


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def report(args, turns: dict[tuple[int, str], list[Turn]]) -> None:
    print(f"\n{args.rate:,} positions/s of {args.drivers:,} drivers in all, {args.seconds} s a turn, {args.rounds} rounds; CPU in µs a position:\n")
    print("| members | inserts/s | front and parsing (null) | the story's schema | milepost's tables | **milepost ÷ story** | ÷ 1 member | milepost itself |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|")
    net = {key: [one.us_a_row - null.us_a_row for one, null in zip(its_turns, turns[key[0], "null"])] for key, its_turns in turns.items()}
    for count in args.members:
        null, story, own = (turns[count, schema] for schema in SCHEMAS)
        ratios = [one / other for one, other in zip(net[count, "milepost"], net[count, "story"])]
        growth = [one / first for one, first in zip(net[count, "milepost"], net[args.members[0], "milepost"])]
        median = lambda values: f"{statistics.median(values):.1f}"  # noqa: E731
        print(f"| {count} | {median([it.inserts_s for it in own])} | {median([it.us_a_row for it in null])} | {median(net[count, 'story'])} "
              f"| {median(net[count, 'milepost'])} | **{spread(ratios)}** | {spread(growth)} | {median([it.members_us for it in own])} |")


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--members", type=int, nargs="+", default=[1, 4, 16])
    arguments.add_argument("--rate", type=int, default=8_000, help="positions a second of all members (8000)")
    arguments.add_argument("--seconds", type=int, default=30, help="how long each turn publishes (30: as long as the interval of a member's checks)")
    arguments.add_argument("--drivers", type=int, default=5_000)
    arguments.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of milepost, such as BATCH__AGE_MAX=2s")
    arguments.add_argument("--milepost", default=REPOSITORY / "target/release/milepost", type=lambda it: Path(it).resolve())
    arguments.add_argument("--loadgen", default=REPOSITORY / "target/release/loadgen", type=lambda it: Path(it).resolve())
    args = arguments.parse_args()
    os.environ["MILEPOST"] = str(args.milepost)
    turns: dict[tuple[int, str], list[Turn]] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        folder = Path(folder)
        url, engine = stack.enter_context(running_engine(folder))
        mqtt = stack.enter_context(running_broker(folder))
        databases = {schema: create(url, schema) for schema in SCHEMAS}
        for number in range(args.rounds):
            for count in args.members:
                for schema in SCHEMAS if number % 2 == 0 else reversed(SCHEMAS):
                    one = turn(args, engine, databases[schema], schema, count, mqtt, f"r{number}m{count}{schema}", folder)
                    turns.setdefault((count, schema), []).append(one)
                    print_progress(f"round {number + 1}, {count} members, {schema}: {one.us_a_row:.1f} µs a position, {one.inserts_s:.1f} inserts/s, milepost {one.members_us:.1f} µs")
        counted = touched_cost_us(engine, databases["milepost"])
    report(args, turns)
    print(f"\nCounting all these rows into `touched`, which its view does every five minutes: {counted:.2f} µs of CPU a position.")


if __name__ == "__main__":
    main()

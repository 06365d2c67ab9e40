"""Starts ClickHouse and creates the tables of `milepost migrate`, for tests of analysts' queries.

    make test ARGS=answers

Environment: MILEPOST is the path of the binary, by default target/debug/milepost.
"""
from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from devices import fleet, working_day

REPOSITORY = Path(__file__).resolve().parents[2]
START_SECONDS_MAX = 60
# Uses no proxy, because the engine runs on this machine.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
# Columns of `positions` that milepost inserts, and the values that mean unknown.
COLUMNS = (
    "driver_id",
    "ts",
    "seq",
    "lat_e7",
    "lng_e7",
    "speed_cms",
    "heading_cdeg",
    "alt_dm",
    "acc_dm",
    "received_at",
)
UNKNOWN = {"speed_cms": 65535, "heading_cdeg": 65535, "alt_dm": 2147483647, "acc_dm": 65535}


class Refused(Exception):
    """An error that ClickHouse returned, with its message."""


class Database:
    """A database on the engine. `{db}` in a statement stands for its name."""

    def __init__(self, url: str, name: str):
        self.url, self.name = url, name

    def ask(self, sql: str, **settings: str) -> str:
        """Returns the answer as text, tab-separated unless the statement names a format."""
        return self.answer(sql, **settings)[0].decode()

    def answer(self, sql: str, **settings: str) -> tuple[bytes, dict]:
        """Returns the answer as bytes, and the engine's summary with the number of rows read."""
        url = self.url + "/?" + urllib.parse.urlencode(settings)
        try:
            request = urllib.request.Request(url, sql.replace("{db}", self.name).encode())
            with OPENER.open(request, timeout=600) as answer:
                return answer.read(), json.loads(answer.headers["X-ClickHouse-Summary"])
        except urllib.error.HTTPError as error:
            raise Refused(error.read().decode()) from None

    def rows(self, sql: str, **settings: str) -> list[dict]:
        """Returns the answer as one dictionary per row."""
        lines = self.ask(
            sql + " FORMAT JSONEachRow", output_format_json_quote_64bit_integers="0", **settings
        )
        return [json.loads(line) for line in lines.splitlines()]

    def insert(self, fixes: list[dict], inserted_at: int | None = None) -> None:
        """Inserts fixes as milepost does.

        A fix has driver, ms, lat, lng, and optionally seq, speed, acc, received (ms).
        inserted_at: time of the insert by the server's clock, in epoch seconds; by default now.
        """
        columns = COLUMNS if inserted_at is None else (*COLUMNS, "inserted_at")
        lines = []
        for fix in fixes:
            row = {
                **UNKNOWN,
                "driver_id": fix["driver"],
                "ts": fix["ms"] / 1000,
                "seq": fix.get("seq", 0),
                "lat_e7": round(fix["lat"] * 1e7),
                "lng_e7": round(fix["lng"] * 1e7),
                "received_at": fix.get("received", fix["ms"]) / 1000,
            }
            if fix.get("speed") is not None:
                row["speed_cms"] = round(fix["speed"] * 100)
            if fix.get("acc") is not None:
                row["acc_dm"] = round(fix["acc"] * 10)
            if inserted_at is not None:
                row["inserted_at"] = inserted_at
            lines.append("\t".join(str(row[name]) for name in columns))
        self.ask(
            f"INSERT INTO {{db}}.positions ({', '.join(columns)}) FORMAT TabSeparated\n"
            + "\n".join(lines)
        )

    def refresh(self) -> None:
        """Refreshes the roll-up, as its schedule does every five minutes."""
        self.count_parts()
        self.run_view("driver_days_mv")

    def count_parts(self) -> None:
        """Counts the rows of new data parts in `touched`. This is the first half of a refresh."""
        self.run_view("touched_mv")

    def run_view(self, view: str) -> None:
        """Refreshes a view, and waits for the end of the refresh."""
        self.ask(f"SYSTEM START VIEW {{db}}.{view}")
        try:
            # Wait for a refresh that is already running: one begins when a view is created.
            self.ask(f"SYSTEM WAIT VIEW {{db}}.{view}")
        except Refused:
            # That refresh may have failed: a starting server may not have its system tables yet.
            pass
        self.ask(f"SYSTEM REFRESH VIEW {{db}}.{view}")
        self.ask(f"SYSTEM WAIT VIEW {{db}}.{view}")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def running_engine(state: Path):
    """Runs an engine with its data in this folder. Yields its URL and its process."""
    port = free_port()
    environment = {
        **os.environ,
        "CLICKHOUSE_PORT": str(port),
        "STATE_DIR": str(state),
        "CLICKHOUSE_PASSWORD": "",
        "TZ": "Pacific/Kiritimati",
    }
    log = open(state / "log", "wb")
    process = subprocess.Popen(
        [REPOSITORY / "lab/local/clickhouse"], env=environment, stdout=log, stderr=log
    )
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            OPENER.open(url + "/ping", timeout=5).read()
            break
        except OSError:
            is_starting = process.poll() is None and time.monotonic() < deadline
            assert is_starting, (state / "log").read_text()
            time.sleep(0.05)
    try:
        yield url, process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
        log.close()


@pytest.fixture(scope="session")
def engine(tmp_path_factory):
    """The URL of an engine that runs as long as the tests."""
    with running_engine(tmp_path_factory.mktemp("engine")) as (url, _):
        yield url


# Numbers for the names of the databases.
NUMBERS = itertools.count(1)


def run_milepost(url: str, name: str, command: str) -> None:
    """Runs a command of the binary on the database of this name."""
    binary = Path(os.environ.get("MILEPOST") or REPOSITORY / "target/debug/milepost").resolve()
    environment = {
        **os.environ,
        "MILEPOST__CLICKHOUSE__URL": url,
        "MILEPOST__CLICKHOUSE__DATABASE": name,
    }
    # Do not run the command in the root of the repository. It would read a milepost.toml that a
    # developer may have there.
    done = subprocess.run(
        [binary, command],
        cwd=REPOSITORY / "tests",
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def migrated(url: str) -> Database:
    """Returns a new database with the tables and views of `milepost migrate`."""
    name = f"answers{next(NUMBERS)}"
    run_milepost(url, name, "migrate")
    return Database(url, name)


# The tables that are emptied before each test.
TABLES = (
    "positions",
    "touched",
    "driver_days_state",
    "last_positions_state",
    "fences",
    "rejects",
    "trip_rules",
    "drivers",
)


@pytest.fixture(scope="session")
def one_database(engine) -> Database:
    return migrated(engine)


@pytest.fixture
def db(one_database) -> Database:
    """One database for all tests, emptied before each test.

    A database for each test would be slow: a migration takes longer than most tests.
    """
    for view in ("touched_mv", "driver_days_mv"):
        one_database.ask(f"SYSTEM STOP VIEW {{db}}.{view}")
    for table in TABLES:
        one_database.ask(f"SYSTEM START MERGES {{db}}.{table}")
        one_database.ask(f"TRUNCATE TABLE {{db}}.{table}")
    return one_database


@pytest.fixture(scope="session")
def shared_db(engine) -> Database:
    """A database whose rows are shared by several tests."""
    return migrated(engine)


@pytest.fixture(scope="session")
def computed_fleet(engine) -> tuple[Database, list[dict]]:
    """Returns a database with the fleet's fixes, and these fixes.

    They were inserted in three shuffled parts, most of them more than once. Then the roll-up was
    refreshed once.
    """
    db, chance = migrated(engine), random.Random(1)
    fixes = [fix for device in fleet() for fix in device.fixes]
    for part in range(3):
        inserted = [fix for fix in fixes if part == 0 or chance.random() < 0.6]
        chance.shuffle(inserted)
        db.insert(inserted)
    db.refresh()
    return db, fixes


@pytest.fixture(scope="session")
def day(engine) -> Database:
    """A database with the day of docs/analysts.md only, and a refreshed roll-up."""
    db = migrated(engine)
    fill_day(db)
    return db


def fill_day(db: Database) -> None:
    """Inserts the day of docs/analysts.md, and refreshes the roll-up."""
    for device in working_day():
        db.insert(device.fixes)
    db.refresh()

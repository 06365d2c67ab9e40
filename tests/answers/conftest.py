"""The ClickHouse engine and the tables of `milepost migrate`, for tests that ask what analysts ask.

    make answers-test
    make answers-test ARGS=--by-day               after `milepost backfill`

Environment: MILEPOST names the binary, else it is target/debug/milepost.
"""
from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from devices import working_day

REPOSITORY = Path(__file__).resolve().parents[2]
START_SECONDS_MAX = 60
# Not through a proxy: this is the machine itself.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
COLUMNS = ("driver_id", "ts", "seq", "lat_e7", "lng_e7", "speed_cms", "heading_cdeg", "alt_dm", "acc_dm", "received_at")
UNKNOWN = {"speed_cms": 65535, "heading_cdeg": 65535, "alt_dm": 2147483647, "acc_dm": 65535}


class Refused(Exception):
    """ClickHouse's words."""


class Database:
    """Tables of its own on the engine; `{db}` in a statement is its name."""

    def __init__(self, url: str, name: str):
        self.url, self.name = url, name

    def ask(self, sql: str, **settings: str) -> str:
        """The answer as text, tab-separated unless the statement names a format."""
        return self.answer(sql, **settings)[0].decode()

    def answer(self, sql: str, **settings: str) -> tuple[bytes, dict]:
        """The answer as bytes, and what the engine says it read."""
        url = self.url + "/?" + urllib.parse.urlencode(settings)
        try:
            with OPENER.open(urllib.request.Request(url, sql.replace("{db}", self.name).encode()), timeout=600) as answer:
                return answer.read(), json.loads(answer.headers["X-ClickHouse-Summary"])
        except urllib.error.HTTPError as error:
            raise Refused(error.read().decode()) from None

    def rows(self, sql: str, **settings: str) -> list[dict]:
        lines = self.ask(sql + " FORMAT JSONEachRow", output_format_json_quote_64bit_integers="0", **settings)
        return [json.loads(line) for line in lines.splitlines()]

    def insert(self, fixes: list[dict]) -> None:
        """Fixes as milepost inserts them: driver, ms, lat, lng; optional seq, speed, received (ms)."""
        lines = []
        for fix in fixes:
            row = {
                **UNKNOWN, "driver_id": fix["driver"], "ts": fix["ms"] / 1000, "seq": fix.get("seq", 0),
                "lat_e7": round(fix["lat"] * 1e7), "lng_e7": round(fix["lng"] * 1e7),
                "received_at": fix.get("received", fix["ms"]) / 1000,
            }
            if fix.get("speed") is not None:
                row["speed_cms"] = round(fix["speed"] * 100)
            lines.append("\t".join(str(row[name]) for name in COLUMNS))
        self.ask(f"INSERT INTO {{db}}.positions ({', '.join(COLUMNS)}) FORMAT TabSeparated\n" + "\n".join(lines))

    def refresh(self, *views: str) -> None:
        """What the schedule of the roll-ups does every hour."""
        for view in views or ("driver_quarters_mv", "driver_blocks_mv", "episodes_mv", "cell_quarters_mv"):
            self.ask(f"SYSTEM WAIT VIEW {{db}}.{view}")  # the one that its creation began
            self.ask(f"SYSTEM REFRESH VIEW {{db}}.{view}")
            self.ask(f"SYSTEM WAIT VIEW {{db}}.{view}")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def running_engine(state: Path):
    """An engine with its data in this folder: its URL and its process."""
    port = free_port()
    environment = {**os.environ, "CLICKHOUSE_PORT": str(port), "STATE_DIR": str(state), "CLICKHOUSE_PASSWORD": ""}
    log = open(state / "log", "wb")
    process = subprocess.Popen([REPOSITORY / "deploy/local/clickhouse"], env=environment, stdout=log, stderr=log)
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            OPENER.open(url + "/ping", timeout=5).read()
            break
        except OSError:
            assert process.poll() is None and time.monotonic() < deadline, (state / "log").read_text()
            time.sleep(0.05)
    try:
        yield url, process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
        log.close()


@pytest.fixture(scope="session")
def engine(tmp_path_factory):
    """The URL of an engine that lives as long as the tests."""
    with running_engine(tmp_path_factory.mktemp("engine")) as (url, _):
        yield url


NUMBERS = itertools.count(1)


def milepost(url: str, name: str, command: str) -> None:
    binary = os.environ.get("MILEPOST") or REPOSITORY / "target/debug/milepost"
    environment = {**os.environ, "MILEPOST__CLICKHOUSE__URL": url, "MILEPOST__CLICKHOUSE__DATABASE": name}
    done = subprocess.run([binary, command], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def migrated(url: str) -> Database:
    """A database that `milepost migrate` has made."""
    name = f"answers{next(NUMBERS)}"
    milepost(url, name, "migrate")
    return Database(url, name)


def by_day(url: str) -> Database:
    """The same after `milepost backfill`, and without the older table."""
    db = migrated(url)
    milepost(url, db.name, "backfill")
    db.ask("DROP TABLE {db}.positions_by_driver SYNC")
    return db


def pytest_addoption(parser):
    parser.addoption("--by-day", action="store_true", help="positions in the order of days, as `milepost backfill` leaves it")


@pytest.fixture(scope="session")
def make_db(request):
    return by_day if request.config.getoption("--by-day") else migrated


@pytest.fixture
def db(engine, make_db) -> Database:
    return make_db(engine)


@pytest.fixture(scope="module")
def shared_db(engine, make_db) -> Database:
    """One for all tests of a file."""
    return make_db(engine)


@pytest.fixture(scope="session")
def day(engine, make_db) -> Database:
    """The day that docs/analysts.md asks about, and nothing else; counted."""
    db = make_db(engine)
    fill_day(db)
    return db


def fill_day(db: Database) -> None:
    for device in working_day():
        db.insert(device.fixes)
    db.refresh()

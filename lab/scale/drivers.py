"""Imports fixes of very many drivers with the real binary: measures its memory, and queries for last positions.

    .local/venv/bin/python lab/scale/drivers.py                          ten million drivers, one fix each
    .local/venv/bin/python lab/scale/drivers.py --drivers 1000000        a quick look

Pipes CSV into `milepost import` of the release build, into the tables of `milepost migrate`. Then merges last_positions_state, and
queries all last positions, the last positions in one degree by one degree, and one driver's last position, three times each.
Kills the import after --minutes. Fails if a driver is missing.
"""
from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests/answers"))
from conftest import migrated, running_engine  # noqa: E402

LINES_A_WRITE = 20_000
QUESTIONS = {
    "all last positions, counted": "SELECT count(), max(ts) FROM {db}.last_positions",
    "those in one degree by one degree": "SELECT count() FROM {db}.last_positions WHERE lat >= 52 AND lat < 53 AND lng >= 13 AND lng < 14",
    "one driver": "SELECT lat, lng FROM {db}.last_positions WHERE driver_id = 'd00000042'",
}


def write_csv(pipe, drivers: int) -> None:
    """Writes one fix of each driver, on a grid over the whole world, within the last hour."""
    began = int(time.time() * 1000) - 3_600_000
    with pipe:
        pipe.write(b"driver_id,ts,lat,lng,seq\n")
        for first in range(0, drivers, LINES_A_WRITE):
            lines = (
                f"d{n:08},{began + n * 3_000_000 // drivers},{n * 7919 % 160_000 / 1000 - 80:.4f},{n * 104_729 % 360_000 / 1000 - 180:.4f},{n % 1000}\n"
                for n in range(first, min(first + LINES_A_WRITE, drivers))
            )
            pipe.write("".join(lines).encode())


def run_import(args, db) -> tuple[float, float, float]:
    """Runs the import. Returns its duration and CPU time in seconds, and its peak memory in MiB."""
    environment = {**os.environ, "MILEPOST__CLICKHOUSE__URL": db.url, "MILEPOST__CLICKHOUSE__DATABASE": db.name, "MILEPOST__LOG__FILTER": "warn"}
    began = time.monotonic()
    process = subprocess.Popen([args.milepost, "import", "--format", "csv", "-"], env=environment, stdin=subprocess.PIPE, stdout=sys.stderr)
    limit = threading.Timer(args.minutes * 60, process.kill)
    limit.start()
    write_csv(process.stdin, args.drivers)
    _, status, usage = os.wait4(process.pid, 0)
    limit.cancel()
    assert status == 0, f"milepost import ended with {os.waitstatus_to_exitcode(status)}"
    return time.monotonic() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def seconds(db, sql: str) -> str:
    took = []
    for _ in range(3):
        began = time.monotonic()
        db.ask(sql)
        took.append(time.monotonic() - began)
    return f"{statistics.median(took):.2f} s"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--drivers", type=int, default=10_000_000)
    arguments.add_argument("--minutes", type=float, default=30, help="the import is killed after this time (30)")
    arguments.add_argument("--milepost", default=REPOSITORY / "target/release/milepost", type=lambda it: Path(it).resolve())
    args = arguments.parse_args()
    os.environ["MILEPOST"] = str(args.milepost)
    with tempfile.TemporaryDirectory() as folder, running_engine(Path(folder)) as (url, _):
        db = migrated(url)
        took, cpu, memory = run_import(args, db)
        db.ask("OPTIMIZE TABLE {db}.last_positions_state FINAL")
        stored = int(db.ask("SELECT count() FROM {db}.last_positions"))
        assert stored == args.drivers, f"{stored} of {args.drivers} drivers have a last position"
        size = int(db.ask(f"SELECT sum(bytes_on_disk) FROM system.parts WHERE database = '{db.name}' AND table = 'last_positions_state' AND active"))
        print(f"| {args.drivers:,} drivers, one fix each | |\n|---|--:|")
        print(f"| `milepost import`: rows a second | {args.drivers / took:,.0f} |")
        print(f"| … CPU of milepost a row | {cpu / args.drivers * 1e6:.1f} µs |")
        print(f"| … memory of milepost, its peak | {memory:.1f} MiB |")
        print(f"| last_positions_state, merged | {size / 1e6:,.0f} MB, {size / args.drivers:.0f} bytes a driver |")
        for what, sql in QUESTIONS.items():
            print(f"| {what} | {seconds(db, sql)} |")


if __name__ == "__main__":
    main()

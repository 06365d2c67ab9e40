"""Measures ClickHouse's CPU for an insert of 5,000 rows into milepost's tables: without attributes, with one, and with ten.

    .local/venv/bin/python lab/scale/attribute.py

Inserts with the settings of milepost's inserts, and with the server's default, which merges the rows of each insert by their key.
Interleaves the inserts, and prints medians in µs a row. Merges are stopped, and rows are not parsed (INSERT … SELECT).
"""
from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "tests/answers"), str(REPOSITORY / "lab/bench-inserts")]
from bench_inserts import cpu_s  # noqa: E402
from conftest import migrated, running_engine  # noqa: E402

ROWS = 5_000
INSERTS_A_TURN = 10
COLUMNS = "driver_id, ts, seq, lat_e7, lng_e7, speed_cms, heading_cdeg, alt_dm, acc_dm, received_at, attributes"
ATTRIBUTES = {
    "no attribute": "map()",
    "one attribute": "map('batt', toString(number % 100))",
    "ten attributes": "map(" + ", ".join(f"'name{n}', toString((number + {n}) % 100)" for n in range(10)) + ")",
}


def source(attributes: str, drivers: int) -> str:
    """Returns a SELECT of one insert's rows."""
    return (
        f"SELECT concat('driver-', toString(number % {drivers})), now64(3, 'UTC') + toIntervalMillisecond(number), 1, 257617000 + rand() % 100000,"
        f" -801918000 + rand(1) % 100000, rand(2) % 3000, rand(3) % 36000, 2147483647, 45, now64(3, 'UTC'),"
        f" CAST({attributes} AS Map(LowCardinality(String), String)) FROM numbers({ROWS})"
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--turns", type=int, default=8, help="turns of ten inserts for each case (8)")
    args = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_engine(Path(folder)) as (url, process):
        db = migrated(url)
        db.ask("SYSTEM STOP MERGES")
        taken: dict[tuple[int, str, str], list[float]] = {}
        for _ in range(args.turns):
            for drivers in (5_000, 100):
                for name, attributes in ATTRIBUTES.items():
                    for optimize in ("0", "1"):
                        before = cpu_s(process)
                        for _ in range(INSERTS_A_TURN):
                            db.ask(f"INSERT INTO {{db}}.positions ({COLUMNS}) {source(attributes, drivers)}", optimize_on_insert=optimize)
                        taken.setdefault((drivers, name, optimize), []).append((cpu_s(process) - before) * 1e6 / INSERTS_A_TURN / ROWS)
            db.ask("TRUNCATE TABLE {db}.positions")
            db.ask("TRUNCATE TABLE {db}.last_positions_state")
        print("| drivers | | milepost's inserts | ÷ no attribute | optimize_on_insert = 1 |\n|--:|---|--:|--:|--:|")
        for drivers in (5_000, 100):
            plain = statistics.median(taken[drivers, "no attribute", "0"])
            for name in ATTRIBUTES:
                own, default = (statistics.median(taken[drivers, name, optimize]) for optimize in ("0", "1"))
                print(f"| {drivers:,} | {name} | {own:.1f} | {own / plain:.2f} | {default:.1f} |")


if __name__ == "__main__":
    main()

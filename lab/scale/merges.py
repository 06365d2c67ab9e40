"""Measures what merges cost: ClickHouse's CPU for inserts of 5,000 rows with all their merges, and the number of parts meanwhile.

    .local/venv/bin/python lab/scale/merges.py

Compares values of merge_selector_base, which sql/307 sets, with each other and with the story's schema. Rows are not parsed (INSERT … SELECT).
The tables take turns. Prints medians in µs a row and their ratio to the story's schema in the same round.
"""
from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "tests/answers"), str(REPOSITORY / "lab/bench-inserts")]
from attribute import COLUMNS, ROWS  # noqa: E402
from bench_inserts import cpu_s, create, settle  # noqa: E402
from conftest import running_engine  # noqa: E402

DRIVERS = 5_000
PAUSE_S = 0.3
DEFAULT = 5
TABLES = ("positions", "last_positions_state")


def source(number: int) -> str:
    """Returns a SELECT of the rows of an insert: one fix of each driver, in another order each time."""
    return (
        f"SELECT concat('driver-', toString((number * 7919 + {number}) % {DRIVERS})), toDateTime64('2026-06-01 08:00:00', 3, 'UTC') +"
        f" toIntervalMillisecond({number} * 1000 + number % 1000), {number}, 257617000 + rand() % 1000000, -801918000 + rand(1) % 1000000,"
        f" rand(2) % 3000, rand(3) % 36000, 2147483647, 45, now64(3, 'UTC'), CAST(map() AS Map(LowCardinality(String), String)) FROM numbers({ROWS})"
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--base", type=int, nargs="+", default=[5, 8, 10, 16])
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--inserts", type=int, default=100, help="inserts of a turn (100)")
    args = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_engine(Path(folder)) as (url, engine):
        databases = {"the story's schema": create(url, "story")}
        for base in args.base:
            databases[f"{base}, ClickHouse's default" if base == DEFAULT else str(base)] = db = create(url, "milepost")
            for table in TABLES:
                db.ask(f"ALTER TABLE {{db}}.{table} MODIFY SETTING merge_selector_base = {base}")
        costs: dict[str, list[float]] = {name: [] for name in databases}
        parts: dict[str, list[list[int]]] = {name: [] for name in databases}
        for turn in range(args.rounds):
            for name, db in list(databases.items())[:: 1 if turn % 2 == 0 else -1]:
                settle(db)
                before = cpu_s(engine)
                for number in range(turn * args.inserts, (turn + 1) * args.inserts):
                    db.ask(f"INSERT INTO {{db}}.positions ({COLUMNS}) {source(number)}", optimize_on_insert="0")
                    time.sleep(PAUSE_S)
                    counts = db.ask("SELECT countIf(table = 'positions'), countIf(table IN ('last_positions_state', 'story_last')) FROM system.parts "
                                    f"WHERE active AND database = '{db.name}'")
                    parts[name].append([int(count) for count in counts.split()])
                settle(db)
                costs[name].append((cpu_s(engine) - before) * 1e6 / args.inserts / ROWS)
                print(f"round {turn + 1}, {name}: {costs[name][-1]:.1f} µs a row", file=sys.stderr, flush=True)
        print("| merge_selector_base | µs a row | ÷ story | parts of positions, mean and most | of the last positions |\n|---|--:|--:|--:|--:|")
        story = costs["the story's schema"]
        for name, own in costs.items():
            mean_and_most = [f"{statistics.mean(counts):.1f}, {max(counts)}" for counts in zip(*parts[name])]
            ratio = statistics.median(one / other for one, other in zip(own, story))
            print(f"| {name} | {statistics.median(own):.1f} | {ratio:.2f} | {' | '.join(mean_and_most)} |")


if __name__ == "__main__":
    main()

"""Computes what a fleet needs from measured coefficients.

    python3 lab/scale/plan.py --drivers 250000 --every 10           your own fleet, line by line
    python3 lab/scale/plan.py --table                               the table of docs/scale.md
    python3 lab/scale/plan.py --drivers 1e6 --every 5 --set clickhouse_cores=16 --set disk_bytes=5.5

Every coefficient has its source, and is marked if it is assumed rather than measured. --list prints the coefficients; --set
NAME=VALUE replaces a coefficient with your own measurement.
"""
from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

DAY_S = 86_400
# Name: value, unit, where it was measured.
COEFFICIENTS = {
    "milepost_us": (1.6, "µs of CPU a message", "make bench at ed92538: 20,000/s, QoS 1 (docs/results.md)"),
    "member_rate": (25_000, "messages/s a member that shares its cores", "assumed: a target for shared cores; the ceiling is above 1.7 million (docs/results.md)"),
    "connection_rate": (10_000, "messages/s a connection", "assumed: half of the 20,000 at which a session of EMQX 5.8.9 became unstable"),
    "broker_us": (55, "µs of CPU of an EMQX node a message, in and out at QoS 1", "EMQX 5.8.9, 30,000/s, 49 to 78 (docs/brokers.md)"),
    "broker_cores": (8, "cores of a broker node", "yours"),
    "insert_ms": (17, "ms of CPU of ClickHouse an insert, however small", "INSERT … SELECT of 100 to 50,000 rows, fsync (docs/scale.md#coefficients)"),
    "row_us": (1.5, "µs of CPU of ClickHouse a row, in addition", "the same"),
    "merge_us": (5, "µs of CPU of ClickHouse a row for merges", "assumed; grows with the number of parts that a row goes through. Measure yours: system.part_log"),
    "rollup_us": (2.7, "µs of CPU of ClickHouse a fix, each time its day is computed", "docs/results.md#trips-and-stops"),
    "rollup_rows": (5_000_000, "rows of days that one refresh computes", "sql/360_driver_days_mv.sql"),
    "clickhouse_cores": (8, "cores of a ClickHouse server", "yours"),
    "rows_max": (5_000, "rows a batch", "batch.rows_max"),
    "inserts_max": (10, "inserts/s a shard", "assumed: ClickHouse's own advice is 1"),
    "disk_bytes": (8, "bytes a fix, merged", "make bench ARGS='--what sql': 5.5 on smooth tracks, 8 on noisy ones"),
    "rollup_bytes": (2.24, "bytes of roll-up a fix, at one every 30 s", "the same"),
    "wire_bytes": (190, "bytes a message on the wire, in and again out of the broker", "assumed: JSON of 100 bytes, topic, a share of TCP/IP"),
    "insert_bytes": (33, "bytes a row to ClickHouse, LZ4, noisy fixes", "docs/scale.md#coefficients"),
    "last_bytes": (44, "bytes a driver in last_positions_state, merged", "docs/scale.md#coefficients"),
    "map_bytes": (190, "bytes a driver in a live map, id included", "docs/map.md: 150 and the id"),
    "busy": (0.6, "share of the cores that you plan to use", "yours"),
    "cell_rate": (100_000, "positions/s of a cell: a group of members, its topics and its ClickHouse", "assumed: above it, an insert is cut into too many shards"),
    "replicas": (2, "replicas of each shard", "yours"),
}


# Coefficients by which something is divided. Any other may be 0: a fleet may have no roll-up, and no map.
DIVISORS = ("member_rate", "connection_rate", "broker_cores", "rollup_rows", "clickhouse_cores", "rows_max", "inserts_max", "busy", "cell_rate")


@dataclass
class Plan:
    """One fleet, divided into equal cells that share nothing. Rates are per second, sizes in bytes; figures are for one cell."""
    drivers: float
    every_s: float
    use: dict[str, float]

    @property
    def total_rate(self) -> float:
        return self.drivers / self.every_s

    @property
    def cells(self) -> int:
        return max(1, math.ceil(self.total_rate / self.use["cell_rate"]))

    @property
    def rate(self) -> float:
        return self.total_rate / self.cells

    @property
    def members(self) -> int:
        """Returns the members that the load needs, plus one, because one may be down; at least two."""
        return max(2, math.ceil(self.rate / self.use["member_rate"]) + 1)

    @property
    def connections(self) -> int:
        return max(self.members, math.ceil(self.rate / self.use["connection_rate"]))

    @property
    def broker_nodes(self) -> int:
        """Returns the nodes that the load needs, but at least two, because one may stop."""
        cores = self.rate * self.use["broker_us"] / 1e6 / self.use["busy"]
        return max(2, math.ceil(cores / self.use["broker_cores"]))

    @property
    def rows_max(self) -> int:
        """Returns batch.rows_max. An insert is split by shard, and each shard should get the rows of a batch. 100,000 rows are below 8 MiB."""
        return min(100_000, int(self.use["rows_max"] * self.shards))

    def inserts(self, shards: int) -> float:
        """Returns the inserts a second of all members. Each insert goes to every shard, and is as large as `rows_max` and `age_s` allow."""
        by_rows = self.rate / min(100_000, self.use["rows_max"] * shards)
        by_age = self.members / self.age_s
        return max(by_rows, by_age)

    @property
    def age_s(self) -> int:
        """Returns the `batch.age_max` at which a shard gets no more inserts than it can merge."""
        return max(1, math.ceil(self.members / self.use["inserts_max"]))

    def cores_of_a_shard(self, shards: int) -> float:
        inserting = self.inserts(shards) * self.use["insert_ms"] / 1e3
        rows = self.rate / shards * (self.use["row_us"] + self.use["merge_us"]) / 1e6
        rolling_up = self.use["rollup_rows"] / 300 * self.use["rollup_us"] / 1e6
        return inserting + rows + rolling_up

    @property
    def shards(self) -> int:
        """Returns the smallest number of shards with which inserts and merges fit into the cores, and every driver's day is computed once a day."""
        shards = max(1, math.ceil(self.rate / (self.use["rollup_rows"] / 300)))
        while self.cores_of_a_shard(shards) > self.use["clickhouse_cores"] * self.use["busy"] and shards < 100:
            shards += 1
        return shards

    @property
    def rollup_s(self) -> float:
        """Returns the age of the roll-up of a driver's day at the day's end: a refresh computes `rollup_rows` rows, newest first."""
        rows_a_day = self.rate * DAY_S / self.shards
        return max(300, rows_a_day / self.use["rollup_rows"] * 300)

    @property
    def disk_a_day(self) -> float:
        """Returns the disk bytes a day of all cells, for one replica."""
        return self.total_rate * DAY_S * (self.use["disk_bytes"] + self.use["rollup_bytes"])

    def lines(self) -> list[tuple[str, str]]:
        use, shards, inserts = self.use, self.shards, self.inserts(self.shards)
        return [
            ("positions a second", f"{self.total_rate:,.0f}"),
            ("cells", f"{self.cells}, of {self.rate:,.0f} positions a second; the next lines are of one cell"),
            ("members (one away)", f"{self.members}, {self.rate * use['milepost_us'] / 1e6:.2f} cores in all"),
            ("connections of the group", f"{self.connections}"),
            ("broker nodes", f"{self.broker_nodes} of {use['broker_cores']:.0f} cores, {self.rate * use['broker_us'] / 1e6:.1f} cores in all"),
            ("ClickHouse", f"{shards} shards × {use['replicas']:.0f} replicas of {use['clickhouse_cores']:.0f} cores, {self.cores_of_a_shard(shards):.1f} of them busy"),
            ("batch.rows_max, batch.age_max", f"{self.rows_max:,}, {self.age_s} s"),
            ("inserts a second on each shard", f"{inserts:.1f}, of {self.rate / inserts / shards:,.0f} rows"),
            ("parts a day and shard", f"{inserts * 2 * DAY_S:,.0f} (positions and last_positions_state)"),
            ("last_positions", size(self.drivers / self.cells * use["last_bytes"])),
            ("memory of a live map", size(self.drivers / self.cells * use["map_bytes"])),
            ("roll-up: age of a day at its end", duration(self.rollup_s)),
            ("network: devices → broker → members", f"2 × {size(self.rate * use['wire_bytes'])}/s"),
            ("network: members → ClickHouse", f"{size(self.rate * use['insert_bytes'])}/s, once more for each further replica"),
            ("disk a day, all cells, one replica", size(self.disk_a_day)),
            ("disk a year", size(self.disk_a_day * 365)),
        ]


def size(value: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000:
            return f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} PB"


def duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.0f} h"


def table(use: dict[str, float]) -> None:
    print("| drivers | a fix every | positions/s | cells | of each: members | connections | broker nodes | shards | inserts/s, rows each | all: disk a day | a year | last_positions | map | roll-up's age |")
    print("|" + "--:|" * 14)
    for drivers in (1e4, 1e5, 1e6, 1e7):
        for every_s in (1, 5, 30):
            one = Plan(drivers, every_s, use)
            inserts = one.inserts(one.shards)
            print(f"| {drivers:,.0f} | {every_s} s | {one.total_rate:,.0f} | {one.cells} | {one.members} | {one.connections} | {one.broker_nodes} | {one.shards} "
                  f"| {inserts:.1f}, {one.rate / inserts / one.shards:,.0f} | {size(one.disk_a_day)} | {size(one.disk_a_day * 365)} "
                  f"| {size(drivers * use['last_bytes'])} | {size(drivers * use['map_bytes'])} | {duration(one.rollup_s)} |")


def positive(text: str) -> float:
    """Parses a number above 0. Raises ValueError for any other text."""
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError(text)
    return value


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--drivers", type=positive, default=100_000)
    arguments.add_argument("--every", type=positive, default=5, metavar="SECONDS", help="seconds between two fixes of a driver")
    arguments.add_argument("--table", action="store_true", help="10 k to 10 M drivers, a fix every 1, 5 and 30 s")
    arguments.add_argument("--list", action="store_true", help="print the coefficients")
    arguments.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="replace a coefficient")
    args = arguments.parse_args()
    use = {name: value for name, (value, _, _) in COEFFICIENTS.items()}
    for word in args.set:
        name, _, value = word.partition("=")
        if name not in use:
            arguments.error(f"--set {name}: the name must be one of {', '.join(use)}")
        try:
            use[name] = positive(value) if name in DIVISORS or float(value) else 0
        except ValueError:
            arguments.error(f"--set {word}: the value must be a number above 0{'' if name in DIVISORS else ', or 0'}")
    if args.list:
        print("| coefficient | value | from |")
        print("|---|---|---|")
        for name, (value, unit, source) in COEFFICIENTS.items():
            print(f"| `{name}` | {value:g} {unit} | {source} |")
    elif args.table:
        table(use)
    else:
        for name, value in Plan(args.drivers, args.every, use).lines():
            print(f"{name:38} {value}")
        assumed = [name for name, (_, _, source) in COEFFICIENTS.items() if source.startswith("assumed") and not any(word.startswith(f"{name}=") for word in args.set)]
        print(f"{'assumed, not measured (--list)':38} {', '.join(assumed)}")


if __name__ == "__main__":
    main()

"""Computes figures from a record of `lab story`, for the page, docs/story.md and README's picture.

Needs only the standard library, because docs/figures/draw.py and `make check` use it, too.
"""

import json
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
KEPT = REPOSITORY / "docs/story.json"
# CPU cores used by other processes above which the machine counts as busy, as in lab/story/src/findings.rs.
OTHERS_CORES = 0.15
# Figures of the story as published: at 60,000 messages/s on one machine, where the broker was the ceiling of all three.
PUBLISHED = [
    ("Rust, as published", "29 %", "4 MiB", "1.2 / 1.7 ms"),
    ("Node, as published", "77 %", "52 MiB", "6.7 / 10.0 ms"),
    ("Bun, as published", "113 %", "142 MiB", "3.8 / 8.6 ms"),
]


def short(number: float) -> str:
    """Formats a number with a unit: 1500000 is '1.5 M'."""
    for size, unit in [(1e6, " M"), (1e3, " k")]:
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.0f}"


def rounded(number: float) -> str:
    """Formats two significant digits, or a whole number from 10 on: 0.35, 4.2, 38, 1056."""
    return f"{number:.0f}" if number >= 10 else f"{number:.2g}"


def percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def pair(values) -> str:
    return "–" if not values else f"{rounded(values[0])} / {rounded(values[1])} ms"


def capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


class Story:
    def __init__(self, path: Path):
        self.record = json.loads(path.read_text(encoding="utf-8"))
        self.players = [player for player in self.record["consumers"] if not player["missing"]]
        self.missing = [player for player in self.record["consumers"] if player["missing"]]
        self.outcomes = self.record["outcomes"]

    # --- Figures ---

    def outcomes_of(self, part: str, consumer: str, **step) -> list[dict]:
        """Returns the outcomes of a consumer in a part, in the order of the run: all, or those whose step has these values."""
        return [
            outcome for outcome in self.outcomes
            if outcome["part"] == part and outcome["consumer"] == consumer and not outcome["error"]
            and all(outcome["step"][name] == value for name, value in step.items())
        ]

    def outcome_of(self, part: str, consumer: str, **step) -> dict | None:
        return next(iter(self.outcomes_of(part, consumer, **step)), None)

    @staticmethod
    def memory(outcome: dict, kind: str = "memory") -> float:
        """Returns MiB as `docker stats` counts them, or without pages of files where there is no cgroup."""
        memory = outcome[kind]
        return memory["private"] if memory["docker"] is None else memory["docker"]

    def busiest_through_broker(self) -> dict | None:
        """Returns the ramp's step with the highest target rate through a broker."""
        steps = [outcome["step"] for outcome in self.outcomes
                 if outcome["part"] == "ramp" and outcome["step"]["through"] == "broker"]
        return max(steps, key=lambda step: (step["rate"], -step["qos"]), default=None)

    def ceiling(self, consumer: str) -> dict | None:
        """Returns the consumer's outcome with the highest rate of stored rows."""
        outcomes = self.outcomes_of("ramp", consumer)
        return max(outcomes, key=lambda outcome: outcome["stored_per_s"], default=None)

    def broker_ceilings(self) -> list[dict]:
        """Returns the broker's ceilings. A ceiling that another step exceeded by a tenth is a consumer's, and is left out."""
        def highest_rate(qos: int) -> float:
            return max((outcome["stored_per_s"] for outcome in self.outcomes
                        if outcome["step"]["through"] == "broker" and outcome["step"]["qos"] == qos), default=0)
        return [ceiling for ceiling in self.record["broker_ceilings"] if highest_rate(ceiling["qos"]) < 1.1 * ceiling["rate"]]

    def reference(self, consumer: str) -> dict | None:
        """Returns the outcome with which costs are compared: 10,000 messages/s at QoS 1 into ClickHouse."""
        return self.outcome_of("ramp", consumer, rate=10_000, through="broker")

    def smallest_pod(self, consumer: str) -> str:
        outcomes = self.outcomes_of("smaller", consumer)
        limits = [outcome["limit"] for outcome in outcomes if outcome["holds"]]
        if not outcomes:
            return "–"
        if not limits:
            return "none of these"
        # The pods are tried from large to small.
        return f"{limits[-1]['cores']:g} cores, {limits[-1]['memory_mib']} MiB"

    def lost(self, part: str, consumer: str) -> str:
        outcome = self.outcome_of(part, consumer)
        if outcome is None or outcome["lost"] is None:
            return "–"
        return f"{outcome['lost']:,} of {outcome['messages']:,}"

    def month(self, consumer: str) -> float | None:
        """Returns the monthly price for a million drivers that send one message a second each."""
        outcome = self.ceiling(consumer)
        if outcome is None or not outcome["cpu_us_per_message"]:
            return None
        price = self.record["price"]
        members = max(1.0, 1e6 / outcome["stored_per_s"])
        gib = members * self.memory(outcome) / 1024
        # At a million messages a second, each microsecond of CPU a message needs one core.
        return outcome["cpu_us_per_message"] * price["core_month"] + gib * price["gib_month"]

    # --- Tables: the list of column names, then the rows ---

    def table(self) -> tuple[list[str], list[list[str]]]:
        step = self.busiest_through_broker()
        heads = ["", "CPU of a core" + (f", {short(step['rate'])}/s sent to the broker" if step else ""),
                 "memory there", "insert p50 / p99 there", "CPU a message, 10 k/s QoS 1 → ClickHouse",
                 "ceiling, firehose → sink", "lost after kill -9", "lost, ClickHouse away",
                 "lost among hostile messages", "hostile rows stored", "pod of the story: CPU, memory",
                 "smallest pod"]
        rows = []
        for player in self.players:
            name = player["name"]
            busiest = step and self.outcome_of("ramp", name, **{key: step[key] for key in ("rate", "through", "qos")})
            reference, ceiling, pod = self.reference(name), self.ceiling(name), self.outcome_of("pod", name)
            hostile = self.outcome_of("hostile", name)
            rows.append([
                player["title"],
                f"{percent(busiest['cores'])} at {short(busiest['stored_per_s'])}/s" if busiest else "–",
                f"{self.memory(busiest):.1f} MiB" if busiest else "–",
                pair(busiest["flush_seen_ms"]) if busiest else "–",
                f"{reference['cpu_us_per_message']:.1f} µs" if reference else "–",
                f"{short(ceiling['stored_per_s'])}/s" if ceiling and ceiling["step"]["through"] == "firehose" else "–",
                self.lost("kill", name), self.lost("outage", name), self.lost("hostile", name),
                "–" if hostile is None or hostile["bad_stored"] is None else f"{hostile['bad_stored']}",
                self.pod(pod), self.smallest_pod(name),
            ])
        rows += [[name, cpu, memory, flush] + ["–"] * (len(heads) - 4) for name, cpu, memory, flush in PUBLISHED]
        return heads, rows

    def pod(self, outcome: dict | None) -> str:
        if outcome is None:
            return "–"
        limit = outcome["limit"]
        shares = f"{percent(outcome['cores'] / limit['cores'])}, {percent(self.memory(outcome) / limit['memory_mib'])}"
        is_busy = outcome["others_cores"] > OTHERS_CORES
        verdict = "holds" if outcome["holds"] else "not judged, the machine was busy" if is_busy else "does not hold"
        return f"{verdict}: {shares}"

    def ramp(self) -> tuple[list[str], list[list[str]]]:
        heads = ["drivers", "target", "through → into", "consumer", "stored", "CPU, cores", "CPU a message",
                 "memory as docker counts", "resident", "insert p50 / p99, measured outside", "by its own /metrics", "lost"]
        rows = []
        for outcome in self.outcomes:
            if outcome["part"] != "ramp":
                continue
            step = outcome["step"]
            row = [f"{step['drivers']:,}", f"{short(step['rate'])}/s",
                   f"{step['through']}, QoS {step['qos']} → {step['into']}", self.title(outcome["consumer"])]
            if outcome["error"]:
                rows.append(row + [f"failed: {outcome['error'].splitlines()[0]}"] + ["–"] * 7)
                continue
            cost = outcome["cpu_us_per_message"]
            dropped = outcome["broker_dropped"]
            rows.append(row + [
                f"{short(outcome['stored_per_s'])}/s", f"{outcome['cores']:.2f}",
                f"{cost:.2f} µs" if cost else "–",
                f"{self.memory(outcome):.1f} MiB", f"{outcome['memory']['resident']:.1f} MiB",
                pair(outcome["flush_seen_ms"]), pair(outcome["flush_own_ms"]),
                f"{outcome['lost']:,}" + (f" (the broker dropped {dropped:,})" if dropped else ""),
            ])
        return heads, rows

    def claims(self) -> tuple[list[str], list[list[str]]]:
        price = self.record["price"]
        command = self.record["command"]
        only = lambda part: f"`make story ARGS='--only {part}'`"  # noqa: E731
        heads = ["claim", *[player["title"] for player in self.players], "measured by"]
        rows: list[list[str]] = []

        def row(claim: str, figure, by: str) -> None:
            def shown(player):
                try:
                    return figure(player["name"])
                except (TypeError, KeyError):
                    return "–"
            rows.append([claim, *[shown(player) for player in self.players], by])

        shipped = {player["name"]: player["shipped_mib"] for player in self.players}
        row("memory after the start, before any message",
            lambda name: f"{self.memory(self.reference(name), 'idle'):.1f} MiB", only("ramp"))
        row("start to subscribed", lambda name: f"{self.reference(name)['ready_ms']:.0f} ms", only("ramp"))
        row("to ship, without a base image", lambda name: f"{shipped[name]:.0f} MiB", f"`{command}`")
        row("insert p99 at 10,000 messages/s", lambda name: f"{self.reference(name)['flush_seen_ms'][1]:.0f} ms", only("ramp"))
        row("publish to row, p99 at 10,000 messages/s",
            lambda name: f"{self.reference(name)['freshness_ms'][1]:.0f} ms", only("ramp"))
        seconds = next((outcome["samples_seconds"] for outcome in self.outcomes if outcome["part"] == "memory"), None)
        row("memory at the end of the memory run" + (f" of {seconds / 60:.1f} minutes" if seconds else ""),
            lambda name: f"{self.memory(self.outcome_of('memory', name)):.1f} MiB, "
                         f"{self.outcome_of('memory', name)['slope_mib_per_min']:+.2f} MiB a minute", only("memory"))
        row("crashes at hostile messages",
            lambda name: "none" if self.outcome_of("hostile", name)["is_alive"] else "it exited", only("hostile"))
        row(f"a month of a million drivers, a message a second each, at {price['core_month']:g} {price['currency']} a core and "
            f"{price['gib_month']:g} a GiB",
            lambda name: f"{self.month(name):,.0f} {price['currency']}", only("ramp"))
        return heads, rows

    def everyone(self) -> tuple[list[str], list[list[str]]]:
        heads = ["ten million drivers, each once, into ClickHouse", "stored a second", "in last_positions", "a driver's last position",
                 "memory", "lost"]
        rows = []
        for player in self.players:
            outcome = self.outcome_of("everyone", player["name"])
            if outcome and outcome["last_positions"] is not None:
                rows.append([player["title"], f"{short(outcome['stored_per_s'])}/s", f"{outcome['last_positions']:,}",
                             f"{outcome['last_position_ms']:.0f} ms", f"{self.memory(outcome):.1f} MiB", f"{outcome['lost']:,}"])
        return heads, rows

    def title(self, name: str) -> str:
        return next(player["title"] for player in self.record["consumers"] if player["name"] == name)

    # --- Sentences ---

    def verdict(self) -> list[str]:
        """Returns the sentences that the figures support, for and against milepost."""
        lines = []
        milepost, others = self.reference("milepost"), [
            (player["title"], self.reference(player["name"])) for player in self.players if player["name"] != "milepost"
        ]
        if milepost and milepost["cpu_us_per_message"]:
            cpu_us = milepost["cpu_us_per_message"]
            costs = [(title, other["cpu_us_per_message"]) for title, other in others if other and other["cpu_us_per_message"]]
            ratios = [f"{title} {cost / cpu_us:.1f} times" for title, cost in costs]
            lines.append(f"At 10,000 messages/s milepost uses {cpu_us:.1f} µs of CPU a message and "
                        f"{self.memory(milepost):.1f} MiB. CPU of the others: {', '.join(ratios)} as much.")
            cheaper = [title for title, cost in costs if cost < cpu_us]
            smaller = [title for title, other in others if other and self.memory(other) < self.memory(milepost)]
            if cheaper:
                lines.append(f"Against milepost: {', '.join(cheaper)} use less CPU a message.")
            if smaller:
                lines.append(f"Against milepost: {', '.join(smaller)} use less memory.")
        best = self.ceiling("milepost")
        faster = [player["title"] for player in self.players if best and player["name"] != "milepost"
                  and (self.ceiling(player["name"]) or best)["stored_per_s"] > best["stored_per_s"]]
        if faster:
            lines.append(f"Against milepost: {', '.join(faster)} store more rows a second at their ceiling.")
        for player in self.players:
            sentences = [finding["sentence"] for finding in player["findings"]]
            name = player["title"] if player["name"] == "milepost" else capitalised(player["title"])
            lines += [f"{name} {sentence}." for sentence in sentences]
            if not sentences:
                lines.append(f"There is no finding against {player['title']}.")
        for ceiling in self.broker_ceilings():
            lines.append(f"At QoS {ceiling['qos']} the broker is the ceiling: {short(ceiling['rate'])} messages/s, at "
                        f"{ceiling['broker_cores']:.2f} cores that it uses itself.")
        for player in self.missing:
            lines.append(f"{player['title']} did not take part: {player['missing']}.")
        return lines

    def about(self) -> str:
        machine = self.record["machine"]
        versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
        others = max((outcome["others_cores"] for outcome in self.outcomes), default=0)
        busy = f" Other processes used up to {others:.1f} cores meanwhile." if others > OTHERS_CORES else ""
        measured = {outcome["consumer"] for outcome in self.outcomes if outcome["part"] == "memory"}
        missing = [player["title"] for player in self.players if measured and player["name"] not in measured]
        unmeasured = f" Not in this record: the memory run of {' and '.join(missing)}." if missing else ""
        return (f"`{self.record['command']}`, {machine['date'][:10]}, {machine['cores']} cores ({machine['cpu']}), Linux "
                f"{machine['kernel']}, {versions}; Rust built with the profile {self.record['profile']}; broker: {self.record['broker']}; {self.record['minutes']:.0f} minutes.{busy}{unmeasured}")


def markdown(table: tuple[list[str], list[list[str]]]) -> str:
    heads, rows = table
    lines = [heads, ["---"] + ["--:"] * (len(heads) - 1), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)

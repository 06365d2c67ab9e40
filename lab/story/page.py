#!/usr/bin/env python3
"""Makes bench-results/story.html, a single file that needs no network, from bench-results/story.json.

    .local/venv/bin/python lab/story/page.py [RESULTS]
"""

import sys
from html import escape
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from story import REPOSITORY, Story, short

STYLE = """
body { font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; margin: 2rem auto; max-width: 1180px;
  padding: 0 1rem; color: #1b1f24; background: #fff }
h1 { font-size: 1.6rem } h2 { font-size: 1.15rem; margin-top: 2.2rem } .faint { color: #59626d }
table { border-collapse: collapse; font-size: 13px; display: block; overflow-x: auto }
th, td { border-bottom: 1px solid #d5dae0; padding: .35rem .6rem; text-align: left; vertical-align: top }
td:not(:first-child) { font-variant-numeric: tabular-nums }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(520px, 1fr)); gap: 1rem }
.charts > div { min-width: 0 }
"""
NAMES = {"broker": "through the broker", "firehose": "through the firehose"}


def layout(figure: go.Figure, title: str, x: str, y: str, **more) -> go.Figure:
    """Sets the title and the labels of the axes, and returns the figure."""
    figure.update_layout(title=title, template="plotly_white", height=400, margin={"t": 60, "r": 20, "b": 50, "l": 60},
                         legend={"orientation": "h", "y": -0.25}, hovermode="closest", **more)
    figure.update_xaxes(title=x)
    figure.update_yaxes(title=y)
    return figure


def draw_ramp(story: Story, title: str, y: str, value_of, log: bool = True, with_target: bool = False) -> go.Figure:
    """Draws a curve for each consumer: solid lines through the broker, dashed lines through the firehose.

    `value_of` returns the value of an outcome, or None.
    """
    figure = go.Figure()
    for player in story.players:
        for through, dash in [("broker", "solid"), ("firehose", "dash")]:
            outcomes = [outcome for outcome in story.outcomes_of("ramp", player["name"], through=through)
                        if value_of(outcome) is not None]
            outcomes.sort(key=lambda outcome: (outcome["step"]["rate"], outcome["step"]["qos"]))
            if not outcomes:
                continue
            steps, values = [outcome["step"] for outcome in outcomes], [value_of(outcome) for outcome in outcomes]
            hover = [f"{player['title']}, {step['drivers']:,} drivers, {NAMES[through]}, QoS {step['qos']} → "
                     f"{step['into']}: {value:.4g}" for step, value in zip(steps, values, strict=True)]
            figure.add_trace(go.Scatter(
                x=[step["rate"] for step in steps], y=values, mode="lines+markers",
                name=player["title"], legendgroup=player["name"], showlegend=through == "broker",
                line={"color": player["colour"], "dash": dash}, hovertext=hover, hoverinfo="text",
                marker={"symbol": "circle" if through == "broker" else "diamond", "size": 8},
            ))
    if with_target:
        rates = sorted({outcome["step"]["rate"] for outcome in story.outcomes if outcome["part"] == "ramp"})
        figure.add_trace(go.Scatter(x=rates, y=rates, mode="lines", name="target",
                                    line={"color": "#c3cad2", "width": 1}))
    for ceiling in story.broker_ceilings():
        figure.add_vline(x=ceiling["rate"], line={"color": "#b3261e", "dash": "dot", "width": 1},
                         annotation_text=f"broker's ceiling, QoS {ceiling['qos']}: {short(ceiling['rate'])}/s",
                         annotation_position="top left", annotation_font_size=10)
    layout(figure, title, "target messages/s, and number of drivers", y)
    figure.update_xaxes(type="log")
    if log:
        figure.update_yaxes(type="log")
    return figure


def draw_flush(story: Story) -> go.Figure:
    """Draws the durations of inserts: the median as a solid line, the 99th percentile as a dotted line."""
    figure = go.Figure()
    for player in story.players:
        outcomes = [outcome for outcome in story.outcomes_of("ramp", player["name"]) if outcome["flush_seen_ms"]]
        outcomes.sort(key=lambda outcome: (outcome["step"]["rate"], outcome["step"]["into"]))
        for index, dash, name in [(0, "solid", "p50"), (1, "dot", "p99")]:
            figure.add_trace(go.Scatter(
                x=[outcome["step"]["rate"] for outcome in outcomes],
                y=[outcome["flush_seen_ms"][index] for outcome in outcomes],
                mode="lines+markers", name=f"{player['title']}, {name}", line={"color": player["colour"], "dash": dash}))
    layout(figure, "One insert, p50 and p99, at the proxy or the sink", "target messages/s", "ms")
    figure.update_xaxes(type="log")
    figure.update_yaxes(type="log")
    return figure


def draw_over_time(story: Story, part: str, title: str, y: str, value_of) -> go.Figure:
    """Draws a curve over time for each consumer in a part. `value_of` returns the value of a sample."""
    figure = go.Figure()
    for player in story.players:
        outcome = story.outcome_of(part, player["name"])
        if outcome and outcome["samples"]:
            samples = outcome["samples"]
            figure.add_trace(go.Scatter(x=[sample["seconds"] for sample in samples], y=[value_of(sample) for sample in samples],
                                        mode="lines", name=player["title"], line={"color": player["colour"]}))
    return layout(figure, title, "seconds since the load began", y)


def draw_losses(story: Story) -> go.Figure:
    """Draws the losses in each part, as shares of the messages sent."""
    parts = [("ramp", "ramp"), ("kill", "kill -9"), ("outage", "ClickHouse away"), ("hostile", "hostile messages"), ("pod", "pod")]
    figure = go.Figure()
    for player in story.players:
        shares, hover = [], []
        for part, _ in parts:
            outcomes = [outcome for outcome in story.outcomes_of(part, player["name"]) if outcome["lost"] is not None]
            lost = sum(outcome["lost"] - (outcome["broker_dropped"] or 0) for outcome in outcomes)
            sent = sum(outcome["messages"] for outcome in outcomes)
            shares.append(100 * lost / sent if sent else None)
            hover.append(f"{player['title']}: {lost:,} of {sent:,}")
        figure.add_trace(go.Bar(x=[name for _, name in parts], y=shares, name=player["title"], hovertext=hover, hoverinfo="text",
                                marker_color=player["colour"], text=[f"{share:.2g} %" if share else "0" for share in shares]))
    return layout(figure, "Lost, by sets of (driver, seq)", "", "% of what was sent", barmode="group")


def memory_of(sample: dict) -> float:
    """Returns MiB as `docker stats` counts them, or without pages of files where there is no cgroup."""
    memory = sample["memory"]
    return memory["private"] if memory["docker"] is None else memory["docker"]


def charts(story: Story) -> list[go.Figure]:
    return [
        draw_ramp(story, "CPU over the ramp", "cores", lambda outcome: outcome["cores"] or None),
        draw_ramp(story, "CPU a message over the ramp", "µs", lambda outcome: outcome["cpu_us_per_message"]),
        draw_ramp(story, "Rows stored a second, and the target", "rows/s", lambda outcome: outcome["stored_per_s"] or None, with_target=True),
        draw_ramp(story, "Memory over the ramp, as docker counts", "MiB", story.memory),
        draw_flush(story),
        draw_losses(story),
        draw_ramp(story, "Lost over the ramp", "% of what was sent",
             lambda outcome: None if outcome["lost"] is None else 100 * outcome["lost"] / max(1, outcome["messages"]), log=False),
        draw_over_time(story, "outage", "ClickHouse away: rows stored", "rows", lambda sample: sample["stored"]),
        draw_over_time(story, "kill", "kill -9 in mid-load: memory", "MiB", memory_of),
        draw_over_time(story, "memory", "Memory over time", "MiB", memory_of),
    ]


def plain(text: str) -> str:
    """Returns the text without Markdown markup."""
    return text.replace("`", "")


def table(heads_and_rows) -> str:
    heads, rows = heads_and_rows
    cells = lambda kind, line: "".join(f"<{kind}>{escape(plain(cell))}</{kind}>" for cell in line)  # noqa: E731
    return (f"<table><thead><tr>{cells('th', heads)}</tr></thead><tbody>"
            + "".join(f"<tr>{cells('td', row)}</tr>" for row in rows) + "</tbody></table>")


def page(story: Story) -> str:
    shown = {"responsive": True, "displayModeBar": False}
    figures = [figure for figure in charts(story) if any(trace.y for trace in figure.data)]
    drawn = "".join(f"<div>{figure.to_html(full_html=False, include_plotlyjs=False, config=shown)}</div>" for figure in figures)
    verdict = "".join(f"<li>{escape(sentence)}</li>" for sentence in story.verdict())
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>The story's experiment</title>
<style>{STYLE}</style><script>{get_plotlyjs()}</script></head><body>
<h1>The story's experiment: one pipeline, {len(story.players)} consumers</h1>
<p class="faint">{escape(plain(story.about()))}</p>
<h2>What the figures say, for and against milepost</h2><ul>{verdict}</ul>
<h2>The story's table</h2>{table(story.table())}
<div class="charts">{drawn}</div>
<script>addEventListener("load", () => document.querySelectorAll(".plotly-graph-div").forEach((div) => Plotly.Plots.resize(div)))</script>
<h2>The other stories' claims</h2>{table(story.claims())}
{f"<h2>Ten million drivers</h2>{table(story.everyone())}" if story.everyone()[1] else ""}
<h2>Every step of the ramp</h2>{table(story.ramp())}
</body></html>"""


def main() -> None:
    results = Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY / "bench-results"
    path = results / "story.html"
    path.write_text(page(Story(results / "story.json")), encoding="utf-8")
    print(f"the page: {path}")


if __name__ == "__main__":
    main()

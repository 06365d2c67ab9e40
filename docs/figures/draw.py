#!/usr/bin/env python3
"""Draws README's pictures of measurements from docs/results.md (demo) and docs/story.json (cost), so that they never differ.

    python3 docs/figures/draw.py                                       # writes docs/figures/demo.svg and cost.svg
    python3 docs/figures/draw.py --check                               # exit 1 if they are not what would be written
    python3 docs/figures/draw.py --tracks .local/demo-tracks.svg       # first takes a piece of that picture of make demo

The pictures follow the reader's light or dark scheme. flow.svg is made by hand, in the same colours.
"""

import re
import sys
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "lab/story"))

from story import KEPT, Story  # noqa: E402

RESULTS = HERE.parent / "results.md"
TRACKS = HERE / "tracks.txt"
WIDTH = 920
# What of the demo's picture is shown: left, top, width and height there, and its size here.
PIECE = (300.0, 300.0, 230.0, 230.0)
PIECE_SIZE = 196

STYLE = """
  .paper { fill: #f6f7f9; stroke: #d5dae0 } .ink { fill: #1b1f24 } .faint { fill: #59626d } .good { fill: #008c67 }
  .bad { fill: #b3261e } .ours { fill: #0072b2 } .theirs { fill: #a3adb8 } .rule { stroke: #d5dae0 }
  text { font: 14px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif }
  .mono { font: 13px ui-monospace, Menlo, "DejaVu Sans Mono", monospace; white-space: pre }
  .small { font-size: 12px } .bold { font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #1c2126; stroke: #363d45 } .ink { fill: #e6e9ed } .faint { fill: #a3adb8 } .good { fill: #3cc9a0 }
    .bad { fill: #ff8a80 } .ours { fill: #56b4e9 } .theirs { fill: #59626d } .rule { stroke: #363d45 }
  }"""


def between(name: str) -> list[str]:
    """The lines of results.md between two comments."""
    text = RESULTS.read_text(encoding="utf-8")
    found = re.search(rf"<!-- {re.escape(name)}: begin -->\n(.*?)\n<!-- {re.escape(name)}: end -->", text, re.S)
    if not found:
        sys.exit(f"{RESULTS}: no comments '<!-- {name}: begin -->' and '<!-- {name}: end -->'")
    return [line for line in found[1].splitlines() if line.strip()]


def text(x: float, y: float, words: str, kind: str = "ink", anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def picture(title: str, height: int, parts: list[str]) -> str:
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">',
        f"<title>{escape(title)}</title>",
        "<!-- drawn by draw.py: do not edit -->",
        f"<style>{STYLE}\n</style>",
        f'<rect class="paper" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
        *parts,
        "</svg>\n",
    ])


def simple(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Without the points that are on the way between their neighbours, or nearly."""
    kept: list[tuple[int, int]] = []
    for point in points:
        if kept and max(abs(point[0] - kept[-1][0]), abs(point[1] - kept[-1][1])) < 2:
            continue
        if len(kept) > 1 and any(kept[-2][axis] == kept[-1][axis] == point[axis] for axis in (0, 1)):
            kept.pop()
        kept.append(point)
    return kept


def take_tracks(picture_of_demo: Path) -> None:
    """Writes the tracks that lie within PIECE, a line a colour: the colour, then the path."""
    left, top, wide, high = PIECE
    lines = []
    for tracks, colour in re.findall(r'<path d="([^"]*)"[^>]* stroke="(#[0-9a-f]{6})"', picture_of_demo.read_text(encoding="utf-8")):
        path = ""
        for track in re.findall(r"M([^M]*)", tracks):
            if track.endswith("h0"):
                continue
            points = [tuple(map(float, point.split())) for point in track.split("L")]
            if all(left <= x <= left + wide and top <= y <= top + high for x, y in points):
                scaled = [(round((x - left) / wide * PIECE_SIZE), round((y - top) / high * PIECE_SIZE)) for x, y in points]
                kept = simple(scaled)
                path += "M" + "L".join(f"{x} {y}" for x, y in kept) + ("h0" if len(kept) == 1 else "")
        if path:
            lines.append(f"{colour} {path}\n")
    TRACKS.write_text("".join(lines), encoding="utf-8")


def piece_of_the_tracks(x: float, y: float) -> list[str]:
    parts = [f'<g transform="translate({x:g},{y:g})" fill="none" stroke-width="1.4" stroke-linecap="round">',
             f'<rect x="-8" y="-8" width="{PIECE_SIZE + 16}" height="{PIECE_SIZE + 16}" rx="6" fill="#10141f"/>']
    for line in TRACKS.read_text(encoding="utf-8").splitlines():
        colour, path = line.split(" ", 1)
        parts.append(f'<path stroke="{colour}" d="{path}"/>')
    return [*parts, "</g>"]


def demo() -> str:
    """The demo's last lines, as its terminal shows them."""
    lines = between("make demo")
    indent = min(len(line) - len(line.lstrip()) for line in lines)
    top, step = 58, 21
    parts = [f'<circle cx="{22 + 18 * n}" cy="22" r="5" class="theirs"/>' for n in range(3)]
    parts.append(text(WIDTH / 2, 27, "make demo", "faint small", "middle"))
    exact_lines = 0
    for row, line in enumerate(lines):
        name = line[indent:].rstrip()
        value, note = name[:42].rstrip(), name[42:].strip()
        exact = bool(re.match(r"(lost|duplicates)\s+0$", value))
        exact_lines += exact
        parts.append(text(28, top + row * step, value, "good mono bold" if exact else "ink mono"))
        parts.append(text(366, top + row * step, note, "faint mono"))
    parts += piece_of_the_tracks(WIDTH - PIECE_SIZE - 26, 44)
    if exact_lines == 2:
        parts.append(text(28, top + len(lines) * step + 8, "Nothing lost, nothing twice.", "good mono"))
    return picture("What make demo prints", top + len(lines) * step + 30, parts)


def cost() -> str:
    """CPU, memory and losses of every consumer of the last recorded `make story`."""
    story = Story(KEPT)
    shown = [(player, story.reference(player["name"])) for player in story.players]
    shown = [(player, outcome) for player, outcome in shown if outcome and outcome["cpu_us_per_message"]]
    faults = {player["name"]: [story.outcome_of(part, player["name"]) for part in ("kill", "outage")] for player, _ in shown}
    left, first, wide, x = 160, 84, 190, 470
    parts = [
        text(24, 34, "The same work, beside others", "ink bold"),
        text(left, 62, "CPU a message, into ClickHouse", "faint small"),
        text(x, 62, "memory", "faint small"),
        text(WIDTH - 24, 62, "messages lost: kill -9, ClickHouse away", "faint small", "end"),
    ]
    for row, (player, outcome) in enumerate(shown):
        y, ours = first + row * 34, player["name"] == "milepost"
        parts.append(text(left - 10, y + 15, player["title"], "ink bold" if ours else "ink", "end"))
        figures = [(left, wide, lambda o: o["cpu_us_per_message"], "µs"), (x, 120, story.memory, "MiB")]
        for at, room, of, unit in figures:
            width = max(3, room * of(outcome) / max(of(other) for _, other in shown))
            parts.append(f'<rect x="{at}" y="{y}" width="{width:.1f}" height="20" rx="3" class="{"ours" if ours else "theirs"}"/>')
            parts.append(text(at + width + 7, y + 15, f"{of(outcome):.1f} {unit}", "faint small"))
        lost = [fault["lost"] if fault else None for fault in faults[player["name"]]]
        words = ", ".join("–" if count is None else f"{count:,}" for count in lost)
        parts.append(text(WIDTH - 24, y + 15, words, "bad bold" if any(lost) else "good bold", "end"))
    height = first + len(shown) * 34 + 34
    date = story.record["machine"]["date"][:10]
    parts.append(text(24, height - 16, f"{story.record['command']}, {date}, 10,000 messages/s at QoS 1, one machine; docs/story.md says how",
                      "faint small"))
    names = ", ".join(player["title"] for player, _ in shown)
    return picture(f"CPU, memory and losses of {names}", height, parts)


def main() -> None:
    if "--tracks" in sys.argv:
        take_tracks(Path(sys.argv[sys.argv.index("--tracks") + 1]))
    stale = []
    for name, draw in [("demo.svg", demo), ("cost.svg", cost)]:
        path, drawn = HERE / name, draw()
        if "--check" not in sys.argv:
            path.write_text(drawn, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != drawn:
            stale.append(name)
    if stale:
        sys.exit(f"{', '.join(stale)}: not what docs/results.md and docs/story.json say; run `make figures`")


if __name__ == "__main__":
    main()

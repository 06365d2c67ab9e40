#!/usr/bin/env python3
"""Copies the last run of `make story` into docs/story.json, and renews docs/story.md, README's sentence and the picture.

    python3 lab/story/docs.py [RESULTS]     # from bench-results/story-kept.json
    python3 lab/story/docs.py --check       # exit 1 if the documents do not match docs/story.json
"""

import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

from story import KEPT, OTHERS_CORES, REPOSITORY, Story, markdown, short

STORY = REPOSITORY / "docs/story.md"
README = REPOSITORY / "README.md"


def replace(text: str, name: str, content: str) -> str:
    """Replaces the text between the two comments of this name."""
    pattern = rf"(<!-- {re.escape(name)}: begin -->\n).*?(\n?<!-- {re.escape(name)}: end -->)"
    replaced, count = re.subn(pattern, lambda match: match[1] + content.strip("\n") + "\n" + match[2].lstrip("\n"), text, flags=re.S)
    if count != 1:
        sys.exit(f"there are no comments '<!-- {name}: begin -->' and '<!-- {name}: end -->'")
    return replaced


def wrapped(paragraph: str, indent: str = "") -> str:
    """Wraps at 100 columns. `indent` precedes every line but the first."""
    return textwrap.fill(paragraph, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def readme_sentence(story: Story) -> str:
    """Returns the sentence with the cost of a message, the ceiling, and the losses of an afternoon's code."""
    ours, best, killed = story.reference("milepost"), story.ceiling("milepost"), story.outcome_of("kill", "milepost")
    cost = f"{ours['cpu_us_per_message']:.1f} µs of CPU a message"
    others = [f"{player['title']} {story.reference(player['name'])['cpu_us_per_message']:.1f}" for player in story.players
              if player["name"] != "milepost" and story.reference(player["name"])]
    is_busy = any((outcome.get("others_cores") or 0) > OTHERS_CORES for outcome in story.outcomes)
    when = ", on a busy machine" if is_busy else ""
    return wrapped(
            f"- **The story's experiment, repeated**{when}: {cost} at 10,000 messages/s ({', '.join(others)}); "
            f"{short(best['stored_per_s'])} messages/s at the ceiling, with {best['step']['drivers']:,} drivers; and {killed['kills']} SIGKILLs "
            f"and an outage lose {lost_messages(story, 'milepost')} "
            f"messages, where an afternoon's 200 lines of Rust lose {lost_messages(story, 'afternoon')} ([docs/story.md](docs/story.md)).", "  ")


def lost_messages(story: Story, name: str) -> str:
    """Returns how many messages a consumer lost by kills and by the outage."""
    outcomes = [story.outcome_of(part, name) for part in ("kill", "outage")]
    return f"{sum(outcome['lost'] or 0 for outcome in outcomes if outcome):,}"


def everyone(story: Story) -> str:
    return markdown(story.everyone()) if story.everyone()[1] else "Not part of this run; `--full` runs it."


def renewed_documents() -> dict[Path, str]:
    """Returns the new text of each document, by its path."""
    story = Story(KEPT)
    verdict = "\n".join(wrapped(f"- {sentence}", "  ") for sentence in story.verdict())
    text = replace(STORY.read_text(encoding="utf-8"), "about", wrapped(story.about()))
    for name, content in [("verdict", verdict), ("table", markdown(story.table())), ("claims", markdown(story.claims())),
                          ("everyone", everyone(story)), ("ramp", markdown(story.ramp()))]:
        text = replace(text, name, content)
    return {
        STORY: text,
        README: replace(README.read_text(encoding="utf-8"), "make story", readme_sentence(story)),
    }


def main() -> None:
    if "--check" in sys.argv:
        stale = [path.name for path, text in renewed_documents().items() if path.read_text(encoding="utf-8") != text]
        if stale:
            sys.exit(f"{', '.join(stale)}: out of date with docs/story.json; run python3 lab/story/docs.py")
        return
    results = Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY / "bench-results"
    shutil.copyfile(results / "story-kept.json", KEPT)
    for path, text in renewed_documents().items():
        path.write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, REPOSITORY / "docs/figures/draw.py"], check=True)


if __name__ == "__main__":
    main()

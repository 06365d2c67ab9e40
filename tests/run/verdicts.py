"""What a test runner's output says: each test with its time, and whether it held."""
from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Test:
    name: str
    seconds: float
    holds: bool
    words: str = ""


def libtest(log: str) -> list[Test]:
    """Lines of `--format json --report-time`; whatever a test's children print stands between them."""
    found = []
    for line in log.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("type") == "test" and event["event"] in ("ok", "failed"):
            holds = event["event"] == "ok"
            found.append(Test(event["name"], event.get("exec_time", 0.0), holds, event.get("stdout", "")))
    return found


def junit(path: Path) -> list[Test]:
    """pytest's and vitest's report, and Playwright's."""
    if not path.exists():
        return []
    found = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        wrong = [case.find(kind) for kind in ("failure", "error")]
        words = "".join((part.get("message") or "") + "\n" + (part.text or "") for part in wrong if part is not None)
        if case.find("skipped") is None:
            name = f"{case.get('classname', '')}::{case.get('name', '')}"
            found.append(Test(name, float(case.get("time") or 0), not words, words))
    return found


ROW = re.compile(r"^\[\d+/\d+\] (\S+): .*?$\n(.*?)(?=^\[\d+/\d+\] |\Z)", re.MULTILINE | re.DOTALL)


def faults(log: str) -> list[Test]:
    """`lab faults` on stderr."""
    found = []
    for row in ROW.finditer(log):
        held = re.search(r"holds, after (\d+) s", row[2])
        found.append(Test(row[1], float(held[1]) if held else 0.0, held is not None, "" if held else row[2][:4000]))
    return found

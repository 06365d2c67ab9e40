"""Parses the output of test runners into tests: name, duration, and whether it passed."""
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
    passed: bool
    output: str = ""


def libtest(log: str) -> list[Test]:
    """Parses the lines of `--format json --report-time`.

    Skips lines that child processes of a test print between them.
    """
    found = []
    for line in log.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if (
            isinstance(event, dict)
            and event.get("type") == "test"
            and event["event"] in ("ok", "failed")
        ):
            passed = event["event"] == "ok"
            found.append(
                Test(event["name"], event.get("exec_time", 0.0), passed, event.get("stdout", ""))
            )
    return found


def junit(path: Path) -> list[Test]:
    """Parses a JUnit report of pytest, vitest or Playwright.

    Skipped tests are left out; a missing report has no tests.
    """
    if not path.exists():
        return []
    found = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        failures = [case.find(kind) for kind in ("failure", "error")]
        output = "".join(
            (part.get("message") or "") + "\n" + (part.text or "")
            for part in failures
            if part is not None
        )
        if case.find("skipped") is None:
            name = f"{case.get('classname', '')}::{case.get('name', '')}"
            found.append(Test(name, float(case.get("time") or 0), not output, output))
    return found


# A row in the log of `lab faults`: its name, and the text up to the next row.
ROW = re.compile(r"^\[\d+/\d+\] (\S+): .*?$\n(.*?)(?=^\[\d+/\d+\] |\Z)", re.MULTILINE | re.DOTALL)


def faults(log: str) -> list[Test]:
    """Parses the stderr of `lab faults`: each row is a test."""
    found = []
    for row in ROW.finditer(log):
        held = re.search(r"holds, after (\d+) s", row[2])
        found.append(
            Test(
                row[1],
                float(held[1]) if held else 0.0,
                held is not None,
                "" if held else row[2][:4000],
            )
        )
    return found

"""The runner is judged itself: what it forgives, and what it does not."""
from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
spec = importlib.util.spec_from_file_location("runner", HERE / "__main__.py")
runner = importlib.util.module_from_spec(spec)
sys.modules["runner"] = runner
spec.loader.exec_module(runner)
Step, Run = runner.Step, runner.Run


def played(tmp_path: Path, *, first: list[bool], alone: bool, again: bool = True) -> tuple[Run, int, int]:
    """A run of one step, whose tests held or not; alone they hold or not."""
    tests = [runner.Test(f"t{nth}", 0.1, holds, "words") for nth, holds in enumerate(first)]
    look = (lambda work, test: [runner.Test(test.name, 0.1, alone, "again")]) if again else None
    run = Run([Step("real", lambda work: list(tests), again=look)], tmp_path)
    run.play()
    run.second_look()
    for work in run.works.values():
        work.log.touch()
    return run, *run.tell()


@pytest.mark.parametrize(
    "first, alone, again, expected",
    [
        ([True, True], False, True, (2, 0, 0)),
        ([True, False], True, True, (2, 0, 1)),
        ([True, False], False, True, (1, 1, 0)),
        # What is pure is not played twice.
        ([True, False], True, False, (1, 1, 0)),
        # Many failures are no accident of the load.
        ([False] * 6, True, True, (0, 6, 0)),
    ],
)
def test_a_failure_is_forgiven_only_alone_and_only_to_a_few(tmp_path, capsys, first, alone, again, expected):
    run, good, bad = played(tmp_path, first=first, alone=alone, again=again)
    assert (good, bad, len(run.alone)) == expected
    said = capsys.readouterr().out
    assert ("HELD ALONE, failed beside others: real  t1" in said) == bool(run.alone), said


def test_a_strict_run_forgives_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "IS_STRICT", True)
    assert played(tmp_path, first=[False], alone=True)[1:] == (0, 1)

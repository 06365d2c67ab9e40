"""Tests the runner: which failures it repeats alone, and which it reports at once."""
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


def run_once(
    tmp_path: Path, *, first: list[bool], alone: bool, again: bool = True
) -> tuple[Run, int, int]:
    """Runs one step. Returns the run, and the numbers of passed and failed tests and steps.

    `first`: whether each test of the step passes. `alone`: whether a repeated test passes. `again`:
    whether the step can be repeated.
    """
    tests = [runner.Test(f"t{index}", 0.1, passed, "words") for index, passed in enumerate(first)]
    repeat = (lambda job, test: [runner.Test(test.name, 0.1, alone, "again")]) if again else None
    run = Run([Step("real", lambda job: list(tests), repeat=repeat)], tmp_path)
    run.execute()
    run.repeat_failures_alone()
    for job in run.jobs.values():
        job.log.touch()
    return run, *run.print_summary()


@pytest.mark.parametrize(
    "first, alone, again, expected",
    # `expected`: the numbers of passed tests, of failed tests, and of tests that passed only alone.
    [
        ([True, True], False, True, (2, 0, 0)),
        ([True, False], True, True, (2, 0, 1)),
        ([True, False], False, True, (1, 1, 0)),
        # A pure test is not repeated.
        ([True, False], True, False, (1, 1, 0)),
        # More failures than the load of the machine can explain.
        ([False] * 6, True, True, (0, 6, 0)),
    ],
)
def test_only_a_few_failures_are_repeated_and_excused_if_they_pass_alone(
    tmp_path, capsys, first, alone, again, expected
):
    run, good, bad = run_once(tmp_path, first=first, alone=alone, again=again)
    assert (good, bad, len(run.passed_alone)) == expected
    output = capsys.readouterr().out
    assert ("PASSED ALONE, failed among the others: real  t1" in output) == bool(
        run.passed_alone
    ), output


def test_file_with_two_failed_tests_is_repeated_once(tmp_path):
    tests = [
        runner.Test(name, 0.1, False, "words")
        for name in ("a.spec.ts::one", "a.spec.ts::two", "b.spec.ts::one")
    ]
    repeated = []

    def repeat(job, test):
        file = runner.file_of(test)
        repeated.append(file)
        of_file = [each.name for each in tests if runner.file_of(each) == file]
        return [runner.Test(name, 0.1, name != "b.spec.ts::one", "again") for name in of_file]

    run = Run(
        [Step("browser", lambda job: list(tests), repeat=repeat, repeated=runner.file_of)], tmp_path
    )
    run.execute()
    run.repeat_failures_alone()
    assert repeated == ["a.spec.ts", "b.spec.ts"]
    assert [test.name for _, test in run.passed_alone] == ["a.spec.ts::one", "a.spec.ts::two"]
    assert [(test.name, test.passed, test.output) for test in run.jobs["browser"].tests] == [
        ("a.spec.ts::one", True, "again"),
        ("a.spec.ts::two", True, "again"),
        ("b.spec.ts::one", False, "words"),
    ]


def test_strict_run_excuses_no_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "IS_STRICT", True)
    assert run_once(tmp_path, first=[False], alone=True)[1:] == (0, 1)

"""Tests with random seeds for the given time: python3 tests/run soak SECONDS

Each round draws a seed, and runs every model with four times its cases, a fuzzer for a minute, and
a row of `lab faults`. A failure does not stop the rounds: the command to repeat the failure is
printed at once, the failure's files are kept, and the exit code is 1.
"""
from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import verdicts
from __main__ import REPOSITORY, Job, build

CASES_PERCENT = 400
FUZZ_SECONDS = 60
FUZZERS = ["decode", "spool", "codec", "config"]


def models(job: Job, seed: int) -> str | None:
    """Runs the models of every crate.

    Returns the command to repeat a failure, with the failure's output; None if there was no
    failure. The functions of the other checks return the same.
    """
    pure = [executable for executable in job.executables if executable["target"]["name"] == "pure"]
    for executable in pure:
        folder = Path(executable["manifest_path"]).parent
        variables = {"PROPTEST_RNG_SEED": str(seed), "CASES_PERCENT": str(CASES_PERCENT)}
        options = ("-Zunstable-options", "--format=json", "--report-time")
        output = job.call(
            executable["executable"], *options, cwd=folder, RUSTC_BOOTSTRAP="1", **variables
        )
        failed = [test for test in verdicts.libtest(output) if not test.passed]
        if failed or not job.passed:
            names = " ".join(test.name for test in failed)
            output = "\n".join(test.output[:2000] for test in failed)
            assignments = f"PROPTEST_RNG_SEED={seed} CASES_PERCENT={CASES_PERCENT}"
            return f"{assignments} cargo test --workspace --test pure -- {names}\n{output}"
    return None


def fuzzer(job: Job, seed: int, seconds_left: float) -> str | None:
    """Runs one fuzzer, which the seed selects, for at least 5 s."""
    target = FUZZERS[seed % len(FUZZERS)]
    seconds = max(5, int(min(FUZZ_SECONDS, seconds_left)))
    output = job.call(
        "fuzz/run",
        "-runs=1000000000",
        target,
        "--",
        f"-max_total_time={seconds}",
        f"-seed={seed % 2**31 + 1}",
    )
    if job.passed:
        return None
    inputs = [line.split()[-1] for line in output.splitlines() if "Test unit written to" in line]
    end = "\n".join(output.splitlines()[-30:])
    return f"cd fuzz && target/*/release/{target} {' '.join(inputs)}\n{end}"


def fault(job: Job, seed: int, rows: list[str]) -> str | None:
    """Runs one row of `lab faults`, which the seed selects."""
    row = rows[seed % len(rows)]
    lab, seed = REPOSITORY / "target/debug/lab", seed % 1_000_000
    binaries = (
        "--milepost",
        "target/debug/milepost",
        "--strict-broker",
        "target/debug/strict-broker",
    )
    arguments = (*binaries, "--only", row, "--seed", str(seed))
    output = job.call(lab, "faults", *arguments)
    if job.passed:
        return None
    end = "\n".join(output.splitlines()[-20:])
    return f"target/debug/lab faults {' '.join(arguments)}\n{end}"


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not arguments[0].isdigit():
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="milepost-soak-"))
    print(f"soak: logs in {folder}", flush=True)
    build_job = Job("build", folder, [])
    build(build_job)
    if not build_job.passed:
        print(f"FAILED: the build failed: {build_job.log}")
        return 1
    lab = [REPOSITORY / "target/debug/lab", "faults", "--list"]
    listed = subprocess.run(lab, capture_output=True, text=True, check=True).stdout
    rows = [line.split()[0] for line in listed.splitlines()]
    deadline = time.monotonic() + int(arguments[0])
    rounds, finished, failures = 0, 0, 0
    rng = random.Random(int(os.environ.get("SEED") or random.SystemRandom().randrange(2**31)))
    while time.monotonic() < deadline:
        rounds += 1
        seed = rng.randrange(1, 2**31)
        checks = {
            "models": lambda job: models(job, seed),
            "fuzzer": lambda job: fuzzer(job, seed, deadline - time.monotonic()),
            "fault": lambda job: fault(job, seed, rows),
        }
        for name, check in checks.items():
            if time.monotonic() >= deadline:
                break
            files = folder / f"{rounds}-{name}"
            files.mkdir()
            job, began = Job(name, files, build_job.executables), time.monotonic()
            repeat = check(job)
            finished += 1
            result = "passed" if repeat is None else "FAILED"
            print(
                f"round {rounds}, seed {seed}: {name} {result}, {time.monotonic() - began:.0f} s",
                flush=True,
            )
            if repeat is not None:
                failures += 1
                print(f"repeat: {repeat}\nkept: {files}", flush=True)
            else:
                subprocess.run(["rm", "-rf", files], check=True)
    print(f"\n{rounds} rounds\n{finished - failures} passed, {failures} failed")
    return int(failures > 0)

"""Runs every test and check, and prints a summary: python3 tests/run quick|test|check [STEP…]

Steps run concurrently. A failure does not stop the other steps. The summary has each failure with
the end of its output, the slowest tests, and one line `N passed, N failed`. If steps are named,
only these steps and the steps that they need run.

Guarantee: pure tests give the same result every time, because models use fixed cases
(.cargo/config.toml). Tests of real processes compete for the machine: see below. If a step writes
into the tree, the run fails. A failed step keeps its log, its servers' logs and their data, and the
summary prints where.

If a test of real processes fails, it runs once more, alone, after all other tests: on few cores,
the load of the other tests may have caused the failure. If the test passes alone, the summary lists
it with the output of its failure, and the run does not fail. If a browser test fails, its whole
file runs again, because the tests of a file may build on each other; the file runs again only once,
even if several of its tests failed. Other tests are never repeated. No test is repeated if more
than ALONE_MAX tests failed, or with STRICT=1.
"""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import verdicts
from verdicts import Test

REPOSITORY = Path(__file__).resolve().parents[2]
VENV = Path(os.environ.get("VENV_DIR") or REPOSITORY / ".local/venv")
CASES_PERCENT_QUICK = 10
# Steps that run at the same time. May exceed the number of cores: most steps wait for servers and
# timers.
STEPS_AT_ONCE = int(os.environ.get("STEPS_AT_ONCE", "3"))
# Tests of the step `real` that run at the same time.
REAL_AT_ONCE = 4
# Memory limit of the ClickHouse engine that the tests share. While the engine refreshes views, its
# count of used memory drifts upwards: with a limit of 2 GiB, the engine refused queries when 30 MiB
# were resident.
ENGINE_BYTES_MAX = 8 << 30
# Tests listed under `slowest:` in the summary.
SLOWEST = 10
# Maximum number of failed tests of a run that are repeated alone.
ALONE_MAX = 5
IS_STRICT = os.environ.get("STRICT", "") not in ("", "0")


@dataclass
class Step:
    name: str
    run: Callable[["Job"], list[Test]]
    needs: tuple[str, ...] = ()
    # Commands of this runner that include the step.
    commands: tuple[str, ...] = ("test", "check")
    # Repeats one failed test. Only for steps with real processes: a pure test would give the same
    # result again.
    repeat: Callable[["Job", Test], list[Test]] | None = None
    # Returns the name of what runs again for a failed test. What has the same name runs again only
    # once.
    repeated: Callable[[Test], str] = lambda test: test.name


@dataclass
class Job:
    """A running or finished step: its log, its files, and whether it has passed so far."""

    name: str
    folder: Path
    executables: list[dict]
    passed: bool = True
    seconds: float = 0.0
    tests: list[Test] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def call(self, *command: str | Path, cwd: Path = REPOSITORY, **variables: str) -> str:
        """Runs a command, appends its output to the log, and returns the output."""
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        environment = {**os.environ, "TMPDIR": str(temporary), "KEEP_FOLDERS": "1", **variables}
        with open(self.log, "ab") as log:
            begin = log.tell()
            log.write(f"$ {' '.join(map(str, command))}\n".encode())
            log.flush()
            done = subprocess.run(
                command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.passed &= done.returncode == 0
        with open(self.log, "rb") as log:
            log.seek(begin)
            return log.read().decode(errors="replace")

    def pytest(self, *arguments: str | Path) -> list[Test]:
        report = self.folder / "junit.xml"
        options = ("-q", "-rs", "-p", "no:cacheprovider", f"--junit-xml={report}")
        self.call(VENV / "bin/python", "-m", "pytest", *options, *arguments)
        return verdicts.junit(report)

    def cargo(self, command: str, *arguments: str) -> str:
        """Runs cargo on the whole workspace.

        With fewer packages, the features of dependencies differ, and cargo compiles everything
        again.
        """
        return self.call("cargo", command, "--locked", "--workspace", *arguments)

    def libtest(self, chosen: Callable[[dict], bool], *names: str, **variables: str) -> list[Test]:
        """Runs the chosen test executables in sequence; with `names`, only these tests.

        RUSTC_BOOTSTRAP=1 enables libtest's JSON output with durations, which is unstable.
        """
        tests = []
        variables = {"RUSTC_BOOTSTRAP": "1", **cargo_variables(), **variables}
        for executable in filter(chosen, self.executables):
            folder = Path(executable["manifest_path"]).parent
            options = (*names, "-Zunstable-options", "--format=json", "--report-time")
            output = self.call(executable["executable"], *options, cwd=folder, **variables)
            for test in verdicts.libtest(output):
                name = f"{name_of(executable)}: {test.name}"
                tests.append(Test(name, test.seconds, test.passed, test.output))
        return tests

    def libtest_again(self, test: Test) -> list[Test]:
        chosen, name = test.name.split(": ", 1)
        return self.libtest(lambda executable: name_of(executable) == chosen, name, "--exact")

    def pytest_again(self, test: Test) -> list[Test]:
        module, name = test.name.split("::", 1)
        return self.pytest(f"{module.replace('.', '/')}.py::{name}")


def name_of(executable: dict) -> str:
    """Returns the crate and the target of a test executable, such as `milepost real`."""
    crate = executable["package_id"].split("#")[-1].split("@")[0].split("/")[-1]
    return f"{crate} {executable['target']['name']}"


def cargo_variables() -> dict[str, str]:
    """Returns the variables that cargo would set: the executables are started without cargo."""
    lines = (REPOSITORY / ".cargo/config.toml").read_text().split("[env]")[-1].splitlines()
    pairs = (line.split(" = ", 1) for line in lines if " = " in line and not line.startswith("#"))
    return {name: os.environ.get(name, value.strip('"')) for name, value in pairs}


def build(job: Job, *targets: str) -> list[Test]:
    """Builds the test executables of these targets, or of all targets, and lists them in the job.

    Without targets, also builds the binaries.
    """
    if not targets:
        # Build the tests too, as `compile` does: without the tests, the features of tokio and of
        # other packages differ, and cargo compiles half of the workspace again.
        job.cargo("build", "--bins", "--tests")
    output = job.cargo("test", "--no-run", "--message-format=json-render-diagnostics", *targets)
    for line in output.splitlines():
        if line.startswith("{"):
            message = json.loads(line)
            is_artifact = message.get("reason") == "compiler-artifact"
            if is_artifact and message.get("executable") and message["profile"]["test"]:
                job.executables.append(message)
    return []


def is_named(*names: str) -> Callable[[dict], bool]:
    return lambda executable: executable["target"]["name"] in names and executable["target"][
        "kind"
    ] == ["test"]


def is_unit_test(executable: dict) -> bool:
    return not is_named("real", "pure")(executable)


def single_result(run: Callable[[Job], object]) -> Callable[[Job], list[Test]]:
    """Returns the function of a step that has no tests of its own.

    The step passes if all its commands succeed.
    """

    def run_all(job: Job) -> list[Test]:
        run(job)
        return []

    return run_all


def browser(job: Job, *options: str) -> list[Test]:
    report = job.folder / "junit.xml"
    npm = (REPOSITORY / "lab/local/npm", "--prefix", "map/page", "run")
    variables = {
        "PLAYWRIGHT_JUNIT_OUTPUT_FILE": str(report),
        "PLAYWRIGHT_JUNIT_OUTPUT_NAME": str(report),
    }
    job.call(*npm, "browser", "--", *options, "--reporter=list,junit", **variables)
    return verdicts.junit(report)


def file_of(test: Test) -> str:
    """Returns the file of a browser test."""
    return test.name.split("::", 1)[0]


def page_unit(job: Job) -> list[Test]:
    report = job.folder / "junit.xml"
    npm = (REPOSITORY / "lab/local/npm", "--prefix", "map/page", "run")
    job.call(
        *npm, "unit", "--", "--reporter=default", "--reporter=junit", f"--outputFile.junit={report}"
    )
    return verdicts.junit(report)


def faults(job: Job, *options: str) -> list[Test]:
    target = REPOSITORY / "target/debug"
    binaries = ("--milepost", target / "milepost", "--strict-broker", target / "strict-broker")
    output = job.call(target / "lab", "faults", "--quick", *options, *binaries)
    return verdicts.faults(output)


def fuzz_lock(job: Job) -> None:
    job.call("cargo", "tree", "--locked", "--depth", "0", "--manifest-path", "fuzz/Cargo.toml")


def real(job: Job) -> list[Test]:
    variables = {
        "RUST_TEST_THREADS": str(REAL_AT_ONCE),
        "CLICKHOUSE_MEMORY_BYTES_MAX": str(ENGINE_BYTES_MAX),
    }
    return job.libtest(is_named("real"), **variables)


def setup(job: Job) -> list[Test]:
    job.call("lab/local/setup", "--dev")
    job.call("lab/local/setup", "--map")
    return []


def manifests(job: Job) -> list[Test]:
    job.call("deploy/kubernetes/tools")
    job.call("deploy/kubernetes/crds")
    return job.pytest("deploy/kubernetes")


ALL = ("quick", "test", "check")
TENTH = {"CASES_PERCENT": str(CASES_PERCENT_QUICK)}
# A crate embeds the page's files. If the page was built before, rebuild it first, so that its files
# do not change during compilation.
PAGE_FIRST = ("page",) if (REPOSITORY / "map/page/dist").exists() else ()
# Steps start in this order, once the steps that they need have passed. Of the steps that need
# `build`, the longest are listed first.
STEPS = [
    Step(
        "fmt",
        single_result(lambda job: job.call("cargo", "fmt", "--all", "--check")),
        commands=("quick", "check"),
    ),
    # fuzz/ is a separate workspace that no other step builds: a changed dependency of milepost can
    # make the lock file of fuzz/ stale.
    Step("fuzz-lock", single_result(fuzz_lock), commands=("quick", "check")),
    Step(
        "figures",
        single_result(lambda job: job.call(sys.executable, "docs/figures/draw.py", "--check")),
        commands=("check",),
    ),
    Step(
        "story",
        single_result(lambda job: job.call(sys.executable, "lab/story/docs.py", "--check")),
        commands=("check",),
    ),
    Step(
        "build-quick",
        lambda job: build(job, "--lib", "--test", "pure"),
        needs=PAGE_FIRST,
        commands=("quick",),
    ),
    Step(
        "pure-quick",
        lambda job: job.libtest(lambda executable: True, **TENTH),
        needs=("build-quick",),
        commands=("quick",),
    ),
    Step(
        "clippy",
        single_result(lambda job: job.cargo("clippy", "--all-targets", "--", "-D", "warnings")),
        needs=PAGE_FIRST,
        commands=("quick", "check"),
    ),
    Step(
        "licences",
        single_result(lambda job: job.call(sys.executable, "tests/run/licences.py")),
        commands=("check",),
    ),
    # Compiles while `setup` and `page` run: only one crate needs the page.
    Step("compile", single_result(lambda job: job.cargo("test", "--no-run")), needs=PAGE_FIRST),
    Step("setup", setup),
    Step(
        "page", single_result(lambda job: job.call("make", "page")), needs=("setup",), commands=ALL
    ),
    Step("build", build, needs=("compile", "page")),
    Step(
        "front",
        lambda job: job.pytest("lab/local", "tests/run"),
        needs=("setup",),
        repeat=Job.pytest_again,
    ),
    Step("page-unit", page_unit, needs=("page",), commands=ALL),
    Step("manifests", manifests, needs=("setup",), commands=("check",)),
    Step("real", real, needs=("build",), repeat=Job.libtest_again),
    Step(
        "answers",
        lambda job: job.pytest("tests/answers"),
        needs=("build",),
        repeat=Job.pytest_again,
    ),
    # The tests of a file may build on each other: the whole file is repeated.
    Step(
        "browser",
        browser,
        needs=("build", "page"),
        repeat=lambda job, test: browser(job, file_of(test)),
        repeated=file_of,
    ),
    Step(
        "faults",
        faults,
        needs=("build",),
        repeat=lambda job, test: faults(job, "--only", test.name),
    ),
    Step("pure", lambda job: job.libtest(is_named("pure")), needs=("build",)),
    Step("unit", lambda job: job.libtest(is_unit_test), needs=("build",), repeat=Job.libtest_again),
]


class Run:
    def __init__(self, steps: list[Step], folder: Path):
        self.steps, self.folder = steps, folder
        self.executables: list[dict] = []
        self.jobs: dict[str, Job] = {}
        # Tests that failed while other tests ran, and passed alone.
        self.passed_alone: list[tuple[Job, Test]] = []
        self.running = 0
        self.changed = threading.Condition()

    def execute(self) -> None:
        waiting = list(self.steps)
        chosen = {step.name for step in self.steps}
        with self.changed:
            while waiting or self.running:
                for step in list(waiting):
                    needs = [self.jobs.get(name) for name in step.needs if name in chosen]
                    if any(job is not None and job.seconds and not job.passed for job in needs):
                        waiting.remove(step)
                        # The folder of the whole run marks a step that did not run.
                        self.jobs[step.name] = Job(
                            step.name, self.folder, [], passed=False, seconds=0.001
                        )
                        print(
                            f"  NOT RUN  {step.name}: it needs {', '.join(step.needs)}", flush=True
                        )
                    elif self.running < STEPS_AT_ONCE and all(
                        job is not None and job.seconds for job in needs
                    ):
                        waiting.remove(step)
                        self.begin(step)
                self.changed.wait(1)

    def begin(self, step: Step) -> None:
        folder = self.folder / step.name
        folder.mkdir()
        self.jobs[step.name] = Job(step.name, folder, self.executables)
        self.running += 1
        threading.Thread(target=self.run_step, args=(step,), daemon=True).start()

    def run_step(self, step: Step) -> None:
        job, began = self.jobs[step.name], time.monotonic()
        try:
            tests = step.run(job)
        except Exception as error:  # a report that cannot be read is a failure of the step
            tests, job.passed = [Test(step.name, 0, False, f"{error!r}")], False
        failed = [test for test in tests if not test.passed]
        with self.changed:
            job.passed &= not failed
            job.tests, job.seconds = tests, max(0.001, time.monotonic() - began)
            if job.passed:
                shutil.rmtree(job.folder / "tmp", ignore_errors=True)
            self.running -= 1
            self.changed.notify()
        result = (
            f"{len(tests) - len(failed)} of {len(tests)}"
            if tests
            else "done" if job.passed else "ended with an error"
        )
        print(
            f"  {'ok      ' if job.passed else 'FAILED  '} {step.name}: {result}, "
            f"{job.seconds:.0f} s",
            flush=True,
        )

    def repeat_failures_alone(self) -> None:
        """Repeats the failed tests of real processes, one at a time.

        Of browser tests, repeats each file once.
        """
        steps = {step.name: step for step in self.steps if step.repeat}
        repetitions: dict[tuple[str, str], tuple[bool, list[Test]]] = {}
        failed = [
            (job, test) for job in self.jobs.values() for test in job.tests if not test.passed
        ]
        if IS_STRICT or len(failed) > ALONE_MAX:
            return
        for job, test in (pair for pair in failed if pair[0].name in steps):
            step = steps[job.name]
            key = (job.name, step.repeated(test))
            if key not in repetitions:
                folder = self.folder / f"{job.name}-alone-{len(repetitions)}"
                folder.mkdir()
                alone = Job(f"{job.name} alone", folder, self.executables)
                repeated = step.repeat(alone, test)
                repetitions[key] = (
                    alone.passed and bool(repeated) and all(each.passed for each in repeated),
                    repeated,
                )
            passed, repeated = repetitions[key]
            print(
                f"  {'passed ' if passed else 'FAILED '}  {job.name}, alone: {test.name}",
                flush=True,
            )
            if passed:
                self.passed_alone.append((job, test))
                same_name = (each for each in repeated if each.name == test.name)
                job.tests[job.tests.index(test)] = next(same_name, repeated[0])
                job.passed = all(each.passed for each in job.tests)

    def print_summary(self) -> tuple[int, int]:
        """Returns the numbers of passed and failed tests and steps."""
        jobs = [job for job in self.jobs.values() if job.folder != self.folder]
        tests = [(job, test) for job in jobs for test in job.tests]
        slowest = sorted(tests, key=lambda pair: -pair[1].seconds)[:SLOWEST]
        print("\nslowest:")
        for job, test in slowest:
            print(f"  {test.seconds:7.1f} s  {job.name}  {test.name}")
        for job, test in self.passed_alone:
            print(f"\nPASSED ALONE, failed among the others: {job.name}  {test.name}")
            print(f"{indented_end(test.output)}\nkept: {job.log}")
        for job in self.jobs.values():
            failed = [test for test in job.tests if not test.passed]
            for test in failed:
                print(f"\nFAILED {job.name}  {test.name}\n{indented_end(test.output)}")
            if not job.passed and job.folder != self.folder:
                if not failed:
                    print(
                        f"\nFAILED {job.name}\n{indented_end(job.log.read_text(errors='replace'))}"
                    )
                print(f"kept: {job.log}, and the files of its servers in {job.folder / 'tmp'}")
        # A step counts as one if it has no tests, and a failed step without a failed test counts as
        # one failure.
        failed_count = sum(
            max(sum(not test.passed for test in job.tests), not job.passed)
            for job in self.jobs.values()
        )
        passed_steps = sum(job.passed and not job.tests for job in self.jobs.values())
        return sum(test.passed for _, test in tests) + passed_steps, failed_count


def indented_end(text: str) -> str:
    """Returns the last 40 lines, indented."""
    return "\n".join(f"    {line}" for line in text.strip().splitlines()[-40:])


def tree_status() -> str:
    command = ["git", "status", "--porcelain"]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True).stdout


def with_needs(names: set[str], steps: list[Step]) -> set[str]:
    """Adds the steps that the named steps need, directly or indirectly.

    Leaves out steps that are not in `steps`.
    """
    needed = {need for step in steps if step.name in names for need in step.needs} & {
        step.name for step in steps
    }
    return names if needed <= names else with_needs(names | needed, steps)


def main() -> int:
    command, *names = sys.argv[1:] or [""]
    if command == "soak":
        import soak

        return soak.main(names)
    steps = [step for step in STEPS if command in step.commands]
    unknown = [name for name in names if name not in {step.name for step in steps}]
    if not steps or unknown:
        print(f"{__doc__}\nno step {', '.join(unknown)}" if unknown else __doc__, file=sys.stderr)
        return 2
    if names:
        chosen = with_needs(set(names), steps)
        steps = [step for step in steps if step.name in chosen]
    began, tree_before = time.monotonic(), tree_status()
    # Outside the checkout, because the paths of sockets must be short. Removed if everything
    # passes.
    folder = Path(tempfile.mkdtemp(prefix="milepost-test-"))
    run = Run(steps, folder)
    print(f"{', '.join(step.name for step in steps)}: logs in {folder}", flush=True)
    run.execute()
    run.repeat_failures_alone()
    passed, failed = run.print_summary()
    if tree_status() != tree_before:
        print(f"\nFAILED: the run changed the tree\n{indented_end(tree_status())}")
        failed += 1
    if not failed and not run.passed_alone:
        shutil.rmtree(folder, ignore_errors=True)
    alone = f" ({len(run.passed_alone)} of them only alone)" if run.passed_alone else ""
    print(f"\n{time.monotonic() - began:.0f} s\n{passed} passed{alone}, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

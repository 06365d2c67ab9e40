"""`make brokers`: runs milepost on real brokers. First `milepost check`, then each stage (kill, restart, …) while 20,000 messages are sent."""

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
# Order of the table: brokers that milepost can use come first.
BROKERS = ["mosquitto", "mochi", "rmqtt", "hivemq", "artemis", "rumqttd", "nats", "aedes"]
MESSAGES, RATE = 20_000, 1_000
PATIENCE_S = 120


def wait_until(event, condition, within=PATIENCE_S):
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > within:
            raise TimeoutError(f"waited {within} s, but never: {event}")
        time.sleep(0.1)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


class Setup:
    """The programs of one stage: a new broker, members and a fleet. `url`: an existing broker to use instead of a new one."""

    def __init__(self, name, folder, arguments, clickhouse, url=None):
        self.name, self.folder, self.arguments, self.clickhouse = name, folder, arguments, clickhouse
        self.port = free_port()
        self.url, self.address = url or f"mqtt://127.0.0.1:{self.port}", f"127.0.0.1:{self.port}"
        if url:
            self.address = url.split("://")[1]
        # The name is unique, because an existing broker may still have sessions of earlier runs.
        self.run = f"{name}-{time.time_ns():x}"
        self.processes = {}
        folder.mkdir()

    def __enter__(self):
        self.start_broker()
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            process.kill()
            process.wait()

    def start(self, name, command, environment):
        log = open(self.folder / f"{name}.log", "ab")
        self.processes[name] = subprocess.Popen(command, env=os.environ | environment, stdout=log, stderr=log)
        return self.processes[name]

    def end(self, name, signal_number=signal.SIGTERM):
        """Ends a process with this signal, and returns its exit code."""
        process = self.processes.pop(name)
        process.send_signal(signal_number)
        return process.wait(PATIENCE_S)

    def start_broker(self):
        if self.url != f"mqtt://127.0.0.1:{self.port}":
            return
        environment = {"MQTT_PORT": str(self.port), "STATE_DIR": str(self.folder / "state")}
        broker = self.start("broker", [HERE / self.name], environment)
        # The timeout is long, because the first start builds the broker.
        wait_until("the broker answers", lambda: broker.poll() is not None or answers(self.port), 3600)
        assert broker.poll() is None, (self.folder / "broker.log").read_text()[-2000:]

    def settings(self, member, **more):
        settings = {
            "MQTT__URL": self.url,
            "MQTT__CLIENT_ID": f"{self.run}-{member}",
            "MQTT__GROUP": self.run,
            "MQTT__SESSION_EXPIRY": "10m",
            "CLICKHOUSE__URL": self.clickhouse,
        }
        if username := os.environ.get("MQTT_USERNAME"):
            settings |= {"MQTT__USERNAME": username, "MQTT__PASSWORD_FILE": os.environ["MQTT_PASSWORD_FILE"]}
        return {f"MILEPOST__{key}": value for key, value in (settings | more).items()}

    def milepost(self, *command, member="0"):
        command = [self.arguments.binaries / "milepost", *command]
        environment = os.environ | self.settings(member)
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)

    def member(self, name, **more):
        port = free_port()
        settings = self.settings(name, HTTP__LISTEN=f"127.0.0.1:{port}", **more)
        self.start(name, [self.arguments.binaries / "milepost", "run"], settings)

        def is_ready():
            assert self.processes[name].poll() is None, (self.folder / f"{name}.log").read_text()[-2000:]
            try:
                return urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).status == 200
            except OSError:
                return False

        wait_until(f"member {name} is ready", is_ready)

    def fleet(self):
        """Starts the fleet."""
        command = [self.arguments.binaries / "loadgen", "fleet", "--broker", self.address, "--count", str(MESSAGES)]
        command += ["--rate", str(RATE), "--run", self.run, "--manifest", self.folder / "manifest.json"]
        if username := os.environ.get("MQTT_USERNAME"):
            command += ["--username", username]
        return self.start("fleet", command, {})

    def wait_for_fleet(self):
        """Waits until the fleet has sent everything. The fleet itself waits up to 30 s for the last acknowledgements."""
        code = self.processes.pop("fleet").wait(PATIENCE_S + MESSAGES / RATE)
        assert code in (0, 1), (self.folder / "fleet.log").read_text()[-2000:]

    def verdict(self):
        """Describes the losses and duplicates; "0 lost" if there are none."""
        command = [self.arguments.binaries / "loadgen", "verify", "--json", "--manifest", self.folder / "manifest.json"]
        result = subprocess.run([*command, "--clickhouse", self.clickhouse, "--wait", "30s"], capture_output=True, text=True)
        verdict = json.loads(result.stdout)
        sent = json.loads((self.folder / "manifest.json").read_text())
        unsubscribed, unacked = sent["no_subscriber"], len(sent["unacked"])
        parts = [f"**{verdict['lost']} lost**" if verdict["lost"] else "0 lost"]
        parts += [f"{verdict['duplicates_in_fixes']} twice"] * (verdict["duplicates_in_fixes"] > 0)
        parts += [f"{unsubscribed} refused with 0x10"] * (unsubscribed > 0)
        parts += [f"{unacked} of the fleet not acknowledged in 30 s"] * (unacked > 0)
        return ", ".join(parts)


def kill(setup):
    """Kills one of two members with kill -9, and starts it again."""
    setup.member("0")
    setup.member("1")
    setup.fleet()
    time.sleep(MESSAGES / RATE / 3)
    setup.end("1", signal.SIGKILL)
    time.sleep(1)
    setup.member("1")
    setup.wait_for_fleet()


def queue(setup):
    """Stops the only member while the fleet sends, and starts it again afterwards."""
    setup.member("0")
    setup.end("0")
    setup.fleet()
    setup.wait_for_fleet()
    setup.member("0")


def restart(setup):
    """Restarts the broker under load."""
    setup.member("0")
    setup.member("1")
    setup.fleet()
    time.sleep(MESSAGES / RATE / 3)
    setup.end("broker")
    setup.start_broker()
    setup.wait_for_fleet()


def scale(setup):
    """Scales 1 → 3 → 1 under load; two members leave the group."""
    setup.member("0")
    setup.fleet()
    for name in ["1", "2"]:
        setup.member(name, SHUTDOWN__LEAVE="true")
    time.sleep(2)
    codes = [setup.end(name) for name in ["2", "1"]]
    setup.wait_for_fleet()
    assert codes == [0, 0], f"exit codes {codes}"


def drain(setup):
    """Kills one of two members for good. `milepost drain` receives the messages that the broker holds for the killed
    member."""
    setup.member("0")
    setup.member("1")
    setup.fleet()
    time.sleep(MESSAGES / RATE / 2)
    setup.end("1", signal.SIGKILL)
    setup.wait_for_fleet()
    result = setup.milepost("drain", "--leave", "--client-id", f"{setup.run}-1", member="drain")
    assert result.returncode == 0, f"exit code {result.returncode}: {(result.stdout + result.stderr)[-300:]}"


STAGES = [kill, queue, restart, scale, drain]


def check(setup):
    """Returns the problems that `milepost check` finds, the broker's window, and the exit code."""
    result = setup.milepost("check", "--json", "--probe-topic", "drivers/check/gps-check")
    found = [line for line in json.loads(result.stdout)["checks"]]
    problems = [line for line in found if line["level"] != "ok"]
    window = next((re.match(r"\d+ messages in flight \([^)]*\)", line["found"])[0] for line in found if line["what"] == "window"), "–")
    return [f"{line['level']}: {line['what']}: {line['found']}" for line in problems], window, result.returncode


def run_stages(name, folder, arguments, clickhouse):
    """Runs all stages on one broker, and returns the cells of its row in the table."""
    print(f"{name}: check", file=sys.stderr)
    with Setup(name, folder / f"{name}-check", arguments, clickhouse, arguments.url) as setup:
        assert setup.milepost("migrate").returncode == 0
        problems, window, code = check(setup)
    print("\n".join(f"    {line}" for line in problems), file=sys.stderr)
    if code != 0:
        error = next(line for line in problems if line.startswith("error"))
        return [f"refused: {error.removeprefix('error: ')}", window, *["–"] * len(STAGES)]
    cells = ["; ".join(line.split(": ")[1] for line in problems) or "nothing to say", window]
    for stage in STAGES:
        if arguments.only and stage.__name__ not in arguments.only or arguments.url and stage is restart:
            cells.append("–")
            continue
        with Setup(name, folder / f"{name}-{stage.__name__}", arguments, clickhouse, arguments.url) as setup:
            try:
                stage(setup)
                cells.append(setup.verdict())
            except (AssertionError, TimeoutError, subprocess.TimeoutExpired) as failed:
                print(failed, file=sys.stderr)
                cells.append(f"**failed**: {str(failed).splitlines()[-1][:200]}")
        print(f"{name}: {stage.__name__}: {cells[-1]}", file=sys.stderr)
    return cells


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("brokers", nargs="*", help=f"default: {' '.join(BROKERS)}; with --url, one name for that broker")
    parser.add_argument("--url", help="URL of a running broker, mqtt://host:port; login by MQTT_USERNAME, MQTT_PASSWORD and MQTT_PASSWORD_FILE")
    parser.add_argument("--only", action="append", help="only this stage; may be given several times")
    parser.add_argument("--binaries", type=Path, default=REPOSITORY / "target" / "release")
    arguments = parser.parse_args()
    folder, rows = Path(tempfile.mkdtemp(prefix="milepost-brokers-")), []
    port = free_port()
    log = open(folder / "clickhouse.log", "wb")
    environment = os.environ | {"STATE_DIR": str(folder), "CLICKHOUSE_PORT": str(port)}
    engine = subprocess.Popen([REPOSITORY / "lab/local/clickhouse"], env=environment, stdout=log, stderr=log)
    try:
        wait_until("ClickHouse answers", lambda: answers(port))
        for name in arguments.brokers or BROKERS:
            rows.append([name, *run_stages(name, folder, arguments, f"http://127.0.0.1:{port}")])
    finally:
        engine.terminate()
        engine.wait(90)
    head = ["broker", "`milepost check`", "window", *(stage.__name__ for stage in STAGES)]
    for row in [head, ["---"] * len(head), *rows]:
        print(f"| {' | '.join(row)} |")
    print(f"\nlogs: {folder}", file=sys.stderr)
    return 1 if any("**" in cell for row in rows for cell in row) else 0


if __name__ == "__main__":
    sys.exit(main())

"""One milepost under a fleet's load, without a control plane."""

import os
import re
import subprocess
import urllib.error
import urllib.request

from cluster import free_port, wait_until
from servers import PASSWORD, REPOSITORY, USER

BINARIES = REPOSITORY / "target" / "release"
SAMPLE = re.compile(r"^(milepost_\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


class Member:
    """A milepost under a load, between servers of its own."""

    def __init__(self, folder, servers, **settings):
        self.servers, self.port, self.folder = servers, free_port(), folder
        (folder / "password").write_text(PASSWORD)
        known = {
            "MQTT__URL": f"mqtt://127.0.0.1:{servers.mqtt}",
            "MQTT__CLIENT_ID": "member",
            "CLICKHOUSE__URL": f"http://127.0.0.1:{servers.clickhouse}",
            "CLICKHOUSE__USER": USER,
            "CLICKHOUSE__PASSWORD_FILE": str(folder / "password"),
            "HTTP__LISTEN": f"127.0.0.1:{self.port}",
        }
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        self.environment |= {f"MILEPOST__{name}": value for name, value in (known | settings).items()}
        self.processes = []

    def __enter__(self):
        assert self.command("migrate").returncode == 0
        self.start("milepost", "run")
        wait_until("it is ready", lambda: self.get("readyz").startswith("ready"))
        fleet = ["fleet", "--broker", f"127.0.0.1:{self.servers.mqtt}", "--rate", "1000", "--duration", "120s"]
        self.start("loadgen", *fleet, "--manifest", self.folder / "manifest")
        wait_until("it inserts", lambda: self.value("milepost_positions_inserted_total") > 0)
        return self

    def start(self, program, *arguments):
        log = open(self.folder / f"{program}.log", "wb")
        process = subprocess.Popen([BINARIES / program, *arguments], env=self.environment, stdout=log, stderr=log)
        self.processes.append(process)

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()

    def command(self, *arguments):
        command = [BINARIES / "milepost", *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=90)

    def get(self, path):
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path}", timeout=5).read().decode()
        except urllib.error.HTTPError as answer:
            return answer.read().decode()
        except OSError:
            return ""

    def scrape(self):
        """Value by name and labels, as a scrape job named milepost stores them."""
        found = SAMPLE.findall(self.get("metrics"))
        return {f'{name}{{{labels}{"," if labels else ""}instance="m",job="milepost"}}': value for name, labels, value in found}

    def value(self, name, labels=""):
        return sum(float(value) for key, value in self.scrape().items() if key.startswith(f"{name}{{{labels}"))

    def readyz(self, word):
        return next((line for line in self.get("readyz").splitlines() if word in line), None)

"""A fleet that sends until `stop`: one `loadgen fleet` after the other, each with a manifest of the fixes that it sent."""

import json
import os
import subprocess
import sys
import threading

from servers import PASSWORD, USER

LOGIN = {"CLICKHOUSE_USER": USER, "CLICKHOUSE_PASSWORD": PASSWORD}


class Fleet(threading.Thread):
    def __init__(self, arguments, servers, folder, rate, run_s):
        super().__init__(daemon=True)
        self.folder, self.manifests = folder, []
        self.stopping, self.error = threading.Event(), None
        self.command = [arguments.binaries / "loadgen", "fleet", "--broker", f"127.0.0.1:{servers.mqtt}", "--rate", str(rate)]
        self.command += ["--duration", f"{run_s}s", "--late", "0.005", "--duplicates", "0.005"]
        folder.mkdir()
        self.start()

    def run(self):
        while not self.stopping.is_set():
            manifest = self.folder / f"{len(self.manifests)}.json"
            log = manifest.with_suffix(".log")
            with open(log, "wb") as file:
                result = subprocess.run([*self.command, "--manifest", manifest], stdout=file, stderr=file)
            if result.returncode != 0:
                self.error = log.read_text()
                return
            self.manifests.append(manifest)

    def stop(self):
        """Ends the fleet, and returns the manifests of its runs."""
        self.stopping.set()
        self.join(180)
        assert not self.is_alive() and not self.error, self.error
        return self.manifests


def verify(arguments, servers, manifests):
    """Returns the sums over all manifests, by name, and whether every fix is stored exactly once."""
    unsubscribed = "sent while nobody was subscribed"
    sums = dict.fromkeys(("sent", "stored", "lost", "duplicates in fixes", unsubscribed), 0)
    exact = True
    for manifest in manifests:
        command = [arguments.binaries / "loadgen", "verify", "--manifest", manifest]
        command += ["--clickhouse", f"http://127.0.0.1:{servers.clickhouse}", "--wait", "60s"]
        result = subprocess.run(command, capture_output=True, text=True, env=os.environ | LOGIN)
        if result.returncode != 0:
            print(result.stdout + result.stderr, file=sys.stderr)
            exact = False
        for line in result.stdout.splitlines():
            name, _, value = line.partition("  ")
            if name in sums:
                sums[name] += int(value.split()[0])
        # The fleet sends these messages again, as a device with a buffer does. A device without a buffer loses them.
        sums[unsubscribed] += json.loads(manifest.read_text())["no_subscriber"]
    return sums, exact and sums["sent"] > 0 and sums[unsubscribed] == 0

"""Tests the chart on a real control plane, with helm: install, upgrade, a typo, a rollout that stops, rollback, events, uninstall. A
fleet sends meanwhile, and every fix must be stored exactly once. `make kubernetes` runs it after run.py.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cluster import Cluster, Refused, wait_until
from fleet import Fleet, verify
from kubelet import Kubelet
from objects import CHART
from run import Scene, secret
from servers import EXPIRY_S, IMAGE, NAMESPACE, PASSWORD, REPOSITORY, USER, Servers


class Chart(Scene):
    def __init__(self, cluster, kubelet, folder, arguments, servers):
        super().__init__(cluster, kubelet, folder, arguments)
        self.servers = servers

    def helm(self, *command):
        result = subprocess.run(
            [self.arguments.tools / "helm", "--kubeconfig", self.cluster.folder / "kubeconfig", "--namespace", NAMESPACE, *command],
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    def values(self, more=""):
        config = (
            f'[mqtt]\nurl = "mqtt://127.0.0.1:{self.servers.mqtt}"\nusername = "milepost"\nsession_expiry = "{EXPIRY_S}s"\n'
            f'[clickhouse]\nurl = "http://127.0.0.1:{self.servers.clickhouse}"\nuser = "{USER}"\n{more}'
        )
        # The engine of lab/local has only one user.
        values = {"config": config, "image": {"repository": IMAGE}, "env": [{"name": "MILEPOST__CLICKHOUSE__USER", "value": USER}]}
        path = self.folder / "values.json"
        path.write_text(json.dumps(values))
        return ["--values", str(path)]

    def jobs(self):
        jobs = self.cluster.items("Job", NAMESPACE)
        return {job["metadata"]["name"] for job in jobs if job.get("status", {}).get("succeeded") == 1}

    def configurations(self):
        """Returns the names of the chart's ConfigMaps."""
        found = self.cluster.items("ConfigMap", NAMESPACE)
        return {thing["metadata"]["name"] for thing in found if thing["metadata"]["name"].startswith("milepost-")}

    def wait_for_both_members(self):
        wait_until("both members are ready", lambda: self.ready() == ["milepost-0", "milepost-1"])

    def helm_install(self):
        printed = self.helm("install", "milepost", CHART, *self.values())
        assert "STATUS: deployed" in printed, printed
        self.wait_for_both_members()
        wait_until("the migrate Job has succeeded", lambda: len(self.jobs()) == 1)
        return self.helm("version", "--template", "{{.Version}}").strip() or "helm"

    def helm_upgrade(self):
        before, jobs = self.configurations(), self.jobs()
        self.helm("upgrade", "milepost", CHART, *self.values('[batch]\nage_max = "500ms"\n'))
        wait_until("every pod is new", self.is_rolled_out)
        assert before < self.configurations(), "the former configuration is gone"
        wait_until("the migrate Job of this revision has succeeded", lambda: len(self.jobs() - jobs) == 1)
        return "its own ConfigMap and migrate Job; the former ConfigMap stays"

    def upgrade_with_a_typo(self):
        """Upgrades with a typo, which must be refused before anything changes. A member that is restarted afterwards is unchanged."""
        before, other = self.uids(), self.uid("milepost-0")
        try:
            self.helm("upgrade", "milepost", CHART, *self.values('[batch]\nage_maximum = "1s"\n'))
        except AssertionError as refused:
            assert "pre-upgrade hooks failed" in str(refused), refused
        else:
            raise AssertionError("helm accepted the typo")
        assert any("batch.age_maximum: unknown key" in log.read_text() for log in self.kubelet.folder.glob("milepost-verify*.log"))
        time.sleep(5)
        assert self.uids() == before and len(self.ready()) == 2, "a member was restarted"
        self.cluster.delete("Pod", NAMESPACE, "milepost-0", {"gracePeriodSeconds": 1})
        wait_until("milepost-0 is replaced", lambda: self.uid("milepost-0") not in (other, None))
        self.wait_for_both_members()
        return "refused before anything changed; a member whose node fails then is back"

    def uids(self):
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.members()}

    def stop_rollout(self):
        """Upgrades with a mistake that validation cannot find. The mistake stops the rollout at its first pod, and no
        drain may evict the other pod."""
        old, other = self.uid("milepost-1"), self.uid("milepost-0")
        self.helm("upgrade", "milepost", CHART, *self.values('[decode]\nfix_age_max = "9days"\n'), "--set", "env[1].name=MILEPOST__CLICKHOUSE__URL,env[1].value=http://127.0.0.1:9")
        wait_until("milepost-1 is new", lambda: self.uid("milepost-1") not in (old, None))
        wait_until("milepost-1 reports why it is not ready", lambda: self.unready_line("milepost-1", "clickhouse"))
        time.sleep(5)
        assert self.ready() == ["milepost-0"] and self.uid("milepost-0") == other, "the rollout went on"
        try:
            self.cluster.evict(NAMESPACE, "milepost-0")
            raise AssertionError("a drain evicted the only healthy member")
        except Refused as refused:
            assert refused.code == 429, refused
        return "at its first pod; a drain of the other refused (429)"

    def helm_rollback(self):
        self.helm("rollback", "milepost", "2")
        self.cluster.delete("Pod", NAMESPACE, "milepost-1")  # a StatefulSet does not replace a broken pod by itself
        self.wait_for_both_members()
        wait_until("every pod is of this revision", self.is_rolled_out)
        return "both ready"

    def enable_events(self):
        """Enables events, and checks the alert for silent drivers: the fleet has ended, so every driver is silent."""
        self.helm("upgrade", "milepost", CHART, *self.values('[batch]\nage_max = "500ms"\n'), "--set", "events.enabled=true", "--set", "env[1].name=MILEPOST__EVENTS__SILENT_FOR,env[1].value=5s")
        wait_until("every driver is silent, and the broker has acknowledged the events", self.all_silent)
        pod, = self.pods_of("events")
        assert any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"]["conditions"]), pod["status"]
        return f"{self.servers.query('SELECT count() FROM fleet.events FINAL')} drivers fell silent, each once"

    def all_silent(self):
        silent = "SELECT uniqExact(driver_id), count(), countIf(mqtt_at IS NOT NULL) FROM fleet.events FINAL WHERE kind = 'silent'"
        drivers = self.servers.query("SELECT uniqExact(driver_id) FROM fleet.fixes")
        return self.servers.query(silent).split() == [drivers] * 3

    def helm_uninstall(self):
        """Uninstalls the chart. Its pods stay, because Kubernetes' garbage collector is not among the controllers here."""
        self.helm("uninstall", "milepost")
        wait_until("the StatefulSet is gone", lambda: not self.cluster.items("StatefulSet", NAMESPACE))
        claims = {claim["metadata"]["name"] for claim in self.cluster.items("PersistentVolumeClaim", NAMESPACE)}
        assert claims == {"spool-milepost-0", "spool-milepost-1"}, claims
        return "the spools' claims stay, and the configurations"

    def run_steps(self):
        self.step("helm install", self.helm_install)
        fleet = Fleet(self.arguments, self.servers, self.folder / "fleet", self.arguments.rate, 30)
        time.sleep(3)
        self.step("helm upgrade, another milepost.toml", self.helm_upgrade)
        self.step("helm upgrade with a typo, then a member's node fails", self.upgrade_with_a_typo)
        self.step("helm upgrade with a ClickHouse that is not there: the rollout stops", self.stop_rollout)
        self.step("helm rollback", self.helm_rollback)
        sums, exact = verify(self.arguments, self.servers, fleet.stop())
        self.rows += [(name, str(number), None) for name, number in sums.items()]
        self.step("helm upgrade with events.enabled", self.enable_events)
        self.step("helm uninstall", self.helm_uninstall)
        return exact


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", default=REPOSITORY / ".local" / "tools" / "bin", type=Path)
    parser.add_argument("--binaries", default=REPOSITORY / "target" / "release", type=Path)
    parser.add_argument("--rate", default=1000, type=int, help="messages a second")
    arguments = parser.parse_args()
    arguments.tools, arguments.binaries = arguments.tools.resolve(), arguments.binaries.resolve()
    folder = Path(tempfile.mkdtemp(prefix="milepost-chart-"))
    for part in ("control", "servers", "pods"):
        (folder / part).mkdir()
    with Servers(folder / "servers", "mosquitto", arguments.binaries) as servers, Cluster(arguments.tools, folder / "control") as cluster:
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}, None)
        passwords = {"mqtt-password": "none", "clickhouse-password": PASSWORD, "client-id-suffix": "a1b2"}
        cluster.apply(secret("milepost", **passwords), NAMESPACE)
        cluster.apply(secret("milepost-migrate", **{"clickhouse-password": PASSWORD}), NAMESPACE)
        cluster.apply(secret("milepost-events", **{"mqtt-password": "none", "clickhouse-password": PASSWORD}), NAMESPACE)
        kubelet = Kubelet(cluster, NAMESPACE, folder / "pods", {f"{IMAGE}:0.1.0": arguments.binaries / "milepost"})
        kubelet.start()
        chart = Chart(cluster, kubelet, folder, arguments, servers)
        try:
            exact = chart.run_steps()
        except BaseException:
            print(f"last error of the stand-in for the kubelet: {kubelet.last_error}; kept: {folder}", file=sys.stderr)
            chart.print_pods()
            raise
        finally:
            kubelet.stop()
    for name, result, seconds in chart.rows:
        print(f"| {name} | {result}{f', {seconds:.1f} s' if seconds is not None else ''} |")
    sys.exit(not exact)


if __name__ == "__main__":
    main()

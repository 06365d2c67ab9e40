"""`make kubernetes`: what users apply, on a real control plane, with pods as processes; judged by the set of fixes that was sent.

It prints one table. The fleet sends all the time; at the end every fix must be there once.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import yaml

from cluster import Cluster, Kubelet, Refused, free_port, wait_until

REPOSITORY = Path(__file__).parents[2]
TOOLS = REPOSITORY / ".local" / "tools" / "bin"
NAMESPACE = "milepost"
EXPIRY_S = 20
NOBODY_S = 5


class Servers:
    """Mosquitto and the ClickHouse engine of deploy/local."""

    def __init__(self, folder):
        self.folder, self.processes = folder, []
        self.mqtt, self.clickhouse = free_port(), free_port()

    def __enter__(self):
        environment = os.environ | {"STATE_DIR": str(self.folder)}
        environment |= {"MQTT_PORT": str(self.mqtt), "CLICKHOUSE_PORT": str(self.clickhouse)}
        for program in ("broker", "clickhouse"):
            log = open(self.folder / f"{program}.log", "wb")
            command = REPOSITORY / "deploy" / "local" / program
            self.processes.append(subprocess.Popen([command], env=environment, stdout=log, stderr=log))
        try:
            wait_until("ClickHouse answers", self.answers)
        except BaseException:
            self.__exit__()
            raise
        return self

    def answers(self):
        assert all(process.poll() is None for process in self.processes), f"see the logs in {self.folder}"
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.clickhouse}/ping", timeout=5).read() == b"Ok.\n"
        except OSError:
            return False

    def __exit__(self, *_):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(90)


def overlay(folder, servers, leave):
    """The minimal overlay, with our servers in milepost.toml as a user has his; and the Job that empties a spool."""
    (folder / "milepost.toml").write_text(
        f'[mqtt]\nurl = "mqtt://127.0.0.1:{servers.mqtt}"\nusername = "milepost"\nsession_expiry = "{EXPIRY_S}s"\n'
        f'[clickhouse]\nurl = "http://127.0.0.1:{servers.clickhouse}"\nuser = "milepost"\n[shutdown]\nleave = {leave}\n'
    )
    minimal = os.path.relpath(REPOSITORY / "deploy" / "kubernetes" / "overlays" / "minimal", folder)
    component = os.path.relpath(REPOSITORY / "deploy" / "kubernetes" / "components" / "spool-replay", folder)
    generator = {"name": "milepost", "behavior": "replace", "files": ["milepost.toml"]}
    kustomization = {"resources": [minimal], "configMapGenerator": [generator], "namespace": NAMESPACE}
    kustomization["components"] = [component]
    kustomization["images"] = [{"name": "milepost", "newName": "registry.example/milepost", "newTag": "0.1.0"}]
    (folder / "kustomization.yaml").write_text(json.dumps(kustomization))
    built = subprocess.run([TOOLS / "kustomize", "build", folder], check=True, capture_output=True, text=True).stdout
    things = list(yaml.safe_load_all(built))
    replay = [thing for thing in things if thing["metadata"]["name"] == "milepost-spool-replay"]
    return [thing for thing in things if thing not in replay], replay[0]


class Scene:
    def __init__(self, cluster, kubelet, folder, arguments):
        self.cluster, self.kubelet, self.folder, self.arguments = cluster, kubelet, folder, arguments
        self.rows = []

    def members(self):
        pods = self.cluster.items("Pod", NAMESPACE)
        return [pod for pod in pods if pod["metadata"]["labels"]["app.kubernetes.io/component"] == "consumer"]

    def names(self):
        return sorted(pod["metadata"]["name"] for pod in self.members())

    def ready(self):
        """Names of the pods that are there to stay, and ready."""
        is_ready = lambda pod: any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
        pods = [pod for pod in self.members() if "deletionTimestamp" not in pod["metadata"]]
        return sorted(pod["metadata"]["name"] for pod in pods if is_ready(pod))

    def scale(self, number):
        self.cluster.patch("StatefulSet", NAMESPACE, "milepost", {"spec": {"replicas": number}}, "scale")
        wanted = [f"milepost-{n}" for n in range(number)]
        wait_until(f"there are {number}, and ready", lambda: self.names() == self.ready() == wanted, 90)

    def step(self, what, act):
        began = time.monotonic()
        said = act() or ""
        self.rows.append((what, said, time.monotonic() - began))
        print(f"    {what}: {said} ({self.rows[-1][2]:.1f} s)", file=sys.stderr)

    def log(self, pod):
        return (self.kubelet.folder / f"{pod}.log").read_text()

    def install(self, things):
        order = ["Namespace", "ServiceAccount", "Secret", "ConfigMap"]
        things.sort(key=lambda thing: order.index(thing["kind"]) if thing["kind"] in order else len(order))
        for thing in things:
            self.cluster.apply(thing, NAMESPACE)
        return f"{len(things)} objects taken, every field known"

    def migrate(self):
        done = lambda: self.cluster.get("Job", NAMESPACE, "milepost-migrate")["status"].get("succeeded") == 1
        wait_until("the tables are there", done)
        wait_until("both members are ready", lambda: self.ready() == ["milepost-0", "milepost-1"])

    def wrong_pod(self):
        template = self.cluster.get("StatefulSet", NAMESPACE, "milepost")["spec"]["template"]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "root"}, "spec": template["spec"]}
        pod["spec"]["volumes"].append({"name": "spool", "emptyDir": {}})
        pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
        try:
            self.cluster.create(pod, NAMESPACE)
        except Refused as refused:
            assert refused.code == 403 and "restricted" in refused.message, refused
            return "refused (403)"
        raise AssertionError("a pod that may become root was taken: pod security does not work here")

    def scale_in(self):
        self.scale(1)
        time.sleep(EXPIRY_S + 5)  # what a member left behind is lost by then
        said = [name for name in ("milepost-1", "milepost-2", "milepost-3") if "unsubscribing: milepost-0" in self.log(name)]
        return f"{len(said)} of 3 left the group"

    def restart(self):
        stamp = {"spec": {"template": {"metadata": {"annotations": {"restarted": str(time.time())}}}}}
        self.cluster.patch("StatefulSet", NAMESPACE, "milepost", stamp)

        def is_through():
            members = self.cluster.get("StatefulSet", NAMESPACE, "milepost")
            status = members["status"]
            return (
                status["observedGeneration"] == members["metadata"]["generation"]
                and status.get("updatedReplicas") == status.get("readyReplicas") == members["spec"]["replicas"]
                and status["currentRevision"] == status["updateRevision"]
            )

        wait_until("every pod is new", is_through, 120)

    def evictions(self):
        wait_until("the budget has counted", lambda: self.allowed() == 1)
        self.cluster.evict(NAMESPACE, "milepost-0")
        try:
            self.cluster.evict(NAMESPACE, "milepost-1")
            raise AssertionError("both members were evicted at once")
        except Refused as refused:
            assert refused.code == 429, refused
        self.come_back("milepost-0")
        self.cluster.evict(NAMESPACE, "milepost-1")
        self.come_back("milepost-1")
        return "one taken, the other at once refused (429), and taken later"

    def allowed(self):
        return self.cluster.get("PodDisruptionBudget", NAMESPACE, "milepost").get("status", {}).get("disruptionsAllowed")

    def come_back(self, pod):
        wait_until(f"{pod} goes", lambda: pod not in self.ready())
        wait_until(f"{pod} is back", lambda: self.ready() == ["milepost-0", "milepost-1"])
        wait_until("the budget has counted", lambda: self.allowed() == 1)

    def outage(self, servers):
        """While nobody is ready: one more starts all the same, and no budget stands in the way of a drain."""
        engine = servers.processes[1]
        engine.send_signal(signal.SIGSTOP)
        try:
            wait_until("nobody is ready", lambda: not self.ready())
            self.cluster.patch("StatefulSet", NAMESPACE, "milepost", {"spec": {"replicas": 3}}, "scale")
            wait_until("a third has started", lambda: len(self.names()) == 3)
            wait_until("the budget has counted", lambda: self.allowed() == 0)
            before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.members()}
            for pod in ("milepost-0", "milepost-1"):
                self.cluster.evict(NAMESPACE, pod)
            uids = lambda: {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.members()}
            is_new = lambda now: len(now) == 3 and all(now[pod] != before[pod] for pod in ("milepost-0", "milepost-1"))
            wait_until("both are replaced", lambda: is_new(uids()))
        finally:
            engine.send_signal(signal.SIGCONT)
        wait_until("all are ready again", lambda: len(self.ready()) == 3, 90)
        self.scale(2)
        return "a third pod started, two evicted at once"

    def replay(self):
        """The third one left before its spool was empty: its volume has no pod now."""
        pod = self.replay_job["spec"]["template"]["spec"]
        claims = [volume["persistentVolumeClaim"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume]
        claims[0]["claimName"] = "spool-milepost-2"
        files = list((self.kubelet.folder / "volumes" / "spool-milepost-2" / "spool").glob("*.batch"))
        self.cluster.apply(self.replay_job, NAMESPACE)
        name = self.replay_job["metadata"]["name"]
        done = lambda: self.cluster.get("Job", NAMESPACE, name).get("status", {}).get("succeeded") == 1
        wait_until("the spool is replayed", done)
        return f"{len(files)} batches were there"

    def nobody(self):
        self.scale(0)
        time.sleep(NOBODY_S)
        self.scale(2)

    def play(self, things, servers):
        self.step("install", lambda: self.install(things))
        self.step("migration, and members ready", self.migrate)
        self.step("a pod that pod security forbids", self.wrong_pod)
        manifest = self.folder / "manifest.json"
        fleet = self.fleet(servers, manifest)
        time.sleep(3)
        self.step("2 → 4", lambda: self.scale(4))
        self.step(f"4 → 1, and {EXPIRY_S + 5} s, longer than the sessions' expiry", self.scale_in)
        self.step("1 → 2", lambda: self.scale(2))
        self.step("rolling restart", self.restart)
        self.step("evictions", self.evictions)
        self.step("ClickHouse hangs, nobody is ready", lambda: self.outage(servers))
        self.step("components/spool-replay for the third's volume", self.replay)
        self.step(f"2 → 0, {NOBODY_S} s nobody, 0 → 2", self.nobody)
        assert fleet.poll() is None, "the fleet had sent everything before the end: take a longer --duration"
        assert fleet.wait(300) == 0, (self.folder / "fleet.log").read_text()
        return self.verify(servers, manifest)

    def tell_decisions(self):
        for log in sorted(self.kubelet.folder.glob("*.log")):
            for line in log.read_text().splitlines():
                if '"message":"shutdown.leave = ' in line:
                    line = json.loads(line)
                    print(f"    {log.stem}, {line['timestamp']}: {line['message']}", file=sys.stderr)

    def fleet(self, servers, manifest):
        arguments = self.arguments
        command = [arguments.binaries / "loadgen", "fleet", "--broker", f"127.0.0.1:{servers.mqtt}"]
        command += ["--rate", str(arguments.rate), "--duration", f"{arguments.duration}s", "--manifest", manifest]
        command += ["--late", "0.005", "--duplicates", "0.005"]
        log = open(self.folder / "fleet.log", "wb")
        return subprocess.Popen(command, stdout=log, stderr=log)

    def verify(self, servers, manifest):
        command = [self.arguments.binaries / "loadgen", "verify", "--manifest", manifest]
        command += ["--clickhouse", f"http://127.0.0.1:{servers.clickhouse}", "--wait", "60s"]
        done = subprocess.run(command, capture_output=True, text=True)
        print(done.stdout + done.stderr)
        return done.returncode == 0


def secret(name, **values):
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": values}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", default=TOOLS, type=Path, help="where etcd and Kubernetes' binaries are")
    parser.add_argument("--binaries", default=REPOSITORY / "target" / "release", type=Path, help="milepost and loadgen")
    parser.add_argument("--rate", default=2000, type=int, help="messages a second")
    parser.add_argument("--duration", default=150, type=int, help="how long the fleet sends, in seconds")
    parser.add_argument("--leave", default='"auto"', help="shutdown.leave; with false the judge must find losses")
    arguments = parser.parse_args()
    arguments.tools, arguments.binaries = arguments.tools.resolve(), arguments.binaries.resolve()
    with tempfile.TemporaryDirectory(prefix="milepost-kubernetes-") as name:
        folder = Path(name)
        for part in ("control", "servers", "overlay", "pods"):
            (folder / part).mkdir()
        with Servers(folder / "servers") as servers, Cluster(arguments.tools, folder / "control") as cluster:
            things, replay = overlay(folder / "overlay", servers, arguments.leave)
            things.append(secret("milepost-migrate", **{"clickhouse-password": "none"}))
            ours = {"mqtt-password": "none", "clickhouse-password": "none", "client-id-suffix": "a1b2"}
            things.append(secret("milepost", **ours))
            images = {thing["spec"]["template"]["spec"]["containers"][0]["image"] for thing in things if "template" in thing.get("spec", {})}
            kubelet = Kubelet(cluster, NAMESPACE, folder / "pods", dict.fromkeys(images, arguments.binaries / "milepost"))
            kubelet.start()
            scene = Scene(cluster, kubelet, folder, arguments)
            scene.replay_job = replay
            try:
                exact = scene.play(things, servers)
            except BaseException:
                print("the stand-in for the kubelet last met:", kubelet.wrong, file=sys.stderr)
                for log in sorted(folder.glob("pods/*.log")):
                    print(f"--- {log.name}\n{log.read_text()[-1500:]}", file=sys.stderr)
                raise
            finally:
                kubelet.stop()
                scene.tell_decisions()
    print("| on a control plane | what was seen | took |\n|---|---|--:|")
    for what, said, seconds in scene.rows:
        print(f"| {what} | {said} | {seconds:.1f} s |")
    sys.exit(0 if exact else 1)


if __name__ == "__main__":
    main()

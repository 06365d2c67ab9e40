"""`make kubernetes`: applies the project's manifests to a real control plane, as users do, with pods as processes.

A fleet sends all the time. At the end every fix must be stored exactly once. Prints one table.
"""

import argparse
import json
import shutil
import signal
import sys
import tempfile
import textwrap
import time
import urllib.error
import urllib.request
from pathlib import Path

import objects
import upgrade
from autoscaling import Autoscaling
from cluster import Cluster, Refused, wait_until
from fleet import Fleet, verify
from kubelet import NODES, Kubelet
from servers import EXPIRY_S, IMAGE, NAMESPACE, PASSWORD, REPOSITORY, Servers, overlay

TOOLS = REPOSITORY / ".local" / "tools" / "bin"
BROKERS = {"mosquitto": "Mosquitto", "strict-broker": "strict-broker with EMQX's manners"}
NO_MEMBERS_S = 5
NEXT = "0.2.0"


class Scene:
    def __init__(self, cluster, kubelet, folder, arguments):
        self.cluster, self.kubelet, self.folder, self.arguments = cluster, kubelet, folder, arguments
        self.rows = []

    def members(self):
        return self.pods_of("consumer")

    def names(self):
        return sorted(pod["metadata"]["name"] for pod in self.members())

    def ready(self):
        """Returns the names of the pods that are ready and not being deleted."""
        is_ready = lambda pod: any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
        pods = [pod for pod in self.members() if "deletionTimestamp" not in pod["metadata"]]
        return sorted(pod["metadata"]["name"] for pod in pods if is_ready(pod))

    def scale(self, number):
        self.cluster.patch("StatefulSet", NAMESPACE, "milepost", {"spec": {"replicas": number}}, "scale")
        expected = [f"milepost-{n}" for n in range(number)]
        wait_until(f"{number} members are ready", lambda: self.names() == self.ready() == expected)

    def step(self, name, action):
        began = time.monotonic()
        result = action() or ""
        self.rows.append((name, result, time.monotonic() - began))
        print(f"    {name}: {result} ({self.rows[-1][2]:.1f} s)", file=sys.stderr)

    def log(self, pod):
        return (self.kubelet.folder / f"{pod}.log").read_text()

    def install(self, things):
        order = ["Namespace", "ServiceAccount", "Secret", "ConfigMap"]
        things.sort(key=lambda thing: order.index(thing["kind"]) if thing["kind"] in order else len(order))
        for thing in things:
            self.cluster.apply(thing, NAMESPACE)
        return f"{len(things)} objects accepted, every field known"

    def migrate(self):
        wait_until("the migrate Job has succeeded", lambda: self.has_succeeded("milepost-migrate"))
        wait_until("both members are ready", lambda: self.ready() == ["milepost-0", "milepost-1"])

    def create_forbidden_pod(self):
        template = self.cluster.get("StatefulSet", NAMESPACE, "milepost")["spec"]["template"]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "root"}, "spec": template["spec"]}
        pod["spec"]["volumes"].append({"name": "spool", "emptyDir": {}})
        pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
        try:
            self.cluster.create(pod, NAMESPACE)
        except Refused as refused:
            assert refused.code == 403 and "restricted" in refused.message, refused
            return "refused (403)"
        raise AssertionError("a pod that may become root was accepted: pod security does not work here")

    def scale_out(self):
        self.scale(4)
        nodes = [pod["spec"]["nodeName"] for pod in self.members()]
        assert all(nodes.count(node) == 2 for node in NODES), f"{nodes}: not spread over the nodes"
        return "two on each node"

    def scale_in(self):
        self.scale(1)
        time.sleep(EXPIRY_S + 5)  # sessions that a member did not end have expired by then
        leavers = [name for name in ("milepost-1", "milepost-2", "milepost-3") if "unsubscribing: milepost-0" in self.log(name)]
        return f"{len(leavers)} of 3 left the group"

    def restart(self):
        stamp = {"spec": {"template": {"metadata": {"annotations": {"restarted": str(time.time())}}}}}
        self.cluster.patch("StatefulSet", NAMESPACE, "milepost", stamp)
        wait_until("every pod is new", self.is_rolled_out)

    def is_rolled_out(self):
        members = self.cluster.get("StatefulSet", NAMESPACE, "milepost")
        status = members["status"]
        return (
            status["observedGeneration"] == members["metadata"]["generation"]
            and status.get("updatedReplicas") == status.get("readyReplicas") == members["spec"]["replicas"]
            and status["currentRevision"] == status["updateRevision"]
        )

    def upgrade(self, things, servers):
        """Rolls out a version with one more migration. Its members start before the migrate Job, so they must wait for the tables."""
        image = f"{IMAGE}:{NEXT}"
        self.kubelet.programs[image] = self.arguments.next
        things = {thing["kind"]: thing for thing in things if thing["kind"] in ("StatefulSet", "Job")}
        for thing in things.values():
            thing["spec"]["template"]["spec"]["containers"][0]["image"] = image
        servers.query(f"SELECT {upgrade.FIELD} FROM fleet.fixes LIMIT 0", refused=True)
        old = self.uid("milepost-0")
        self.cluster.apply(things["StatefulSet"], NAMESPACE)
        reason = wait_until("the first new member waits for the tables", lambda: self.unready_line("milepost-1", "not migrated"), 90)
        assert self.ready() == ["milepost-0"] and self.uid("milepost-0") == old, "the rollout did not wait"
        self.cluster.delete("Job", NAMESPACE, "milepost-migrate", {"propagationPolicy": "Background"})
        self.cluster.apply(things["Job"], NAMESPACE)
        wait_until("the migrate Job of the new version has succeeded", lambda: self.has_succeeded("milepost-migrate"))
        wait_until("every pod is new", self.is_rolled_out)
        images = {pod["spec"]["containers"][0]["image"] for pod in self.members()}
        assert images == {image} and self.uid("milepost-0") != old, images
        servers.query(f"SELECT {upgrade.FIELD} FROM fleet.fixes LIMIT 0")
        return f"`{reason}` until the Job had finished; the old member kept working"

    def pods_of(self, component):
        pods = self.cluster.items("Pod", NAMESPACE)
        return [pod for pod in pods if pod["metadata"]["labels"].get("app.kubernetes.io/component") == component]

    def has_succeeded(self, job):
        return self.cluster.get("Job", NAMESPACE, job).get("status", {}).get("succeeded") == 1

    def evictions(self):
        wait_until("the disruption budget is up to date", lambda: self.allowed() == 1)
        self.cluster.evict(NAMESPACE, "milepost-0")
        try:
            self.cluster.evict(NAMESPACE, "milepost-1")
            raise AssertionError("both members were evicted at once")
        except Refused as refused:
            assert refused.code == 429, refused
        self.wait_until_back("milepost-0")
        self.cluster.evict(NAMESPACE, "milepost-1")
        self.wait_until_back("milepost-1")
        return "one accepted, the other refused at once (429), and accepted later"

    def allowed(self):
        return self.cluster.get("PodDisruptionBudget", NAMESPACE, "milepost").get("status", {}).get("disruptionsAllowed")

    def wait_until_back(self, pod):
        wait_until(f"{pod} is no longer ready", lambda: pod not in self.ready())
        wait_until(f"{pod} is back", lambda: self.ready() == ["milepost-0", "milepost-1"])
        wait_until("the disruption budget is up to date", lambda: self.allowed() == 1)

    def drain(self):
        """Drains as `kubectl drain` does: cordons the node, then evicts each of its pods, and retries while the answer is 429."""
        nodes = lambda: {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in self.members()}
        to_move = [pod for pod, node in nodes().items() if node == NODES[0]]
        assert len(to_move) > 1, f"{nodes()}: no eviction would have to wait"
        wait_until("the disruption budget is up to date", lambda: self.allowed() == 1)
        self.cluster.patch("Node", None, NODES[0], {"spec": {"unschedulable": True}})
        refused = set()
        for pod in to_move:
            wait_until(f"{pod} may be evicted", lambda: self.may_evict(pod, refused))
        wait_until("the node is empty", lambda: len(self.ready()) == 4 and set(nodes().values()) == {NODES[1]})
        self.cluster.patch("Node", None, NODES[0], {"spec": {"unschedulable": None}})
        assert refused, "two members were evicted at once"
        return f"{len(to_move)} members moved, {len(refused)} after a refusal (429)"

    def may_evict(self, pod, refused):
        try:
            self.cluster.evict(NAMESPACE, pod)
        except Refused as error:
            assert error.code == 429, error
            refused.add(pod)
            return False
        return True

    def roll_out_a_mistake(self):
        """Rolls out a mistake, and reverts it as docs/kubernetes.md describes."""
        template = self.cluster.get("StatefulSet", NAMESPACE, "milepost")["spec"]["template"]["spec"]["containers"]
        wrong = json.loads(json.dumps(template))
        wrong[0]["env"].append({"name": "MILEPOST__CLICKHOUSE__URL", "value": "http://127.0.0.1:9"})
        roll = lambda to: {"spec": {"template": {"spec": {"containers": to}}}}
        old = self.uid("milepost-1")
        self.cluster.patch("StatefulSet", NAMESPACE, "milepost", roll(wrong))
        wait_until("milepost-1 is new", lambda: self.uid("milepost-1") not in (old, None))
        reason = wait_until("milepost-1 reports why it is not ready", lambda: self.unready_line("milepost-1", "clickhouse"))
        other = self.uid("milepost-0")
        time.sleep(5)
        assert self.ready() == ["milepost-0"] and self.uid("milepost-0") == other, "the rollout went on"
        self.cluster.patch("StatefulSet", NAMESPACE, "milepost", roll(template))
        self.cluster.delete("Pod", NAMESPACE, "milepost-1")
        wait_until("both are ready", lambda: self.ready() == ["milepost-0", "milepost-1"])
        assert self.uid("milepost-0") == other
        return f"the rollout stopped, the other member stayed; `{reason}`"

    def set_wrong_secret(self):
        """Sets a password that ClickHouse refuses, then the right one, which must work without a restart."""
        self.set_password("of another server")
        old = self.uid("milepost-1")
        self.cluster.delete("Pod", NAMESPACE, "milepost-1")
        wait_until("milepost-1 is new", lambda: self.uid("milepost-1") not in (old, None))
        reason = wait_until("milepost-1 reports why it is not ready", lambda: self.unready_line("milepost-1", "516"))
        new = self.uid("milepost-1")
        self.set_password(PASSWORD)
        wait_until("both are ready", lambda: self.ready() == ["milepost-0", "milepost-1"])
        assert self.uid("milepost-1") == new, "milepost-1 was replaced"
        return f"`{reason}`; ready again without a restart"

    def set_password(self, password):
        self.cluster.patch("Secret", NAMESPACE, "milepost", {"stringData": {"clickhouse-password": password}})

    def uid(self, name):
        uids = [pod["metadata"]["uid"] for pod in self.members() if pod["metadata"]["name"] == name]
        return uids[0] if uids else None

    def unready_line(self, pod, word):
        """Returns the line of a failing /readyz that contains this word."""
        try:
            urllib.request.urlopen(f"http://{self.kubelet.address(pod)}:9464/readyz", timeout=5).close()
        except urllib.error.HTTPError as answer:
            lines = [line for line in answer.read().decode().splitlines() if word in line]
            return textwrap.shorten(lines[0], 105, placeholder=" …") if lines else None
        except OSError:
            pass

    def outage(self, servers):
        """Suspends ClickHouse. While no member is ready, another member must still start, and a drain must not be
        blocked."""
        engine = servers.processes[1]
        engine.send_signal(signal.SIGSTOP)
        try:
            wait_until("no member is ready", lambda: not self.ready())
            self.cluster.patch("StatefulSet", NAMESPACE, "milepost", {"spec": {"replicas": 3}}, "scale")
            wait_until("a third member has started", lambda: len(self.names()) == 3)
            wait_until("the disruption budget is up to date", lambda: self.allowed() == 0)
            before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.members()}
            for pod in ("milepost-0", "milepost-1"):
                self.cluster.evict(NAMESPACE, pod)
            uids = lambda: {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.members()}
            is_new = lambda now: len(now) == 3 and all(now[pod] != before[pod] for pod in ("milepost-0", "milepost-1"))
            wait_until("both members are replaced", lambda: is_new(uids()))
        finally:
            engine.send_signal(signal.SIGCONT)
        wait_until("all members are ready again", lambda: len(self.ready()) == 3)
        self.scale(2)
        return "a third pod started, two evicted at once"

    def replay(self):
        """Empties the spool of the third member, whose pod is gone: the member left before its spool was empty."""
        pod = self.replay_job["spec"]["template"]["spec"]
        claims = [volume["persistentVolumeClaim"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume]
        claims[0]["claimName"] = "spool-milepost-2"
        files = list((self.kubelet.folder / "volumes" / "spool-milepost-2" / "spool").glob("*.batch"))
        self.cluster.apply(self.replay_job, NAMESPACE)
        name = self.replay_job["metadata"]["name"]
        wait_until("the spool is replayed", lambda: self.has_succeeded(name))
        return f"{len(files)} batches were there"

    def scale_to_zero(self):
        self.scale(0)
        time.sleep(NO_MEMBERS_S)
        self.scale(2)

    def run_steps(self, things, servers):
        self.step("install", lambda: self.install(things))
        self.step("the base, every component, overlay, and the chart", lambda: objects.check_all(self.cluster, self.folder / "shown"))
        self.step("migration, and members ready", self.migrate)
        self.step("a pod that pod security forbids", self.create_forbidden_pod)
        fleet = Fleet(self.arguments, servers, self.folder / "fleet", self.arguments.rate, 30)
        time.sleep(3)
        self.step("2 → 4", self.scale_out)
        self.step("a node is drained", self.drain)
        self.step(f"4 → 1, and {EXPIRY_S + 5} s, longer than the sessions' expiry", self.scale_in)
        self.step("1 → 2", lambda: self.scale(2))
        self.step("rolling restart", self.restart)
        self.step("evictions", self.evictions)
        self.step("a rollout with a pod that never gets ready, and undo", self.roll_out_a_mistake)
        self.step("a Secret with a wrong password", self.set_wrong_secret)
        self.step("ClickHouse hangs, nobody is ready", lambda: self.outage(servers))
        self.step("components/spool-replay for the third's volume", self.replay)
        self.step(f"2 → 0, {NO_MEMBERS_S} s nobody, 0 → 2", self.scale_to_zero)
        bursts = []
        if not self.arguments.prove:
            bursts = self.autoscaling(servers)
            self.step("rolling upgrade with a migration", lambda: self.upgrade(things, servers))
        sums, exact = verify(self.arguments, servers, fleet.stop() + bursts)
        self.rows += [(name, str(number), None) for name, number in sums.items()]
        return exact

    def autoscaling(self, servers):
        with Autoscaling(self, servers) as scaling:
            self.step("components/hpa, and what two members carry", scaling.install)
            self.step("a second fleet", scaling.scale_out)
            self.step("ClickHouse is killed, and the second fleet ends", scaling.hold)
            self.step("ClickHouse is back, the spools become empty", scaling.scale_in)
            self.step("dashboard, alerts, recording rule", scaling.check_dashboard)
            return scaling.manifests

    def print_pods(self):
        """Prints the pods as the API server has them, to explain why one is missing."""
        for pod in self.members():
            metadata = {key: pod["metadata"].get(key) for key in ("uid", "deletionTimestamp")} | {"node": pod["spec"].get("nodeName")}
            print(f"    {pod['metadata']['name']}: {metadata}, {pod['status']}", file=sys.stderr)

    def print_decisions(self):
        """Prints the log lines with which members decided whether to leave the group."""
        for log in sorted(self.kubelet.folder.glob("*.log")):
            for line in log.read_text().splitlines():
                if '"message":"shutdown.leave = ' in line:
                    line = json.loads(line)
                    print(f"    {log.stem}, {line['timestamp']}: {line['message']}", file=sys.stderr)


def secret(name, **values):
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": values}


def all_but_logs(folder, names):
    return [name for name in names if not name.endswith(".log")]


def run_on(broker, leave, arguments):
    """Runs everything on one broker. Returns the rows, and whether each fix was stored exactly once."""
    folder = Path(tempfile.mkdtemp(prefix="milepost-kubernetes-"))
    try:
        exact, rows = run_in(folder, broker, leave, arguments)
    except BaseException:
        print(f"all logs and data are kept: {folder}", file=sys.stderr)
        raise
    if exact:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"not every fix is stored exactly once; all logs and data are kept: {folder}", file=sys.stderr)
    return exact, rows


def run_in(folder, broker, leave, arguments):
    """Runs everything; writes only below this folder."""
    for part in ("control", "servers", "overlay", "pods"):
        (folder / part).mkdir()
    servers = Servers(folder / "servers", broker, arguments.binaries)
    with servers, Cluster(arguments.tools, folder / "control") as cluster:
        things, replay = overlay(folder / "overlay", servers, leave, arguments.tools)
        things.append(secret("milepost-migrate", **{"clickhouse-password": PASSWORD}))
        passwords = {"mqtt-password": "none", "clickhouse-password": PASSWORD, "client-id-suffix": "a1b2"}
        things.append(secret("milepost", **passwords))
        images = {thing["spec"]["template"]["spec"]["containers"][0]["image"] for thing in things if "template" in thing.get("spec", {})}
        kubelet = Kubelet(cluster, NAMESPACE, folder / "pods", dict.fromkeys(images, arguments.binaries / "milepost"))
        objects.define(cluster)
        kubelet.start()
        scene = Scene(cluster, kubelet, folder, arguments)
        scene.replay_job = replay
        try:
            return scene.run_steps(things, servers), scene.rows
        except BaseException:
            print("last error of the stand-in for the kubelet:", kubelet.last_error, file=sys.stderr)
            scene.print_pods()
            logs = shutil.copytree(folder / "control", REPOSITORY / "target" / "kubernetes-logs", ignore=all_but_logs, dirs_exist_ok=True)
            print(f"logs of the control plane: {logs}", file=sys.stderr)
            for log in sorted(folder.glob("pods/*.log")):
                print(f"--- {log.name}\n{log.read_text()[-1500:]}", file=sys.stderr)
            raise
        finally:
            kubelet.stop()
            scene.print_decisions()


def table(results):
    """Prints the table, with one column per broker."""
    print(f"| on a control plane | {' | '.join(BROKERS[broker] for broker in results)} |")
    print("|---|" + "---|" * len(results))
    for rows in zip(*results.values()):
        cells = [f"{result}{', ' if result else ''}{seconds:.1f} s" if seconds is not None else result for _, result, seconds in rows]
        print(f"| {rows[0][0]} | {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", default=TOOLS, type=Path, help="where etcd and Kubernetes' binaries are")
    parser.add_argument("--binaries", default=REPOSITORY / "target" / "release", type=Path, help="milepost, loadgen, strict-broker")
    parser.add_argument("--broker", choices=BROKERS, action="append", help="only on this broker; may be given several times")
    parser.add_argument("--rate", default=2000, type=int, help="messages a second")
    parser.add_argument("--next", type=Path, help="the next version of milepost; built if it is not given")
    parser.add_argument("--prove", action="store_true", help="with shutdown.leave = true and false instead: each must be found")
    arguments = parser.parse_args()
    arguments.tools, arguments.binaries = arguments.tools.resolve(), arguments.binaries.resolve()
    if not arguments.prove:
        arguments.next = arguments.next.resolve() if arguments.next else upgrade.next_version()
    brokers = arguments.broker or list(BROKERS)
    if arguments.prove:
        found = {leave: run_on(brokers[0], leave, arguments) for leave in ("true", "false")}
        for leave, (exact, rows) in found.items():
            figures = ", ".join(f"{name} {value}" for name, value, seconds in rows if seconds is None)
            print(f"shutdown.leave = {leave}: {'NOT FOUND' if exact else 'found'}: {figures}")
        sys.exit(any(exact for exact, _ in found.values()))
    results = {broker: run_on(broker, '"auto"', arguments) for broker in brokers}
    table({broker: rows for broker, (_, rows) in results.items()})
    sys.exit(not all(exact for exact, _ in results.values()))


if __name__ == "__main__":
    main()

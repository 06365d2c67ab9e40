"""A real control plane on the loopback (etcd, kube-apiserver, kube-controller-manager), and a stand-in for the kubelet that runs
pods as processes: environment, configuration, secrets and volumes as folders, probes, SIGTERM and the grace, status.

What it is not: there is no scheduler, no container, no network of its own, and no user of its own. Every pod has an address of
127.0.0.0/8. There is no DNS: where a variable names a headless service, the pod gets the addresses that the service would lead to.
"""

import base64
import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

PODS_MAX = 8
CONTROLLERS = [
    "statefulset-controller",
    "job-controller",
    "disruption-controller",
    "endpointslice-controller",
    "serviceaccount-controller",
]
# Where objects of a kind live, and whether in a namespace.
PATHS = {
    "Namespace": ("api/v1", "namespaces", False),
    "Node": ("api/v1", "nodes", False),
    "ServiceAccount": ("api/v1", "serviceaccounts", True),
    "ConfigMap": ("api/v1", "configmaps", True),
    "Secret": ("api/v1", "secrets", True),
    "Service": ("api/v1", "services", True),
    "Pod": ("api/v1", "pods", True),
    "PersistentVolumeClaim": ("api/v1", "persistentvolumeclaims", True),
    "StatefulSet": ("apis/apps/v1", "statefulsets", True),
    "Job": ("apis/batch/v1", "jobs", True),
    "PodDisruptionBudget": ("apis/policy/v1", "poddisruptionbudgets", True),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "networkpolicies", True),
    "HorizontalPodAutoscaler": ("apis/autoscaling/v2", "horizontalpodautoscalers", True),
}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_until(what, condition, within=60.0):
    end = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {within:.0f} s, but never: {what}"
        time.sleep(0.1)
    return found


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Cluster:
    """The control plane; use it with `with`."""

    def __init__(self, tools, folder):
        self.tools, self.folder = Path(tools), Path(folder)
        self.processes = []
        self.token = secrets.token_hex(16)
        self.port = free_port()
        self.context = ssl.create_default_context()
        self.context.check_hostname = False  # its certificate is its own, of this minute
        self.context.verify_mode = ssl.CERT_NONE

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()

    def run(self, name, *arguments):
        log = open(self.folder / f"{name}.log", "wb")
        command = [self.tools / name, *arguments]
        self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder))

    def start(self):
        etcd, peer = free_port(), free_port()
        (self.folder / "tokens.csv").write_text(f'{self.token},admin,admin,"system:masters"\n')
        key = self.folder / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        address = f"http://127.0.0.1:{etcd}"
        self.run(
            "etcd", "--data-dir", self.folder / "etcd", "--listen-client-urls", address, "--advertise-client-urls",
            address, "--listen-peer-urls", f"http://127.0.0.1:{peer}", "--unsafe-no-fsync",
        )
        self.run(
            "kube-apiserver", f"--etcd-servers={address}", "--bind-address=127.0.0.1", f"--secure-port={self.port}",
            f"--cert-dir={self.folder}/certificates", f"--token-auth-file={self.folder}/tokens.csv",
            "--authorization-mode=RBAC", "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24",
        )
        wait_until("the API server is ready", self.is_ready, 120)
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "clusters": [
                {
                    "name": "it",
                    "cluster": {"server": f"https://127.0.0.1:{self.port}", "insecure-skip-tls-verify": True},
                }
            ],
            "users": [{"name": "it", "user": {"token": self.token}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }
        (self.folder / "kubeconfig").write_text(json.dumps(kubeconfig))
        self.run(
            "kube-controller-manager", f"--kubeconfig={self.folder}/kubeconfig", "--leader-elect=false",
            "--secure-port=0", f"--service-account-private-key-file={key}", f"--controllers={','.join(CONTROLLERS)}",
        )

    def is_ready(self):
        try:
            return self.request("GET", "readyz") == "ok"
        except (Refused, OSError):
            return False

    def request(self, method, path, body=None, kind="application/json"):
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}/{path}", method=method)
        request.add_header("Authorization", f"Bearer {self.token}")
        request.add_header("Content-Type", kind)
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, data, timeout=30, context=self.context) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            text = error.read().decode()
            try:
                text = json.loads(text)["message"]
            except (ValueError, KeyError):
                pass
            raise Refused(error.code, text) from None
        return json.loads(text) if text.startswith("{") else text

    def path(self, kind, namespace, name=""):
        group, plural, in_namespace = PATHS[kind]
        where = f"{group}/namespaces/{namespace}/{plural}" if in_namespace else f"{group}/{plural}"
        return f"{where}/{name}".rstrip("/")

    def apply(self, thing, namespace):
        """Server-side apply, with strict validation of every field."""
        path = self.path(thing["kind"], namespace, thing["metadata"]["name"])
        query = "fieldManager=test&force=true&fieldValidation=Strict"
        return self.request("PATCH", f"{path}?{query}", thing, "application/apply-patch+yaml")

    def create(self, thing, namespace):
        path = self.path(thing["kind"], namespace)
        return self.request("POST", f"{path}?fieldValidation=Strict", thing)

    def get(self, kind, namespace, name):
        return self.request("GET", self.path(kind, namespace, name))

    def items(self, kind, namespace):
        return self.request("GET", self.path(kind, namespace))["items"]

    def patch(self, kind, namespace, name, change, sub=""):
        path = self.path(kind, namespace, name) + (f"/{sub}" if sub else "")
        return self.request("PATCH", path, change, "application/merge-patch+json")

    def delete(self, kind, namespace, name, options=None):
        return self.request("DELETE", self.path(kind, namespace, name), options or {})

    def evict(self, namespace, pod):
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
        return self.request("POST", self.path("Pod", namespace, pod) + "/eviction", body)


class Kubelet(threading.Thread):
    """Runs every pod of a namespace. `programs`: what stands for an image."""

    def __init__(self, cluster, namespace, folder, programs):
        super().__init__(daemon=True)
        self.cluster, self.namespace, self.folder, self.programs = cluster, namespace, Path(folder), programs
        self.pods = {}
        self.stopped = threading.Event()
        self.wrong = None
        self.numbers = {}

    def stop(self):
        self.stopped.set()
        self.join(10)
        for pod in self.pods.values():
            pod.kill()

    def run(self):
        while not self.stopped.is_set():
            try:
                self.look()
            except (Refused, OSError) as error:
                if not self.stopped.is_set():
                    self.wrong = error  # a conflict is seen again at the next look
            time.sleep(0.2)

    def look(self):
        there = {pod["metadata"]["uid"]: pod for pod in self.cluster.items("Pod", self.namespace)}
        for uid, thing in there.items():
            if uid not in self.pods:
                if thing["metadata"].get("deletionTimestamp"):
                    self.gone(thing)
                    continue
                self.pods[uid] = Pod(self, thing)
            self.pods[uid].look(thing)
        for uid in set(self.pods) - set(there):
            self.pods.pop(uid).kill()

    def gone(self, thing):
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": thing["metadata"]["uid"]}}
        self.cluster.delete("Pod", self.namespace, thing["metadata"]["name"], options)

    def address(self, name):
        number = self.numbers.setdefault(name, len(self.numbers) + 1)
        assert number <= PODS_MAX, "more pods than there are addresses"
        return f"127.0.1.{number}"

    def addresses(self):
        return [f"127.0.1.{number}" for number in range(1, PODS_MAX + 1)]


class Pod:
    """One process, as the API server's object says."""

    def __init__(self, kubelet, thing):
        self.kubelet, self.thing = kubelet, thing
        self.name = thing["metadata"]["name"]
        self.folder = kubelet.folder / self.name
        self.address = kubelet.address(self.name)
        self.container = thing["spec"]["containers"][0]
        self.told_at = None
        self.told = None
        node = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "node"}}
        binding = node | {"metadata": {"name": self.name}}
        kubelet.cluster.request("POST", kubelet.cluster.path("Pod", kubelet.namespace, self.name) + "/binding", binding)
        self.process = self.start()

    def start(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        places = {}
        volumes = {volume["name"]: volume for volume in self.thing["spec"]["volumes"]}
        for mount in self.container["volumeMounts"]:
            places[mount["mountPath"]] = self.lay_out(volumes[mount["name"]], self.folder / mount["name"])
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder)}
        for variable in self.container["env"]:
            value = self.value(variable)
            for name, known in environment.items():
                value = value.replace(f"$({name})", known)
            for path, place in places.items():
                if value.startswith(path):
                    value = str(place) + value.removeprefix(path)
            environment[variable["name"]] = self.on_the_loopback(value)
        log = open(self.kubelet.folder / f"{self.name}.log", "ab")
        program = self.kubelet.programs[self.container["image"]]
        return subprocess.Popen([program, *self.container["args"]], env=environment, stdout=log, stderr=log, cwd=self.folder)

    def on_the_loopback(self, value):
        if value.startswith("0.0.0.0:"):
            return value.replace("0.0.0.0", self.address)
        service, _, port = value.partition(":")
        if port.isdigit() and service == self.thing["spec"].get("subdomain"):
            return ",".join(f"{address}:{port}" for address in self.kubelet.addresses())
        return value

    def object_of(self, kind, name):
        return self.kubelet.cluster.get(kind, self.kubelet.namespace, name)

    def value(self, variable):
        source = variable.get("valueFrom")
        if not source:
            return variable["value"]
        if "secretKeyRef" in source:
            secret = self.object_of("Secret", source["secretKeyRef"]["name"])
            return base64.b64decode(secret["data"][source["secretKeyRef"]["key"]]).decode()
        assert source["fieldRef"]["fieldPath"] == "metadata.name"
        return self.name

    def lay_out(self, volume, folder):
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]["claimName"]
            self.object_of("PersistentVolumeClaim", claim)
            folder = self.kubelet.folder / "volumes" / claim
            folder.mkdir(parents=True, exist_ok=True)
            return folder
        folder.mkdir()
        if "configMap" in volume:
            files = self.object_of("ConfigMap", volume["configMap"]["name"])["data"]
            files = {name: text.encode() for name, text in files.items()}
        elif "secret" in volume:
            data = self.object_of("Secret", volume["secret"]["secretName"])["data"]
            items = volume["secret"].get("items") or [{"key": key, "path": key} for key in data]
            files = {item["path"]: base64.b64decode(data[item["key"]]) for item in items}
        else:
            assert "projected" in volume or "emptyDir" in volume, volume
            files = {}
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return folder

    def look(self, thing):
        ended = self.process.poll()
        if thing["metadata"].get("deletionTimestamp"):
            if ended is not None:
                self.kubelet.gone(thing)
            elif self.told_at is None:
                self.told_at = time.monotonic()
                self.process.send_signal(signal.SIGTERM)
            elif time.monotonic() - self.told_at > thing["metadata"]["deletionGracePeriodSeconds"]:
                self.process.kill()
                return
        if ended is not None and ended != 0 and self.told_at is None:
            self.process = self.start()  # both restart policies of ours
            ended = None
        self.tell(ended)

    def is_ready(self):
        probe = self.container.get("readinessProbe")
        if not probe:
            return True
        port = {port["name"]: port["containerPort"] for port in self.container["ports"]}[probe["httpGet"]["port"]]
        try:
            urllib.request.urlopen(f"http://{self.address}:{port}{probe['httpGet']['path']}", timeout=2).close()
            return True
        except OSError:
            return False

    def tell(self, ended):
        ready = ended is None and self.is_ready()
        phase = "Running" if ended is None else "Succeeded" if ended == 0 else "Failed"
        if (phase, ready) == self.told:
            return
        self.told = (phase, ready)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        state = {"running": {"startedAt": now}} if ended is None else {"terminated": {"exitCode": ended, "finishedAt": now}}
        word = "True" if ready else "False"
        conditions = [{"type": kind, "status": word, "lastTransitionTime": now} for kind in ("Ready", "ContainersReady")]
        status = {
            "phase": phase,
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "startTime": now,
            "conditions": [{"type": "Initialized", "status": "True"}, *conditions],
            "containerStatuses": [
                {
                    "name": self.container["name"],
                    "image": self.container["image"],
                    "imageID": "",
                    "ready": ready,
                    "restartCount": 0,
                    "state": state,
                }
            ],
        }
        self.kubelet.cluster.patch("Pod", self.kubelet.namespace, self.name, {"status": status}, "status")

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

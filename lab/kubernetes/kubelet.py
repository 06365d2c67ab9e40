"""A stand-in for the kubelet that runs pods as processes. It handles their environment, configuration, secrets and volumes (as
folders), readiness probes, SIGTERM, the grace period, and their status. It also provisions volumes.

Pods have no container, network or user of their own, and a node is only a name. Every pod has an address in 127.0.0.0/8. There is no
DNS: where a variable names a headless service, the pod gets the addresses that the service would resolve to.
"""

import base64
import os
import secrets
import shutil
import signal
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

from cluster import Refused

PODS_MAX = 8
NODES = ["node-a", "node-b"]
CLASS = "folders"
CAPACITY = {"cpu": "4", "memory": "4Gi", "pods": "20"}


class Kubelet(threading.Thread):
    """Runs every pod of a namespace. `programs`: the program to run for each image."""

    def __init__(self, cluster, namespace, folder, programs):
        super().__init__(daemon=True)
        self.cluster, self.namespace, self.folder, self.programs = cluster, namespace, Path(folder), programs
        self.pods = {}
        self.stopped = threading.Event()
        self.last_error = None
        self.numbers = {}
        self.volumes = set()
        self.network = f"127.{100 + secrets.randbelow(100)}.{secrets.randbelow(256)}"  # random, so that concurrent runs do not collide
        for node in NODES:
            labels = {"kubernetes.io/hostname": node, "topology.kubernetes.io/zone": node.replace("node", "zone")}
            cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": labels}}, None)
            cluster.patch("Node", None, node, {"status": {"capacity": CAPACITY, "allocatable": CAPACITY}}, "status")
            cluster.patch("Node", None, node, {"spec": {"taints": None}})  # a new node has the taint not-ready
        default = {"name": CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
        storage_class = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "milepost.example/folders"}
        cluster.create(storage_class | {"metadata": default}, None)

    def stop(self):
        self.stopped.set()
        self.join(10)
        for pod in self.pods.values():
            pod.kill()

    def run(self):
        while not self.stopped.is_set():
            try:
                self.sync()
            except (Refused, OSError) as error:
                if not self.stopped.is_set():
                    self.last_error = error  # the next sync retries after a conflict
            time.sleep(0.2)

    def sync(self):
        self.make_volumes()
        pods = [pod for pod in self.cluster.items("Pod", self.namespace) if pod["spec"].get("nodeName")]
        present = {pod["metadata"]["uid"]: pod for pod in pods}
        for uid, thing in present.items():
            if uid not in self.pods:
                if thing["metadata"].get("deletionTimestamp"):
                    self.remove(thing)
                    continue
                self.pods[uid] = Pod(self, thing)
            self.pods[uid].sync(thing)
        for uid in set(self.pods) - set(present):
            self.pods.pop(uid).kill()

    def make_volumes(self):
        """Creates a volume for each claim without one. The volume controller binds the volume to the claim, and the
        scheduler waits for that."""
        for claim in self.cluster.items("PersistentVolumeClaim", self.namespace):
            if claim["spec"].get("volumeName") or claim["metadata"]["name"] in self.volumes:
                continue
            self.volumes.add(claim["metadata"]["name"])
            spec = {"storageClassName": CLASS, "accessModes": claim["spec"]["accessModes"]}
            spec |= {"capacity": claim["spec"]["resources"]["requests"], "hostPath": {"path": "/nowhere"}}
            spec["claimRef"] = {"namespace": self.namespace} | {key: claim["metadata"][key] for key in ("name", "uid")}
            volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": claim["metadata"]["name"]}}
            self.cluster.create(volume | {"spec": spec}, None)

    def remove(self, thing):
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": thing["metadata"]["uid"]}}
        self.cluster.delete("Pod", self.namespace, thing["metadata"]["name"], options)

    def address(self, name):
        number = self.numbers.setdefault(name, len(self.numbers) + 1)
        assert number <= PODS_MAX, "more pods than addresses"
        return f"{self.network}.{number}"

    def addresses(self):
        return [f"{self.network}.{number}" for number in range(1, PODS_MAX + 1)]


class Pod:
    """One process, which runs as the pod's object in the API server describes."""

    def __init__(self, kubelet, thing):
        self.kubelet, self.thing = kubelet, thing
        self.name = thing["metadata"]["name"]
        self.folder = kubelet.folder / self.name
        self.container = thing["spec"]["containers"][0]
        # A Job's pod has no port.
        self.address = kubelet.address(self.name) if "ports" in self.container else f"{kubelet.network}.{PODS_MAX + 1}"
        self.terminated_at = None
        self.reported = None
        self.secrets = []
        self.renewed_at = 0.0
        self.process = self.start()

    def start(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        paths = {}
        self.secrets = []
        volumes = {volume["name"]: volume for volume in self.thing["spec"]["volumes"]}
        for mount in self.container["volumeMounts"]:
            paths[mount["mountPath"]] = self.mount(volumes[mount["name"]], self.folder / mount["name"])
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder)}
        for variable in self.container["env"]:
            value = self.value(variable)
            for name, known in environment.items():
                value = value.replace(f"$({name})", known)
            for mount_path, path in paths.items():
                if value.startswith(mount_path):
                    value = str(path) + value.removeprefix(mount_path)
            environment[variable["name"]] = self.loopback_value(value)
        log = open(self.kubelet.folder / f"{self.name}.log", "ab")
        program = self.kubelet.programs[self.container["image"]]
        return subprocess.Popen([program, *self.container["args"]], env=environment, stdout=log, stderr=log, cwd=self.folder)

    def loopback_value(self, value):
        """Returns the value of a variable on the loopback: 0.0.0.0 becomes the pod's own address, and a headless service
        becomes its peers' addresses."""
        if value.startswith("0.0.0.0:"):
            return value.replace("0.0.0.0", self.address)
        service, _, port = value.partition(":")
        if port.isdigit() and service == self.thing["spec"].get("subdomain"):
            return ",".join(f"{address}:{port}" for address in self.kubelet.addresses())
        return value

    def get_object(self, kind, name):
        return self.kubelet.cluster.get(kind, self.kubelet.namespace, name)

    def value(self, variable):
        source = variable.get("valueFrom")
        if not source:
            return variable["value"]
        if "secretKeyRef" in source:
            secret = self.get_object("Secret", source["secretKeyRef"]["name"])
            return base64.b64decode(secret["data"][source["secretKeyRef"]["key"]]).decode()
        assert source["fieldRef"]["fieldPath"] == "metadata.name"
        return self.name

    def mount(self, volume, folder):
        """Writes the files of a volume, and returns the folder that stands for its mount path."""
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]["claimName"]
            self.get_object("PersistentVolumeClaim", claim)
            folder = self.kubelet.folder / "volumes" / claim
            folder.mkdir(parents=True, exist_ok=True)
            return folder
        folder.mkdir()
        if "configMap" in volume:
            files = self.get_object("ConfigMap", volume["configMap"]["name"])["data"]
            files = {name: text.encode() for name, text in files.items()}
        elif "secret" in volume:
            self.secrets.append((volume["secret"], folder))
            files = self.files_of(volume["secret"])
        elif "downwardAPI" in volume:
            annotations = self.thing["metadata"]["annotations"]
            field = lambda item: item["fieldRef"]["fieldPath"].removeprefix("metadata.annotations['").removesuffix("']")
            files = {item["path"]: annotations[field(item)].encode() for item in volume["downwardAPI"]["items"]}
        else:
            assert "projected" in volume or "emptyDir" in volume, volume
            files = {}
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return folder

    def files_of(self, volume):
        data = self.get_object("Secret", volume["secretName"])["data"]
        items = volume.get("items") or [{"key": key, "path": key} for key in data]
        return {item["path"]: base64.b64decode(data[item["key"]]) for item in items}

    def renew_secrets(self):
        """Copies a changed Secret into a running pod. Kubernetes does so after about a minute, this stand-in after a second."""
        if time.monotonic() - self.renewed_at < 1:
            return
        self.renewed_at = time.monotonic()
        for volume, folder in self.secrets:
            for name, content in self.files_of(volume).items():
                if (folder / name).read_bytes() != content:
                    (folder / f".{name}").write_bytes(content)
                    (folder / f".{name}").replace(folder / name)

    def sync(self, thing):
        self.renew_secrets()
        exit_code = self.process.poll()
        if thing["metadata"].get("deletionTimestamp"):
            if exit_code is not None:
                self.kubelet.remove(thing)
            elif self.terminated_at is None:
                self.terminated_at = time.monotonic()
                self.process.send_signal(signal.SIGTERM)
            elif time.monotonic() - self.terminated_at > thing["metadata"]["deletionGracePeriodSeconds"]:
                self.process.kill()
                return
        if exit_code is not None and exit_code != 0 and self.terminated_at is None and thing["spec"]["restartPolicy"] != "Never":
            self.process = self.start()
            exit_code = None
        self.report_status(exit_code)

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

    def report_status(self, exit_code):
        ready = exit_code is None and self.is_ready()
        phase = "Running" if exit_code is None else "Succeeded" if exit_code == 0 else "Failed"
        if (phase, ready) == self.reported:
            return
        self.reported = (phase, ready)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        state = {"running": {"startedAt": now}} if exit_code is None else {"terminated": {"exitCode": exit_code, "finishedAt": now}}
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

"""A real control plane on the loopback: etcd, kube-apiserver, kube-controller-manager, kube-scheduler."""

import json
import secrets
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

CONTROLLERS = [
    "statefulset-controller",
    "deployment-controller",
    "replicaset-controller",
    "job-controller",
    "disruption-controller",
    "endpointslice-controller",
    "serviceaccount-controller",
    "persistentvolume-binder-controller",
    "horizontal-pod-autoscaler-controller",
]
# Kind: API path of its objects, and whether they are in a namespace.
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
    "Deployment": ("apis/apps/v1", "deployments", True),
    "Job": ("apis/batch/v1", "jobs", True),
    "PodDisruptionBudget": ("apis/policy/v1", "poddisruptionbudgets", True),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "networkpolicies", True),
    "HorizontalPodAutoscaler": ("apis/autoscaling/v2", "horizontalpodautoscalers", True),
    "PersistentVolume": ("api/v1", "persistentvolumes", False),
    "StorageClass": ("apis/storage.k8s.io/v1", "storageclasses", False),
    "APIService": ("apis/apiregistration.k8s.io/v1", "apiservices", False),
    "CustomResourceDefinition": ("apis/apiextensions.k8s.io/v1", "customresourcedefinitions", False),
    "PodMonitor": ("apis/monitoring.coreos.com/v1", "podmonitors", True),
    "PrometheusRule": ("apis/monitoring.coreos.com/v1", "prometheusrules", True),
    "ScaledObject": ("apis/keda.sh/v1alpha1", "scaledobjects", True),
    "Certificate": ("apis/cert-manager.io/v1", "certificates", True),
    "ExternalSecret": ("apis/external-secrets.io/v1", "externalsecrets", True),
}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_until(description, condition, within=180.0):
    """Waits for `condition`, and returns its value. The limit suits a busy machine. A pause of this process counts as 5 s at most."""
    began = time.monotonic()
    while not (found := condition()):
        assert within > 0, f"waited, but never: {description}"
        time.sleep(0.1)
        within -= min(time.monotonic() - began, 5.0)
        began = time.monotonic()
    return found


class Refused(Exception):
    """An error status of the API server: HTTP code and message."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Cluster:
    """The control plane: a context manager."""

    def __init__(self, tools, folder):
        self.tools, self.folder = Path(tools), Path(folder)
        self.processes = []
        self.warnings = []  # warnings that the API server sent with its answers
        self.token = secrets.token_hex(16)
        self.port = free_port()
        self.context = ssl.create_default_context()
        self.context.check_hostname = False  # its certificate is self-signed, and new in each run
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
            "current-context": "lab",
            "clusters": [
                {
                    "name": "lab",
                    "cluster": {"server": f"https://127.0.0.1:{self.port}", "insecure-skip-tls-verify": True},
                }
            ],
            "users": [{"name": "lab", "user": {"token": self.token}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        }
        (self.folder / "kubeconfig").write_text(json.dumps(kubeconfig))
        self.run(
            "kube-controller-manager", f"--kubeconfig={self.folder}/kubeconfig", "--leader-elect=false",
            "--secure-port=0", f"--service-account-private-key-file={key}", f"--controllers={','.join(CONTROLLERS)}",
            "--horizontal-pod-autoscaler-sync-period=1s",
        )
        self.run("kube-scheduler", f"--kubeconfig={self.folder}/kubeconfig", "--leader-elect=false", "--secure-port=0")

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
                self.warnings += answer.headers.get_all("Warning", [])
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

    def apply(self, thing, namespace, dry_run=False):
        """Applies an object on the server side, with strict validation of every field."""
        path = self.path(thing["kind"], namespace, thing["metadata"]["name"])
        query = "fieldManager=test&force=true&fieldValidation=Strict" + dry_run * "&dryRun=All"
        return self.request("PATCH", f"{path}?{query}", thing, "application/apply-patch+yaml")

    def create(self, thing, namespace, dry_run=False):
        path = self.path(thing["kind"], namespace)
        return self.request("POST", f"{path}?fieldValidation=Strict" + dry_run * "&dryRun=All", thing)

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

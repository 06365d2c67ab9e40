"""The broker and ClickHouse around milepost, and the manifests with their addresses."""

import json
import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import yaml

from cluster import free_port, wait_until

REPOSITORY = Path(__file__).parents[2]
LOCAL = REPOSITORY / "lab" / "local"
NAMESPACE = "milepost"
IMAGE = "registry.example/milepost"
EXPIRY_S = 20
USER, PASSWORD = "milepost", "one of the trial"
# Options with which strict-broker behaves like EMQX, as in lab/faults: a session is one process, and loses the messages that it
# receives while it ends.
EMQX = "--max-inflight 32000 --session-rate 25000 --max-mailbox 100000 --resume-rate 60000 --dying 3s".split()


class Servers:
    """A broker, and the ClickHouse engine of lab/local."""

    def __init__(self, folder, broker, binaries):
        self.folder, self.processes = folder, []
        self.mqtt, self.clickhouse = free_port(), free_port()
        strict = [binaries / "strict-broker", *EMQX, "--port", str(self.mqtt)]
        self.broker = strict if broker == "strict-broker" else [LOCAL / "broker"]

    def __enter__(self):
        self.processes = [self.start("broker", self.broker), self.start("clickhouse", [LOCAL / "clickhouse"])]
        try:
            wait_until("ClickHouse answers", self.answers)
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self, name, command, password=PASSWORD):
        environment = os.environ | {"STATE_DIR": str(self.folder), "CLICKHOUSE_USER": USER, "CLICKHOUSE_PASSWORD": password}
        environment |= {"MQTT_PORT": str(self.mqtt), "CLICKHOUSE_PORT": str(self.clickhouse)}
        log = open(self.folder / f"{name}.log", "ab")
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def restart_clickhouse(self, password):
        self.processes[1].terminate()
        self.processes[1].wait(90)
        self.processes[1] = self.start("clickhouse", [LOCAL / "clickhouse"], password)
        wait_until("ClickHouse answers", self.answers)

    def answers(self):
        assert all(process.poll() is None for process in self.processes), f"see the logs in {self.folder}"
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.clickhouse}/ping", timeout=5).read() == b"Ok.\n"
        except OSError:
            return False

    def query(self, sql, refused=False):
        """Returns ClickHouse's answer. `refused`: checks instead that ClickHouse refuses the query."""
        login = {"X-ClickHouse-User": USER, "X-ClickHouse-Key": PASSWORD}
        request = urllib.request.Request(f"http://127.0.0.1:{self.clickhouse}", sql.encode(), login)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                assert not refused, f"{sql}: not refused"
                return answer.read().decode().strip()
        except urllib.error.HTTPError as error:
            if not refused:
                raise AssertionError(error.read().decode()) from None

    def __exit__(self, *_):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(90)


def overlay(folder, servers, leave, tools):
    """Writes the minimal overlay, with these servers in milepost.toml, and the Job that empties a spool."""
    (folder / "milepost.toml").write_text(
        f'[mqtt]\nurl = "mqtt://127.0.0.1:{servers.mqtt}"\nusername = "milepost"\nsession_expiry = "{EXPIRY_S}s"\n'
        f'[clickhouse]\nurl = "http://127.0.0.1:{servers.clickhouse}"\nuser = "{USER}"\n[shutdown]\nleave = {leave}\n'
    )
    minimal = os.path.relpath(REPOSITORY / "deploy" / "kubernetes" / "overlays" / "minimal", folder)
    component = os.path.relpath(REPOSITORY / "deploy" / "kubernetes" / "components" / "spool-replay", folder)
    generator = {"name": "milepost", "behavior": "replace", "files": ["milepost.toml"]}
    kustomization = {"resources": [minimal], "configMapGenerator": [generator], "namespace": NAMESPACE}
    kustomization["components"] = [component]
    kustomization["images"] = [{"name": "milepost", "newName": IMAGE, "newTag": "0.1.0"}]
    # The engine of lab/local has only one user.
    variable = "/spec/template/spec/containers/0/env/1"
    one_user = [
        {"op": "test", "path": f"{variable}/name", "value": "MILEPOST__CLICKHOUSE__USER"},
        {"op": "replace", "path": f"{variable}/value", "value": USER},
    ]
    target = {"kind": "Job", "name": "milepost-migrate"}
    kustomization["patches"] = [{"target": target, "patch": json.dumps(one_user)}]
    (folder / "kustomization.yaml").write_text(json.dumps(kustomization))
    built = subprocess.run([tools / "kustomize", "build", folder], check=True, capture_output=True, text=True).stdout
    things = list(yaml.safe_load_all(built))
    replay = [thing for thing in things if thing["metadata"]["name"] == "milepost-spool-replay"]
    return [thing for thing in things if thing not in replay], replay[0]

"""The metrics of an autoscaler: a real Prometheus, which scrapes the pods that the PodMonitor selects and evaluates the rules of
components/monitoring; and a stand-in for the adapter, which serves one of its recordings as an external metric. Debian's Prometheus is
built without the discovery of pods, so a thread writes a file of the targets that the discovery would find.

Scrape intervals and ranges of rates are shorter than in the rules, and a member's share of the load is what this machine can process.
"""

import json
import ssl
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cluster import Refused, free_port, wait_until
from servers import NAMESPACE, REPOSITORY

SCRAPES_S = 1
RATES = "10s"
GROUP = "external.metrics.k8s.io/v1beta1"
METRIC, RECORD = "milepost_scale_load", "milepost:scale:load"
DASHBOARD = REPOSITORY / "deploy" / "grafana" / "dashboards" / "milepost.json"


class Prometheus:
    """A real Prometheus, configured from `monitoring`: PodMonitors and a PrometheusRule."""

    def __init__(self, cluster, folder, monitoring, share):
        self.port, self.cluster, self.targets = free_port(), cluster, folder / "targets.json"
        self.url = f"http://127.0.0.1:{self.port}"
        (rules,) = [thing["spec"] for thing in monitoring if thing["kind"] == "PrometheusRule"]
        for rule in rules["groups"][1]["rules"]:
            rule["expr"] = rule["expr"].replace("[2m]", f"[{RATES}]").replace("25000", str(share))
        (folder / "rules.yml").write_text(json.dumps(rules))
        intervals = {"scrape_interval": f"{SCRAPES_S}s", "evaluation_interval": f"{SCRAPES_S}s"}
        jobs = [self.job(thing) for thing in monitoring if thing["kind"] == "PodMonitor"]
        self.stopped = threading.Event()
        self.discovery = threading.Thread(target=self.discover, daemon=True)
        self.discovery.start()
        (folder / "prometheus.yml").write_text(json.dumps({"global": intervals, "rule_files": ["rules.yml"], "scrape_configs": jobs}))
        command = [cluster.tools / "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/prometheus"]
        log = open(folder / "prometheus.log", "wb")
        self.process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{self.port}"], stdout=log, stderr=log)
        try:
            wait_until("Prometheus is ready", self.is_ready)
        except BaseException:
            self.stop()
            raise

    def discover(self):
        while not self.stopped.wait(0.5):
            try:
                pods = self.cluster.items("Pod", NAMESPACE)
            except (Refused, OSError):
                continue  # the next round retries
            found = [target for pod in pods if pod["status"].get("podIP") for target in targets(pod)]
            new = self.targets.with_suffix(".new")
            new.write_text(json.dumps(found))
            new.rename(self.targets)

    def job(self, monitor):
        """Returns the scrape job that the Prometheus operator would make of a PodMonitor."""
        spec = monitor["spec"]
        (endpoint,) = spec["podMetricsEndpoints"]
        keep = [
            {"action": "keep", "source_labels": [meta_label(name)], "regex": value}
            for name, value in spec["selector"]["matchLabels"].items()
        ]
        keep.append({"action": "keep", "source_labels": ["__meta_kubernetes_pod_container_port_name"], "regex": endpoint["port"]})
        names = {"namespace": "__meta_kubernetes_namespace", "pod": "__meta_kubernetes_pod_name"}
        names |= {"container": "__meta_kubernetes_pod_container_name", "job": meta_label(spec["jobLabel"])}
        return {
            "job_name": f"podMonitor/{monitor['metadata']['name']}",
            "metrics_path": endpoint["path"],
            "file_sd_configs": [{"files": [str(self.targets)], "refresh_interval": "1s"}],
            "relabel_configs": keep + [{"source_labels": [source], "target_label": name} for name, source in names.items()],
        }

    def is_ready(self):
        assert self.process.poll() is None, "see prometheus.log"
        try:
            return urllib.request.urlopen(f"{self.url}/-/ready", timeout=5).status == 200
        except OSError:
            return False

    def get(self, path, **parameters):
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=10) as answer:
            return json.load(answer)["data"]

    def query(self, expression):
        """Returns every sample that is not NaN."""
        found = [(sample["metric"], float(sample["value"][1])) for sample in self.get("query", query=expression)["result"]]
        return [(labels, value) for labels, value in found if value == value]

    def value(self, expression):
        return sum(value for _, value in self.query(expression))

    def rules(self):
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]

    def panels(self):
        """Yields title, expression and samples of each query of the dashboard, with the variables that Grafana would set."""
        variables = {"$instance": ".*", "$__rate_interval": f"{4 * SCRAPES_S}s", "$__range": "1m"}
        for panel in json.loads(DASHBOARD.read_text())["panels"]:
            for target in panel["targets"]:
                expression = target["expr"]
                for name, value in variables.items():
                    expression = expression.replace(name, value)
                yield panel["title"], expression, self.query(expression)

    def stop(self):
        self.stopped.set()
        self.discovery.join(40)
        self.process.terminate()
        self.process.wait(30)


def meta_label(name):
    return "__meta_kubernetes_pod_label_" + name.replace(".", "_").replace("/", "_").replace("-", "_")


def targets(pod):
    """Yields the targets of a pod as Prometheus discovers them: one for each port of each container, with the labels for a PodMonitor."""
    labels = {meta_label(name): value for name, value in pod["metadata"]["labels"].items()}
    labels |= {"__meta_kubernetes_namespace": pod["metadata"]["namespace"], "__meta_kubernetes_pod_name": pod["metadata"]["name"]}
    for container in pod["spec"]["containers"]:
        for port in container.get("ports", []):
            port_labels = {"__meta_kubernetes_pod_container_name": container["name"], "__meta_kubernetes_pod_container_port_name": port["name"]}
            yield {"targets": [f"{pod['status']['podIP']}:{port['containerPort']}"], "labels": labels | port_labels}


class ExternalMetrics:
    """Serves Prometheus' recording to the autoscaler, as an adapter does, and registers itself with the API server."""

    def __init__(self, cluster, prometheus, folder):
        key, certificate = folder / "adapter.key", folder / "adapter.pem"
        openssl = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=adapter"]
        subprocess.run([*openssl, "-keyout", key, "-out", certificate], check=True, capture_output=True)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler(prometheus))
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        port = self.server.server_address[1]
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "adapter"}}
        cluster.apply(service | {"spec": {"type": "ExternalName", "externalName": "localhost"}}, NAMESPACE)
        group, _, version = GROUP.partition("/")
        api = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": f"{version}.{group}"}}
        api["spec"] = {"group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100}
        api["spec"] |= {"insecureSkipTLSVerify": True, "service": {"namespace": NAMESPACE, "name": "adapter", "port": port}}
        cluster.apply(api, None)

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


def handler(prometheus):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            parts = urllib.parse.urlparse(self.path).path.strip("/").split("/")
            if parts[3:] == ["namespaces", NAMESPACE, METRIC]:
                now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                try:
                    found = prometheus.query(f'{RECORD}{{namespace="{NAMESPACE}"}}')
                except OSError:
                    return self.send_error(503)  # without the metric, the autoscaler does not change the size
                items = [{"metricName": METRIC, "metricLabels": {}, "timestamp": now, "value": str(round(value))} for _, value in found]
                body = {"kind": "ExternalMetricValueList", "apiVersion": GROUP, "metadata": {}, "items": items}
            else:
                resource = {"name": METRIC, "singularName": "", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
                body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP, "resources": [resource]}
            body = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return Handler

"""What an autoscaler asks: a real Prometheus that finds the pods as the operator would have it find them and evaluates the rules of
components/monitoring, and a stand-in for the adapter that serves one of its recordings as an external metric.

What is lowered: scrapes and rates are shorter, and a member's share is what this machine carries; both wherever the rules name them.
"""

import json
import ssl
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import yaml

from cluster import free_port, wait_until
from servers import NAMESPACE, REPOSITORY

SCRAPES_S = 1
RATES = "10s"
GROUP = "external.metrics.k8s.io/v1beta1"
METRIC, RECORD = "milepost_scale_load", "milepost:scale:load"
DASHBOARD = REPOSITORY / "deploy" / "grafana" / "dashboards" / "milepost.json"


class Prometheus:
    """The real one, on what `monitoring` holds: a PodMonitor and a PrometheusRule."""

    def __init__(self, cluster, folder, monitoring, share):
        self.port, self.url = free_port(), None
        self.url = f"http://127.0.0.1:{self.port}"
        kinds = {thing["kind"]: thing for thing in monitoring}
        rules = kinds["PrometheusRule"]["spec"]
        for rule in rules["groups"][1]["rules"]:
            rule["expr"] = rule["expr"].replace("[2m]", f"[{RATES}]").replace("25000", str(share))
        (folder / "rules.yml").write_text(json.dumps(rules))
        of_all = {"scrape_interval": f"{SCRAPES_S}s", "evaluation_interval": f"{SCRAPES_S}s"}
        jobs = [self.job(cluster, kinds["PodMonitor"])]
        (folder / "prometheus.yml").write_text(json.dumps({"global": of_all, "rule_files": ["rules.yml"], "scrape_configs": jobs}))
        command = [cluster.tools / "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/prometheus"]
        log = open(folder / "prometheus.log", "wb")
        self.process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{self.port}"], stdout=log, stderr=log)
        wait_until("Prometheus is ready", self.is_ready, 60)

    @staticmethod
    def job(cluster, monitor):
        """The scrape job that the operator makes of our PodMonitor."""
        label = lambda name: "__meta_kubernetes_pod_label_" + name.replace(".", "_").replace("/", "_").replace("-", "_")
        spec = monitor["spec"]
        (endpoint,) = spec["podMetricsEndpoints"]
        keep = [
            {"action": "keep", "source_labels": [label(name)], "regex": value}
            for name, value in spec["selector"]["matchLabels"].items()
        ]
        keep.append({"action": "keep", "source_labels": ["__meta_kubernetes_pod_container_port_name"], "regex": endpoint["port"]})
        names = {"namespace": "__meta_kubernetes_namespace", "pod": "__meta_kubernetes_pod_name"}
        names |= {"container": "__meta_kubernetes_pod_container_name", "job": label(spec["jobLabel"])}
        server = {"api_server": f"https://127.0.0.1:{cluster.port}", "authorization": {"credentials": cluster.token}}
        server |= {"tls_config": {"insecure_skip_verify": True}, "namespaces": {"names": [NAMESPACE]}}
        return {
            "job_name": "podMonitor/milepost",
            "metrics_path": endpoint["path"],
            "kubernetes_sd_configs": [{"role": "pod"} | server],
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
        """Every sample that is a number."""
        found = [(of["metric"], float(of["value"][1])) for of in self.get("query", query=expression)["result"]]
        return [(labels, value) for labels, value in found if value == value]

    def value(self, expression):
        return sum(value for _, value in self.query(expression))

    def rules(self):
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]

    def panels(self):
        """Title, expression and samples of each query of the dashboard, with Grafana's variables as Grafana sets them."""
        known = {"$instance": ".*", "$__rate_interval": f"{4 * SCRAPES_S}s", "$__range": "1m"}
        for panel in json.loads(DASHBOARD.read_text())["panels"]:
            for target in panel["targets"]:
                expression = target["expr"]
                for name, value in known.items():
                    expression = expression.replace(name, value)
                yield panel["title"], expression, self.query(expression)

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


class ExternalMetrics:
    """Serves Prometheus' recording to the autoscaler, as an adapter does, and registers itself with the API server."""

    def __init__(self, cluster, prometheus, folder):
        key, certificate = folder / "adapter.key", folder / "adapter.pem"
        make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=adapter"]
        subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
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
                found = prometheus.query(f'{RECORD}{{namespace="{NAMESPACE}"}}')
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

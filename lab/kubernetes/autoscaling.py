"""Tests components/hpa on the real autoscaler: it adds members under load, removes none while batches are spooled, and scales in
afterwards.

Only three values differ from components/hpa: a member's share of the load, the largest number of members, and the autoscaler's delays.
"""

import time

from cluster import wait_until
from fleet import Fleet
from metrics import METRIC, RECORD, ExternalMetrics, Prometheus
from objects import build
from servers import NAMESPACE, PASSWORD

MEMBERS_MAX = 4
PATIENCE_S = 5
RECEIVED = f'sum(rate(milepost_messages_received_total{{namespace="{NAMESPACE}"}}[10s]))'
SPOOLED = f'sum(milepost_spool_batches{{namespace="{NAMESPACE}"}})'


class Autoscaling:
    def __init__(self, scene, servers):
        self.scene, self.servers, self.cluster = scene, servers, scene.cluster
        # Two members are enough for the first fleet. Both fleets together need more than the maximum.
        self.share = scene.arguments.rate * 6 // 10
        self.second_fleet, self.manifests = None, []
        self.prometheus = self.adapter = None

    def __enter__(self):
        folder = self.scene.folder / "metrics"
        folder.mkdir()
        monitoring = build(self.cluster.tools, folder / "monitoring", "base", "monitoring")
        self.prometheus = Prometheus(self.cluster, folder, monitoring, self.share)
        try:
            self.adapter = ExternalMetrics(self.cluster, self.prometheus, folder)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.adapter:
            self.adapter.stop()
        self.prometheus.stop()

    def status(self):
        return self.cluster.get("HorizontalPodAutoscaler", NAMESPACE, "milepost").get("status", {})

    def install(self):
        folder = self.scene.folder / "metrics" / "hpa"
        things = build(self.cluster.tools, folder, "overlays/minimal", "hpa")
        assert all("replicas" not in thing["spec"] for thing in things if thing["kind"] == "StatefulSet")
        (scaler,) = [thing for thing in things if thing["kind"] == "HorizontalPodAutoscaler"]
        spec = scaler["spec"]
        assert spec["metrics"][0]["external"]["metric"]["name"] == METRIC
        spec["metrics"][0]["external"]["target"]["averageValue"] = str(self.share)
        spec["maxReplicas"] = MEMBERS_MAX
        for direction in ("scaleUp", "scaleDown"):
            spec["behavior"][direction] |= {"stabilizationWindowSeconds": PATIENCE_S * (direction == "scaleDown")}
            spec["behavior"][direction]["policies"][0]["periodSeconds"] = PATIENCE_S
        self.cluster.apply(scaler, NAMESPACE)
        wait_until("the autoscaler has the metric", self.has_load)
        assert self.scene.names() == ["milepost-0", "milepost-1"], self.scene.names()
        return f"it asks for 2 members at {self.received()} messages a second, {self.share} a member"

    def has_load(self):
        conditions = {condition["type"]: condition["status"] for condition in self.status().get("conditions", [])}
        return conditions.get("ScalingActive") == "True" and self.received() > self.share and self.status().get("desiredReplicas") == 2

    def received(self):
        return round(self.prometheus.value(RECEIVED))

    def scale_out(self):
        arguments = self.scene.arguments
        self.second_fleet = Fleet(arguments, self.servers, self.scene.folder / "second-fleet", 2 * arguments.rate, 10)
        expected = [f"milepost-{n}" for n in range(MEMBERS_MAX)]
        wait_until(f"{MEMBERS_MAX} members are ready", lambda: self.scene.ready() == expected)
        return f"2 → {MEMBERS_MAX} at {self.received()} messages a second"

    def hold(self):
        """Without the second fleet the load needs only two members, but no member is removed while batches are spooled."""
        self.servers.processes[1].kill()
        wait_until("a batch is spooled", lambda: self.prometheus.value(SPOOLED) > 0)
        self.manifests = self.second_fleet.stop()
        wait_until("the load needs two members", lambda: self.received() < 2 * self.share)
        began = time.monotonic()
        while time.monotonic() - began < 4 * PATIENCE_S:
            assert self.prometheus.value(SPOOLED) > 0 and len(self.scene.names()) == MEMBERS_MAX, self.status()
            time.sleep(0.5)
        assert self.prometheus.value(RECORD) >= MEMBERS_MAX * self.share
        return f"{MEMBERS_MAX} stayed at {self.received()} messages a second, with {round(self.prometheus.value(SPOOLED))} batches spooled"

    def scale_in(self):
        self.servers.restart_clickhouse(PASSWORD)
        wait_until("the spools are empty", lambda: self.prometheus.value(SPOOLED) == 0)
        wait_until("two members are ready", lambda: self.scene.names() == self.scene.ready() == ["milepost-0", "milepost-1"])
        return f"{MEMBERS_MAX} → 2"

    def check_dashboard(self):
        """Evaluates every panel of the dashboard and every rule on the metrics of these members."""
        empty, number = set(), 0
        for title, expression, samples in self.prometheus.panels():
            number += 1
            if not samples:
                empty.add(f"{title}: {expression}")
        assert not empty, "\n".join(empty)
        rules = self.prometheus.rules()
        broken = [rule["name"] for rule in rules if rule["health"] != "ok"]
        assert not broken and len(rules) > 10, broken
        return f"{number} queries of the dashboard have a result; {len(rules)} rules are evaluated"

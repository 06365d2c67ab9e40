"""The sections "Alerts" of docs/operations.md, followed: each test injects a fault, requires that the alert fires on milepost's real
metrics, and that what "First look" names is there.

The alert's own expression is evaluated by promtool, on a healthy scrape that holds for ten minutes and then the faulty one, since nobody
waits ten minutes here. Needs what `make kubernetes` builds.
"""

import json
import re
import signal
import subprocess

import pytest
import yaml

from cluster import wait_until
from member import BINARIES, Member
from servers import PASSWORD, REPOSITORY, Servers

OURS = REPOSITORY / ".local" / "tools" / "bin" / "promtool"
PROMTOOL = OURS if OURS.exists() else "promtool"
ALERTS = REPOSITORY / "deploy" / "prometheus" / "alerts.yml"


def firing(folder, alert, healthy, faulty, at):
    """Whether the alert fires at that minute: the tenth is the first of the faulty scrape."""
    series = [{"series": key, "values": f"{healthy.get(key, '_')}x40 {value}x80"} for key, value in faulty.items()]
    rule = next(rule for rule in yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"] if rule["alert"] == alert)
    expected = {"eval_time": f"{at}m", "expr": f'count(ALERTS{{alertname="{rule["alert"]}",alertstate="firing"}})'}
    expected["exp_samples"] = [{"labels": "{}", "value": 1}]
    test = {"interval": "15s", "input_series": series, "promql_expr_test": [expected]}
    file = {"rule_files": [str(ALERTS)], "evaluation_interval": "15s", "tests": [test]}
    (folder / "test.yml").write_text(json.dumps(file))
    done = subprocess.run([PROMTOOL, "test", "rules", folder / "test.yml"], capture_output=True, text=True)
    assert done.returncode == 0 or "got:" in done.stdout + done.stderr, done.stdout + done.stderr
    return done.returncode == 0


def fires(folder, alert, healthy, faulty, minutes):
    """On the fault, that many minutes later, and not before it."""
    assert not firing(folder, alert, healthy, faulty, 9)
    assert firing(folder, alert, healthy, faulty, 10 + minutes)


@pytest.fixture
def servers(tmp_path, request):
    options = getattr(request, "param", [])
    (tmp_path / "servers").mkdir()
    with Servers(tmp_path / "servers", "strict-broker" if options else "mosquitto", BINARIES, options) as servers:
        yield servers


def test_a_wrong_login_leads_to_insert_refused(tmp_path, servers):
    with Member(tmp_path, servers) as member:
        healthy = member.scrape()
        servers.restart_clickhouse("another one")
        wait_until("it is refused", lambda: member.value("milepost_insert_errors_total", 'kind="permanent"') > 0)
        fires(tmp_path, "MilepostInsertRefused", healthy, member.scrape(), 1)
        said = wait_until("readyz has the line", lambda: member.readyz("clickhouse: "))
        assert "516" in said, said
        check = member.command("check")
        assert check.returncode != 0 and "wrong login" in check.stdout + check.stderr, check
        servers.restart_clickhouse(PASSWORD)
        wait_until("it goes on by itself", lambda: member.get("readyz").startswith("ready"), 90)


def test_a_long_outage_leads_to_spool_nearly_full(tmp_path, servers):
    small = {"SPOOL__DIR": str(tmp_path / "spool"), "SPOOL__BYTES_MAX": "1048576", "LAB__BATCH_BYTES_MAX": "1048576"}
    with Member(tmp_path, servers, **small) as member:
        healthy = member.scrape()
        servers.processes[1].send_signal(signal.SIGKILL)
        used = lambda: member.value("milepost_spool_bytes") / member.value("milepost_spool_bytes_max")
        wait_until("four fifths are used", lambda: used() > 0.8)
        fires(tmp_path, "MilepostSpoolNearlyFull", healthy, member.scrape(), 1)
        listed = member.command("spool", "list")
        assert listed.returncode == 0 and ".batch" in listed.stdout, listed


SHALLOW = [["--max-inflight", "32", "--max-queue", "100", "--metrics-every", "1s"]]


@pytest.mark.parametrize("servers", SHALLOW, indirect=True)
def test_a_slow_clickhouse_on_a_shallow_broker_leads_to_window_full_and_to_drops(tmp_path, servers):
    with Member(tmp_path, servers, MQTT__BROKER_METRICS="true") as member:
        healthy = member.scrape()
        servers.processes[1].send_signal(signal.SIGSTOP)
        try:
            dropped = lambda: member.value("milepost_broker_dropped_total", 'reason="queue_full"')
            wait_until("the broker drops", lambda: dropped() > 0)
            faulty = member.scrape()
            fires(tmp_path, "MilepostWindowFull", healthy, faulty, 12)
            fires(tmp_path, "MilepostBrokerDrops", healthy, faulty, 1)
            assert member.value("milepost_mqtt_unacked") == member.value("milepost_mqtt_window") > 0
        finally:
            servers.processes[1].send_signal(signal.SIGCONT)
        check = member.command("check")
        said = re.search(r"window +(\d+) messages in flight", check.stdout)
        assert said and float(said[1]) == member.value("milepost_mqtt_window"), check.stdout

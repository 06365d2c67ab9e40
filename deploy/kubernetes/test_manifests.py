"""Checks the objects that `kubectl apply -k` and `helm install` would send: against Kubernetes' schemas and against each other."""

import functools
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import jsonschema  # comes with kubernetes_validate
import kubernetes_validate
import pytest
import yaml

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
CHART = HERE.parent / "helm" / "milepost"
KUBERNETES = "1.37"
COMPONENTS = sorted(path.name for path in (HERE / "components").iterdir())
IMAGE = "registry.example/milepost"
# Definitions of custom resources, such as KEDA's ScaledObject: ./crds installs these files.
CUSTOM_RESOURCES = REPOSITORY / ".local" / "tools" / "crds"


def tool(name):
    built = REPOSITORY / ".local" / "tools" / "bin" / name
    found = str(built) if built.exists() else shutil.which(name)
    return found or pytest.skip(f"{name} is missing, and Go to build it: what needs it is not tested")


def objects(text):
    return [thing for thing in yaml.safe_load_all(text) if thing]


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return objects(done.stdout)


def build(folder):
    return run(tool("kustomize"), "build", folder)


def template(*arguments):
    """Returns the chart's objects, without the verify Job: it is a hook and not a part of the release."""
    things = run(tool("helm"), "template", "milepost", CHART, "--kube-version", KUBERNETES + ".0", *arguments)
    return [thing for thing in things if not is_hook(thing)]


def is_hook(thing):
    return "helm.sh/hook" in thing["metadata"].get("annotations", {})


def with_components(resource, components, folder):
    path = lambda name: os.path.relpath(HERE / name, folder)
    paths = {"resources": [path(resource)], "components": [path(f"components/{name}") for name in components]}
    paths["images"] = [{"name": name, "newName": f"registry.example/{name}"} for name in ("milepost", "milepost-map")]
    (folder / "kustomization.yaml").write_text(json.dumps(paths))
    return build(folder)


def one(things, kind, name="milepost"):
    component = lambda name: [part for part in ("milepost-map", "milepost-events") if part in name]
    has_name = lambda found: found.startswith(name) and component(found) == component(name)
    found = [thing for thing in things if thing["kind"] == kind and has_name(thing["metadata"]["name"])]
    assert len(found) == 1, f"{len(found)} of kind {kind}"
    return found[0]


def strict(schema):
    """Turns a custom resource's schema into a JSON schema that rejects unknown fields, as the API server does."""
    schema = {key: value for key, value in schema.items() if key not in ("default", "description")}
    if "(?i)" in schema.get("pattern", ""):
        schema.pop("pattern")  # Go's syntax, which Python does not understand
    if schema.pop("x-kubernetes-int-or-string", False):
        schema["type"] = ["integer", "string"]
    if schema.pop("nullable", False):
        schema["type"] = [schema["type"], "null"]
    if "properties" in schema:
        schema["properties"] = {name: strict(inner) for name, inner in schema["properties"].items()}
        if not schema.pop("x-kubernetes-preserve-unknown-fields", False):
            schema["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            schema[key] = strict(schema[key])
    return schema


@functools.cache
def custom_schemas():
    """Returns the schemas of custom resources, by apiVersion and kind."""
    found = {}
    for path in CUSTOM_RESOURCES.glob("*.yaml"):
        spec = yaml.safe_load(path.read_text())["spec"]
        for version in (version for version in spec["versions"] if version["served"]):
            key = f"{spec['group']}/{version['name']}", spec["names"]["kind"]
            found[key] = strict(version["schema"]["openAPIV3Schema"])
    return found


def validate(things):
    assert things
    for thing in things:
        group = thing["apiVersion"].rpartition("/")[0]
        if "." not in group or group.endswith(".k8s.io"):
            kubernetes_validate.validate(thing, KUBERNETES, strict=True)
        elif custom_schemas():  # if there are none, the test below is skipped with a reason
            jsonschema.validate(thing, custom_schemas()[thing["apiVersion"], thing["kind"]])


def test_wrong_field_of_a_custom_resource_is_found():
    if not custom_schemas():
        pytest.skip("the definitions are missing, and Go to fetch them: custom resources are not validated")
    scaled = yaml.safe_load((HERE / "components" / "keda" / "scaledobject.yaml").read_text())
    validate([scaled])
    scaled["spec"]["fallback"]["behaviour"] = scaled["spec"]["fallback"].pop("behavior")
    with pytest.raises(jsonschema.ValidationError, match="behaviour"):
        validate([scaled])


def selects(selector, labels):
    """In a PDB an empty selector selects every pod, and a missing one none: ours must be neither."""
    assert selector["matchLabels"] and set(selector) == {"matchLabels"}
    return selector["matchLabels"].items() <= labels.items()


def restricted(pod):
    """Checks the rules of the pod security standard `restricted` that apply to our pods."""
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    allowed = {"configMap", "downwardAPI", "secret", "emptyDir", "persistentVolumeClaim", "projected"}
    for volume in pod["volumes"]:
        assert set(volume) - {"name"} <= allowed
    assert pod["automountServiceAccountToken"] is False


def judge(things):
    validate(things)
    members, migrate = one(things, "StatefulSet"), one(things, "Job", "milepost-migrate")
    template = members["spec"]["template"]
    labels = template["metadata"]["labels"]
    migrate_labels = migrate["spec"]["template"]["metadata"]["labels"]
    assert selects(members["spec"]["selector"], labels)
    budget = one(things, "PodDisruptionBudget")["spec"]
    assert selects(budget["selector"], labels) and not selects(budget["selector"], migrate_labels)
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    policy = one(things, "NetworkPolicy")["spec"]
    assert selects(policy["podSelector"], labels) and selects(policy["podSelector"], migrate_labels)

    for thing in things:
        if thing["kind"] in ("StatefulSet", "Job", "Deployment"):
            # An overlay's image applies to every workload.
            suffix = "-map" if thing["metadata"]["name"].endswith("-map") else ""
            assert thing["spec"]["template"]["spec"]["containers"][0]["image"].split(":")[0] == IMAGE + suffix
    restricted(template["spec"])
    restricted(migrate["spec"]["template"]["spec"])
    container = template["spec"]["containers"][0]
    port = {port["name"]: port["containerPort"] for port in container["ports"]}["http"]
    for probe, path in {"livenessProbe": "/livez", "readinessProbe": "/readyz"}.items():
        assert container[probe]["httpGet"] == {"path": path, "port": "http"}
    environment = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert environment["MILEPOST__HTTP__LISTEN"] == f"0.0.0.0:{port}"

    # The members find each other through the headless service, ready or not.
    service = one(things, "Service")
    assert members["spec"]["serviceName"] == service["metadata"]["name"]
    assert environment["MILEPOST__SHUTDOWN__PEERS"] == f"{service['metadata']['name']}:{port}"
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert not service["spec"]["selector"].items() <= migrate_labels.items()
    ingress = policy["ingress"][0]
    assert ingress["ports"] == [{"protocol": "TCP", "port": port}]
    assert any(selects(source["podSelector"], labels) for source in ingress["from"] if "podSelector" in source)
    assert {"protocol": "TCP", "port": port} in policy["egress"][0]["ports"]

    # Every mount has its volume, and each member has its own spool.
    for pod, claims in ((template["spec"], {"spool"}), (migrate["spec"]["template"]["spec"], set())):
        mounted = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]} | claims
    claim = members["spec"]["volumeClaimTemplates"][0]["spec"]
    assert claim["accessModes"] == ["ReadWriteOncePod"]
    assert set(members["spec"]["persistentVolumeClaimRetentionPolicy"].values()) == {"Retain"}
    configuration = one(things, "ConfigMap")["metadata"]["name"]
    for pod in (template["spec"], migrate["spec"]["template"]["spec"]):
        assert configuration in [volume.get("configMap", {}).get("name") for volume in pod["volumes"]]


def judge_map(things):
    deployment = one(things, "Deployment", "milepost-map")
    template = deployment["spec"]["template"]
    pod, labels = template["spec"], template["metadata"]["labels"]
    restricted(pod)
    assert selects(deployment["spec"]["selector"], labels)
    container = pod["containers"][0]
    environment = {entry["name"]: entry.get("value") for entry in container["env"]}
    port = container["ports"][0]
    assert environment["MILEPOST_MAP__HTTP__LISTEN"] == f"0.0.0.0:{port['containerPort']}"
    service = one(things, "Service", "milepost-map")["spec"]
    assert service["selector"].items() <= labels.items() and service["ports"][0]["targetPort"] == port["name"]
    policy = one(things, "NetworkPolicy", "milepost-map")["spec"]
    assert selects(policy["podSelector"], labels)
    assert policy["ingress"][0]["ports"] == [{"protocol": "TCP", "port": port["containerPort"]}]
    # No selector of the members matches the map's pods, and none of the map matches the members'.
    members = one(things, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert not selects(policy["podSelector"], members)
    for kind, selector in (("StatefulSet", "selector"), ("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
        assert not selects(one(things, kind)["spec"][selector], labels)
    assert one(things, "ConfigMap", "milepost-map")["metadata"]["name"] in [v.get("configMap", {}).get("name") for v in pod["volumes"]]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


def judge_events(things):
    deployment = one(things, "Deployment", "milepost-events")
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (1, {"type": "Recreate"}), "two would send each event twice"
    template = deployment["spec"]["template"]
    pod, labels = template["spec"], template["metadata"]["labels"]
    restricted(pod)
    assert selects(deployment["spec"]["selector"], labels)
    container = pod["containers"][0]
    assert container["args"] == ["events"]
    environment = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert environment["MILEPOST__HTTP__LISTEN"] == f"0.0.0.0:{container['ports'][0]['containerPort']}"
    # It is not a member: peers do not ask it at their shutdown, and no budget counts it. It may reach what members may, and the webhook.
    members = one(things, "StatefulSet")["spec"]
    assert not selects(members["selector"], labels)
    assert not one(things, "Service")["spec"]["selector"].items() <= labels.items()
    assert not selects(one(things, "PodDisruptionBudget")["spec"]["selector"], labels)
    assert selects(one(things, "NetworkPolicy")["spec"]["podSelector"], labels)
    webhook = one(things, "NetworkPolicy", "milepost-events")["spec"]
    assert selects(webhook["podSelector"], labels) and not selects(webhook["podSelector"], members["template"]["metadata"]["labels"])
    # It has the members' configuration, but separate logins with fewer rights.
    assert one(things, "ConfigMap")["metadata"]["name"] in [v.get("configMap", {}).get("name") for v in pod["volumes"]]
    assert environment["MILEPOST__MQTT__USERNAME"] == "milepost-events" and environment["MILEPOST__CLICKHOUSE__USER"] == "watcher"
    secrets = {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
    assert "milepost-events" in secrets and "milepost" not in secrets
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize("overlay", ["minimal", "production"])
def test_overlay_is_valid(overlay):
    things = build(HERE / "overlays" / overlay)
    judge(things)
    namespace = one(things, "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for thing in things:
        assert thing["kind"] == "Namespace" or thing["metadata"]["namespace"] == namespace["metadata"]["name"]


@pytest.mark.parametrize("scaler", ["keda", "hpa"])
def test_all_components_fit_the_production_overlay(scaler, tmp_path):
    rest = set(COMPONENTS) - {"keda", "hpa", "monitoring"}  # the overlay already has monitoring
    judge(with_components("overlays/production", [*sorted(rest), scaler], tmp_path))


@pytest.mark.parametrize("component", COMPONENTS)
def test_component_fits_the_base(component, tmp_path):
    things = with_components("base", [component], tmp_path)
    judge(things)
    scaler = [thing for thing in things if thing["kind"] in ("ScaledObject", "HorizontalPodAutoscaler")]
    for thing in scaler:
        target = thing["spec"]["scaleTargetRef"]
        assert (target["kind"], target["name"]) == ("StatefulSet", one(things, "StatefulSet")["metadata"]["name"])
    # An apply must not reset the number of replicas that the autoscaler has set.
    assert ("replicas" in one(things, "StatefulSet")["spec"]) == (not scaler)
    if component == "spool-replay":
        job = one(things, "Job", "milepost-spool-replay")["spec"]["template"]
        restricted(job["spec"])
        selector = one(things, "PodDisruptionBudget")["spec"]["selector"]
        assert not selects(selector, job["metadata"]["labels"])
        spool = {mount["name"]: mount["mountPath"] for mount in job["spec"]["containers"][0]["volumeMounts"]}["spool"]
        members = one(things, "StatefulSet")["spec"]["template"]["spec"]["containers"][0]
        assert {"name": "spool", "mountPath": spool} in members["volumeMounts"]
    pods = [one(things, kind, name)["spec"]["template"]["spec"] for kind, name in PODS]
    if component == "cert-manager":
        made = one(things, "Certificate")["spec"]["secretName"]
        assert made in [volume["secret"]["secretName"] for volume in pods[0]["volumes"] if "secret" in volume]
    if component == "external-secrets":
        made = {(thing["spec"]["target"]["name"], data["secretKey"]) for thing in things if thing["kind"] == "ExternalSecret" for data in thing["spec"]["data"]}
        assert made == {key for pod in pods for key in keys_of_secrets(pod)}
    if component == "map":
        judge_map(things)
    if component == "events":
        judge_events(things)
    if component == "monitoring":
        events = with_components("base", ["events"], tmp_path)
        for name, pods in (("milepost", one(things, "StatefulSet")), ("milepost-events", one(events, "Deployment", "milepost-events"))):
            assert selects(one(things, "PodMonitor", name)["spec"]["selector"], pods["spec"]["template"]["metadata"]["labels"])


PODS = [("StatefulSet", "milepost"), ("Job", "milepost-migrate")]


def keys_of_secrets(pod):
    """Yields each Secret and key that a pod reads. The migrate Job mounts its whole Secret, and reads one key of it."""
    for volume in (volume["secret"] for volume in pod["volumes"] if "secret" in volume):
        for item in volume.get("items", [{"key": "clickhouse-password"}]):
            yield volume["secretName"], item["key"]
    for variable in pod["containers"][0]["env"]:
        if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
            yield reference["name"], reference["key"]


def plain(thing):
    """Removes what differs on purpose: the image, hashes in names, the release's name, and Helm's annotations of ConfigMaps."""
    text = json.dumps(thing, sort_keys=True)
    text = text.replace('"app.kubernetes.io/instance": "milepost", ', "")
    text = re.sub(r'"milepost-map-[a-z0-9]{10}"', '"milepost-map"', text)
    text = re.sub(rf'"{IMAGE}-map:[0-9.]+"', f'"{IMAGE}-map"', text)
    text = re.sub(r'"milepost-[a-z0-9]{10}"', '"milepost"', text)
    text = re.sub(rf'"image": "{IMAGE}(:[0-9.]+)?"', '"image": "milepost"', text)
    text = re.sub(r'"milepost-migrate-[a-z0-9]{10}"', '"milepost-migrate"', text)
    thing = json.loads(text)
    if thing["kind"] == "ConfigMap":
        thing["metadata"].pop("annotations", None)
    return thing


def test_chart_equals_the_base_with_map_and_events(tmp_path):
    base = with_components("base", ["map", "events"], tmp_path)
    kustomized, templated = (
        sorted(map(plain, things), key=lambda thing: (thing["kind"], thing["metadata"]["name"]))
        for things in (base, template("--set", "map.enabled=true,events.enabled=true"))
    )
    # The configuration files are compared without their comments.
    for name, file in (("milepost", "milepost.toml"), ("milepost-map", "milepost-map.toml")):
        configurations = [one(things, "ConfigMap", name).pop("data")[file] for things in (kustomized, templated)]
        lines = [[line for line in text.splitlines() if line and not line.startswith("#")] for text in configurations]
        assert lines[0] == lines[1]
    assert kustomized == templated


def test_chart_is_valid():
    judge(template())
    settings = "caConfigMap=milepost-ca,spool.storageClass=fast,replicas=null,image.pullSecrets={key}"
    things = template("--set", settings)
    judge(things)
    members = one(things, "StatefulSet")["spec"]
    assert "replicas" not in members
    assert members["volumeClaimTemplates"][0]["spec"]["storageClassName"] == "fast"


def test_scheduling_and_extra_values_reach_the_pods(tmp_path):
    values = {
        "map": {"enabled": True},
        "events": {"enabled": True},
        "nodeSelector": {"pool": "ingest"},
        "tolerations": [{"key": "ingest", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "arm", "operator": "DoesNotExist"}]}]}}},
        "priorityClassName": "ingest",
        "spreadOver": "topology.kubernetes.io/zone",
        "podAnnotations": {"example.com/team": "fleet"},
        "serviceAccountAnnotations": {"example.com/role": "ingest"},
        "env": [{"name": "MILEPOST__MQTT__GROUP", "value": "fleet-b"}],
        "extraVolumes": [{"name": "tls", "secret": {"secretName": "tls"}}],
        "extraVolumeMounts": [{"name": "tls", "mountPath": "/run/tls"}],
        "networkPolicy": {"egressPorts": [18883]},
        "terminationGracePeriodSeconds": 100,
    }
    (tmp_path / "values.json").write_text(json.dumps(values))
    things = template("--values", str(tmp_path / "values.json"))
    judge(things)
    judge_map(things)
    judge_events(things)
    members = one(things, "StatefulSet")["spec"]["template"]
    events = one(things, "Deployment", "milepost-events")["spec"]["template"]
    map_ = one(things, "Deployment", "milepost-map")["spec"]["template"]
    migrate = one(things, "Job", "milepost-migrate")["spec"]["template"]
    for pod in (members["spec"], migrate["spec"], events["spec"], map_["spec"]):
        for key in ("nodeSelector", "tolerations", "affinity", "priorityClassName"):
            assert pod[key] == values[key]
    for pod in (members["spec"], migrate["spec"], events["spec"]):
        assert values["env"][0] in pod["containers"][0]["env"] and values["extraVolumes"][0] in pod["volumes"]
    assert members["spec"]["topologySpreadConstraints"][0]["topologyKey"] == values["spreadOver"]
    assert members["metadata"]["annotations"] == values["podAnnotations"]
    assert members["spec"]["terminationGracePeriodSeconds"] == values["terminationGracePeriodSeconds"]
    assert one(things, "ServiceAccount")["metadata"]["annotations"] == values["serviceAccountAnnotations"]
    for name in ("milepost", "milepost-map"):
        assert {"protocol": "TCP", "port": 18883} in one(things, "NetworkPolicy", name)["spec"]["egress"][0]["ports"], name
    without = template("--set", "networkPolicy.enabled=false,map.enabled=true,events.enabled=true")
    assert not [thing for thing in without if thing["kind"] == "NetworkPolicy"]


@pytest.mark.parametrize("release", ["milepost", "other", "7", "a-name-that-is-much-longer-than-what-fits"])
def test_release_of_any_name_is_valid(release):
    things = run(tool("helm"), "template", release, CHART, "--kube-version", KUBERNETES + ".0", "--set", "map.enabled=true,events.enabled=true")
    validate(things)
    job = next(thing for thing in things if thing["kind"] == "Job" and not is_hook(thing))
    # Kubernetes puts into labels of at most 63 characters the Job's name, and the StatefulSet's with 11 characters of a hash.
    assert len(job["metadata"]["name"]) <= 63
    assert all(len(thing["metadata"]["name"]) <= 52 for thing in things if thing["kind"] == "StatefulSet")


def test_two_releases_fit_into_one_namespace():
    first, second = (run(tool("helm"), "template", name, CHART, "--kube-version", KUBERNETES + ".0", "--set", "map.enabled=true,events.enabled=true") for name in ("milepost", "other"))
    names = lambda things: {(thing["kind"], thing["metadata"]["name"]) for thing in things}
    assert not names(first) & names(second)
    selectors = {"StatefulSet": "selector", "Deployment": "selector", "PodDisruptionBudget": "selector", "NetworkPolicy": "podSelector"}
    workloads = [thing for thing in second if thing["kind"] in ("StatefulSet", "Deployment", "Job")]
    pods = [thing["spec"]["template"]["metadata"]["labels"] for thing in workloads]
    for thing in first:
        if selector := selectors.get(thing["kind"]):
            assert not any(selects(thing["spec"][selector], labels) for labels in pods), thing["kind"]
        if thing["kind"] == "Service":
            assert not any(thing["spec"]["selector"].items() <= labels.items() for labels in pods)


@pytest.mark.parametrize(
    "setting, message",
    [
        ("replica=5", "replica"),
        ("replicas=two", "replicas"),
        ("spool.size=banana", "size"),
        ("image.tags=1", "tags"),
        ("map.enabled=perhaps", "enabled"),
        ("events.replicas=2", "replicas"),
        ("networkPolicy.egressPorts={70000}", "egressPorts"),
        ("resources.limits.memory=lots", "memory"),
    ],
)
def test_invalid_value_is_refused(setting, message):
    command = [tool("helm"), "template", "milepost", CHART, "--kube-version", KUBERNETES + ".0", "--set", setting]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and message in done.stderr, done.stderr


@pytest.mark.parametrize("version", ["1.29.0", "1.36.3", "1.36.3-gke.100", "1.37.0-alpha.1+build"])
def test_chart_accepts_supported_kubernetes_versions(version):
    assert run(tool("helm"), "template", "milepost", CHART, "--kube-version", version)


def test_new_configuration_or_image_rolls_pods_and_makes_a_new_job():
    def pods_and_job(*arguments):
        things = template(*arguments)
        return one(things, "StatefulSet")["spec"]["template"], one(things, "Job", "milepost-migrate")["metadata"]["name"]

    pods, job = pods_and_job()
    for setting in ("image.tag=0.2.0", "config=x"):  # another config may name another ClickHouse, which needs tables
        new_pods, new_job = pods_and_job("--set", setting)
        assert new_pods != pods and new_job != job, setting


def test_hook_verifies_the_configuration_before_an_upgrade():
    command = [tool("helm"), "template", "milepost", CHART, "--kube-version", KUBERNETES + ".0", "--set", "config=typo"]
    hooks = [thing for thing in run(*command) if is_hook(thing)]
    validate(hooks)
    (job,) = hooks
    assert set(job["metadata"]["annotations"]["helm.sh/hook"].split(",")) == {"pre-install", "pre-upgrade", "pre-rollback"}
    template = job["spec"]["template"]
    restricted(template["spec"])
    assert job["spec"]["backoffLimit"] == 0 and template["spec"]["restartPolicy"] == "Never"
    assert template["metadata"]["annotations"]["milepost.toml"] == "typo" and template["spec"]["containers"][0]["args"] == ["config"]
    peers = lambda pod: [variable for variable in pod["containers"][0]["env"] if variable["name"] == "MILEPOST__SHUTDOWN__PEERS"]
    members = one([thing for thing in run(*command) if not is_hook(thing)], "StatefulSet")["spec"]["template"]["spec"]
    assert peers(template["spec"]) == peers(members) != []
    assert not [thing for thing in run(*command, "--set", "verify=false") if is_hook(thing)]


def test_pods_of_the_former_revision_keep_their_configuration():
    """The ConfigMap's name contains a hash of its content, and Helm neither changes nor deletes the former one."""
    right, wrong = (one(template(*arguments), "ConfigMap") for arguments in ((), ("--set", "config=typo")))
    assert right["metadata"]["name"] != wrong["metadata"]["name"]
    for thing in (right, wrong):
        assert thing["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" and thing["immutable"]


def test_github_workflows_are_valid():
    done = subprocess.run([tool("actionlint"), "-no-color"], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


COMPOSE = REPOSITORY / "docker-compose.yml"


def compose(file, environment):
    command = [tool("compose-config"), file]
    return subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, env={"PATH": os.environ["PATH"]} | environment)


def passwords():
    lines = (REPOSITORY / ".env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def test_compose_file_is_valid():
    done = compose(COMPOSE, passwords())
    assert done.returncode == 0, done.stderr
    services = json.loads(done.stdout)["services"]
    assert {"milepost-a", "milepost-b", "migrate", "emqx", "clickhouse", "loadgen"} <= set(services)
    members = [service for name, service in services.items() if name.startswith("milepost-")]
    assert all(member["read_only"] and member["cap_drop"] == ["ALL"] for member in members)  # the YAML merges were applied
    assert "deploy/passwords" in compose(COMPOSE, {}).stderr, "without passwords it must say what to do"


@pytest.mark.parametrize(
    "right, wrong, message",
    [
        ("stop_grace_period: 35s", "stop_grace_periods: 35s", "stop_grace_periods"),
        ("networks: [broker, store, observe]", "networks: [brokers]", "brokers"),
        ("spool-a:/home/nonroot", "spool-c:/home/nonroot", "spool-c"),
        ("depends_on:\n      milepost-a:", "depends_on:\n      milepost-c:", "milepost-c"),
    ],
)
def test_mistake_in_the_compose_file_is_found(right, wrong, message, tmp_path):
    text = COMPOSE.read_text()
    assert right in text
    (tmp_path / "compose.yml").write_text(text.replace(right, wrong))
    done = compose(tmp_path / "compose.yml", passwords())
    assert done.returncode != 0 and message in done.stderr, done.stderr


PROMETHEUS = HERE.parent / "prometheus"


def promtool(*arguments):
    done = subprocess.run([tool("promtool"), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_on_its_fault():
    promtool("test", "rules", PROMETHEUS / "rules_test.yml")
    alerts = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"][0]["rules"]
    expected = (PROMETHEUS / "rules_test.yml").read_text()
    for alert in alerts:
        assert f'{{alertname="{alert["alert"]}"' in expected, f"no test expects {alert['alert']}"


def test_scale_load_is_the_received_rate_or_the_current_size_while_spooling(tmp_path):
    rules = yaml.safe_load((HERE / "components" / "monitoring" / "rules.yaml").read_text())["spec"]
    (tmp_path / "rules.yml").write_text(json.dumps(rules))
    received = "milepost_messages_received_total{namespace='n', pod='%s'}"
    series = [{"series": received % pod, "values": "0+600000x80"} for pod in "ab"]  # 40,000 a second each
    series += [{"series": "milepost_build_info{namespace='n', pod='%s'}" % pod, "values": "1x80"} for pod in "abcd"]
    other = [{"series": received.replace("'n'", "'other'") % "a", "values": "0+15x80"}]

    def load(spooled):
        spool = [{"series": "milepost_spool_batches{namespace='n', pod='a'}", "values": f"{spooled}x80"}]
        return {
            "interval": "15s",
            "input_series": series + spool + other,
            "promql_expr_test": [
                {
                    "expr": "milepost:scale:load",
                    "eval_time": "10m",
                    "exp_samples": [
                        {"labels": "milepost:scale:load{namespace='n'}", "value": 100000 if spooled else 80000},
                        {"labels": "milepost:scale:load{namespace='other'}", "value": 1},
                    ],
                }
            ],
        }

    tests = {"rule_files": ["rules.yml"], "evaluation_interval": "15s", "tests": [load(0), load(3)]}
    (tmp_path / "test.yml").write_text(json.dumps(tests))
    promtool("test", "rules", tmp_path / "test.yml")


def test_chart_monitors_and_scales_like_the_components():
    things = template("--set", "monitoring.enabled=true,autoscaling.enabled=true,events.enabled=true")
    validate(things)
    component = lambda name: yaml.safe_load((HERE / "components" / name).read_text())
    assert one(things, "PrometheusRule")["spec"] == component("monitoring/rules.yaml")["spec"]
    assert one(things, "HorizontalPodAutoscaler")["spec"] == component("hpa/autoscaler.yaml")["spec"]
    assert "replicas" not in one(things, "StatefulSet")["spec"]
    pods = {thing["metadata"]["name"]: thing["spec"]["template"]["metadata"]["labels"] for thing in things if thing["kind"] in ("StatefulSet", "Deployment")}
    for name in ("milepost", "milepost-events"):
        assert selects(one(things, "PodMonitor", name)["spec"]["selector"], pods[name]), name
    assert not [thing for thing in template() if thing["kind"] in ("PodMonitor", "PrometheusRule", "HorizontalPodAutoscaler", "Ingress")]


@pytest.mark.parametrize("setting, per_member", [("10k", 10_000), ("8000", 8_000), ("2000000", 2_000_000)])
def test_scale_load_keeps_the_members_for_any_target(setting, per_member):
    """While a spool holds batches, the load divided by the autoscaler's target must be the number of members."""
    things = template("--set", f"monitoring.enabled=true,autoscaling.enabled=true,autoscaling.messagesPerMember={setting}")
    (rule,) = one(things, "PrometheusRule")["spec"]["groups"][1]["rules"]
    assert f"{per_member} * count by (namespace) (milepost_build_info)" in rule["expr"] and "25000" not in rule["expr"]
    target = one(things, "HorizontalPodAutoscaler")["spec"]["metrics"][0]["external"]["target"]["averageValue"]
    assert float(str(target).replace("k", "000")) == per_member


def test_token_of_the_webhook_is_named_only_where_its_file_is(tmp_path):
    """A variable that names a file which a pod does not have keeps `milepost` from starting (64)."""
    token = {"name": "MILEPOST__WEBHOOK__TOKEN_FILE", "value": "/run/credentials/webhook-token"}
    guide = (REPOSITORY / "docs" / "kubernetes.md").read_text().partition("\n## Events\n")[2].partition("\n## ")[0]
    blocks = [yaml.safe_load(block) for block in re.findall(r"(?:^    .*\n)+", guide, re.MULTILINE) if "TOKEN_FILE" in block]
    values, overlay = sorted(blocks, key=lambda block: "patches" in block)
    assert values == {"events": {"env": [token]}}
    (tmp_path / "values.json").write_text(json.dumps({"events": {"enabled": True} | values["events"]}))
    (tmp_path / "base").mkdir()
    with_components("base", ["events"], tmp_path / "base")
    (tmp_path / "kustomization.yaml").write_text(json.dumps({"resources": ["base"]} | overlay))
    for things in (template("--values", str(tmp_path / "values.json")), build(tmp_path)):
        workloads = [thing for thing in things if thing["kind"] in ("StatefulSet", "Deployment", "Job")]
        assert len(workloads) == 3
        for thing in workloads:
            environment = thing["spec"]["template"]["spec"]["containers"][0]["env"]
            assert (token in environment) == (thing["metadata"]["name"] == "milepost-events"), thing["metadata"]["name"]
        validate(workloads)


def test_chart_mounts_the_basemap_of_a_claim():
    pod = lambda things: one(things, "Deployment", "milepost-map")["spec"]["template"]["spec"]
    assert "basemap" not in json.dumps(pod(template("--set", "map.enabled=true"))).lower()
    things = template("--set", "map.enabled=true,map.basemap.claim=streets,map.basemap.file=florida.pmtiles")
    validate(things)
    (container,) = pod(things)["containers"]
    (path,) = [variable["value"] for variable in container["env"] if variable["name"] == "MILEPOST_MAP__MAP__BASEMAP"]
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "basemap"]
    assert path == mount["mountPath"] + "/florida.pmtiles" and mount["readOnly"]
    (volume,) = [volume for volume in pod(things)["volumes"] if volume["name"] == "basemap"]
    assert volume["persistentVolumeClaim"] == {"claimName": "streets", "readOnly": True}


def test_ingress_without_tls_is_refused():
    ingress = "map.enabled=true,map.ingress.enabled=true,map.ingress.host=map.example"
    things = template("--set", ingress + ",map.ingress.tlsSecret=map-tls,map.ingress.className=nginx")
    validate(things)
    spec = one(things, "Ingress", "milepost-map")["spec"]
    assert spec["tls"] == [{"hosts": ["map.example"], "secretName": "map-tls"}] and spec["rules"][0]["host"] == "map.example"
    backend = spec["rules"][0]["http"]["paths"][0]["backend"]["service"]
    service = one(things, "Service", backend["name"])
    assert backend["port"]["name"] in [port["name"] for port in service["spec"]["ports"]]
    command = [tool("helm"), "template", "milepost", CHART, "--kube-version", KUBERNETES + ".0", "--set", ingress]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and "tlsSecret" in done.stderr

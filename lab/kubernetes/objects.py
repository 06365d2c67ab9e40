"""Sends every object of deploy/kubernetes and of the chart to the real API server as a dry run. The server must know every field, admit
every pod under pod security `restricted`, and send no warning.
"""

import json
import os
import subprocess

import yaml

from cluster import Refused, wait_until
from servers import REPOSITORY

KUBERNETES = REPOSITORY / "deploy" / "kubernetes"
CHART = REPOSITORY / "deploy" / "helm" / "milepost"
DEFINITIONS = REPOSITORY / ".local" / "tools" / "crds"
NAMESPACE = "shown"


def define(cluster):
    """Creates the custom resource definitions of other projects, as their authors publish them."""
    names = []
    for path in sorted(DEFINITIONS.glob("*.yaml")):
        thing = yaml.safe_load(path.read_text())
        names.append(thing["metadata"]["name"])
        cluster.create(thing, None)
    assert len(names) == 5, f"{names}: run deploy/kubernetes/crds"

    def is_served(name):
        conditions = cluster.get("CustomResourceDefinition", None, name).get("status", {}).get("conditions", [])
        return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)

    for name in names:
        wait_until(f"{name} is served", lambda name=name: is_served(name))


def build(tools, folder, resource, *components):
    """Returns the objects that kustomize builds of a resource with these components."""
    folder.mkdir(exist_ok=True)
    path = lambda name: os.path.relpath(KUBERNETES / name, folder)
    kustomization = {"resources": [path(resource)], "components": [path(f"components/{name}") for name in components]}
    (folder / "kustomization.yaml").write_text(json.dumps(kustomization))
    return objects(tools / "kustomize", "build", folder)


def objects(*command):
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return list(yaml.safe_load_all(result.stdout))


def check_all(cluster, folder):
    components = sorted(path.name for path in (KUBERNETES / "components").iterdir())
    version = (cluster.tools / "kube-apiserver.version").read_text().strip()
    chart = [cluster.tools / "helm", "template", "milepost", CHART, "--kube-version", version]
    sets = [build(cluster.tools, folder, "base"), objects(*chart)]
    settings = "caConfigMap=milepost-ca,spool.storageClass=fast,replicas=null,image.pullSecrets={key},map.enabled=true"
    sets.append(objects(*chart, "--set", settings))
    sets += [build(cluster.tools, folder, overlay) for overlay in ("overlays/minimal", "overlays/production")]
    sets += [build(cluster.tools, folder, "base", component) for component in components]
    sets += [
        build(cluster.tools, folder, "overlays/production", *(name for name in components if name not in ("monitoring", without)))
        for without in ("hpa", "keda")
    ]
    sets.append(build(cluster.tools, folder, "../../lab/kubernetes/kind"))
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}, None)
    account = next(thing for thing in sets[0] if thing["kind"] == "ServiceAccount")
    cluster.apply(account, NAMESPACE)  # a pod is rejected if its service account does not exist
    wait_until("both service accounts exist", lambda: len(cluster.items("ServiceAccount", NAMESPACE)) == 2)
    del cluster.warnings[:]
    accepted = pods = 0
    for thing in (thing for things in sets for thing in things):
        if thing["kind"] != "Namespace":
            thing["metadata"]["namespace"] = NAMESPACE
        cluster.apply(thing, NAMESPACE, dry_run=True)
        accepted += 1
        if "template" in thing.get("spec", {}):
            cluster.create(pod_of(thing["spec"]), NAMESPACE, dry_run=True)
            pods += 1
    assert not cluster.warnings, cluster.warnings
    check_wrong_field_is_refused(cluster, next(thing for things in sets for thing in things if thing["kind"] == "ScaledObject"))
    return f"{accepted} objects and {pods} of their pods accepted, no warning"


def pod_of(spec):
    template = spec["template"]
    volumes = [{"name": claim["metadata"]["name"], "emptyDir": {}} for claim in spec.get("volumeClaimTemplates", [])]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"] | {"name": "shown"}}
    return pod | {"spec": template["spec"] | {"volumes": template["spec"]["volumes"] + volumes}}


def check_wrong_field_is_refused(cluster, thing):
    """Checks that the API server rejects a wrong field; otherwise the other checks prove nothing."""
    thing["spec"]["wrong"] = 1
    try:
        cluster.apply(thing, NAMESPACE, dry_run=True)
    except Refused as refused:
        assert "wrong" in refused.message, refused
        return
    raise AssertionError("an unknown field was accepted")

#!/usr/bin/env python3
"""Makes what cargo-cyclonedx wrote the same for every build of a commit: sbom.py FILE EPOCH FOLDER. Prints it."""

import json
import sys
import uuid
from datetime import datetime, timezone
from pathlib import Path


def main(file, epoch, folder):
    # Paths of this machine: the crates of the workspace are named by them.
    text = Path(file).read_text().replace(f"file://{folder}", "file:///milepost")
    sbom = json.loads(text)
    sbom["metadata"]["timestamp"] = datetime.fromtimestamp(int(epoch), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    sbom.pop("serialNumber", None)
    sbom["components"].sort(key=lambda component: component["bom-ref"])
    sbom["dependencies"].sort(key=lambda dependency: dependency["ref"])
    sbom["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(sbom, sort_keys=True))}"
    assert folder not in json.dumps(sbom), "a path of this machine is left"
    json.dump(sbom, sys.stdout, indent=1, sort_keys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

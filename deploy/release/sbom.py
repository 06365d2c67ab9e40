#!/usr/bin/env python3
"""Prints cargo-cyclonedx's SBOM without what differs between builds of a commit: sbom.py FILE EPOCH FOLDER."""

import json
import sys
import uuid
from datetime import datetime, timezone
from pathlib import Path


def main(file, epoch, folder):
    # The ids of the workspace's crates contain the path of the build folder.
    text = Path(file).read_text().replace(f"file://{folder}", "file:///milepost")
    sbom = json.loads(text)
    sbom["metadata"]["timestamp"] = datetime.fromtimestamp(int(epoch), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    sbom.pop("serialNumber", None)
    sbom["components"].sort(key=lambda component: component["bom-ref"])
    sbom["dependencies"].sort(key=lambda dependency: dependency["ref"])
    sbom["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(sbom, sort_keys=True))}"
    assert folder not in json.dumps(sbom), "the SBOM still contains the path of the build folder"
    json.dump(sbom, sys.stdout, indent=1, sort_keys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

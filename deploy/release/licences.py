#!/usr/bin/env python3
"""Prints the licences of a program's dependencies: licences.py PROGRAM TARGET, run in the folder of the sources.

Lists every linked crate with the licence texts that its authors ship and, for the map, the dependencies of its page.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

NAMES = re.compile(r"^(licen[cs]e|copying|notice|unlicense|copyright)", re.IGNORECASE)


def crates(program, target):
    """Yields name, version and licence of each dependency, without the workspace's own crates."""
    command = ["cargo", "tree", "--locked", "--package", program, "--edges", "normal", "--target", target]
    lines = subprocess.run([*command, "--prefix", "none", "--format", "{p}|{l}"], check=True, capture_output=True, text=True).stdout
    for line in sorted(set(lines.removesuffix("\n").splitlines())):
        crate, licence = line.removesuffix(" (*)").split("|")
        name, version, *path = crate.split(" ")
        if not any(part.startswith("(/") for part in path):
            yield name, version.removeprefix("v"), licence


def folders():
    """Returns the folder into which cargo unpacked each crate, by name and version."""
    metadata = json.loads(subprocess.run(["cargo", "metadata", "--locked", "--format-version", "1"], check=True, capture_output=True, text=True).stdout)
    return {(package["name"], package["version"]): Path(package["manifest_path"]).parent for package in metadata["packages"]}


def texts(folder):
    return [path.read_text(errors="replace").strip() for path in sorted(folder.iterdir()) if path.is_file() and NAMES.match(path.name)]


def main(program, target):
    folder_of = folders()
    parts = [(*crate, folder_of[crate[:2]]) for crate in sorted(set(crates(program, target)))]
    assert len(parts) > 50, f"{program} has {len(parts)} dependencies?"
    print(f"{program} is licensed under MIT OR Apache-2.0. It contains Rust's standard library (MIT OR Apache-2.0) and these crates:\n")
    users = {}  # the same text is printed once
    for name, version, licence, folder in parts:
        print(f"  {name} {version}: {licence}")
        for text in texts(folder):
            users.setdefault(text, []).append(f"{name} {version}")
    for text, names in users.items():
        print("\n" + "=" * 100 + "\n" + ", ".join(names) + "\n" + "-" * 100 + "\n" + text)
    if program == "milepost-map":
        print("\n" + "=" * 100 + "\nThe page:\n\n" + Path("map/page/dist/licences.txt").read_text())


if __name__ == "__main__":
    main(*sys.argv[1:])

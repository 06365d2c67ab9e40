#!/usr/bin/env python3
"""What a program is made of, and under which licences: licences.py PROGRAM TARGET, in the folder of the sources; prints a text.

Every crate that is linked, with the texts that its authors ship; for the map also what its page is made of.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

NAMES = re.compile(r"^(licen[cs]e|copying|notice|unlicense|copyright)", re.IGNORECASE)


def crates(program, target):
    """Name, version and licence of each, ours left out."""
    command = ["cargo", "tree", "--locked", "--package", program, "--edges", "normal", "--target", target]
    lines = subprocess.run([*command, "--prefix", "none", "--format", "{p}|{l}"], check=True, capture_output=True, text=True).stdout
    for line in sorted(set(lines.removesuffix("\n").splitlines())):
        crate, licence = line.removesuffix(" (*)").split("|")
        name, version, *path = crate.split(" ")
        if not any(part.startswith("(/") for part in path):
            yield name, version.removeprefix("v"), licence


def folders():
    """Where cargo unpacked each crate."""
    known = json.loads(subprocess.run(["cargo", "metadata", "--locked", "--format-version", "1"], check=True, capture_output=True, text=True).stdout)
    return {(package["name"], package["version"]): Path(package["manifest_path"]).parent for package in known["packages"]}


def texts(folder):
    return [path.read_text(errors="replace").strip() for path in sorted(folder.iterdir()) if path.is_file() and NAMES.match(path.name)]


def main(program, target):
    where = folders()
    parts = [(*crate, where[crate[:2]]) for crate in sorted(set(crates(program, target)))]
    assert len(parts) > 50, f"{program} has {len(parts)} dependencies?"
    print(f"{program} is licensed under MIT OR Apache-2.0. It contains Rust's standard library (MIT OR Apache-2.0), and these:\n")
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

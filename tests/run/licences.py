"""Checks the output of `cargo metadata` against deny.toml: licences, sources and bans, and that no
dependency from outside the workspace has the version `*`. CI runs cargo-deny, which also checks
advisories but takes minutes to build."""
from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"


def is_allowed(expression: str, allowed: set[str]) -> bool:
    """Evaluates an SPDX expression; older crates write OR as a slash: `MIT/Apache-2.0`."""
    # Join a licence and its exception into a single token.
    joined = re.sub(r"\s+WITH\s+", "+WITH+", expression.replace("/", " OR "))
    tokens = re.findall(r"\(|\)|[^\s()]+", joined)
    operators = {"(": "(", ")": ")", "OR": "or", "AND": "and"}
    words = (
        operators.get(token, str(token.replace("+WITH+", " WITH ") in allowed)) for token in tokens
    )
    return bool(tokens) and eval(" ".join(words), {"__builtins__": {}})


def violations(rules: dict, metadata: dict) -> list[str]:
    """Returns a line for each package and rule of deny.toml that the package breaks."""
    allowed = set(rules["licenses"]["allow"])
    banned = {ban["name"]: ban["reason"] for ban in rules["bans"]["deny"]}
    found = []
    for package in metadata["packages"]:
        name, source = f"{package['name']} {package['version']}", package["source"]
        if package["name"] in banned:
            found.append(f"{name}: {banned[package['name']]}")
        if source is None:  # a package of this workspace
            unbounded = [
                each for each in package["dependencies"] if each["req"] == "*" and each["source"]
            ]
            found += [f"{name}: depends on any version of {each['name']}" for each in unbounded]
            continue
        if source != REGISTRY:
            found.append(f"{name}: comes from {source}")
        if not is_allowed(package["license"] or "", allowed):
            found.append(f"{name}: licence {package['license']}")
    return found


def main() -> int:
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--all-features"]
    output = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, check=True).stdout
    metadata = json.loads(output)
    found = violations(tomllib.loads((REPOSITORY / "deny.toml").read_text()), metadata)
    print("\n".join(found) or f"{len(metadata['packages'])} packages comply with deny.toml")
    return int(bool(found))


if __name__ == "__main__":
    # Test the rules themselves.
    assert is_allowed("(MIT OR GPL-3.0) AND Unicode-3.0", {"MIT", "Unicode-3.0"})
    assert is_allowed("MIT/X", {"MIT"})
    assert not is_allowed("MIT AND GPL-3.0", {"MIT"}) and not is_allowed("", {"MIT"})
    assert is_allowed("Apache-2.0 WITH LLVM-exception", {"Apache-2.0 WITH LLVM-exception"})
    assert not is_allowed("Apache-2.0 WITH LLVM-exception", {"Apache-2.0"})
    sys.exit(main())

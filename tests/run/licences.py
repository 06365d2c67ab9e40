"""What deny.toml allows, asked of `cargo metadata`: licences, sources, bans, no version `*`. cargo-deny says the same, takes minutes to
build, and runs on the forge, with advisories."""
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
    """An SPDX expression; `MIT/Apache-2.0` is how older crates write OR."""
    tokens = re.findall(r"\(|\)|[^\s()]+", re.sub(r"\s+WITH\s+", "+WITH+", expression.replace("/", " OR ")))
    known = {"(": "(", ")": ")", "OR": "or", "AND": "and"}
    words = (known.get(token, str(token.replace("+WITH+", " WITH ") in allowed)) for token in tokens)
    return bool(tokens) and eval(" ".join(words), {"__builtins__": {}})


def wrong(rules: dict, metadata: dict) -> list[str]:
    allowed, banned = set(rules["licenses"]["allow"]), {ban["name"]: ban["reason"] for ban in rules["bans"]["deny"]}
    found = []
    for package in metadata["packages"]:
        name, source = f"{package['name']} {package['version']}", package["source"]
        if package["name"] in banned:
            found.append(f"{name}: {banned[package['name']]}")
        if source is None:
            found += [f"{name}: {it['name']} in any version" for it in package["dependencies"] if it["req"] == "*" and it["source"]]
            continue
        if source != REGISTRY:
            found.append(f"{name}: comes from {source}")
        if not is_allowed(package["license"] or "", allowed):
            found.append(f"{name}: licence {package['license']}")
    return found


def main() -> int:
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--all-features"]
    metadata = json.loads(subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, check=True).stdout)
    found = wrong(tomllib.loads((REPOSITORY / "deny.toml").read_text()), metadata)
    print("\n".join(found) or f"{len(metadata['packages'])} packages, as deny.toml allows")
    return int(bool(found))


if __name__ == "__main__":
    # It is tried on what it must find.
    assert is_allowed("(MIT OR GPL-3.0) AND Unicode-3.0", {"MIT", "Unicode-3.0"}) and is_allowed("MIT/X", {"MIT"})
    assert not is_allowed("MIT AND GPL-3.0", {"MIT"}) and not is_allowed("", {"MIT"})
    assert is_allowed("Apache-2.0 WITH LLVM-exception", {"Apache-2.0 WITH LLVM-exception"})
    assert not is_allowed("Apache-2.0 WITH LLVM-exception", {"Apache-2.0"})
    sys.exit(main())

"""Builds the next version of milepost, for an upgrade: the recipe of docs/add-a-field.md, which adds a field and a migration.

The next version is built like the patched builds of lab/harness: in the same folder, and without optimisation. """

import os
import shutil
import subprocess

from servers import REPOSITORY

PATCHED = REPOSITORY / "target" / "patched"
FIELD = "hdop"


def git(*arguments, **settings):
    return subprocess.run(["git", *arguments], check=True, text=True, capture_output=True, **settings).stdout


def next_version():
    patch = (REPOSITORY / "docs" / "examples" / "add-a-field.diff").read_text()
    assert f"_{FIELD}.sql" in patch, "the recipe has no migration"
    sources = PATCHED / "sources"
    shutil.rmtree(sources, ignore_errors=True)
    for name in git("ls-files", "-z", "-co", "--exclude-standard", cwd=REPOSITORY).split("\0")[:-1]:
        if (REPOSITORY / name).is_file():
            (sources / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, sources / name)
    git("init", "-q", cwd=sources)
    git("apply", "-", cwd=sources, input=patch)
    target = {"CARGO_TARGET_DIR": str(PATCHED / "build")}
    subprocess.run(["cargo", "build", "--quiet", "--locked", "--bin", "milepost"], check=True, cwd=sources, env=os.environ | target)
    return PATCHED / "build" / "debug" / "milepost"

"""The Go programs' own tests, formatting and vet."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Dict, List, Tuple

import pytest

from cbt_plugins.programs import cache_dir
from cbt_plugins.tools import build


@pytest.fixture(scope="module")
def go() -> Tuple[str, Dict[str, str]]:
    """The Go that builds the companion, and the environment to run it in."""
    try:
        found = build.find_go(build.pinned(build.MODULE, "go"), cache_dir())
    except (build.BuildError, OSError) as error:
        pytest.skip(f"no Go to test the companion with: {error}")
    fixed = {"GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}
    return found.command, {**os.environ, **fixed, **({"GOROOT": found.goroot} if found.goroot else {})}


def run(argv: List[str], env: Dict[str, str]) -> str:
    done = subprocess.run(argv, cwd=build.MODULE, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout


def test_formatting(go: Tuple[str, Dict[str, str]]) -> None:
    command, env = go
    root = env.get("GOROOT") or run([command, "env", "GOROOT"], env).strip()
    assert run([str(Path(root) / "bin" / "gofmt"), "-l", "."], env) == ""


def test_vet_and_tests(go: Tuple[str, Dict[str, str]]) -> None:
    """With fewer cases of each kind, unless all are asked for; what has not changed since is not run again."""
    command, env = go
    cases = [] if os.environ.get("CBT_PLUGINS_LONG") else ["-short"]
    smaller = "-ldflags=-s -w"  # without what debuggers need they are linked in half the time
    run([command, "test", "-mod=readonly", "-vet=all", smaller, *cases, "./..."], {**env, "CGO_ENABLED": "0"})


@pytest.mark.long
def test_races(go: Tuple[str, Dict[str, str]]) -> None:
    """The race detector compiles everything anew, the standard library too."""
    command, env = go
    if shutil.which(env.get("CC", "gcc")) is None:
        pytest.skip("the race detector needs a C compiler: apt-get install gcc libc6-dev")
    run([command, "test", "-mod=readonly", "-vet=off", "-race", "./..."], {**env, "CGO_ENABLED": "1"})

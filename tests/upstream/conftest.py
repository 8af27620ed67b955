"""Real CBT trees of several years, and interpreters with this project installed as a user installs it."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

import pytest
import yaml
from cbt_trees import BETWEEN, ERAS, Trees
from interpreters import make_venv, run
from waiting import wait_for

PROJECT = Path(__file__).resolve().parents[2]


def pytest_itemcollected(item: pytest.Item) -> None:
    if BETWEEN & set(re.split(r"[\[\]-]", item.name)):
        item.add_marker(pytest.mark.long)


#: commands that CBT sends to nodes or runs here: none of them may do anything on the machine of the test
STUBS = (
    "pdsh",
    "pdcp",
    "rpdcp",
    "scp",
    "ssh",
    "sudo",
    "killall",
    "pkill",
    "collectl",
    "ceph",
    "rados",
    "hostname",
)


@pytest.fixture(scope="session")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Trees:
    return Trees(tmp_path_factory.mktemp("trees"))


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> List[Path]:
    """This project and the example of a third party, built from copies: a build leaves files in its tree."""
    made = tmp_path_factory.mktemp("wheels")
    for name, source in (
        ("project", PROJECT),
        ("example", PROJECT / "tests" / "upstream" / "example_plugin"),
    ):
        copy = tmp_path_factory.mktemp("source") / name
        shutil.copytree(
            source,
            copy,
            ignore=shutil.ignore_patterns(".*", "build", "archive-*", "*.egg-info", "__pycache__"),
        )
        isolation = ["--no-build-isolation"] if _has_setuptools() else []
        done = run(
            [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", *isolation, "-w", str(made), str(copy)]
        )
        if done.returncode != 0:
            pytest.fail(f"the wheel cannot be built: {done.stderr.strip()[-300:]}")
    return sorted(made.glob("*.whl"))


def _has_setuptools() -> bool:
    try:
        import setuptools
    except ImportError:
        return False
    return int(setuptools.__version__.split(".")[0]) >= 71  # older ones need the package wheel too


@pytest.fixture(scope="session")
def python(wheels: List[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This interpreter in an environment of its own with the wheels; the rest is borrowed from this one."""
    environment = tmp_path_factory.mktemp("this") / "venv"
    made = make_venv(Path(sys.executable), environment)
    install(made, wheels)  # before pip can see that the lender has this project too
    lent = dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    # Path lines only: what .pth files of the lender start (an editable install of this project) stays there.
    (site_packages(made) / "lender.pth").write_text("".join(f"{path}\n" for path in lent))
    return made


def install(python: Path, wheels: List[Path]) -> None:
    done = run([str(python), "-m", "pip", "install", "-q", "--no-index", "--no-deps", *map(str, wheels)])
    assert done.returncode == 0, done.stderr


def site_packages(python: Path) -> Path:
    done = run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    return Path(done.stdout.strip())


@dataclass
class Outcome:
    status: int
    output: str  # stdout and stderr
    archive: Path

    def runs(self) -> List[Path]:
        return sorted((self.archive / "results").glob("0*/id-*"))

    def calls(self) -> List[int]:
        """How often the example ran in each of its directories."""
        return [
            len((path / "calls").read_text().splitlines())
            for path in self.runs()
            if (path / "calls").exists()
        ]

    def summaries(self) -> List[Dict[str, Any]]:
        return [
            json.loads((path / "summary.json").read_text())
            for path in self.runs()
            if (path / "summary.json").exists()
        ]


class Cbt:
    """Runs programs of a tree, or the built-in loop, where no command reaches a node."""

    def __init__(self, python: Path, tmp_path: Path) -> None:
        self.python = python
        self.tmp = tmp_path
        self.stub_log = tmp_path / "stubs.log"
        stubs = tmp_path / "stubs"
        stubs.mkdir()
        for name in STUBS:
            (stubs / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {self.stub_log}\n')
            (stubs / name).chmod(0o755)
        with (stubs / "rpdcp").open("a") as rpdcp:  # a load generator left output on a node
            rpdcp.write('for last; do :; done\necho 4711 > "$last/output.0.192.0.2.2"\n')
        (tmp_path / "ceph.conf").touch()
        self.environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("PYTHON", "CBT_", "PDSH_", "XDG_", "COV_"))
        }
        self.environment.update(
            PATH=f"{stubs}:{os.environ['PATH']}",
            PYTHONDONTWRITEBYTECODE="1",
            XDG_CACHE_HOME=str(tmp_path / "cache"),
        )

    def config(
        self, benchmarks: Mapping[str, Any], profiles: Optional[Mapping[str, Any]] = None, **cluster: Any
    ) -> Path:
        """A file whose nodes are documentation addresses: nothing answers there, and no name is looked up."""
        content = {
            "cluster": {
                "head": "192.0.2.1",
                "clients": ["192.0.2.2", "192.0.2.3"],
                "osds": ["192.0.2.4"],
                "mons": {"192.0.2.1": {"a": "192.0.2.1:6789"}},
                "iterations": 2,
                "osds_per_node": 1,
                "conf_file": str(self.tmp / "ceph.conf"),
                "tmp_dir": "/tmp/cbt-of-a-test",
                **cluster,
            },
            "client_endpoints": {"s3": {"driver": "s3", "urls": ["http://192.0.2.5:7480"]}},
            "benchmarks": benchmarks,
            **({"monitoring_profiles": profiles} if profiles else {}),
        }
        path = self.tmp / "config.yaml"
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return path

    def cbt(self, tree: Path, config: Path, archive: str = "archive") -> Outcome:
        return self._run(
            [str(tree / "cbt.py"), "-a", str(self.tmp / archive), str(config)], self.tmp / archive
        )

    def watched(self, tree: Path, name: str, file: str, **profile: Any) -> List[Dict[str, Any]]:
        """The lines that one of our monitoring profiles left of a run on this machine, and nothing else."""
        (self.tmp / "stubs" / "pdsh").write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
        here = socket.gethostname()
        cluster: Dict[str, Any] = {"head": here, "clients": [here], "osds": [here], "mons": [here]}
        config = self.config(
            {"example": {"watch": True}},
            profiles={name: profile},
            iterations=1,
            tmp_dir=str(self.tmp / "node"),
            **cluster,
        )
        outcome = self.cbt(tree, config)
        assert outcome.status == 0, outcome.output
        assert not list((self.tmp / "node").rglob(f"{name}*"))
        path = outcome.runs()[0] / "monitors" / f"{name}.{here}" / file.format(node=here)
        return [json.loads(line) for line in path.read_text().splitlines()]

    def compare(self, tree: Path, archive: str, baseline: str, *options: str) -> Outcome:
        argv = [str(tree / "compare.py"), "-a", str(self.tmp / archive), "-b", str(self.tmp / baseline), "-v", *options]
        return self._run(argv, self.tmp / archive)

    def loop(self, config: Path, archive: str = "archive") -> Outcome:
        return self._run(
            ["-m", "cbt_plugins", "-a", str(self.tmp / archive), str(config)], self.tmp / archive
        )

    def _run(self, argv: List[str], archive: Path) -> Outcome:
        done = run([str(self.python), "-W", "ignore", *argv], env=self.environment, cwd=str(self.tmp))
        wait_for(lambda: not self._running(), "the end of the commands that CBT did not wait for")
        return Outcome(done.returncode, done.stdout + done.stderr, archive)

    def _running(self) -> List[Path]:
        """The processes that find our stand-ins first on their PATH."""
        own = f"\0PATH={self.tmp / 'stubs'}:".encode()
        return [path for path in Path("/proc").glob("[0-9]*/environ") if own in environment_of(path)]

    def need_modules_of(self, tree: Path) -> None:
        """Skip unless the interpreter has what this tree imports."""
        error = import_error(self.python, "benchmarkfactory", tree)
        if error:
            pytest.skip(f"{tree.name}: {error}: pip install '.[upstream]'")

    def need(self, *modules: str) -> None:
        """Skip unless the interpreter of the test has these."""
        for module in modules:
            if import_error(self.python, module):
                pytest.skip(
                    f"this tree needs the module {module}, which {self.python} does not have: "
                    "pip install '.[upstream]'"
                )


def environment_of(path: Path) -> bytes:
    """The environment that a process was started with, b"" when it has ended or is not ours."""
    try:
        return b"\0" + path.read_bytes()
    except OSError:
        return b""


@cache
def import_error(python: Path, module: str, folder: Path = PROJECT) -> str:
    """Return why an interpreter cannot import a module in a folder, "" when it can; asked once a session."""
    done = run([str(python), "-W", "ignore", "-c", f"import {module}"], cwd=str(folder))
    return done.stderr.splitlines()[-1] if done.returncode else ""


@pytest.fixture
def cbt(python: Path, tmp_path: Path) -> Cbt:
    return Cbt(python, tmp_path)


@pytest.fixture(params=ERAS)
def tree(request: pytest.FixtureRequest, trees: Trees, cbt: Cbt) -> Path:
    cbt.need_modules_of(trees[request.param])
    return trees[request.param]

"""Real CBT trees of every year, from the history of the checkout."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Dict, Mapping

import pytest

from cbt_plugins.cbt import checkout


def _git(*words: str) -> str:
    """Output of git in the checkout; empty where there is none."""
    try:
        home = checkout.find()
    except ValueError:
        home = None
    done = subprocess.run(["git", "-C", str(home), *words], capture_output=True, text=True) if home else None
    return done.stdout if done else ""


def _eras() -> Dict[str, str]:
    """The last commit of each year on the main branch, the branch `master` (frozen in 2025), and what comes next."""
    years: Dict[str, str] = {}
    tip = "origin/main" if _git("rev-parse", "-q", "--verify", "origin/main") else "HEAD"
    for line in _git("log", "--first-parent", "--format=%h %cd", "--date=format:%Y", tip).splitlines():
        commit, year = line.split()
        if year >= "2021":
            years.setdefault(year, commit)
    years = dict(sorted(years.items())) or dict.fromkeys(map(str, range(2021, 2027)), "")
    return {**years, "master": _git("rev-parse", "-q", "--verify", "--short", "origin/master").strip(), "newest": ""}


#: the first commit with the time series report; where `main` lacks it, the branch of its pull request has it
TIME_SERIES = "695ea4d"
#: the merge of this branch into the last main branch (refs/pull/354/merge)
MERGED = "3c5f026"


def _last() -> str:
    """The last commit that is to be had: that of the main branch if it has the time series report."""
    tip = next(reversed([era for era in ERAS if era.isdigit()]))
    behind = _git("rev-list", "-1", f"{ERAS[tip] or 'HEAD'}..{TIME_SERIES}")
    return TIME_SERIES if behind else tip


#: era -> commit; "newest" is what will have become of the last one, rebuilt from its pull requests
ERAS: Mapping[str, str] = _eras()
YEARS = [era for era in ERAS if era.isdigit()]
#: what we use of each is in the oldest, in `master` or in "newest", too: `./run test all` tries them
BETWEEN = set(YEARS[1:])

#: monitoring as a package: the names and signatures of upstream's, and the least behind them
_FACTORY = """\
from contextlib import contextmanager
import common, settings
from monitoring.monitoring import Monitoring

class CollectlMonitoring(Monitoring):
    DEFAULT_NODES = ["clients", "osds", "mons", "rgws"]

    def start(self, directory):
        common.pdsh(self._nodes, f"mkdir -p -m0755 -- {directory}/collectl").communicate()
        common.pdsh(self._nodes, f"collectl -f {directory}/collectl")

    def stop(self, directory):
        common.pdsh(self._nodes, "pkill -SIGINT -f collectl").communicate()

class MonitoringFactory:
    _REGISTRY = {"collectl": CollectlMonitoring}

    @classmethod
    def get_object(cls, name, mconfig):
        try:
            return cls._REGISTRY[name](mconfig)
        except KeyError as exc:
            raise ValueError(name) from exc

    @classmethod
    def get_all(cls):
        for name, mconfig in sorted(settings.monitoring_profiles.items()):
            yield cls.get_object(name, mconfig)

    @classmethod
    def start(cls, directory):
        for monitor in cls.get_all():
            monitor.start(directory)

    @classmethod
    def stop(cls, directory=None):
        for monitor in cls.get_all():
            monitor.stop(directory)

    @classmethod
    @contextmanager
    def monitor(cls, directory):
        monitors = list(cls.get_all())
        for monitor in monitors:
            monitor.start(directory)
        try:
            yield
        finally:
            for monitor in monitors:
                monitor.stop(directory)
"""
#: since mid 2026 what is logged goes to the archive too, as soon as the file is read
_LOG_TO = """\
def log_to(archive):
    os.makedirs(archive, exist_ok=True)
    logger.addHandler(logging.FileHandler(os.path.join(archive, "cbt.log"), mode="w"))


"""
#: progress bars ask all benchmarks of the first iteration before anything is set up
_ESTIMATE = """\
    made[0] = list(benchmarkfactory.get_all(settings.cluster.get('archive_dir'), cluster, 0))
    logger.info('estimated: %d s', sum(benchmark.estimate_duration() for benchmark in made[0]))
"""
_NO_ESTIMATE = """\
    def estimate_duration(self):
        return 0

"""
_BASE = """\
from abc import ABC, abstractmethod
import settings

class Monitoring(ABC):
    def __init__(self, mconfig):
        self._nodes = settings.getnodes(*mconfig.get("nodes", self.DEFAULT_NODES))
        self._user = settings.cluster.get("user")

    @abstractmethod
    def start(self, directory): ...

    @abstractmethod
    def stop(self, directory): ...
"""


def _make_newest(tree: Path) -> None:
    """monitoring/ is a package, the log goes into the archive, the run loop uses the objects of the init loop, which
    were asked how long they take.
    """
    (tree / "monitoring.py").unlink()
    (tree / "monitoring").mkdir()
    for name, text in (("__init__", ""), ("monitoring", _BASE), ("monitoring_factory", _FACTORY)):
        (tree / "monitoring" / f"{name}.py").write_text(text)
    for module in [*(tree / "benchmark").glob("*.py"), *(tree / "cluster").glob("*.py")]:
        alias = "from monitoring.monitoring_factory import MonitoringFactory as monitoring\n"
        module.write_text(module.read_text().replace("import monitoring\n", alias))
    main = tree / "cbt.py"
    call = "benchmarkfactory.get_all(archive_dir, cluster, iteration)"
    text = main.read_text().replace("import settings\n", "import os, settings\nmade = {}\n", 1)
    assert text.count(call) == 2
    text = text.replace(call, f"made.get(iteration) or made.setdefault(iteration, list({call}))")
    for line, more in (
        ("    settings.initialize(ctx)\n", "    log_to(ctx.archive)\n"),
        ("    cluster = Ceph(settings.cluster)\n", _ESTIMATE),
    ):
        assert text.count(line) == 1
        text = text.replace(line, line + more)
    main.write_text(text.replace("def main(", _LOG_TO + "def main("))
    base = tree / "benchmark" / "benchmark.py"
    base.write_text(base.read_text().replace("    def exists(self):\n", _NO_ESTIMATE + "    def exists(self):\n", 1))
    assert _NO_ESTIMATE in base.read_text()


class Trees:
    """Exports commits of the checkout's history, by their era or hash; the checkout itself is only read."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __getitem__(self, era: str) -> Path:
        tree = self._directory / era
        if tree.exists():
            return tree
        if era == "newest":
            shutil.copytree(self[_last()], tree)
            _make_newest(tree)
            return tree
        try:
            home = checkout.find()
        except ValueError as error:
            pytest.skip(str(error))
        if home is None:
            pytest.skip(
                "no CBT checkout: set CBT_HOME, or "
                f"git clone https://github.com/ceph/cbt {checkout.cache_path()}"
            )
        commit = ERAS.get(era, era) or "no-commit"
        done = subprocess.run(["git", "-C", str(home), "archive", commit], capture_output=True)
        if done.returncode != 0:
            pytest.skip(f"{home} has no tree of {era}: needs the history (git fetch --unshallow)")
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(tree, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        return tree

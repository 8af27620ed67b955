"""CBT's own benchmarks on a real cluster, by its tree of every year, with us installed and without; and ours there.

Its session writes the rows of docs/TESTED.md; `./run test all` runs it, this file alone:

    CBT_PLUGINS_LONG=1 python -m pytest tests/lab/test_cbt_years.py
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest
import yaml
from cbt_trees import ERAS, Trees
from cycles import CLUSTER, IN_HOME, S3
from running_lab import RunningLab
from tables import TESTED, today

pytestmark = [pytest.mark.lab, pytest.mark.upstream, pytest.mark.long]

#: runs the unmodified cbt.py; its pauses of a minute, which watch an idle cluster, take a second
HASTY = """\
import runpy, sys, time
sys.argv = sys.argv[1:]
sys.path[0] = sys.argv[0].rpartition("/")[0]
sleep = time.sleep
time.sleep = lambda seconds: sleep(min(seconds, 1))
runpy.run_path(sys.argv[0], run_name="__main__")
"""
POOLS = {"small": {"pg_size": 8, "pgp_size": 8, "replication": 2}}
OURS: Dict[str, Any] = {
    "warp": {
        "s3": S3,
        "workers": 2,
        "size": "4KiB",
        "cycle": {"phases": [{"fill": {"objects": 40}}, {"hybrid": {"duration": "3s", "mix": {"get": 70, "put": 30}}}]},
    }
}
RADOSBENCH: Dict[str, Any] = {
    "radosbench": {
        "op_size": 4096,
        "time": 2,
        "concurrent_ops": 4,
        "max_objects": 50,
        "pool_profile": "small",
        "wait_pgautoscaler_timeout": 0,
    }
}
LIBRBDFIO: Dict[str, Any] = {
    "librbdfio": {
        "op_size": 4096,
        "time": 2,
        "time_based": True,
        "mode": "randwrite",
        "vol_size": 16,
        "iodepth": 4,
        "numjobs": 1,
        "pool_profile": "small",
        "idle_monitor_sleep": 1,
        "wait_pgautoscaler_timeout": 0,
        "cmd_path": "/usr/bin/fio",
    }
}
#: cell -> sections, planned runs
CELLS: Dict[str, Tuple[Dict[str, Any], int]] = {
    "ours": (OURS, 1),
    "radosbench": (RADOSBENCH, 1),
    "librbdfio": (LIBRBDFIO, 1),
    "both": ({**OURS, **RADOSBENCH, **LIBRBDFIO}, 3),
    "ours twice": (OURS, 1),
}
#: tree -> cells that have passed in this session
PASSED: Dict[str, List[str]] = {}


@pytest.fixture(scope="module")
def trees(lab: RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Trees:
    if shutil.which("fio") is None:
        pytest.skip("needs fio with librbd: apt-get install fio")
    return Trees(tmp_path_factory.mktemp("trees"))


class Runs:
    """Calls of one tree's cbt.py with one file, in node0."""

    def __init__(self, lab: RunningLab, tree: Path, folder: Path, sections: Dict[str, Any]) -> None:
        self._lab, self._tree, self._folder = lab, tree, folder
        self.file = folder / "config.yaml"
        cluster = {**CLUSTER, "osds_per_node": 2, "pool_profiles": POOLS}
        self.file.write_text(yaml.safe_dump({"cluster": cluster, "benchmarks": sections}, sort_keys=False))
        (folder / "hasty.py").write_text(HASTY)

    def call(self, archive: str, plugins: str = "on") -> Tuple[int, str]:
        """Exit status and output; what an earlier call left on the nodes would be collected again."""
        wipe(self._lab)
        line = [self._lab.python, "-W", "ignore", str(self._folder / "hasty.py"), str(self._tree / "cbt.py")]
        environment = ["env", f"CBT_PLUGINS={plugins}", "PYTHONHASHSEED=0", "PYTHONDONTWRITEBYTECODE=1"]
        argv = ["sh", "-c", IN_HOME, str(self._lab.home), *environment, *line, "-a", str(self._folder / archive)]
        done = self._lab.exec("node0", [*argv, str(self.file)], stderr=subprocess.STDOUT, stdout=subprocess.PIPE)
        return done.returncode, done.stdout

    def left(self, archive: str) -> Dict[str, str]:
        """Path -> content of the files that are the same however fast the cluster is; of others that they are there."""
        folder = self._folder / archive
        return {
            str(path.relative_to(folder)): path.read_text().replace(str(folder), "") if path.suffix == ".yaml" else ""
            for path in sorted(folder.rglob("*"))
            if not path.parent.name.startswith("collectl")  # named by the time, killed early or late
        }


@pytest.fixture
def pools(lab: RunningLab) -> Iterator[None]:
    """CBT leaves its pools."""
    before = set(lab.exec("node0", ["ceph", "osd", "pool", "ls"]).stdout.split())
    yield
    for pool in set(lab.exec("node0", ["ceph", "osd", "pool", "ls"]).stdout.split()) - before:
        lab.exec("node0", ["ceph", "osd", "pool", "rm", pool, pool, "--yes-i-really-really-mean-it"])
    wipe(lab)


def wipe(lab: RunningLab) -> None:
    """Remove what CBT's own benchmarks leave on the nodes."""
    for node in lab.nodes:
        lab.exec(node, ["rm", "-rf", "/var/tmp/cbt"])


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.usefixtures("pools")
def test_cell(
    lab: RunningLab,
    trees: Trees,
    era: str,
    cell: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    sections, planned = CELLS[cell]
    runs = Runs(lab, trees[era], tmp_path, sections)
    status, output = runs.call("with-us")
    assert status == 0, output[-3000:]
    if "warp" in sections:
        assert f"{planned} of {planned} planned runs executed" in output, output[-3000:]
    else:
        assert_as_without_us(runs, output)
    if cell == "ours twice":
        status, output = runs.call("with-us")
        assert status == 0 and "0 of 1 planned runs executed, 1 skipped" in output, output[-3000:]
    assert not (tmp_path / "with-us" / "results" / ".unfinished").exists()
    PASSED.setdefault(era, []).append(cell)
    cells = f"{len(PASSED[era])} of {len(CELLS)}: {', '.join(PASSED[era])}"
    commit = ERAS[era] or "rebuilt from pull requests"
    record_property("row", [TESTED, "years", era, commit, today(), ceph_version(lab), cells])


def ceph_version(lab: RunningLab) -> str:
    return lab.exec("node0", ["ceph", "--version"]).stdout.split()[2]


def assert_as_without_us(runs: Runs, output: str) -> None:
    """A call without us leaves the same."""
    status, without = runs.call("without-us", plugins="off")
    assert status == 0, without[-3000:]
    assert "cbt_plugins" not in output
    assert runs.left("with-us") == runs.left("without-us")

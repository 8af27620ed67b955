"""Files of nodes that are read one at a time: the numbers of all nodes in memory at once, without their samples."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from resources_lines import OSDS, ROLES, T0, Made, load, write

from cbt_plugins.results import worker_processes
from cbt_plugins.results.nodes import node_files
from cbt_plugins.results.nodes.node_files import NodeFile, UsageReader, read_nodes
from cbt_plugins.results.nodes.resources import of_window
from cbt_plugins.results.nodes.usage import Networks

COLLECTL = Path(__file__).parent.parent / "data" / "resources"
OF_COLLECTL = (1795275212.0, 1795275215.0)
WINDOWS = {0: (T0 + 2.0, T0 + 9.5), 1: (T0 + 9.5, T0 + 19.0)}
FAST = Made([("osd", "7", 0.875, 300)], disks={"sda": (0.5, 1.0, 2.0)}, nets={"eth0": (10.0, 20.0)})


def apart(folder: Path) -> None:
    for number in range(5):
        name = f"n{number}"
        osd_disks = {"1": {"block": ["sda"]}, "2": {"block": ["sda"], "block.db": ["sdb"]}}
        disks = {"sda": (0.1 * number, 1.0, 2.0), "sdb": (0.2, 0.0, 1.0)}
        threads = {0: ["bstore_kv_sync", 0.96]}
        write(folder, name, Made(OSDS, disks=disks, osd_disks=osd_disks, nets={"eth0": (1.0, 2.0)}, threads=threads))


def one_machine(folder: Path) -> None:
    """Three names of two machines: each process once, each disk once."""
    osd_disks = {"7": {"block": ["sda"]}, "9": {"block": ["sda"]}}
    for name, boot, osd in (("n1", "b", "7"), ("n2", "a", "8"), ("n3", "b", "7"), ("n4", "b", "9")):
        pidns = "pid:[4]" if name == "n4" else "pid:[1]"
        node = Made([("osd", osd, 0.875, 300)], boot=boot, pidns=pidns, disks=FAST.disks, osd_disks=osd_disks)
        write(folder, name, node, seconds=12 if name == "n1" else 20)


def moved_pod(folder: Path) -> None:
    """The first name is one pod, and then the pod of the third name."""
    pods = [Made([("osd", str(osd), 0.5, 100)], boot="m", pidns=f"pid:[{osd}]") for osd in (1, 2)]
    write(folder, "n1", pods[0], seconds=10)
    write(folder, "n1", pods[1], seconds=10, begin=T0 + 10)
    write(folder, "n2", FAST)
    write(folder, "osd-2", pods[1])


def other_interval(folder: Path) -> None:
    """The bins of all nodes are those of the longest interval; it has ended before the second window."""
    apart(folder)
    path = write(folder, "n9", FAST, seconds=9)
    path.write_text(path.read_text().replace('"interval": 1.0', '"interval": 3.0'))


def with_collectl(folder: Path) -> None:
    apart(folder)
    for name in ("node2", "rgw1"):
        shutil.copytree(COLLECTL / f"collectl.{name}", folder / f"collectl.{name}")


LAYOUTS: List[Callable[[Path], None]] = [apart, one_machine, moved_pod, other_interval, with_collectl]


def streamed(folder: Path, windows: Dict[int, Any]) -> Dict[int, Dict[str, Any]]:
    files = node_files.node_files(folder, {"n1": 0.5}, list(windows))
    _, phases = UsageReader(windows, ROLES, Networks()).read(files)
    return {number: usage.numbers(load()) for number, usage in phases.items() if usage.names}


@pytest.mark.parametrize("processes", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_nodes_one_at_a_time_have_the_numbers_of_all_at_once(
    layout: Callable[[Path], None], processes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout(tmp_path)
    windows = dict(WINDOWS)
    if layout is with_collectl:
        windows[2] = OF_COLLECTL
    nodes = read_nodes(tmp_path, {"n1": 0.5})
    expected = {}
    for number, window in windows.items():
        watched = [node for node in nodes if node.processors.meets(*window)]
        if watched:
            expected[number] = of_window(watched, window, load(), ROLES, Networks())
    if processes:
        monkeypatch.setattr(worker_processes, "MANY", 0)
    assert len(expected) == len(windows) and streamed(tmp_path, windows) == expected


def test_of_a_node_only_its_usage_leaves_its_process(tmp_path: Path) -> None:
    """A window has the same bytes, however long the node was watched."""
    sizes = []
    for seconds in (20, 1000):
        folder = tmp_path / str(seconds)
        write(folder, "n1", FAST, seconds)
        result = UsageReader(WINDOWS, ROLES, Networks()).usages([NodeFile(folder, "n1", 0.0, [0, 1])])
        assert result[0][1].keys() == WINDOWS.keys()
        sizes.append(len(pickle.dumps(result)))
    assert sizes[1] == pytest.approx(sizes[0], rel=0.01)


@pytest.mark.parametrize(
    ("layout", "together"), [(apart, 1), (one_machine, 2), (moved_pod, 2)], ids=["apart", "one-machine", "moved-pod"]
)
def test_only_nodes_with_a_common_process_are_in_memory_together(
    layout: Callable[[Path], None], together: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout(tmp_path)
    groups: List[int] = []
    usages = UsageReader.usages
    monkeypatch.setattr(UsageReader, "usages", lambda self, files: [groups.append(len(files)), usages(self, files)][1])
    streamed(tmp_path, WINDOWS)
    assert max(groups) == together

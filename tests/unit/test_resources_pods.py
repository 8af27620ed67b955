"""Nodes of the file that were more than one pod, one after the other, or the same pod as another node."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import pytest
from resources_lines import T0, Made, write

from cbt_plugins.results.nodes import resources
from cbt_plugins.results.nodes.usage import Networks

LOAD: Dict[str, Any] = {"made": True, "per_s": 1000.0, "bytes_per_s": 1e9, "ops": {"GET": 1000.0}}
OSD_0, OSD_1 = ("osd", "0", 1.0, 100), ("osd", "1", 0.25, 100)
#: the same machine, and other processes in each
POD_0, NEW_POD_0, POD_1 = (
    Made([osd], boot="machine1", pidns=f"pid:[{number}]") for number, osd in enumerate((OSD_0, OSD_0, OSD_1))
)


def osds(folder: Path) -> Dict[str, Any]:
    """Return {(node, OSD): cores} of 20 s, and what is known of the class."""
    nodes = resources.read_nodes(folder, {})
    usage = resources.of_window(nodes, (T0, T0 + 20.0), LOAD, {}, Networks())
    cores = {(line["node"], line["id"]): line["cores"] for line in usage["daemons"]}
    return {"cores": cores, "class": usage["classes"]["osd"]}


def test_a_label_that_moves_to_the_pod_of_another_node_counts_no_osd_twice(tmp_path: Path) -> None:
    """The first pod ends after 10 s, and a new pod takes its place after 12 s: the label is then the second pod."""
    write(tmp_path, "node1", POD_0, seconds=10)
    write(tmp_path, "node1", POD_1, seconds=10, begin=T0 + 10)
    write(tmp_path, "osd-0", POD_0, seconds=10)
    write(tmp_path, "osd-0", NEW_POD_0, seconds=8, begin=T0 + 12)
    write(tmp_path, "osd-1", POD_1)
    usage = osds(tmp_path)
    assert usage["cores"] == pytest.approx({("osd-0", "0"): 1.0, ("osd-1", "1"): 0.25})
    assert usage["class"]["daemons"] == 2 and usage["class"]["cores"] == pytest.approx(1.25)


def test_two_names_of_a_pod_that_come_back_at_different_times_count_once(tmp_path: Path) -> None:
    for name, again in (("node1", 14), ("osd-0", 12)):
        write(tmp_path, name, POD_0, seconds=10)
        write(tmp_path, name, NEW_POD_0, seconds=20 - again, begin=T0 + again)
    usage = osds(tmp_path)
    assert usage["cores"] == pytest.approx({("osd-0", "0"): 1.0}) and usage["class"]["daemons"] == 1

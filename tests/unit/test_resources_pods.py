"""Nodes of the file that were more than one pod, one after the other, or the same pod as another node."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Tuple

import archive_builder as archives
import pytest
from resources_lines import T0, Made, write

from cbt_plugins.results.nodes import resources
from cbt_plugins.results.nodes.node_files import read_nodes
from cbt_plugins.results.nodes.usage import Networks
from cbt_plugins.results.summary_file import summarize

LOAD: Dict[str, Any] = {"made": True, "per_s": 1000.0, "bytes_per_s": 1e9, "ops": {"GET": 1000.0}}
OSD_0, OSD_1 = ("osd", "0", 1.0, 100), ("osd", "1", 0.25, 100)
#: the same machine, and other processes in each
POD_0, NEW_POD_0, POD_1 = (
    Made([osd], boot="machine1", pidns=f"pid:[{number}]") for number, osd in enumerate((OSD_0, OSD_0, OSD_1))
)


def osds(folder: Path) -> Dict[str, Any]:
    """Return {(node, OSD): cores} of 20 s, and what is known of the class."""
    nodes = read_nodes(folder, {})
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


def test_an_osd_that_restarts_on_a_machine_with_two_names_counts_once(tmp_path: Path) -> None:
    """One name misses the time after the restart, the other misses most of the time before it."""
    restarted = Made([("mon", "a", 0.0, 1), OSD_0], boot="machine1", pidns="pid:[0]")  # OSD 0 has the next pid
    write(tmp_path, "node1", POD_0, seconds=12)
    write(tmp_path, "osd-0", POD_0, seconds=2, begin=T0 + 10)
    write(tmp_path, "osd-0", restarted, seconds=8, begin=T0 + 12)
    assert osds(tmp_path)["class"]["daemons"] == 1


@pytest.mark.parametrize("folders", [("01", "01"), ("01", "02")])
def test_osds_of_a_node_that_was_two_pods_in_turn_make_no_sum(tmp_path: Path, folders: Tuple[str, str]) -> None:
    run, begin = archives.small(tmp_path), archives.T0 - 5.0
    write(run / "monitors" / folders[0], "node1", POD_0, begin=begin, seconds=10)
    write(run / "monitors" / folders[1], "node1", POD_1, begin=begin + 10, seconds=10)
    summary = summarize(run)
    (usage,) = summary["resources"]["phases"].values()
    assert summary["resources"]["unwatched"] == ["osd.0", "osd.1"] and usage["classes"] == {}
    texts = [warning["text"] for warning in summary["warnings"] if warning["code"] == "monitor-limited"]
    assert texts[0] == "resources did not watch 2 OSDs of the cluster, so OSDs have no sums: osd.0, osd.1"
    assert texts[1:] == ["resources watched no RGW, so there are no requests/s per core and cores per GB/s"]
    # each OSD has a node of its own too
    write(run / "monitors" / "01", "osd-0", POD_0, begin=begin, seconds=10)
    write(run / "monitors" / "01", "osd-0", NEW_POD_0, begin=begin + 12, seconds=8)
    write(run / "monitors" / "01", "osd-1", POD_1, begin=begin)
    summary = summarize(run)
    (usage,) = summary["resources"]["phases"].values()
    assert "unwatched" not in summary["resources"] and usage["classes"]["osd"]["daemons"] == 2

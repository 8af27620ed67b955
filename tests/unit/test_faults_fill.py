"""OSDs that count as full by ratios: which ones, and the commands of the way back."""

from __future__ import annotations

import copy
import subprocess
from pathlib import Path
from typing import Any, List, Sequence, Set

import pytest
from faults_judge import PACIFIC, judge, rules

from cbt_plugins.faults import FaultError
from cbt_plugins.faults.cluster_facts import Facts, osd_names
from cbt_plugins.faults.kind import make
from cbt_plugins.faults.kinds.fill import explained_checks
from cbt_plugins.faults.scene import Scene, Targets
from cbt_plugins.faults.step import UndoRecord, run_all


class Named:
    """Stands where `Ceph` does."""

    head, command = "node0", "ceph"


def scene_of(used: Sequence[float]) -> Scene:
    """A cluster whose OSDs hold these percentages."""
    answers = copy.deepcopy(PACIFIC)
    for row, percent in zip(sorted(answers["osd df"]["nodes"], key=lambda row: row["id"]), used):
        row["kb"], row["kb_used"] = 1_000_000, int(percent * 10_000)
    ceph: Any = Named()
    return Scene(ceph, Facts(answers), ("node0",), "f")


def targets(*osds: int) -> Targets:
    return Targets((), osd_names(osds), tuple(f"osd.{osd}" for osd in osds))


USED: List[float] = [50, 40, 30, 20, 10, 10, 10, 10]


def test_the_ratio_is_below_the_emptiest_target_and_all_that_hold_as_much_are_named() -> None:
    (step,) = make("fill", {"level": "backfillfull"}).steps(scene_of(USED), targets(0, 2))
    assert "osd.0, osd.1, osd.2 count as backfillfull, by ratios of 0.27" in step.what
    assert step.inject[0].text == "ceph osd set-nearfull-ratio 0.27 && ceph osd set-backfillfull-ratio 0.27"
    orders = ("ceph osd set-backfillfull-ratio 0.9", "ceph osd set-nearfull-ratio 0.85")
    assert step.undo[0].text == run_all(orders)
    assert step.former == {"nearfull_ratio": 0.85, "backfillfull_ratio": 0.9}


def test_a_line_of_an_undo_that_fails_stops_no_other_and_fails_the_undo(tmp_path: Path) -> None:
    scene = scene_of(USED)
    scene.ceph.command = "sh -c"
    text = scene.unset("'exit 3'", f"'touch {tmp_path}/done'").text
    assert subprocess.run(["sh", "-c", text], check=False).returncode == 1 and (tmp_path / "done").exists()


def test_only_full_is_an_outage() -> None:
    scene = scene_of(USED)
    for level in ("nearfull", "backfillfull", "full"):
        (step,) = make("fill", {"level": level}).steps(scene, targets(0))
        assert step.silent is (level == "full")  # its OSDs are up in the OSD map
    assert make("fill", {"level": "backfillfull"}).blast_radius(scene, targets(0)).osds == ()
    taken = make("fill", {"level": "full"}).blast_radius(scene, targets(2))
    assert taken.osds == (0, 1, 2) and "inactive" in rules(judge(taken))


def test_a_step_explains_the_health_checks_of_its_level() -> None:
    def explained(level: str) -> Set[str]:
        (step,) = make("fill", {"level": level}).steps(scene_of(USED), targets(0))
        return explained_checks([UndoRecord("1", "f", "fill", step, 0.0, begun=True, ended=True)])

    assert explained("nearfull") == set() and explained("backfillfull") == {"OSD_BACKFILLFULL"}
    assert explained("full") == {"OSD_BACKFILLFULL", "OSD_FULL", "POOL_FULL"}


def test_an_empty_osd_and_a_full_one_are_no_targets() -> None:
    with pytest.raises(FaultError, match=r"0\.001 % full: too little"):
        make("fill", {}).steps(scene_of([0.001, *USED[1:]]), targets(0))
    with pytest.raises(FaultError, match=r"a ratio of the cluster is already .* or lower"):
        make("fill", {}).steps(scene_of([99, *USED[1:]]), targets(0))


@pytest.mark.parametrize("state", ["nearfull", "backfillfull", "full"])
def test_a_second_fill_is_refused(state: str) -> None:
    """It would take the lowered ratios for those of the cluster, and its undo would leave them."""
    scene = scene_of(USED)
    scene.facts.answers["osd dump"]["osds"][3]["state"].append(state)
    for level in ("nearfull", "backfillfull", "full"):
        with pytest.raises(FaultError, match=r"^osd\.3: full, backfillfull or nearfull already"):
            make("fill", {"level": level}).steps(scene, targets(0))


def test_an_osd_that_the_load_may_fill_does_not_keep_the_fault_open() -> None:
    """osd.0 is at 80 %, and counts as nearfull by itself from 85 % on."""
    (step,) = make("fill", {}).steps(scene_of([80, *USED[1:]]), targets(1))
    (check,) = step.checks
    places = [place[1]["osd"] for place, _ in check.want if place[0] == "osds"]
    assert places == [1] and "osd.0, osd.1 count as nearfull" in step.what
    (step,) = make("fill", {}).steps(scene_of(USED), targets(1))
    assert len(step.checks) == 2

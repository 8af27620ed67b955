"""Read errors: what the undo leaves of the OSD's count of repaired reads."""

from __future__ import annotations

from typing import Any

import pytest
from faults_scene import scene_of

from cbt_plugins.faults.cluster_facts import osd_names
from cbt_plugins.faults.kind import make
from cbt_plugins.faults.scene import Targets


@pytest.mark.parametrize(
    ("commands", "undo", "left"),
    [("", ".restarted", 0), ("clear_shards_repaired", "tell osd.3 clear_shards_repaired 5", 5)],
)
def test_the_count_of_repairs_before_the_fault(commands: str, undo: str, left: int) -> None:
    """A restart, which older releases need, sets the count to 0, whatever it was."""
    scene = scene_of()
    cluster: Any = scene.ceph
    cluster.repaired, cluster.commands_of_osds = 5, commands
    (step,) = make("read_errors", {}).steps(scene, Targets((), osd_names([3]), ("osd.3",)))
    wanted = [want for check in step.checks for place, want in check.want if place[-1] == "num_shards_repaired"]
    assert wanted == [left] and step.former["repaired"] == 5
    assert undo in "".join(command.text for command in step.undo)

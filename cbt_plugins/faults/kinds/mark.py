"""OSDs that keep running but are marked down and out, as in CBT's own recovery test."""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

from cbt_plugins.faults.cluster_facts import names
from cbt_plugins.faults.kind import Kind
from cbt_plugins.faults.scene import Scene, Targets
from cbt_plugins.faults.step import FaultError, Step

#: keeps a running OSD from coming up again at once; the flag holds for all OSDs of the cluster
_FLAG = "noup"


class Mark(Kind):
    """Marks OSDs down and out, with the flag `noup`, so that they stay down until the undo."""

    takes = "daemon"

    def steps(self, scene: Scene, targets: Targets) -> List[Step]:
        if _FLAG in scene.facts.flags:
            text = "so the OSDs would not come up after the undo: unset the flag first"
            raise FaultError(f"{_FLAG} is set already, {text}")
        osds = targets.osds
        inside = [o for o in osds if scene.facts.osds[o]["in"]]
        lines = [f"osd set {_FLAG}", f"osd down {_numbers(osds)}"]
        lines += [f"osd out {_numbers(inside)}"] if inside else []
        absent: Tuple[Any, ...] = ("flags_set", {"=": _FLAG})
        gone = [(("osds", {"osd": o}, name), 0) for o in osds for name in ("up", "in")]
        back = scene.osds_back(osds)
        return [
            Step(
                what=f"mark {names(targets.daemons)} down and out, with {_FLAG} set",
                node=scene.head,
                inject=(scene.set(*lines),),
                undo=(scene.unset(f"osd unset {_FLAG}"), *scene.mark_in(osds)),
                checks=(scene.says("osd dump", [*back.want, (absent, None)], back.timeout),),
                took=(scene.says("osd dump", gone, scene.limits.down),),
                former={**scene.former(osds), _FLAG: False},
                daemons=tuple(map(str, targets.daemons)),
            )
        ]


def _numbers(osds: Sequence[int]) -> str:
    return " ".join(map(str, osds))

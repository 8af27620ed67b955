"""OSDs that run on, while the cluster is told that they are down and out: what CBT's own recovery test does."""

from __future__ import annotations

from typing import Any, List, Mapping, Sequence, Tuple

from cbt_plugins.faults.kinds.daemon import names
from cbt_plugins.faults.scene import Kind, Scene, Targets
from cbt_plugins.faults.step import FaultError, Step

#: keeps a live OSD from reporting back at once; it is one flag for the whole cluster
_FLAG = "noup"


class Mark(Kind):
    """OSDs are marked down and out, and not let up again until the undo."""

    unit = "osd"

    def steps(self, scene: Scene, targets: Targets, options: Mapping[str, Any]) -> List[Step]:
        if _FLAG in scene.facts.flags:
            raise FaultError(f"{_FLAG} is set already: it would stay so, and the OSDs would never be let up again")
        osds = targets.osds
        inside = [o for o in osds if scene.facts.osds[o]["in"]]
        lines = [f"osd set {_FLAG}", f"osd down {_numbers(osds)}"]
        lines += [f"osd out {_numbers(inside)}"] if inside else []
        absent: Tuple[Any, ...] = ("flags_set", {"=": _FLAG})
        gone = [(("osds", {"osd": o}, name), 0) for o in osds for name in ("up", "in")]
        back = scene.back(osds)
        return [
            Step(
                what=f"mark {names(osds)} down and out, with {_FLAG} set",
                node=scene.head,
                inject=(scene.set(*lines),),
                undo=(scene.set_back(f"osd unset {_FLAG}"), *scene.mark_in(osds)),
                checks=(scene.says("osd dump", [*back.want, (absent, None)], back.patience),),
                took=(scene.says("osd dump", gone, scene.limits.down),),
                former={**scene.former(osds), _FLAG: False},
                osds=osds,
            )
        ]


def _numbers(osds: Sequence[int]) -> str:
    return " ".join(map(str, osds))

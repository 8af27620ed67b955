"""OSDs of the cluster that a monitor did not watch, although it watched others: sums over OSDs are too small then.

So it is on Rook where a node of the file is one pod of a Kubernetes node with several, and where the file lacks nodes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Collection, List, Sequence

from cbt_plugins.formatting import several
from cbt_plugins.journal import read_json

_SHOWN = 5


def unwatched_osds(run: Path, daemons: Collection[str]) -> List[str]:
    """Return the OSDs that were up before the run and are not among the daemons: "osd.3"; [] where no daemon is one."""
    if not any(daemon.startswith("osd.") for daemon in daemons):
        return []
    try:
        tree = read_json(run / "cluster" / "before" / "osd_tree.json")["nodes"]
        up = [f"osd.{int(osd['id'])}" for osd in tree if osd["type"] == "osd" and osd.get("status") == "up"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return []
    return [osd for osd in up if osd not in daemons]


def unwatched_text(monitor: str, osds: Sequence[str], effect: str) -> str:
    """Return the warning about unwatched OSDs; `effect`: on the numbers."""
    return f"{monitor} did not watch {several(len(osds), 'OSD')} of the cluster, so {effect}: {first_names(osds)}"


def first_names(daemons: Sequence[str]) -> str:
    """Return some names of daemons, for a warning."""
    return ", ".join([*daemons[:_SHOWN], *(["..."] if len(daemons) > _SHOWN else [])])

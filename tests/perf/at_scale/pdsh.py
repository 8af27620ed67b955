"""One command on 100, 300 and 1000 nodes, one in a hundred of them dead: by pdsh, and by an ssh for each node.

CPU seconds of all processes: ours, pdsh, and the stand-ins for `ssh` (fanout.py). `Remote` takes pdsh for at most
MOST_NODES nodes; here it takes pdsh for all sizes.
"""

from __future__ import annotations

import resource
import shutil
import time
from typing import Dict

from cbt_plugins.cluster.remote import Remote
from cbt_plugins.cluster.transports import pdsh

from .costs import Curves, Extent
from .fanout import check_named, nodes_of, stand_in

#: all of them above MOST_NODES
SIZES = (100, 300, 1000)


def main(extent: Extent) -> None:
    if shutil.which("pdsh") is None:
        print("  no pdsh here")
        return
    print("  CPU seconds of all processes, and seconds until all nodes have answered and each dead node is named")
    curves = Curves("nodes", {"pdsh cpu": ".2f", "ssh cpu": ".2f", "pdsh s": ".1f", "ssh s": ".1f"})
    most = pdsh.MOST_NODES
    with stand_in():
        for size in extent.sizes(SIZES):
            costs: Dict[str, float] = {}
            for program, limit in {"pdsh": size, "ssh": most}.items():
                pdsh.MOST_NODES = limit
                costs.update({f"{program}_{unit}": value for unit, value in _costs(size).items()})
            curves.add(size, **costs)
    pdsh.MOST_NODES = most
    curves.end()


def _costs(size: int) -> Dict[str, float]:
    nodes = nodes_of(size)
    remote = Remote.of_cluster({"user": "root", "clients": nodes, "transport": "pdsh"}, {})
    begun, cpu = time.monotonic(), _cpu()
    answers = remote.run(nodes, "echo here", check=False)
    costs = {"cpu": _cpu() - cpu, "s": time.monotonic() - begun}
    check_named(answers, {node for node in nodes if node.startswith("dead")})
    return costs


def _cpu() -> float:
    """Return the CPU seconds of this process, and of all that have ended below it."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)

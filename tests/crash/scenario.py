"""A small failure cycle by the injector alone, as a program: what the crash sweep kills, hangs and fails."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Callable

from cbt_plugins import signals
from cbt_plugins.cluster import remote
from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.faults import ClusterAccess, FaultError, Injector
from cbt_plugins.faults.pool_settings import PoolMaker
from cbt_plugins.faults.scene import ClusterLimits
from cbt_plugins.plan import Fault, NodeCommand, RunPool, Settings
from cbt_plugins.tools import __main__ as tools

CLUSTER = {
    "head": "node0",
    "user": "root",
    "clients": ["client1"],
    "osds": ["node1", "node2", "node3", "node4"],
    "mons": ["node0"],
}
SETTINGS = Settings(
    flags=("noscrub", "noout"),
    config=(("osd", "osd_max_scrubs", "2"),),
    balancer=False,
    recovery="aggressive",
)
#: seconds until what hangs is given up; generous where nothing does, so that a busy machine changes nothing
POOLS = (
    RunPool("data", ec=(2, 1), pg_num=4, device_class="hdd", options=(("compression_mode", "force"),)),
    RunPool("index", replicas=3, pg_num=4, failure_domain="host"),
    RunPool("rbd", existing=True, options=(("compression_mode", "passive"),)),
)
TIMEOUT = float(os.environ.get("STANDIN_TIMEOUT", "20"))
LIMITS = ClusterLimits(TIMEOUT, TIMEOUT, down=20.0, back=20.0, boot=20.0, pause=0.3, again=1.0, lag=2.0)
ANYTHING = ("clean", "inactive", "domain", "data", "ok-to-stop", "min-in")


def cycle(injector: Injector) -> None:
    """Settings; one node; another; back, one after the other."""
    injector.apply()
    injector.inject(Fault("first", "stop", ("node1",)))
    injector.inject(Fault("second", "stop", choose=1, seed=7, accept=ANYTHING))
    injector.undo(["second"])


def cut(injector: Injector) -> None:
    """A node is cut off; nobody can reach it before it recovers by itself."""
    options = {"interfaces": ["eth0"], "deadline": 5}
    injector.inject(Fault("cut", "network", ("node1",), options=options))


def pools(injector: Injector) -> None:
    """An erasure coded and a replicated pool of the run's own, and options for somebody else's; kept until the end."""
    remote_ = Remote.of_cluster(CLUSTER, {})
    maker = PoolMaker(Ceph(remote_, CLUSTER), LIMITS, "r1")
    injector.set_up(maker.parts(POOLS))


def commands(injector: Injector) -> None:
    """A command with an undo, and one without."""
    injector.run(NodeCommand("quiet", "ceph osd set noout", undo="ceph osd unset noout"))
    injector.run(NodeCommand("again", "ceph osd in 0", node="node1"))
    assert [record.label for record in injector.open_changes] == ["quiet"]


def main(folder: Path, steps: Callable[[Injector], None]) -> int:
    """0: done and all is undone; 1: failed; 130: interrupted; in both cases undone as far as could be."""
    shorten()
    connections = Remote.of_cluster(CLUSTER, {})
    access = ClusterAccess(connections, Ceph(connections, CLUSTER), CLUSTER, run_id="r1")
    injector = Injector(folder, access, settings=SETTINGS, limits=LIMITS)
    with contextlib.closing(injector), signals.handled():
        try:
            if injector.undo_all():
                return 1
            with injector.holding():
                steps(injector)
        except FaultError as error:
            print(error, file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
    return 0


def shorten() -> None:
    """The time that a connection has on top of its command's."""
    remote.CONNECT_ALLOWANCE = 0.5


def undo(folder: Path) -> int:
    """`cbt-tools undo`, with the same short times."""
    import cbt_plugins.faults.injector as injecting

    shorten()
    injecting.ClusterLimits = lambda: LIMITS  # type: ignore[assignment,misc]
    return tools.main(["undo", str(folder)])


if __name__ == "__main__":
    what, archive = sys.argv[1], Path(sys.argv[2])
    scenarios = {"run": cycle, "cut": cut, "pools": pools, "commands": commands}
    sys.exit(undo(archive) if what == "undo" else main(archive, scenarios[what]))

"""A run that injects faults, as a program in the head node of a lab: STATEMENTS CLUSTER FOLDER SETTINGS.

The statements see `injector`, `remote`, `Fault`, `FaultError`, `say`, and `hold` to go on until somebody ends it.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.faults import ClusterAccess, FaultError, Injector
from cbt_plugins.plan import Fault, Settings


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def main(statements: str, about: str, where: str, settings: str) -> None:
    cluster, folder = json.loads(about), Path(where)
    remote = Remote.of_cluster(cluster, {})
    injector = Injector(
        folder,
        ClusterAccess(remote, Ceph(remote, cluster), cluster, run_id=folder.name),
        event=lambda name, **facts: say(event=name, **facts),
        settings=Settings(**json.loads(settings)),
    )
    seen = {"injector": injector, "remote": remote, "Fault": Fault, "FaultError": FaultError}
    exec(statements, {**seen, "say": say, "hold": signal.pause, "json": json})


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What an invocation has left on the nodes when it was ended before its time: it comes home, to the phase it is of."""

from __future__ import annotations

import logging
from typing import Sequence

from cbt_plugins.cluster.remote import Remote
from cbt_plugins.cluster.result import RemoteError
from cbt_plugins.host import HostRun
from cbt_plugins.journal import Journal
from cbt_plugins.load.session import LoadError, collect
from cbt_plugins.monitors.lifecycle import bring_left
from cbt_plugins.plan import Plan
from cbt_plugins.run.archive import RunArchive
from cbt_plugins.run.phases import set_aside

log = logging.getLogger(__name__)


def rescue(
    host: HostRun,
    plan: Plan,
    remote: Remote,
    archive: RunArchive,
    journal: Journal,
    events: Journal,
    nodes: Sequence[str],
) -> None:
    """Bring in rows and files of monitors, and put a phase that was killed aside as partial.

    One that is aside already may have something there too: a second signal is waited for by nothing but the undo, and
    a node may have been out of reach.
    """
    last = journal.last("invocation")
    if not last:
        return
    attempts = {record["phase"]: record["scratch"] for record in journal.all("phase-begun")}
    monitors = archive.afterwards / "monitors"
    for index, phase in enumerate(plan.phases, 1):
        broken = archive.broken(index, phase.name)
        if broken is None:
            continue
        monitors = broken / "monitors"
        folder = attempts.get(phase.name)
        if folder and phase.kind != "wait":
            try:
                collect(remote, last["clients"], folder, broken)
            except (RemoteError, LoadError) as error:
                log.warning("rows of the broken phase %s are still on the nodes in %s: %s", phase.name, folder, error)
    bring_left(host.cluster, host.common, nodes, host.run_dir, monitors)
    for index, phase in enumerate(plan.phases, 1):
        set_aside(archive, events, index, phase, "the run had been killed")

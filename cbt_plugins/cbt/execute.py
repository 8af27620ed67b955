"""Execute one run of a benchmark of ours, the same way for both hosts."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Any, Callable

from cbt_plugins.cbt.layout import write_once
from cbt_plugins.host import HostRun, RunFailed

logger = logging.getLogger(__name__)

COMPLETE = "complete"
#: seconds that a thread which the run has left behind gets to end
PATIENCE = 5.0


def execute(run: HostRun, load: Callable[[], Any]) -> None:
    """Run `load()(run).run()` unless the archive says that this run is complete. Raises RunFailed."""
    name = f"{run.benchmark} {run.archive_dir.parent.name}/{run.archive_dir.name}"
    # CBT asks "does the directory exist?", which is true for half a run as well: the marker is written last.
    if (run.archive_dir / COMPLETE).exists():
        logger.info("%s: complete already, nothing to do", name)
        _complain_again(run.archive_dir / COMPLETE)
        return
    write_once(run.archive_dir / "benchmark_config.yaml", {"cluster": dict(run.config)})
    before = set(threading.enumerate())
    logger.info("%s: starts; results in %s", name, run.archive_dir)
    try:
        load()(run).run()
    except RunFailed as error:
        logger.error("%s: failed: %s", name, error)
        raise
    finally:
        _warn_of_threads(name, before)
    logger.info("%s: done", name)


def _complain_again(marker: Path) -> None:
    """A run that is complete and not to be trusted does not become good by being looked at twice."""
    try:
        degraded = json.loads(marker.read_text()).get("degraded")
    except (ValueError, AttributeError):
        return  # of a benchmark that writes something else there
    if degraded:
        raise RunFailed(f"complete, but not to be trusted: {', '.join(map(str, degraded))} (see the report)")


def _warn_of_threads(name: str, before: set[threading.Thread]) -> None:
    # CBT's Ceph.wait_recovery_done waits until this process has one thread only: any other hangs it for ever.
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:
        thread.join(timeout=PATIENCE)
    alive = [thread.name for thread in left if thread.is_alive()]
    if alive:
        logger.error(
            "%s: left threads running, which can hang CBT's recovery tests: %s", name, ", ".join(alive)
        )

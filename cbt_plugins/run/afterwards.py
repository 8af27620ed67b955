"""What follows the last phase, with everything put back: the deep scrub that was kept off, and a cluster at rest."""

from __future__ import annotations

import json
import logging
import shutil
import time
from pathlib import Path
from typing import Callable, List, Set, TextIO

from cbt_plugins.cluster.ceph import Ceph, CephError
from cbt_plugins.cluster.watch import StatusWatch
from cbt_plugins.host import HostRun
from cbt_plugins.plan import Plan
from cbt_plugins.run.events import monitors_of

log = logging.getLogger(__name__)

#: seconds between two looks at how far the scrub has come
EVERY = 10.0
#: seconds without another PG done after which a scrub is given up: some PGs cannot be scrubbed, as those of a dead OSD
STALLED = 1800.0


def follow(plan: Plan, host: HostRun, ceph: Ceph, folder: Path, offset: float, note: Callable[..., None]) -> None:
    """Scrub and watch as the plan says, into a folder like that of a phase; begun anew after a kill.

    `offset` is the head node's clock minus ours, in seconds; `note` writes an event. A scrub that fails is one.
    """
    if not (plan.settings.deep_scrub or plan.post_poll):
        return
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    monitors, path = host.monitors(folder / "monitors", *monitors_of(plan)), folder / "status.jsonl"
    with monitors, StatusWatch(ceph, host.run_dir, offset) as watch, path.open("w", encoding="utf-8") as file:
        if plan.settings.deep_scrub:
            try:
                _deep_scrub(ceph, watch, file, note)
            except CephError as error:
                log.warning("no deep scrub: %s", error)
                note("deep-scrub-failed", why=str(error))
        if plan.post_poll:
            log.info("watching the cluster for %.0f s more; everything is put back", plan.post_poll)
            note("post-poll-begin", seconds=plan.post_poll)
            _sample(watch, file, plan.post_poll)
            note("post-poll-end")


def _deep_scrub(ceph: Ceph, watch: StatusWatch, file: TextIO, note: Callable[..., None]) -> None:
    """Until every PG has another time of its last deep scrub than before."""
    pools = ceph.log_and_index_pools()
    before = ceph.deep_scrubs(pools)
    left: Set[str] = set(before)
    log.info("deep scrub of %s: %d PGs", ", ".join(pools), len(left))
    note("deep-scrub-begin", pools=pools, pgs=len(left))
    ceph.deep_scrub(pools)
    progress_at = time.monotonic()
    while left and time.monotonic() - progress_at < STALLED:
        _sample(watch, file, EVERY)
        now = ceph.deep_scrubs(pools)
        # what is no longer there was merged into another
        done = {pg for pg in left if now.get(pg) != before[pg]}
        if done:
            left -= done
            progress_at = time.monotonic()
    rest: List[str] = sorted(left)
    note("deep-scrub-end", pgs=len(before) - len(rest), left=rest)
    if rest:
        log.warning("deep scrub: %d of %d PGs were not scrubbed: %s", len(rest), len(before), ", ".join(rest[:10]))


def _sample(watch: StatusWatch, file: TextIO, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        for at, status in watch.poll(min(1.0, left)):
            file.write(json.dumps(status.sample(at)) + "\n")
        file.flush()

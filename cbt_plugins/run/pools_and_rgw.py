"""Preparation of the cluster before the first phase: pools, and RGW's options, placement and users."""

from __future__ import annotations

import json
from dataclasses import replace

from cbt_plugins.cbt_run import RunFailed
from cbt_plugins.faults.cluster_access import limits_of
from cbt_plugins.faults.pool_settings import PoolMaker
from cbt_plugins.faults.rgw_settings import RgwSettings
from cbt_plugins.faults.undo_journal import holds_data
from cbt_plugins.run.buckets import removed_buckets
from cbt_plugins.run.context import RunContext
from cbt_plugins.run.preflight import Ready
from cbt_plugins.run.s3_key_sources import keys_of_users, s3_keys

#: keys of the manifest
_SEEN = ("pools", "rgw")


def set_up(run: RunContext, ready: Ready) -> Ready:
    """Make what the plan asks for, or what is missing of it; return what is ready then, with what was seen.

    Raises FaultError and CephError, and RunFailed when what earlier phases have written was removed.
    """
    plan, limits = run.plan, limits_of(run.plan.settings)
    lost = [label for label in run.injector.no_longer_set_up() if holds_data(label)]
    lost += [f"bucket {name}" for name in removed_buckets(run.journal.records)]
    phases = enumerate(plan.phases, 1)
    if lost and all(run.archive.finished(index, phase.name) is not None for index, phase in phases):
        # killed while it was removed: the rest goes, too
        earlier_manifest = json.loads(run.archive.manifest.read_text())
        properties = {key: earlier_manifest[key] for key in _SEEN if key in earlier_manifest}
        return replace(ready, manifest={**ready.manifest, **properties})
    if lost and run.journal.all("phase-done"):
        raise RunFailed(
            f"{', '.join(lost)}: removed since the run was broken off, with the data of its phases: "
            "start a new run in another archive directory"
        )
    pools = PoolMaker(run.ceph, limits, run.run_id)
    users = (plan.s3.user or "", *plan.users)
    gateways = RgwSettings(run.ceph, run.cbt_run.cluster, limits, run.run_id, plan.rgw, users)
    run.injector.set_up(pools.parts(plan.pools))
    run.injector.set_up(gateways.parts(plan.pools))
    properties = {"pools": pools.seen(plan.pools)} if plan.pools else {}
    if plan.rgw.restarts:
        properties["rgw"] = gateways.seen()
    if plan.rgw.make_user:
        ready = replace(ready, keys=s3_keys(plan.s3, run.ceph), others=keys_of_users(plan, run.ceph))
    return replace(ready, manifest={**ready.manifest, **properties})

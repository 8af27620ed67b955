"""What a run makes for itself before its first phase."""

from __future__ import annotations

from typing import Any, Dict

from cbt_plugins.faults.access import limits_of
from cbt_plugins.faults.pools import PoolMaker
from cbt_plugins.host import RunFailed
from cbt_plugins.run.context import RunContext


def set_up(run: RunContext) -> Dict[str, Any]:
    """Make the pools of the plan, or what is missing of them; return what the manifest says of them.

    Raises FaultError, and RunFailed when what earlier phases have written was removed.
    """
    pools = run.plan.pools
    if not pools:
        return {}
    maker = PoolMaker(run.ceph, limits_of(run.plan.settings), run.run_id)
    present = {record.label for record in run.injector.open}
    parts = list(maker.parts(pools))
    gone = [label for (label, _), pool in zip(parts, pools) if not pool.existing and label not in present]
    begun = bool(run.journal.all("phase-done"))
    if begun and gone:
        raise RunFailed(
            f"{', '.join(gone)}: removed since the run was broken off, with what its phases have written: "
            "begin again, in another archive directory"
        )
    run.injector.set_up(parts)
    return {"pools": maker.seen(pools)}

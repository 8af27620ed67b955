"""Goals of fills: whether the cluster has room for one by objects, and when one by share is done."""

from __future__ import annotations

import logging
import math
import time
from typing import AbstractSet, Any, Callable, Dict, Generic, List, Mapping, Optional, Sequence, Tuple, TypeVar

from cbt_plugins.ceph_df import PoolSpace, Space
from cbt_plugins.cluster.ceph import Ceph, CephError
from cbt_plugins.cluster.cluster_watch import StatusFeed
from cbt_plugins.cluster.rgw_zones import default_placement
from cbt_plugins.config.plan_preview import fill_size
from cbt_plugins.config.units import format_percent
from cbt_plugins.formatting import about_size, percent
from cbt_plugins.plan import Goal, Phase, Plan
from cbt_plugins.run.context import LOAD_BEGUN, RunContext

log = logging.getLogger(__name__)

T = TypeVar("T")

#: seconds for which a fill goes on although nobody says how far it is
SILENCE_LIMIT = 1800.0
#: seconds of load without the bucket after which radosgw-admin will not show it: it may be of an unknown tenant
BUCKET_LIMIT = 60.0
#: seconds without a sample of the cluster after which it is asked, and between two questions
FRESH, ASK_EVERY = 30.0, 5.0
#: key of phase.json: the data pool when a fill by max_avail began
POOL = "fill_pool"


def reached_before(ceph: Ceph, phases: Sequence[Phase]) -> List[str]:
    """Return an error for each fill whose share of the raw capacity is in use before it begins. Raises CephError."""
    goals = [(phase.name, phase.goal.raw) for phase in phases if phase.goal and phase.goal.raw is not None]
    used = ceph.status().raw_used if goals else None
    return [
        f"{name}: raw: {format_percent(share)} is already reached: {percent(used)} of the raw capacity is used: "
        "set a higher share, or fill by objects or max_avail"
        for name, share in goals
        if used is not None and used >= share
    ]


def room_warnings(ceph: Ceph, plans: Sequence[Plan]) -> List[str]:
    """Return a warning for each fill by objects that the cluster could not hold even with empty data pools.

    It is no error: what Ceph says is available is too little for some CRUSH rules, and data may be compressed.
    """
    fills = [(plan, phase, fill_size(plan, phase)[1]) for plan in plans for phase in plan.phases]
    fills = [(plan, phase, size) for plan, phase, size in fills if size]
    if not fills:
        return []
    try:
        space, names = Space.parse(ceph.json("df detail")), ceph.data_pools()
    except (CephError, AttributeError, KeyError, TypeError, ValueError) as error:
        log.info("whether the cluster has room for the fills is unknown: %r", error)
        return []
    warnings = []
    for plan, phase, size in fills:
        room, limit = _room(space, names, plan)
        # 1 %: both sizes must not be printed as the same
        if size * (1 - plan.cbt_load.compressible) > 1.01 * room:
            warnings.append(f"{phase.name}: writes {about_size(size)} of objects, but {limit}")
    return warnings


def _room(space: Space, data_pools: AbstractSet[str], plan: Plan) -> Tuple[float, str]:
    """Return the upper limit in bytes for the objects of a run, and its text."""
    has_unknown_pool = plan.rgw.placement or plan.rgw.placements or any(bucket.existing for bucket in plan.buckets)
    # Ceph also says 0 where it does not know MAX AVAIL: an empty pool has room
    pools = [pool for name in data_pools if (pool := space.pools.get(name)) and (pool.max_avail or pool.stored)]
    if has_unknown_pool or not pools or len(pools) < len(data_pools):
        return space.total or math.inf, f"the raw capacity of the cluster is {about_size(space.total)}"
    room = sum(pool.stored + pool.max_avail for pool in pools)
    names = ", ".join(sorted(pool.name for pool in pools))
    return room, f"{names} can hold at most {about_size(room)}, by `ceph df`, even if they were empty"


def share_text(goal: Goal, pool: Mapping[str, Any], df: Mapping[str, Any]) -> str:
    """Return the share that a fill reached beside its goal, from `ceph df detail` at its end; "" for other goals.

    `pool` is the data pool as `reaching` noted it.
    """
    try:
        if goal.raw is not None:
            used = float(df["stats"]["total_used_raw_ratio"])
            return f"{percent(used)} of the raw capacity was used at its end; raw: {format_percent(goal.raw)}"
        if goal.max_avail is not None:
            share = (Space.parse(df).data_pool(pool["name"]).stored - pool["stored"]) / pool["max_avail"]
            text = f"{percent(share)} of MAX AVAIL of {pool['name']} was written at its end"
            return f"{text}; max_avail: {format_percent(goal.max_avail)}"
    except (ValueError, KeyError, TypeError, ArithmeticError):
        return ""  # an answer without these numbers
    return ""


def reaching(run: RunContext, goal: Goal, noted: Dict[str, Any]) -> Optional[Callable[[StatusFeed], bool]]:
    """Return the function that tells whether a fill by share is done; None for goals that end by themselves.

    For one by max_avail, `noted` gets the data pool as it is now, under POOL, once RGW has placed the first bucket.
    """
    max_avail, raw = goal.max_avail, goal.raw
    if raw is not None:
        return _raw_reached(raw, _PolledAnswer(lambda: run.ceph.status().raw_used))
    if max_avail is None:
        return None
    ceph, bucket = run.ceph, run.plan.buckets[0]
    bucket_name = run.plan.s3.admin_name(bucket.name(run.run_id), bucket.user)
    pools_before = ceph.pools()
    begin: Dict[str, Any] = {}
    earlier_loads, missing_since = len(run.journal.all(LOAD_BEGUN)), math.inf

    def placement() -> str:
        nonlocal missing_since
        stats = ceph.bucket(bucket_name)
        if stats is not None:
            return stats.placement
        if len(run.journal.all(LOAD_BEGUN)) > earlier_loads:
            missing_since = min(missing_since, time.monotonic())
        if time.monotonic() - missing_since < BUCKET_LIMIT:
            raise CephError(f"there is no bucket {bucket_name!r}")
        default = default_placement(ceph.admin_json("zonegroup get"))
        text = "radosgw-admin does not show bucket %s: the fill ends by the pool of the default placement, %s"
        log.warning(text, bucket_name, default)
        return default

    def present() -> PoolSpace:
        if not begin:
            name = ceph.data_pool(placement())
            before = pools_before.get(name)
            begin.update(name=name, stored=before.stored if before else 0)
            begin["max_avail"] = before.max_avail or None if before else None
            noted[POOL] = begin
        space = ceph.pools().get(begin["name"])
        if space is None:
            raise CephError(f"there is no pool {begin['name']!r}")
        return space

    spaces = _PolledAnswer(present)

    def reached(_: StatusFeed) -> bool:
        space = spaces.now()
        if space is None:
            return False
        # RGW has made it for the first object, or Ceph did not know it: what came since was available
        if begin["max_avail"] is None:
            if not space.max_avail:
                return False
            begin["max_avail"] = space.max_avail + space.stored - begin["stored"]
        return space.stored >= begin["stored"] + max_avail * begin["max_avail"]

    return reached


class _PolledAnswer(Generic[T]):
    """An answer of the cluster, which is asked for while a fill goes on, from the first `now` on."""

    def __init__(self, ask: Callable[[], Optional[T]]) -> None:
        self._ask = ask
        self._next_question, self._last_answer = 0.0, math.nan  # time.monotonic()

    def now(self) -> Optional[T]:
        """Return the answer, or None: it was asked for just now, or there is none.

        Raises CephError after SILENCE_LIMIT.
        """
        now = time.monotonic()
        if now < self._next_question:
            return None
        if math.isnan(self._last_answer):
            self._last_answer = now
        try:
            answer = self._ask()
        except CephError as error:  # one of thousands of questions: the next one may be answered
            if now - self._last_answer > SILENCE_LIMIT:
                raise
            log.info("the progress of the fill is unknown: %s", error)
            return None
        finally:
            self._next_question = time.monotonic() + ASK_EVERY  # one without an answer took its time
        self._last_answer = now
        return answer

    def forget(self) -> None:
        """Begin the silence anew at the next question: the answer came in another way meanwhile."""
        self._last_answer = math.nan


def _raw_reached(raw: float, used: _PolledAnswer[float]) -> Callable[[StatusFeed], bool]:
    """Return the function that tells whether a share of the raw capacity is used; it asks when no samples come."""
    begun = time.monotonic()

    def reached(watch: StatusFeed) -> bool:
        latest = watch.latest
        silent = time.monotonic() - (begun if latest is None else watch.latest_at)
        if silent > FRESH:
            share = used.now()
        else:
            used.forget()
            share = latest.raw_used if latest else None
        return share is not None and share >= raw

    return reached

"""Errors of a plan as a whole, whichever benchmark made it: keys that contradict each other, or have no effect."""

from __future__ import annotations

from typing import Iterator, List

from cbt_plugins.config.operations import is_lost
from cbt_plugins.config.units import format_percent
from cbt_plugins.config.validate import FieldError
from cbt_plugins.plan import Gateways, Goal, Plan, Settings


def errors_of_plan(plan: Plan) -> List[FieldError]:
    """Return the errors of a plan, with paths in the section that it was made of."""
    needed = [] if plan.admin else list(_needs_admin(plan))
    return [
        *_needs_cbt_load(plan),
        *_existing_buckets(plan),
        *_pools(plan),
        *_sizes(plan),
        *([FieldError(("admin",), f"none, but these need Ceph's commands: {', '.join(needed)}")] if needed else []),
    ]


def _needs_admin(plan: Plan) -> Iterator[str]:
    """Yield the features of a plan that need Ceph's commands."""
    if plan.s3.user:
        yield "s3.user (give keys or a profile)"
    if plan.users:
        yield "user of buckets"
    if plan.settings != Settings():
        yield "settings"
    if plan.pools:
        yield "pools"
    if plan.rgw != Gateways():
        yield "rgw"
    for phase in plan.phases:
        goal = phase.goal or Goal()
        features = {
            "max_avail": goal.max_avail,
            "raw": goal.raw,
            "clean": phase.wait_clean,
            "gc": phase.wait_gc,
            "drop_caches": phase.drop_caches,
            "faults": any(event.inject for event in phase.events),
            "upgrade": any(event.upgrade for event in phase.events),
        }
        yield from (f"{feature} of {phase.name}" for feature, value in features.items() if value)


def _needs_cbt_load(plan: Plan) -> Iterator[FieldError]:
    """Yield the features of a plan's phases that only cbt-load has."""
    others = [phase.name for phase in plan.phases if phase.kind != "wait" and phase.engine != "cbt-load"]
    for path, value in ((("s3", "sse"), plan.s3.sse), (("versioned",), plan.versioned), (("buckets",), plan.users)):
        if value and others:
            yield FieldError(path, f"goes with engine: cbt-load, not so {', '.join(others)}", of_key=True)


def _existing_buckets(plan: Plan) -> Iterator[FieldError]:
    """Yield the keys for new buckets, where somebody else made the buckets and owns them."""
    if not any(bucket.existing for bucket in plan.buckets):
        return
    text = "is of buckets that the run makes, and these are existing: remove it"
    given = {
        ("versioned",): plan.versioned,
        ("rgw", "index_shards"): plan.rgw.index_shards,
        ("rgw", "placement"): plan.rgw.placement,
        ("rgw", "make_user"): plan.rgw.make_user and not plan.rgw.placement,
    }
    yield from (FieldError(path, text, of_key=True) for path, value in given.items() if value)


def _pools(plan: Plan) -> Iterator[FieldError]:
    """Yield pools that no bucket would use, and pools whose number of PGs would not stay."""
    placed = {key for target in (plan.rgw.placement, *plan.rgw.placements.values()) for key in target.values()}
    for pool in plan.pools:
        if not pool.existing and pool.application == "rgw" and pool.key not in placed:
            text = "no bucket would be placed on this pool: name it under rgw: {placement: ...}"
            yield FieldError(("pools", pool.key), text, of_key=True)
        if plan.settings.autoscaler and pool.pg_num:
            text = "settings: {autoscaler: on} would change it, since it is of every pool: keep one"
            yield FieldError(("pools", pool.key, "pg_num"), text, of_key=True)
    options = {option for who, option, _ in plan.settings.config if who.startswith(("client", "global"))}
    for name in sorted(options & set(plan.rgw.options)):
        yield FieldError(("settings", "config"), f"{name} is said by rgw: already: keep one")


def _sizes(plan: Plan) -> Iterator[FieldError]:
    """Yield shares of sizes that cbt-load cannot keep."""
    if any(phase.engine == "cbt-load" for phase in plan.phases if phase.kind != "wait"):
        lost = dict.fromkeys(size[2] for bucket in plan.buckets for size in bucket.sizes if is_lost(size[2]))
        for share in lost:
            yield FieldError(("size",), f"cbt-load keeps shares to 0.1 %, and one is {format_percent(share)}: round it")

"""Errors of a plan as a whole, whichever benchmark made it: keys that contradict each other, or have no effect."""

from __future__ import annotations

from typing import Iterator, List

from cbt_plugins.config.acceptable import target_of
from cbt_plugins.config.generator_classes import engine_with, generator
from cbt_plugins.config.key_errors import FieldError
from cbt_plugins.metrics import TOTAL
from cbt_plugins.plan import Gateways, Goal, Plan, Settings

#: operations of phases without a mix
_OF_KINDS = {"fill": ("PUT",), "verify": ("GET",), "delete": ("DELETE",)}


def errors_of_plan(plan: Plan) -> List[FieldError]:
    """Return the errors of a plan, with paths in the section that it was made of."""
    needed = [] if plan.admin else list(_needs_admin(plan))
    return [
        *_lacking(plan),
        *_existing_buckets(plan),
        *_pools(plan),
        *_objective(plan),
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


def _lacking(plan: Plan) -> Iterator[FieldError]:
    """Yield the features of a plan that the engines of some phases lack."""
    features = {"sse": (("s3", "sse"), plan.s3.sse), "versioned": (("versioned",), plan.versioned)}
    for feature, (path, value) in {**features, "users": (("buckets",), plan.users)}.items():
        loads = [phase for phase in plan.phases if phase.kind != "wait"] if value else []
        names = [phase.name for phase in loads if feature not in generator(phase.engine).features]
        if names:
            engine = engine_with("features", feature)
            text = f"goes with engine: {engine}, but these phases have another engine: {', '.join(names)}"
            yield FieldError(path, text, of_key=True)


def _existing_buckets(plan: Plan) -> Iterator[FieldError]:
    """Yield the keys for new buckets, where somebody else made the buckets and owns them."""
    if not any(bucket.existing for bucket in plan.buckets):
        return
    text = "only for buckets that the run makes, and these exist already: remove the key"
    given = {
        ("versioned",): plan.versioned,
        ("rgw", "index_shards"): plan.rgw.index_shards,
        ("rgw", "placement"): plan.rgw.placement,
        ("rgw", "make_user"): plan.rgw.make_user and not plan.rgw.placement,
    }
    yield from (FieldError(path, text, of_key=True) for path, value in given.items() if value)


def _objective(plan: Plan) -> Iterator[FieldError]:
    """Yield limits of operations that no phase has: nothing would be judged by them."""
    if any(phase.warp for phase in plan.phases):
        return  # its operations are those of a command of warp
    operations = {op for phase in plan.phases for op in (*phase.shares, *_OF_KINDS.get(phase.kind, ()))} | {TOTAL}
    for key in plan.objective:
        op = target_of(key).op
        if op not in operations:
            present = ", ".join(sorted(operations - {TOTAL})) or "none"
            text = f"no phase has the operation {op}; the phases have {present}"
            yield FieldError(("objective", key), text, of_key=True)


def _pools(plan: Plan) -> Iterator[FieldError]:
    """Yield pools that no bucket would use, and pools whose number of PGs would not stay."""
    placed = {key for target in (plan.rgw.placement, *plan.rgw.placements.values()) for key in target.values()}
    for pool in plan.pools:
        if not pool.existing and pool.application == "rgw" and pool.key not in placed:
            text = "no bucket would be placed on this pool: name it under rgw: {placement: ...}"
            yield FieldError(("pools", pool.key), text, of_key=True)
        if plan.settings.autoscaler and pool.pg_num:
            text = "settings: {autoscaler: on} would change this pool too: keep one of the two keys"
            yield FieldError(("pools", pool.key, "pg_num"), text, of_key=True)
    options = {option for who, option, _ in plan.settings.config if who.startswith(("client", "global"))}
    for name in sorted(options & set(plan.rgw.options)):
        yield FieldError(("settings", "config"), f"{name} is set by rgw: already: keep one of the two keys")

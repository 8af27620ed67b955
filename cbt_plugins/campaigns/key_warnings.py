"""Warnings of the plan of a campaign about its keys: rows that no cycle gives, and failures under unequal loads."""

from __future__ import annotations

from fnmatch import fnmatch, fnmatchcase
from typing import Iterator, List, Sequence

from cbt_plugins.campaigns.schedule import Schedule
from cbt_plugins.compare.allowance import names_phase
from cbt_plugins.config.errors import did_you_mean
from cbt_plugins.config.units import format_percent
from cbt_plugins.metrics import CLUSTER, METRICS, TOTAL, MetricSource
from cbt_plugins.plan import Phase, split_op
from cbt_plugins.s3_operations import OPERATIONS

#: where the metrics of failures come from
_OF_FAILURES = (MetricSource.EPISODE, MetricSource.LOSS, MetricSource.LOSSES)
#: what rows may have as operation, without the name of a work
_OPS = (*OPERATIONS, TOTAL, CLUSTER)


def key_warnings(schedule: Schedule) -> List[str]:
    """Return warnings about the keys of a campaign, by the files of its arms alone."""
    configs = [schedule.config_of(arm) for arm in schedule.arms]
    phases = [phase for config in configs for run in config.runs for phase in run.plan.phases]
    keys = schedule.section.keys
    # nobody knows the names that rows of CBT's own benchmarks have
    unknown = () if any(config.others for config in configs) else _unknown_phases(phases, keys)
    return list(dict.fromkeys((*_unequal_loads(phases, keys), *unknown)))


def _unequal_loads(phases: Sequence[Phase], keys: Sequence[str]) -> Iterator[str]:
    """Yield a warning if keys come from failures whose rate is a share of what each cycle reaches."""
    shares = [phase.rate_share for phase in phases if phase.failure and phase.rate_share]
    if shares and (not keys or any(map(_is_of_failures, keys))):
        text = "gives each cycle another load, and the keys are of failures: give a number of requests, such as 400/s"
        yield f"resilience.rate: {format_percent(shares[0])} {text}"


def _unknown_phases(phases: Sequence[Phase], keys: Sequence[str]) -> Iterator[str]:
    """Yield a warning for each key whose pattern of a phase names no phase and no failure of the plan."""
    failures = list(dict.fromkeys(phase.failure for phase in phases if phase.failure))
    labels = [event.inject.label for phase in phases if not phase.failure for event in phase.events if event.inject]
    labels = [text for label in labels for text in (label, f"{label} failure", f"{label} return")]
    ladders = [phase.ladder.name for phase in phases if phase.ladder]
    names = list(dict.fromkeys((*failures, *labels, *ladders, *(phase.name for phase in phases))))
    for key in keys:
        pattern = key.rsplit(".", 2)[0] if key.count(".") > 1 else ""
        op, _, metric = key.rpartition(".")
        has_operation = any(fnmatchcase(name, split_op(op)[1]) for name in _OPS)
        if not pattern and names_phase(op) and not has_operation and _is_of_operations(metric):
            every_op = CLUSTER if METRICS[metric].source is MetricSource.EPISODE else TOTAL
            hint = f"; write {op}.{every_op}.{metric}" if any(fnmatchcase(name, op) for name in names) else ""
            yield f"keys: {key}: {op!r} is no operation{hint}"
        choices = [*failures, *labels] if _is_of_failures(key) and failures else names
        # a name of the plan is the beginning of the names of an episode ("kill failure"), a part and a state
        if not names_phase(pattern) or pattern.startswith("*"):
            continue
        if not any(fnmatchcase(name, pattern) or name in pattern for name in choices):
            hint = did_you_mean(pattern, choices) or f"; the plan has {', '.join(choices)}"
            yield f"keys: {key}: no phase or failure of the plan is named {pattern!r}{hint}"


def _is_of_operations(metric: str) -> bool:
    """Return whether the rows of a metric are of operations of clients, or of the cluster."""
    return metric in METRICS and METRICS[metric].source in (MetricSource.OPERATION, *_OF_FAILURES)


def _is_of_failures(key: str) -> bool:
    return any(fnmatch(name, key.rpartition(".")[2]) and METRICS[name].source in _OF_FAILURES for name in METRICS)

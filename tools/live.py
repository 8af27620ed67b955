"""What the cluster says of a plan's faults and settings: read-only, with the commands that a run would execute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.config.spans import spans
from cbt_plugins.faults import FaultError, preview
from cbt_plugins.faults.access import limits_of
from cbt_plugins.faults.settings import SettingsMaker
from cbt_plugins.plan import Plan, Settings


@dataclass(frozen=True)
class Live:
    """Answers for people, and why a run would not come to its end: empty when no fault would be refused."""

    lines: Tuple[str, ...]
    refused: Tuple[str, ...]


def look(plans: Sequence[Plan], cluster: Mapping[str, Any], common: Mapping[str, Any]) -> Live:
    """Ask the cluster about each of the plans that differ in their faults or settings. Changes nothing."""
    ceph = Ceph(Remote.from_host(cluster, common), cluster)
    lines: List[str] = [f"The cluster now, asked on {ceph.head}"]
    refused: List[str] = []
    distinct: Dict[str, Tuple[int, Plan]] = {}
    for number, plan in enumerate(plans, 1):
        distinct.setdefault(repr((plan.settings, spans(plan))), (number, plan))
    for number, plan in distinct.values():
        lines += [f"  Run {number}"] if len(distinct) > 1 else []
        try:
            lines += _settings(ceph, plan.settings)
            lines += _faults(ceph, cluster, plan, refused)
        except FaultError as error:
            refused.append(str(error))
    if not any(spans(plan) or plan.settings != Settings() for _, plan in distinct.values()):
        lines.append("  nothing to ask: the file has no faults and no settings")
    elif not refused:
        lines.append("  no fault would be refused")
    return Live(tuple(lines), tuple(dict.fromkeys(refused)))


def _settings(ceph: Ceph, settings: Settings) -> Iterator[str]:
    maker = SettingsMaker(ceph, limits_of(settings))
    for step in (*maker.steps(settings), *maker.recovery(settings.recovery)):
        yield f"  settings: {step.what}"
        yield from (f"    set     {command}" for command in step.inject)
        yield from (f"    undo    {command}" for command in step.undo)


def _faults(ceph: Ceph, cluster: Mapping[str, Any], plan: Plan, refused: List[str]) -> Iterator[str]:
    """Yield what becomes of each fault beside those in force then, as if nothing had recovered since they began."""
    planned = spans(plan)
    if not planned:
        return
    asked = [(span.fault, [fault.label for fault in span.beside]) for span in planned]
    previews = preview(ceph, cluster, asked, limits_of(plan.settings), plan.settings.flags)
    for (fault, found), (_, beside) in zip(previews, asked):
        if isinstance(found, FaultError):
            text = str(found)
            refused.append(text if text.startswith(f"{fault.label}:") else f"{fault.label}: {text}")
            continue
        first, *others = found.lines()
        yield f"  {first}" + (f", while {', '.join(beside)} is in force" if beside else "")
        yield f"    inactive PGs: {100 * found.assessment.numbers.get('inactive_share', 0.0):.1f}% of the cluster's"
        yield from (f"  {line}" for line in others)
        refused += [f"{fault.label}: refused by rule {finding}" for finding in found.refused]

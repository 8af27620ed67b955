"""What a verdict can find in its time, by the function that decides it."""

from __future__ import annotations

from typing import Iterator, Optional, Sequence

from cbt_plugins.campaigns.evaluation import RowState, expected, key_rows
from cbt_plugins.campaigns.schedule import Schedule
from cbt_plugins.compare.former_runs import plan_warnings
from cbt_plugins.compare.output import amount
from cbt_plugins.compare.statistics.sequential import FIRST_LOOK, detectable, first_verdict
from cbt_plugins.compare.statistics.verdicts import Scatter
from cbt_plugins.formatting import percent, several
from cbt_plugins.formatting import seconds as about
from cbt_plugins.metrics import METRICS
from cbt_plugins.results.run_record import RunRecord

POWER = 0.9
#: scatters of a block, where no history says which
_SCATTERS = (0.01, 0.02, 0.04, 0.08)
#: key rows, before there is a record: throughput and p99
_ROWS, _METRIC = 2, "obj_per_s"
#: more than any simulation resolves
_SURE = 1e6


def detectable_lines(
    schedule: Schedule, history: Sequence[RunRecord], rehearsal: Sequence[RunRecord] = (), each: Optional[float] = None
) -> Iterator[str]:
    """Yield the blocks of a campaign, and the change that it finds; `each`: seconds of a block."""
    blocks = schedule.section.blocks
    length = f" of about {about(each)}" if each else ""
    expectations = expected(history, schedule)
    for warning in plan_warnings(history, expectations):
        yield f"warning: {warning}"
    rows = len(expectations) or len(key_rows(rehearsal, schedule)) or _ROWS
    first = first_verdict(rows, schedule.design)
    yield f"at most {several(blocks, 'block')}{length}; the first verdict comes after {first} blocks at the earliest"
    for (phase, op, metric), (scatter, _) in expectations.items():
        if schedule.in_unit(metric):
            unit = METRICS[metric].unit
            text = f"decided by differences, margin {amount(schedule.margin_of(metric), unit)}"
            size = amount(scatter.value, unit)
        else:
            text, size = found_text(metric, scatter, len(expectations), schedule), percent(scatter.value)
        yield f"{phase} {op} {METRICS[metric].title}: {text} (block scatter of the history: {size})"
    if not expectations:
        for share in _SCATTERS:
            text = found_text(_METRIC, Scatter(share, _SURE), rows, schedule)
            yield f"with a block scatter of {percent(share)}: {text}"
        limit = percent(schedule.margin_of(_METRIC))
        yield f"a change below {limit} may be surely within the limit first: then less scatter finds less"


def found_text(metric: str, scatter: Scatter, rows: int, schedule: Schedule) -> str:
    """Return "a change of 3.1 % is found with power 0.9"."""
    change = smallest(metric, scatter, rows, schedule)
    if change is None:
        return f"no change is found with power {POWER:g}"
    return f"a change of {percent(change)} is found with power {POWER:g}"


def smallest(metric: str, scatter: Scatter, rows: int, schedule: Schedule) -> Optional[float]:
    """Return the smallest change that the campaign finds with POWER; None for none."""
    return detectable(scatter, rows, schedule.design_of(metric), POWER)


def seen_text(row: RowState, rows: int, schedule: Schedule) -> str:
    """Return the change that a campaign finds with the scatter of its blocks, as a clause; "" before there is one."""
    if schedule.in_unit(row.id.metric) or not row.decision.scatter or row.decision.n < FIRST_LOOK - 1:
        return ""
    return found_text(row.id.metric, Scatter(row.decision.scatter, row.decision.n - 1), rows, schedule)

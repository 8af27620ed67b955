"""Statements of `acceptable:` on a run and its baseline: the judgements of CBT's compare.py."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from cbt_plugins.config.acceptable import Check, Target, parse, target_of
from cbt_plugins.metrics import ACCEPTABLE, TOTAL, read
from cbt_plugins.results.result_file import Unreadable
from cbt_plugins.results.run_state import why_unusable
from cbt_plugins.results.summary_file import measured, summary_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Judgement:
    """One judgement: the fields of CBT's Result."""

    run: str  # "rgwtest id-1a2b3c4d/measure-aged/GET"
    alias: str  # key of `acceptable`, or USABLE
    result: float  # nan: there is no such number
    baseline: float
    stmt: str
    accepted: bool


#: a statement that rejects a larger share of equal runs says little about a cluster
CHANCE = 0.05
#: alias of the judgement on runs whose numbers cannot be used
USABLE = "usable"


def check_statements(name: str, current: Path, baseline: Path, acceptable: Mapping[str, Any]) -> List[Judgement]:
    """Judge the run in `current` by the one in `baseline`; when one is not usable, nothing is accepted."""
    new, base = _usable(name, current), _usable(name, baseline)
    if new is None or base is None:
        return [Judgement(name, USABLE, float(new is not None), float(base is not None), "both runs are usable", False)]
    if not isinstance(acceptable, Mapping):  # of an archive that was begun without a check of the file
        logger.error("%s: acceptable: must be a mapping: metric -> statement", name)
        return [Judgement(name, "acceptable", math.nan, math.nan, str(acceptable), False)]
    return [judgement for key, stmt in acceptable.items() for judgement in _judge(name, key, str(stmt), new, base)]


def _usable(name: str, run: Path) -> Optional[Dict[str, Any]]:
    """Return the summary of a run whose numbers may be used."""
    try:
        summary = summary_of(run) if run.is_dir() else None
        why = "there is no such run" if summary is None else why_unusable(run, summary)
    except Unreadable as error:
        summary, why = None, str(error)
    if why:
        logger.error("%s: %s: cannot be judged: %s", name, run, why)
        return None
    return summary


def _judge(
    name: str, key: str, stmt: str, current: Mapping[str, Any], baseline: Mapping[str, Any]
) -> Iterator[Judgement]:
    try:
        target, check = target_of(str(key)), parse(stmt)
    except ValueError as error:
        logger.error("%s: acceptable: %s: %s: %s", name, key, stmt, error)
        yield Judgement(name, key, math.nan, math.nan, stmt, False)
        return
    places = list(_places(target, current, baseline))
    if not places:
        logger.error("%s: acceptable: %s: no phase has this", name, key)
        yield Judgement(name, key, math.nan, math.nan, stmt, False)
    for phase, current_value, base_value in places:
        where = f"{name}/{phase}/{target.op}"
        if current_value is None or base_value is None:
            logger.error("%s: %s is unknown in one run: %s and %s", where, target.metric, current_value, base_value)
        accepted = current_value is not None and base_value is not None and check(current_value, base_value)
        result, base = (math.nan if value is None else value for value in (current_value, base_value))
        yield Judgement(where, key, result, base, stmt, accepted)
        if base_value is not None:
            _warn_of_chance(where, target, stmt, check, next(p for p in baseline["phases"] if p["name"] == phase))


def _warn_of_chance(where: str, target: Target, stmt: str, check: Check, phase: Mapping[str, Any]) -> None:
    share = false_alarms(phase, target.op, target.metric, check)
    if share is not None and share > CHANCE:
        text = "%s: %s: %s rejects about %.0f %% of equal runs, because the seconds of the baseline scatter"
        logger.warning(text, where, target.metric, stmt, 100 * share)


def _places(
    target: Target, current: Mapping[str, Any], baseline: Mapping[str, Any]
) -> Iterator[Tuple[str, Optional[float], Optional[float]]]:
    """Yield the phases that the target is about, by name, with the numbers of both runs; also a phase of one run only.
    """
    phases: Dict[str, List[Optional[float]]] = {}
    for index, summary in enumerate((current, baseline)):
        judged_phases = measured(summary) if target.phase is None else summary["phases"]
        for phase in judged_phases:
            if target.phase not in (None, phase["name"]):
                continue
            if target.phase is None and target.op != "total" and target.op not in phase["ops"]:
                continue  # an operation is judged where it was made
            value = read(ACCEPTABLE[target.metric], summary, phase, target.op)
            phases.setdefault(phase["name"], [None, None])[index] = value
    for name, (current_value, base_value) in phases.items():
        yield name, current_value, base_value


#: quantiles of the normal distribution that stand for it
_STEPS = 1000


def false_alarms(phase: Mapping[str, Any], op: str, metric: str, check: Check) -> Optional[float]:
    """Return the share, 0..1, that `check` rejects of comparisons of two runs that differ by chance only.

    `phase` is that of a summary. Both runs' means are taken as normal, with the standard error of this one's: that of
    its effective number of seconds. What differs from run to run is not in it. None: not a rate, too few seconds, or
    no numpy and scipy.
    """
    key = ACCEPTABLE[metric].series
    series = [
        op_series[key]
        for name, op_series in phase["series"]["ops"].items()
        if key and op in (name, TOTAL) and op_series[key]
    ]
    if not series:
        return None
    try:
        import numpy as np

        from cbt_plugins.compare.statistics import estimate_series
    except ImportError:
        return None
    seconds = np.sum(series, axis=0)
    level = estimate_series(seconds)
    if level.high is None or level.value <= 0:
        return None
    normal = NormalDist()
    error = float(seconds.std(ddof=1)) / math.sqrt(level.n)
    changes = (math.sqrt(2) * error * normal.inv_cdf((i + 0.5) / _STEPS) for i in range(_STEPS))
    return sum(not check(level.value + change, level.value) for change in changes) / _STEPS

"""The table of a comparison: for each phase, operation and metric both sides, the change and its verdict."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from math import isfinite, nan
from statistics import median
from typing import Dict, Iterator, List, Mapping, Optional, Protocol, Sequence, Tuple, Union

from cbt_plugins.compare.allowance import Allowance, latencies_of_failures, names_phase
from cbt_plugins.compare.comparable_runs import Runs
from cbt_plugins.compare.configuration_differences import Difference, Scale
from cbt_plugins.compare.former_runs import history_warnings
from cbt_plugins.compare.row_values import RowValues, Values, present, row_values, with_lost_numbers
from cbt_plugins.compare.sides import (
    Alone,
    Case,
    ComparisonWarning,
    Side,
    cases,
    forbidding,
    held_back,
    not_recovered,
    other_limits,
    repeats,
    warnings_of_case,
    warnings_of_row,
    within_run,
)
from cbt_plugins.compare.statistics import decide_verdicts, pooled_scatter
from cbt_plugins.compare.statistics.student import KNOWN_SCATTER
from cbt_plugins.compare.statistics.verdicts import Comparison, Scatter, StatisticsWarning, Verdict
from cbt_plugins.metrics import ALPHA, METRICS, TOTAL
from cbt_plugins.results.run_record import STATE, Key


class Wanted(Protocol):
    """A choice of rows."""

    def takes(self, key: Key) -> bool: ...

    def asks(self, key: Key) -> bool:
        """Return whether a row was asked for by name, and is there even where it says nothing new."""

    def names(self, key: Key) -> bool:
        """Return whether the phase and the metric of a row were asked for by name."""

    def margin(self, key: Key) -> Optional[float]:
        """Return the row's own margin, if it has one."""

    def allowance(self, key: Key) -> Optional[Allowance]:
        """Return the limit of a row, which it is tested against too; None without a limit."""

    def is_key(self, key: Key, section: Section) -> bool:
        """Return whether a row is one of the few that are decided first."""


@dataclass(frozen=True)
class Choice:
    """A choice by shell patterns; without any: the main metrics, those of `KEY` also of all operations, no states."""

    phases: Tuple[str, ...] = ()
    ops: Tuple[str, ...] = ()
    metrics: Tuple[str, ...] = ()
    only: Tuple[Tuple[str, str], ...] = ()  # (operation, metric): these and no others
    keys: Tuple[str, ...] = ()  # patterns of the key rows, "total.p99_ms" or "measure*.GET.p99_ms"

    def takes(self, key: Key) -> bool:
        phase, op, metric = key
        if self.only and (op, metric) not in self.only:
            return False
        if self._names(key):
            return True
        if not (_any(self.phases, phase) if self.phases else STATE not in phase):
            return False
        if self.only:
            return True
        if not (_any(self.metrics, metric) if self.metrics else METRICS[metric].main):
            return False
        if self.ops or self.metrics:
            return _any(self.ops or ("*",), op) and (bool(self.ops) or op != TOTAL or METRICS[metric].total_only)
        return op != TOTAL or METRICS[metric].total_only or metric in _TOTALS

    def asks(self, key: Key) -> bool:
        return bool(self.metrics) or (key[1] == TOTAL and bool(self.ops)) or self._names(key)

    def names(self, key: Key) -> bool:
        of_metric = [pattern for pattern in self.keys if pattern.rpartition(".")[2] == key[2]]
        named = [
            pattern
            for pattern in of_metric
            if not fnmatchcase(".".join(key[1:]), pattern) and names_phase(pattern.rsplit(".", 2)[0])
        ]
        phases = [pattern for pattern in self.phases if names_phase(pattern)]
        return bool(self.metrics and _any(phases, key[0])) or _any(named, ".".join(key))

    def _names(self, key: Key) -> bool:
        """Return whether it is a key row by a pattern that names its metric."""
        named = [pattern for pattern in self.keys if pattern.rpartition(".")[2] == key[2]]
        return _any(named, ".".join(key)) or _any(named, ".".join(key[1:]))

    def margin(self, key: Key) -> Optional[float]:
        return None

    def allowance(self, key: Key) -> Optional[Allowance]:
        return None

    def is_key(self, key: Key, section: Section) -> bool:
        """Return whether a row decides; by default rate and p99 of all operations, ladders, recovery, bad seconds."""
        phase, op, metric = key
        if self.keys:
            return _any(self.keys, ".".join(key)) or _any(self.keys, ".".join(key[1:]))
        if metric in _NOT_OF_PHASES:
            return metric not in _TOTALS or op == TOTAL or (phase, TOTAL, metric) not in section.all_keys
        role = section.base[0].config.get(f"phase.{phase}.role", "measure")
        return role == "measure" and metric in KEY and (op == TOTAL or not section.has_total(phase))


#: metrics whose rows of all operations are key rows
KEY = ("obj_per_s", "p99_ms")
#: metrics whose rows are key rows of a ladder, a failure, or a return
_NOT_OF_PHASES = ("highest_per_s", "highest_workers", "recovery_s", "bad_s")
#: metrics whose rows of all operations are there without being asked for
_TOTALS = (*KEY, "bad_s")
#: what a table has without being asked
MAIN = Choice()


def _any(patterns: Sequence[str], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@dataclass(frozen=True)
class Rules:
    """The rules of a comparison."""

    margin: Optional[float] = None  # a change within +-margin counts as none; None: each metric has its own
    alpha: float = ALPHA  # of the table
    paired: bool = False
    #: metric -> relative scatter from run to run, where it is known; "": of all rates
    scatter: Mapping[str, float] = field(default_factory=dict)
    scale: Optional[Scale] = None
    #: runs of the same configurations, from which a scatter is learnt
    history: Runs = ()

    @property
    def confidence(self) -> float:
        """Return the confidence of the intervals, so that an interval and its verdict agree."""
        return 1 - self.alpha

    def margin_of(self, metric: str) -> float:
        """Return the margin of a metric; that of an additive one is in its unit, and no relative margin can be it."""
        own = METRICS[metric]
        return own.margin if self.margin is None or own.additive else self.margin


#: the default rules
RULES = Rules()


@dataclass(frozen=True)
class Row:
    """One row of the table.

    `way` is what is compared: "runs", "pairs", "blocks" of interleaved runs, "seconds" of one run each, "repetitions"
    of a failure in one run each, or "values".
    """

    contender: str
    case: str
    phase: str
    op: str
    metric: str
    way: str
    runs: Tuple[int, int]  # of the base, of the contender; or their repetitions
    comparison: Comparison
    against: Optional[Comparison] = None  # of the new side with the limit, not yet judged
    allowed: Optional[float] = None  # by the limit, on the scale of the comparison
    case_runs: Tuple[int, int] = (0, 0)  # all runs of the base, of the contender, in this configuration
    runs_without: Tuple[int, int] = (0, 0)  # of these, those that have no number
    new_range: Tuple[float, float] = (nan, nan)  # the lowest and the highest that its values may be
    if_lost: Optional[Tuple[Row, Row]] = None  # with the numbers that runs lost: the new side looks lower, higher

    @property
    def key(self) -> Key:
        return self.phase, self.op, self.metric

    @property
    def id(self) -> str:
        """Return an id that is equal for the same row of two tables, without the contender."""
        return "/".join(filter(None, (self.case, self.phase, self.op, self.metric)))

    @property
    def unit(self) -> str:
        return METRICS[self.metric].unit

    @property
    def verdict(self) -> Verdict:
        return self.comparison.verdict or Verdict.INCONCLUSIVE


@dataclass(frozen=True)
class Section:
    """One contender and the base, in one configuration."""

    contender: str
    case: str
    base: Runs
    new: Runs
    differences: Tuple[Difference, ...]
    rows: Tuple[Row, ...]
    missing: Tuple[ComparisonWarning, ...]  # what one side has no number for
    warnings: Tuple[ComparisonWarning, ...]

    @property
    def all_keys(self) -> List[Key]:
        """Return the keys of all rows, also of those that one side has no number for."""
        return [*(row.key for row in self.rows), *(warning.key for warning in self.missing)]

    def has_total(self, phase: str) -> bool:
        """Return whether the table has rows of all operations of a phase, next to those of several operations."""
        return any(key[:2] == (phase, TOTAL) and key[2] in KEY for key in self.all_keys)


@dataclass(frozen=True)
class Compared:
    """A comparison; `alone`: configurations that only one side has."""

    base: Side
    contenders: Tuple[Side, ...]
    sections: Tuple[Section, ...]
    alone: Tuple[Alone, ...]
    rules: Rules

    @property
    def not_compared(self) -> Tuple[str, ...]:
        """A sentence on each configuration that only one side has."""
        return tuple(alone.text for alone in self.alone)

    @property
    def rows(self) -> List[Row]:
        return [row for section in self.sections for row in section.rows]

    @property
    def usable(self) -> bool:
        every = (self.base, *self.contenders)
        runs = (*(run for side in every for run in side.runs), *self.rules.history)
        return all(run.usable for run in runs) and not any(side.unreadable for side in every)


def compare(
    base: Side,
    contenders: Sequence[Side],
    choice: Wanted = MAIN,
    rules: Rules = RULES,
) -> Compared:
    """Compare each contender with the base; the verdicts of all rows are judged as one table.

    Raises differences.Incomparable, and ValueError for pairs of which one is missing.
    """
    sections, alone = [], []
    runs_of_sides = [*(side.runs for side in (base, *contenders)), rules.history]
    for new in contenders:
        matched_cases, left = cases(base, new, rules.scale)
        sections += [_section(new.name, case, choice, rules, repeats(case, runs_of_sides)) for case in matched_cases]
        alone += left
    return Compared(base, tuple(contenders), tuple(_judged(sections, choice, rules)), tuple(alone), rules)


def _section(contender: str, case: Case, choice: Wanted, rules: Rules, repeated: Sequence[Runs]) -> Section:
    if rules.paired and len(case.base) != len(case.new):
        raise ValueError(f"pairs need the same number of runs on both sides: {len(case.base)} and {len(case.new)}")
    base_values, new_values = (_by_key(runs) for runs in (case.base, case.new))
    again = [_by_key(runs) for runs in repeated]
    rows, missing = [], []
    by_name = latencies_of_failures(base_values.keys() | new_values.keys())
    for key in _order(base_values, new_values):
        if not choice.takes(key) or (key in by_name and not choice.names(key)):
            continue
        a, b = base_values.get(key, []), new_values.get(key, [])
        if not choice.asks(key) and (_as_expected(key[2], [*a, *b]) or _alone(key, base_values, new_values)):
            continue
        scatter = _scatter(key[2], [by_key.get(key, []) for by_key in again], rules)
        row = _row_or_missing(contender, case, key, ((a, b), scatter), choice.allowance(key), rules)
        if isinstance(row, ComparisonWarning):
            missing.append(row)
        else:
            rows.append(row)
    warnings = *warnings_of_case(case, {row.key[:2] for row in rows}), *history_warnings(case, repeated, rules.history)
    return Section(contender, case.title, case.base, case.new, case.differences, tuple(rows), tuple(missing), warnings)


def _as_expected(metric: str, values: Values) -> bool:
    """Return whether all values are those of every good run: success rates of 1."""
    expected = METRICS[metric].expected
    return expected is not None and all(measurement is None or measurement.value == expected for measurement in values)


def _by_key(runs: Runs) -> Dict[Key, Values]:
    table: Dict[Key, Values] = {}
    for i, run in enumerate(runs):
        for key in run.keys:
            table.setdefault(key, [])
        for measurement in run.measurements:
            values = table[measurement.key]
            values += [None] * (len(runs) - len(values))
            values[i] = measurement if measurement.value is not None and isfinite(measurement.value) else None
    return table


def _order(base: Mapping[Key, Values], new: Mapping[Key, Values]) -> Iterator[Key]:
    """Yield the keys: phases and operations in the base's order, metrics in their own."""
    keys = list(dict.fromkeys([*base, *new]))
    place = {name: i for i, name in enumerate(dict.fromkeys((phase, op) for phase, op, _ in keys))}
    phases = {phase: i for i, phase in enumerate(dict.fromkeys(phase for phase, _, _ in keys))}
    yield from sorted(keys, key=lambda key: (phases[key[0]], place[key[:2]], METRICS[key[2]].order))


def _alone(key: Key, *sides: Mapping[Key, Values]) -> bool:
    """Return whether a row of all operations repeats the only operation of its phase."""
    phase, op, metric = key
    if op != TOTAL or METRICS[metric].total_only:
        return False
    return all(
        len({side_key[1] for side_key in side if side_key[0] == phase and side_key[2] in ("obj_per_s", metric)}) <= 2
        for side in sides
    )


def _scatter(metric: str, repeated: Sequence[Values], rules: Rules) -> Optional[Scatter]:
    """Return the scatter that was given for a metric or for all rates, or that repeated runs show; None: unknown."""
    of_rates = rules.scatter.get("") if METRICS[metric].series else None
    given = rules.scatter.get(metric, of_rates)
    if given is not None:
        return Scatter(given)
    return pooled_scatter([[measurement.value or 0.0 for measurement in present(group)] for group in repeated])


def _row_or_missing(
    contender: str,
    case: Case,
    key: Key,
    numbers: Tuple[Tuple[Values, Values], Optional[Scatter]],
    allowance: Optional[Allowance],
    rules: Rules,
) -> Union[Row, ComparisonWarning]:
    both, scatter = numbers
    rules_of_runs = (rules.paired, rules.confidence)
    values = row_values(key[2], case, both, rules_of_runs, scatter)
    if not values.base or not values.new:
        sides = (("the base", values.base), (contender, values.new))
        sides_without = [side for side, measurements in sides if not measurements]
        name = "/".join(filter(None, (case.title, *key)))
        return ComparisonWarning("missing", name, f"no number of {' and of '.join(sides_without)}", key)
    row = _row(contender, case, key, values, allowance, rules)
    if not any(values.without):
        return row
    exact = row.comparison.floor > 0
    filled = (with_lost_numbers(key[2], both, higher, exact) for higher in (False, True))
    lower, higher = (row_values(key[2], case, numbers, rules_of_runs, scatter) for numbers in filled)
    if not row.comparison.blocks:  # the order of the others is checked; numbers that nobody measured show no drift
        lower, higher = replace(lower, times=None), replace(higher, times=None)
    if_lost = [_row(contender, case, key, numbers, allowance, rules) for numbers in (lower, higher)]
    return replace(row, if_lost=(if_lost[0], if_lost[1]))


def _row(
    contender: str, case: Case, key: Key, values: RowValues, allowance: Optional[Allowance], rules: Rules
) -> Row:
    base, new = values.base, values.new
    comparison = values.compared()
    case_runs = len(case.base), len(case.new)
    warnings = [*comparison.warnings]
    warnings += warnings_of_row(case_runs, values.without, len(base) if values.paired else None)
    warnings += other_limits(base, new, rules.margin_of("p99_ms"))
    if values.scatter and (values.seconds or comparison.method == KNOWN_SCATTER):
        warnings.append(StatisticsWarning("known-scatter", f"the interval has {values.scatter.words}"))
    if values.repeated:
        warnings += within_run(values.metric)
    sides = (("base", case.base, comparison.base), ("new", case.new, comparison.new))
    base_estimate, new_estimate = (
        replace(estimate, warnings=(*forbidding(side, runs, key), *not_recovered(side, runs, key), *estimate.warnings))
        for side, runs, estimate in sides
    )
    comparison = replace(comparison, base=base_estimate, new=new_estimate, warnings=tuple(warnings))
    level = median(m.value or 0.0 for m in base)
    allowed = allowance.of(values.metric, level) if allowance else None
    share = allowance.factor_of(values.metric, level) if allowance else 0.0
    against = None if allowed is None else values.compared(allowed, share)
    against = against and replace(against, base=base_estimate, new=new_estimate)
    way = values.way(comparison)
    judged = (comparison, against, allowed)
    return Row(contender, case.title, *key, way, values.counts, *judged, case_runs, values.without, values.new_range)


def _judged(sections: Sequence[Section], choice: Wanted, rules: Rules) -> Iterator[Section]:
    rows = {(i, k): row for i, section in enumerate(sections) for k, row in enumerate(section.rows)}
    directions = {key: METRICS[row.metric].direction for key, row in rows.items()}
    margins = {key: choice.margin(row.key) or rules.margin_of(row.metric) for key, row in rows.items()}
    keys = {(i, k) for (i, k), row in rows.items() if choice.is_key(row.key, sections[i])}

    def verdicts(table: Mapping[Tuple[int, int], Row]) -> Dict[Tuple[int, int], Comparison]:
        comparisons = {key: row.comparison for key, row in table.items()}
        return decide_verdicts(comparisons, directions, margins, rules.alpha, keys)

    judged = verdicts(rows)
    if any(row.if_lost for row in rows.values()):
        lower, higher = (
            verdicts({key: row.if_lost[way] if row.if_lost else row for key, row in rows.items()}) for way in (0, 1)
        )
        judged.update(
            (key, held_back(judged[key], lower[key], higher[key], directions[key]))
            for key, row in rows.items()
            if row.if_lost
        )
    for i, section in enumerate(sections):
        judged_rows = [replace(row, comparison=judged[i, k]) for k, row in enumerate(section.rows)]
        yield replace(section, rows=tuple(judged_rows))

"""The evaluation of a campaign: the observation of each block for each key row, the decision, if more are needed.

An observation is the log ratio of the arms, or their difference for metrics that may be 0 (Metric.additive).
`compare.statistics.sequential` says when the answer on a row is sure.

The key rows are those of a comparison of the arms (compare.table). A trial whose record has a warning that forbids a
verdict gives its block no observation for the rows that the warning is about; the reason is kept.
"""

from __future__ import annotations

import fnmatch
import math
from collections import Counter
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from cbt_plugins.campaigns.schedule import BY_RATIOS, CampaignError, Contrast, PlannedTrial, Schedule
from cbt_plugins.campaigns.trial import Trial
from cbt_plugins.compare.allowance import latencies_of_failures
from cbt_plugins.compare.comparable_runs import Runs
from cbt_plugins.compare.configuration_differences import Incomparable, differing, is_essential, short, text
from cbt_plugins.compare.sides import Side, forbidding, not_recovered, other_limits
from cbt_plugins.compare.statistics.runs import pooled_scatter
from cbt_plugins.compare.statistics.sequential import Decision, Outlook, decide, outlook, sharing_rows
from cbt_plugins.compare.statistics.verdicts import Scatter, StatisticsWarning, Verdict
from cbt_plugins.compare.table import Choice, Compared, Rules, Section, compare
from cbt_plugins.metrics import METRICS, Direction, MetricSource
from cbt_plugins.results.run_record import Measurement, RunRecord
from cbt_plugins.warning_kinds import caps, forbids_verdict, hides_worse

#: true changes that the outlook is given for, in margins; 0: nothing changed
EFFECTS = (0.0, 1.0, 2.0)
#: versions of what serves all arms of a block alike: a campaign may go on with newer ones
_OF_TOOLS = ("version.cbt", "version.cbt_plugins", "version.python")
Key = Tuple[str, str, str]  # phase, operation, metric


@dataclass(frozen=True)
class RowId:
    """A key row: a contrast, in one case of a sweep."""

    contrast: str
    case: str
    phase: str
    op: str
    metric: str

    @property
    def key(self) -> Key:
        return self.phase, self.op, self.metric

    @property
    def text(self) -> str:
        return " ".join(filter(None, (self.case, self.phase, self.op, METRICS[self.metric].title)))


@dataclass(frozen=True)
class RowState:
    """What is known of a key row."""

    id: RowId
    decision: Decision
    #: the log ratio of each block, or the difference of a metric that may be 0; None: it says nothing of this row
    ratios: Tuple[Optional[float], ...]
    left_out: Tuple[str, ...]  # why, with the blocks
    capped: Optional[str]  # why it can be neither better nor equivalent
    forbidden: Optional[str]  # why it can have no verdict
    medians: Mapping[str, Optional[float]]  # of each arm
    outlooks: Tuple[Outlook, ...]
    late: Optional[str] = None  # why it can be neither better nor worse

    @property
    def verdict(self) -> Optional[Verdict]:
        """The verdict; None: not decided."""
        held = self.forbidden or (self.capped and self.decision.verdict is not Verdict.WORSE)
        return Verdict.INCONCLUSIVE if held and self.decision.verdict else self.decision.verdict


@dataclass(frozen=True)
class Evaluation:
    """A campaign so far."""

    schedule: Schedule
    blocks: int  # whole ones
    trials: Tuple[Tuple[PlannedTrial, Trial], ...]
    rows: Tuple[RowState, ...]
    compared: Optional[Compared]  # all trials of all arms; None before each arm has one
    #: attempts that gave no result, and after which the trial was made again
    failed_attempts: Tuple[Tuple[PlannedTrial, Trial], ...] = ()

    @property
    def decided(self) -> bool:
        """Every key row is better, worse or equivalent, and every pattern of the file has a key row."""
        if not self.rows or self.unmatched_keys:
            return False
        return all(row.verdict not in (None, Verdict.INCONCLUSIVE) for row in self.rows)

    @property
    def unmatched_keys(self) -> Tuple[str, ...]:
        """The patterns of the file that match no key row."""
        return unmatched(self.schedule.section.keys, [row.id.key for row in self.rows]) if self.rows else ()

    @property
    def needs_no_more_blocks(self) -> bool:
        """More blocks would decide no row, or the budget is used up."""
        return bool(self.rows and all(row.verdict for row in self.rows)) or self.blocks >= self.schedule.section.blocks

    @property
    def arms_like_base(self) -> Tuple[str, ...]:
        """The arms whose records have the same configuration as those of the base."""
        distinct: Dict[str, bool] = {}
        for section in self.compared.sections if self.compared else ():
            apart = any(difference.is_of_sides for difference in section.differences)
            distinct[section.contender] = apart or distinct.get(section.contender, False)
        return tuple(arm for arm, apart in distinct.items() if not apart)

    @property
    def block_seconds(self) -> Optional[float]:
        """What a block takes, from the trials so far; None: none has ended."""
        return seconds_of_block(self.schedule, [trial for _, trial in self.trials])

    def verdict_of(self, row: RowState) -> Optional[Verdict]:
        """Return the verdict on a row; inconclusive at the end of the budget, None before."""
        return row.verdict or (Verdict.INCONCLUSIVE if self.needs_no_more_blocks else None)


def unmatched(patterns: Sequence[str], keys: Iterable[Key]) -> Tuple[str, ...]:
    """Return the patterns of `keys:` that match none of these rows."""
    names = [name for key in keys for name in (".".join(key), ".".join(key[1:]))]
    return tuple(pattern for pattern in patterns if not fnmatch.filter(names, pattern))


def seconds_of_block(schedule: Schedule, trials: Sequence[Trial]) -> Optional[float]:
    """Return the length of a block, from the median of each arm's trials that went well; None where one has none."""
    times = {arm: [t.prepared + t.measured for t in trials if t.arm == arm and not t.reason] for arm in schedule.arms}
    medians = [median(durations) for durations in times.values() if durations]
    return schedule.per_arm * len(schedule.arms) * mean(medians) if medians else None


def evaluate(schedule: Schedule) -> Evaluation:
    """Return the state of each key row after the finished trials. Raises CampaignError where trials have no key row."""
    trials, failed = tuple(schedule.trials()), tuple(schedule.failed_attempts())
    good = [(planned, trial) for planned, trial in trials if not trial.reason]
    done = Counter(planned.block for planned, _ in good)
    blocks = 0
    while done[blocks + 1] == schedule.per_arm * len(schedule.arms):
        blocks += 1
    strays = _strays(good)
    records = [(planned, record) for planned, trial in good if planned not in strays for record in trial.records]
    if not all(any(planned.arm == arm for planned, _ in records) for arm in schedule.arms):
        return Evaluation(schedule, blocks, trials, (), None, failed)
    try:
        compared = _compared(schedule, records)
    except Incomparable as e:  # other programs, or no common case of a sweep
        why = ", ".join(f"{difference.key} is {difference.base} and {difference.new}" for difference in e.differences)
        raise CampaignError(f"the arms cannot be compared: {e}" + (f": {why}" if why else "")) from e
    rows = _rows(schedule, compared, (records, strays), blocks)
    if not rows:
        raise CampaignError(
            f"{schedule.config.file}: campaign.keys: no row of the results matches these keys, so nothing can "
            f"be decided"
        )
    rows = list(_without_corrupt_arms(rows, schedule, (*failed, *trials)))
    return Evaluation(schedule, blocks, trials, tuple(rows), compared, failed)


def _without_corrupt_arms(
    rows: Iterable[RowState], schedule: Schedule, attempts: Sequence[Tuple[PlannedTrial, Trial]]
) -> Iterator[RowState]:
    """Yield the rows; those of an arm that has lost or changed data can be neither better nor equivalent."""
    corrupt = {planned.arm: planned.name for planned, trial in attempts if trial.is_corrupt}
    arms = {contrast.name: contrast.weights for contrast in schedule.contrasts}
    for row in rows:
        names = [f"{corrupt[arm]} lost or changed data" for arm in arms[row.id.contrast] if arm in corrupt]
        yield replace(row, capped=row.capped or f"an attempt at {names[0]}") if names else row


_Records = List[Tuple[PlannedTrial, RunRecord]]
_Strays = Mapping[PlannedTrial, str]


def _strays(trials: Sequence[Tuple[PlannedTrial, Trial]]) -> _Strays:
    """Return the trials that differ from the first one of their arm, such as in the number of OSDs -> in what."""
    arms: Dict[str, Dict[str, Set[str]]] = {}
    strays = {}
    for planned, trial in trials:
        first, steady = arms.setdefault(planned.arm, {}), _values_of(trial.records, _is_steady)
        apart = [key for key in steady if steady[key] != first.get(key, steady[key])]
        if apart:
            strays[planned] = ", ".join(
                f"{key} is {_listed(steady[key])}, at first {_listed(first[key])}" for key in apart
            )
        first.update({**steady, **first})
    return strays


def _is_steady(key: str) -> bool:
    """Return whether all trials of an arm must agree in a key: an arm that changes its release is two arms."""
    return is_essential(key) or (key.startswith("version.") and key not in _OF_TOOLS)


def _values_of(records: Iterable[RunRecord], is_wanted: Callable[[str], bool]) -> Dict[str, Set[str]]:
    """Return the values of the keys that are wanted; a sweep has several of one."""
    values: Dict[str, Set[str]] = {}
    for key, value in (pair for record in records for pair in record.config.items()):
        if is_wanted(key):
            values.setdefault(key, set()).add(text(value))
    return values


def _listed(values: Iterable[str]) -> str:
    return short(" | ".join(sorted(values)))


def _comparable(records: _Records) -> _Records:
    """Return the records without what sets the arms apart: that is meant, and no reason to refuse a comparison.

    A key that is swept has the same values in all arms, and stays.
    """
    arms = [
        _values_of((record for planned, record in records if planned.arm == arm), is_essential)
        for arm in {planned.arm for planned, _ in records}
    ]
    apart = {key for arm in arms for key in arm if any(sibling.get(key) != arm[key] for sibling in arms)}
    return [
        (planned, replace(record, config={k: v for k, v in record.config.items() if k not in apart}))
        for planned, record in records
    ]


def _compared(schedule: Schedule, records: _Records) -> Compared:
    alike = _comparable(records)
    sides = [
        Side(arm, tuple(record for planned, record in alike if planned.arm == arm), (str(schedule.file_of(arm)),))
        for arm in schedule.arms
    ]
    compared = compare(sides[0], sides[1:], _choice(schedule), schedule.rules)
    full_records = {(record.source, record.name): record for _, record in records}  # what sets the arms apart is told
    sections = []
    for section in compared.sections:
        base, new = ([full_records[run.source, run.name] for run in runs] for runs in (section.base, section.new))
        sections.append(replace(section, differences=tuple(differing(base, new))))
    return replace(compared, sections=tuple(sections))


def _choice(schedule: Schedule) -> Choice:
    return Choice(keys=tuple(schedule.section.keys))


def _rows(
    schedule: Schedule, compared: Compared, trials: Tuple[_Records, _Strays], blocks: int
) -> List[RowState]:
    """Return the key rows, also those that an arm has no number for: they are asked for."""
    records, strays = trials
    arm_of = {(record.source, record.name): planned for planned, record in records}
    runs_by_key: Dict[Tuple[str, Key], _Records] = {}
    for section in compared.sections:
        runs = [(arm_of[run.source, run.name], run) for run in (*section.base, *section.new)]
        without = _without_rows(section, schedule)
        for key in section.all_keys:
            decidable = METRICS[key[2]].direction is not Direction.NONE and key not in without
            if _choice(schedule).is_key(key, section) and decidable:
                row_runs = runs_by_key.setdefault((section.case, key), [])
                row_runs += [run for run in runs if run not in row_runs]
    observed_rows: Dict[RowId, _Observed] = {}
    for (case, key), row_runs in runs_by_key.items():
        cells = _Cells(key, row_runs, strays, schedule)
        for contrast in schedule.contrasts:
            observed_rows[RowId(contrast.name, case, *key)] = cells.observed(contrast, blocks)
    directions = {row: METRICS[row.metric].direction for row in observed_rows}
    margins = {row: schedule.margin_of(row.metric) for row in observed_rows}
    units = {row: METRICS[row.metric].unit for row in observed_rows if schedule.in_unit(row.metric)}
    ratios = {row: observed.ratios for row, observed in observed_rows.items()}
    bins = {row: observed.bin for row, observed in observed_rows.items()}
    decisions = decide(ratios, directions, schedule.design, margins, units, bins)
    family = sharing_rows(ratios), schedule
    return [_state(row, decisions[row], observed, family) for row, observed in observed_rows.items()]


def _without_rows(section: Section, schedule: Schedule) -> Set[Key]:
    """Return the keys that have no row unless `keys:` names them: numbers of failures that may be 0, and ladders.

    A campaign begun by older rules has no row for these numbers and for percentiles of failures, and a campaign begun
    by an older version none of ladders: its family of rows must not grow. Besides, a ladder whose step is wider than
    the margin is never equivalent. Where nothing else is measured, ladders have rows.
    """
    keys = {key for run in (*section.base, *section.new) for key in run.keys}
    of_failures = {key for key in keys if METRICS[key[2]].source is not MetricSource.OPERATION}
    additive = {key for key in of_failures if METRICS[key[2]].additive}
    ladders = {key for key in keys if METRICS[key[2]].source is MetricSource.LADDER}
    measures_more = any(_choice(schedule).is_key(key, section) for key in {*section.all_keys} - ladders - additive)
    unnamed = ladders if measures_more and not schedule.section.keys else set()
    if schedule.decision_rules == BY_RATIOS:
        return additive | latencies_of_failures(keys) | unnamed
    return set() if schedule.section.keys else additive | unnamed


@dataclass(frozen=True)
class _Observed:
    ratios: List[Optional[float]]
    left_out: Tuple[str, ...]
    capped: Optional[str]
    forbidden: Optional[str]
    medians: Mapping[str, Optional[float]]
    bin: float  # what the bins of the values leave open of a log ratio


class _Cells:
    """The numbers of one key row: those of each arm in each block."""

    def __init__(self, key: Key, runs: _Records, strays: _Strays, schedule: Schedule) -> None:
        self._key, self._schedule = key, schedule
        self._strays: Dict[Tuple[int, str], str] = {
            (planned.block, planned.arm): why for planned, why in strays.items()
        }
        self._runs: Dict[Tuple[int, str], List[RunRecord]] = {}
        for planned, run in runs:
            self._runs.setdefault((planned.block, planned.arm), []).append(run)

    def observed(self, contrast: Contrast, blocks: int) -> _Observed:
        ratios: List[Optional[float]] = []
        why: Dict[str, List[int]] = {}
        capped: Optional[str] = None
        lower, additive = METRICS[self._key[2]].direction is Direction.LOWER, self._schedule.in_unit(self._key[2])
        for block in range(1, blocks + 1):
            ratio = 0.0
            reasons = []
            limits: Dict[bool, Dict[str, str]] = {False: {}, True: {}}  # of the base, and of the new arm: code -> arm
            for arm, weight in contrast.weights.items():
                runs = tuple(self._runs.get((block, arm), ()))
                warnings = forbidding(arm, runs, self._key)
                held = [warning for warning in warnings if caps(warning.code, self._key[2])]
                capped = capped or next((warning.text for warning in held), None)
                limits[weight > 0].update({warning.code: arm for warning in held})
                values = [value for run in runs for value in self._values(run)]
                reasons += [f"{arm}: {warning.code}" for warning in warnings if forbids_verdict(warning.code)]
                if (block, arm) in self._strays:
                    reasons.append(f"{arm}: {self._strays[block, arm]}")
                elif len(values) < max(len(runs), self._schedule.per_arm) or (min(values) <= 0 and not additive):
                    reasons.append(f"{arm}: no number{'' if additive else ' above 0'}")
                    capped = capped or f"trials of {arm} have no number, and the others are no fair choice"
                else:
                    ratio += weight * mean(values if additive else map(math.log, values))
            if hides_worse(limits[False], limits[True], lower):
                reasons += [f"{arm}: {code}" for side in limits.values() for code, arm in side.items()]
            for reason in reasons:
                why.setdefault(reason, []).append(block)
            ratios.append(None if reasons else ratio)
        left_out = tuple(
            f"{reason} (block {', '.join(map(str, block_numbers))})" for reason, block_numbers in why.items()
        )
        arms = {arm: self._median(arm) for arm in self._schedule.arms}
        of_sides = [*self._other_limits(contrast)]
        of_sides += [w for arm in contrast.weights for w in not_recovered(arm, self._of(arm), self._key)]
        forbidden = next((warning.text for warning in of_sides if forbids_verdict(warning.code)), None)
        lenient = (warning.text for warning in of_sides if caps(warning.code, self._key[2]))
        bin = 0.0 if additive else self._bin(contrast)
        return _Observed(ratios, left_out, capped or next(lenient, None), forbidden, arms, bin)

    def _bin(self, contrast: Contrast) -> float:
        """Return how far the log ratio may be from the true one, by the bins and steps of all arms together."""
        below = above = 0.0
        for arm, weight in contrast.weights.items():
            ends = [[end / m.value for end in m.open_ends] for m in self._measurements(arm) if m.value]
            low, high = map(max, zip(*ends)) if ends else (0.0, 0.0)
            below += abs(weight) * (low if weight > 0 else high)
            above += abs(weight) * (high if weight > 0 else low)
        return max(below, above)

    def _other_limits(self, contrast: Contrast) -> Tuple[StatisticsWarning, ...]:
        """Return the warning about bad seconds whose limits are of the baselines of the arms themselves."""
        base, new = (
            [m for arm, weight in contrast.weights.items() if (weight > 0) == is_new for m in self._measurements(arm)]
            for is_new in (False, True)
        )
        return other_limits(base, new, self._schedule.margin_of("p99_ms"))

    def _measurements(self, arm: str) -> List[Measurement]:
        return [m for run in self._of(arm) for m in run.measurements if m.key == self._key]

    def _values(self, run: RunRecord) -> Iterator[float]:
        for measurement in run.measurements:
            if measurement.key == self._key and measurement.value is not None:
                yield measurement.value

    def _of(self, arm: str) -> Runs:
        return tuple(run for (_, run_arm), runs in self._runs.items() if run_arm == arm for run in runs)

    def _median(self, arm: str) -> Optional[float]:
        values = [value for run in self._of(arm) for value in self._values(run)]
        return median(values) if values else None


def _state(row: RowId, decision: Decision, observed: _Observed, family: Tuple[Set[RowId], Schedule]) -> RowState:
    sharing, schedule = family
    outlooks: Tuple[Outlook, ...] = ()
    if decision.scatter and decision.n > 2 and row in sharing:
        outlooks = outlooks_of(row.metric, Scatter(decision.scatter, decision.n - 1), len(sharing), schedule)
    empty = next((n for n, ratio in enumerate(observed.ratios) if ratio is not None), len(observed.ratios))
    late = None if row in sharing else f"no number until block {empty}, so it has no share of alpha"
    return RowState(
        row,
        decision,
        tuple(observed.ratios),
        observed.left_out,
        observed.capped,
        observed.forbidden,
        observed.medians,
        outlooks,
        late,
    )


def outlooks_of(metric: str, scatter: Scatter, rows: int, schedule: Schedule) -> Tuple[Outlook, ...]:
    """Return the blocks that each of EFFECTS takes with a scatter of the blocks' observations."""
    design, in_unit = schedule.design_of(metric), schedule.in_unit(metric)
    return tuple(outlook(effect * design.margin, scatter, rows, design, in_unit=in_unit) for effect in EFFECTS)


def key_rows(records: Sequence[RunRecord], schedule: Schedule) -> Dict[Key, List[Section]]:
    """Return the key rows of the usable runs of one side, with their runs by configuration."""
    side = Side("history", tuple(record for record in records if record.usable))
    rows: Dict[Key, List[Section]] = {}
    for section in compare(side, [side], _choice(schedule), Rules()).sections if side.runs else ():
        for row in section.rows:
            if row.comparison.key and row.key not in _without_rows(section, schedule):
                rows.setdefault(row.key, []).append(section)
    return rows


def expected(records: Sequence[RunRecord], schedule: Schedule) -> Dict[Key, Tuple[Scatter, Tuple[Outlook, ...]]]:
    """Return for each key row what repeated runs of one configuration let expect: the scatter of a block's observation,
    and the outlook. {} where no run is repeated.
    """
    rows = key_rows(records, schedule) if len(records) > 1 else {}
    expectations: Dict[Key, Tuple[Scatter, Tuple[Outlook, ...]]] = {}
    for key, sections in rows.items():
        additive = schedule.in_unit(key[2])
        groups = [
            [
                m.value
                for run in section.base
                for m in run.measurements
                if m.key == key and m.value is not None and (m.value or additive)
            ]
            for section in sections
        ]
        scatter = pooled_scatter([group for group in groups if len(group) > 1], in_unit=additive)
        if scatter:
            of_block = Scatter(scatter.value * math.sqrt(2 / schedule.per_arm), scatter.freedom)
            number = len(rows) * len(schedule.contrasts)
            expectations[key] = of_block, outlooks_of(key[2], of_block, number, schedule)
    return expectations

"""A gate: a comparison against limits, with an outcome that a pipeline can act on."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace
from enum import Enum
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Collection, FrozenSet, Iterator, List, Optional, Sequence, Set, Tuple

from cbt_plugins import exit_status
from cbt_plugins.compare import output
from cbt_plugins.compare.allowance import Allowance, latencies_of_failures, names_phase
from cbt_plugins.compare.sides import ComparisonWarning, Side, phases_and_operations
from cbt_plugins.compare.statistics.verdicts import Verdict, decide_verdicts
from cbt_plugins.compare.table import Choice, Compared, Row, Rules, Section, compare
from cbt_plugins.config.errors import ConfigError, ErrorAt
from cbt_plugins.config.yaml_source import YamlSource
from cbt_plugins.metrics import CLUSTER, METRICS, SURE_GAP, TOTAL, Direction, MetricSource
from cbt_plugins.results.run_record import Key, has_few_requests

_FORM = re.compile(r"\s*(?P<sign><=|>=|)\s*(?P<number>\d+(\.\d*)?|\.\d+)\s*(?P<unit>\S*)\s*\Z")
_RISE = re.compile(r"\s*\+\s*(?P<number>\d+(\.\d*)?|\.\d+)\s*(?P<unit>\S*)\s*\Z")
#: metrics that are never above 1
_SHARES = ("success_rate", "availability")
#: sources of the metrics that only failures and returns have
_OF_FAILURES = (MetricSource.EPISODE, MetricSource.LOSS, MetricSource.LOSSES)
#: of a limit as one text: "GET.p99_ms=10%", "success_rate>=0.999"
_TEXT = re.compile(r"(?P<key>[^<>=]+?)\s*(?P<sign><=|>=|=)(?P<value>.*)\Z", re.DOTALL)


@dataclass(frozen=True)
class Limit:
    """One limit. `text` is what the user wrote; exactly one of the last four is set."""

    text: str
    phase: Optional[str]  # patterns; None: all but states of a failure
    op: Optional[str]  # None: all but totals
    metric: str
    share: Optional[float] = None  # may become worse by so much
    rise: Optional[float] = None  # ... in the metric's unit
    most: Optional[float] = None  # the new value may be so much at most
    least: Optional[float] = None  # ... at least
    guessed: bool = False  # the last part of `phase` may be a pattern of operations as well

    @property
    def is_of_change(self) -> bool:
        """Whether it is about how much worse the new side is, and not about its value."""
        return self.share is not None or self.rise is not None

    def takes(self, key: Key) -> bool:
        phase, op, metric = key
        if self.phase is not None and not fnmatchcase(phase, self.phase):
            return False
        if self.op is not None:
            return fnmatchcase(op, self.op) and metric == self.metric
        everything = Choice(phases=(self.phase,) if self.phase else (), metrics=(self.metric,))
        return everything.takes(key)


@dataclass(frozen=True)
class GateLimits:
    """The limits of a gate; where several match, the last one counts.

    `by_name`: the percentiles of failures among the runs. A limit that names no phase is not about these.
    """

    limits: Tuple[Limit, ...]
    by_name: FrozenSet[Key] = frozenset()

    def takes(self, key: Key) -> bool:
        return self.of(key) is not None

    def asks(self, key: Key) -> bool:
        return True

    def names(self, key: Key) -> bool:
        return any(names_phase(limit.phase or "") and limit.takes(key) for limit in self.limits)

    def margin(self, key: Key) -> Optional[float]:
        limit = self.of(key)
        if limit is None:
            return None
        return limit.rise if METRICS[key[2]].additive else limit.share

    def allowance(self, key: Key) -> Optional[Allowance]:
        limit = self.of(key)
        return Allowance(limit.share, limit.rise) if limit and limit.is_of_change else None

    def is_key(self, key: Key, section: Section) -> bool:
        """Return True: every row with a limit was asked for."""
        return True

    def of(self, key: Key) -> Optional[Limit]:
        return next((limit for limit in reversed(self.limits) if self._matches(limit, key)), None)

    def of_value(self, key: Key) -> Optional[Limit]:
        """Return the limit of a row if it is one of the new side's value."""
        limit = self.of(key)
        return limit if limit and not limit.is_of_change else None

    def idle(self, keys: Sequence[Key]) -> List[Limit]:
        """Return the limits that match none of these rows."""
        return [limit for limit in self.limits if not any(self._matches(limit, key) for key in keys)]

    def _matches(self, limit: Limit, key: Key) -> bool:
        return limit.takes(key) and (names_phase(limit.phase or "") or key not in self.by_name)


def of_texts(texts: Sequence[str]) -> List[Limit]:
    """Parse the values of --limit. Raises ValueError."""
    limits = []
    for text in texts:
        parts = _TEXT.match(text.strip())
        if not parts:
            raise ValueError(f"--limit {text}: invalid limit: write GET.p99_ms=10% or 'success_rate>=0.999'")
        value = parts["value"] if parts["sign"] == "=" else parts["sign"] + parts["value"]
        try:
            limits.append(limit(parts["key"], value))
        except ValueError as e:
            raise ValueError(f"--limit {text}: {e}") from None
    return limits


def of_file(path: Path) -> List[Limit]:
    """Read a YAML file `limits: {GET.p99_ms: 10%, ...}`. Raises ConfigError with all errors, each with its place."""
    try:
        source = YamlSource(path.read_bytes(), str(path))
    except OSError as e:
        raise ConfigError([ErrorAt((), f"cannot be read: {e.strerror}", str(path))]) from None
    data = source.data
    errors = list(source.duplicates)
    if not isinstance(data, dict) or not isinstance(data.get("limits"), dict):
        raise ConfigError([*errors, source.error_at((), "missing `limits:`, a mapping of names to limits")])
    errors += [
        source.error_at((key,), "unknown key: only `limits` is allowed", True) for key in data if key != "limits"
    ]
    limits = []
    for key, value in data["limits"].items():
        try:
            limits.append(limit(str(key), str(value)))
        except ValueError as e:
            errors.append(source.error_at(("limits", key), str(e), of_key="metric" in str(e)))
    if errors:
        raise ConfigError(errors)
    return limits


def limit(key: str, value: str) -> Limit:
    """Parse "[[PHASE.]OPERATION.]METRIC" and "10%", "+1s", "<=50ms" or ">=0.999". Raises ValueError."""
    *place, metric = key.strip().split(".")
    if metric not in METRICS:
        near = difflib.get_close_matches(metric, METRICS, 1)
        hint = f"did you mean {near[0]}?" if near else f"the metrics are {', '.join(METRICS)}"
        raise ValueError(f"unknown metric {metric}: {hint}")
    everything = CLUSTER if METRICS[metric].source is MetricSource.EPISODE else TOTAL
    of_failure = bool(place) and _names_failure(place[-1], metric)
    guessed = of_failure and " " not in place[-1]
    op = everything if of_failure else place.pop() if place else None
    template = Limit(value.strip(), ".".join(place) or None, op, metric, guessed=guessed)
    if METRICS[metric].direction is Direction.NONE and not value.strip().startswith(("<", ">")):
        raise ValueError(f"metric {metric} has no better direction: give a <= or >= limit")
    rise = _RISE.match(value)
    if rise:
        _refuse_impossible_share(metric, value, float(rise["number"]))
        if rise["unit"] not in ("", METRICS[metric].unit) or not float(rise["number"]):
            raise ValueError(f"invalid limit {value!r}: write +2{METRICS[metric].unit}, in the unit of {metric}")
        return replace(template, rise=float(rise["number"]))
    form = _FORM.match(value)
    if not form or (not form["sign"] and form["unit"] not in ("", "%")):
        raise ValueError(f"invalid limit {value!r}: write 10%, +1s, <=50 or >=0.999")
    number, sign = float(form["number"]), form["sign"]
    template = replace(template, text=f"{sign}{form['number']}{form['unit']}")
    if sign:
        number = _in_unit(metric, value, number, form["unit"])
        return replace(template, most=number) if sign == "<=" else replace(template, least=number)
    if form["unit"] != "%" or number <= 0:
        raise ValueError(f"invalid limit {value!r}: write a change as 10% or +1s, a value as <=50 or >=0.999")
    return replace(template, share=round(number / 100, 12))


def _names_failure(pattern: str, metric: str) -> bool:
    """Return whether a part of a limit's name is about failures, returns or ladders, and not about operations.

    Names of failures and returns have a space, operations have none. A pattern without a space, such as `node*`, is
    about failures if only they have the metric and the pattern has small letters, but takes no `total` or `cluster`.
    """
    if " " in pattern or METRICS[metric].source is MetricSource.LADDER:
        return not fnmatchcase(TOTAL, pattern)
    of_ops = pattern == pattern.upper() or ":" in pattern or any(fnmatchcase(op, pattern) for op in (TOTAL, CLUSTER))
    return METRICS[metric].source in _OF_FAILURES and any(sign in pattern for sign in "*?[") and not of_ops


def _by_keys(limit: Limit, keys: Collection[Key]) -> Limit:
    """Return the limit, of operations if only these match a pattern such as `readers*`, and no failure does."""
    phase, _, op = (limit.phase or "").rpartition(".")
    of_ops = replace(limit, phase=phase or None, op=op, guessed=False)
    return of_ops if limit.guessed and not any(map(limit.takes, keys)) and any(map(of_ops.takes, keys)) else limit


def _in_unit(metric: str, value: str, number: float, unit: str) -> float:
    """Return the number of a limit of a value in the unit of the metric. Raises ValueError."""
    own = METRICS[metric].unit
    if unit not in ("", own, *(() if own else ("%",))):
        unit_text = f"{own}, the unit of {metric}" if own else f"no unit or %: {metric} is a share or a ratio"
        raise ValueError(f"invalid limit {value!r}: write {unit_text}")
    if unit == "%":
        number = round(number / 100, 12)
    _refuse_impossible_share(metric, value, number)
    return number


def _refuse_impossible_share(metric: str, value: str, number: float) -> None:
    """Raise ValueError for a limit of a share that is above 1."""
    if metric in _SHARES and number > 1:
        raise ValueError(f"invalid limit {value!r}: {metric} is a share of 1: write 0.999 or 99.9%")


class GateOutcome(Enum):
    """The outcome of a row or of the whole gate; the value is the exit status."""

    OK = exit_status.OK
    REGRESSION = exit_status.FAILED
    INCONCLUSIVE = exit_status.INCONCLUSIVE
    UNUSABLE = exit_status.UNUSABLE

    @property
    def word(self) -> str:
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True)
class Ruling:
    """The outcome of one row, or of a missing number, against its limit."""

    row: str
    limit: Limit
    outcome: GateOutcome
    why: str


@dataclass(frozen=True)
class Gated:
    """A comparison with its rulings. `rulings` are in the order of the rows, then of what is missing.

    `rulings_alone` are on the values of configurations that only a contender has. `shadowed` are limits whose rows all
    have a later limit, in words.
    """

    compared: Compared
    rulings: Tuple[Ruling, ...]
    rulings_alone: Tuple[Ruling, ...] = ()
    shadowed: Tuple[str, ...] = ()

    @property
    def every_ruling(self) -> Tuple[Ruling, ...]:
        return (*self.rulings, *self.rulings_alone)

    @property
    def outcome(self) -> GateOutcome:
        if not self.compared.usable:
            return GateOutcome.UNUSABLE
        outcomes = {ruling.outcome for ruling in self.every_ruling}
        order = (GateOutcome.REGRESSION, GateOutcome.INCONCLUSIVE)
        return next((outcome for outcome in order if outcome in outcomes), GateOutcome.OK)


def gate(base: Side, contenders: Sequence[Side], limits: GateLimits, rules: Rules) -> Gated:
    """Compare the rows that have a limit and judge them as one table.

    Raises Incomparable, and ValueError for a limit that matches nothing.

    A share L: regression when the row is worse by more than L beyond chance: the test is against the limit, and not
    against 0 (Holm over all rows of the gate); ok when it is surely worse by less than L (a one-sided test of alpha:
    the inner interval ends before L); inconclusive otherwise. A value: regression when the interval of the new runs
    lies beyond it, ok when it lies before it, inconclusive otherwise. Of a single run its value decides, of two runs
    both do. Configurations that only a contender has are held to the limits of values.
    """
    runs = [run for side in (base, *contenders) for run in side.runs]
    measured_keys = {key for run in runs for key in run.keys}
    limits_by_keys = tuple(_by_keys(limit, measured_keys) for limit in limits.limits)
    limits = replace(limits, limits=limits_by_keys, by_name=frozenset(latencies_of_failures(measured_keys)))
    compared = compare(base, contenders, limits, rules)
    keys = [row.key for row in compared.rows]
    missing = [warning for section in compared.sections for warning in section.missing]
    missing += _missing(compared, limits)
    alone = list(_values_alone(compared, limits))
    keys_with_limit = [*keys, *(warning.key for warning in missing), *(key for key, _ in alone)]
    for limit in limits.idle(keys_with_limit):
        names = phases_and_operations([key for run in base.runs for key in run.keys])
        raise ValueError(f"limit {_name(limit)} matches nothing: {names}")
    beyond = _beyond(compared.rows, rules.alpha)
    beyond_if_lost = _beyond([_against_worse(row) for row in compared.rows], rules.alpha)
    rulings = [
        _ruling(row, limits, (i in beyond, i in beyond_if_lost)) for i, row in enumerate(compared.rows)
    ]
    for warning in missing:
        limit_of = limits.of(warning.key)
        assert limit_of is not None
        rulings.append(Ruling(warning.where, limit_of, GateOutcome.INCONCLUSIVE, warning.text))
    in_use = set(map(id, map(limits.of, keys_with_limit)))
    shadowed = (f"{_name(limit)}: {limit.text}" for limit in limits.limits if id(limit) not in in_use)
    return Gated(compared, tuple(rulings), tuple(ruling for _, ruling in alone), tuple(shadowed))


def _values_alone(compared: Compared, limits: GateLimits) -> Iterator[Tuple[Key, Ruling]]:
    """Yield the rulings on the values with a limit in configurations that only a contender has."""
    for alone in compared.alone:
        if alone.side == compared.base.name:
            continue
        side = Side(alone.side, alone.runs)
        for section in compare(side, [side], limits, replace(compared.rules, scale=None)).sections:
            for row in section.rows:
                if limits.of_value(row.key):
                    yield row.key, _ruling(replace(row, case=alone.title), limits, (False, False))
            for key in (warning.key for warning in section.missing):
                limit, row_id = limits.of_value(key), "/".join((alone.title, *key))
                if limit:
                    yield key, Ruling(row_id, limit, GateOutcome.INCONCLUSIVE, f"no number of {alone.side}")


def _missing(compared: Compared, limits: GateLimits) -> Iterator[ComparisonWarning]:
    """Yield the numbers with a limit that the base has in configurations that a contender does not have, and those with
    a limit of a value that a configuration of a contender should have, because another configuration has them: all of
    a configuration that the base does not have, and of each one those of its operations and of what its load asks for.
    """
    for alone in (alone for alone in compared.alone if alone.side == compared.base.name):
        for key in dict.fromkeys(key for run in alone.runs for key in run.keys):
            if limits.takes(key):
                yield ComparisonWarning("missing", "/".join((alone.title, *key)), alone.text, key)
    cases = [(section.case, (*section.base, *section.new), False) for section in compared.sections]
    cases += [(alone.title, alone.runs, True) for alone in compared.alone if alone.side != compared.base.name]
    keys_of_cases = [dict.fromkeys(key for run in runs for key in run.keys) for _, runs, _ in cases]
    limit_of = {key: limits.of_value(key) for key in chain(*keys_of_cases)}
    for (case, runs, is_new), keys in zip(cases, keys_of_cases):
        ops, kept = {key[:2] for key in keys}, {limit_of[key] for key in keys}
        for (phase, op, metric), limit in limit_of.items():
            if not limit or (phase, op, metric) in keys:
                continue
            of_run = METRICS[metric].source in (*_OF_FAILURES, MetricSource.LADDER) and limit not in kept
            mix = (share.rpartition(":")[0] for share in str(runs[0].config.get(f"phase.{phase}.mix")).split())
            too_few = all(has_few_requests(run, phase, op, METRICS[metric].needs) for run in runs)
            if not too_few and ((is_new and of_run) or (phase, op) in ops or op in mix):
                row_id = "/".join(filter(None, (case, phase, op, metric)))
                yield ComparisonWarning("missing", row_id, "no run has this number", (phase, op, metric))


#: a margin in which no two measurements are equivalent: what is asked is only on which side of a limit they are
_NONE = 1e-12


def _beyond(rows: Sequence[Row], alpha: float) -> Set[int]:
    """Return the places of the rows that are surely beyond their limits."""
    against = {i: row.against for i, row in enumerate(rows) if row.against is not None}
    directions = {i: METRICS[rows[i].metric].direction for i in against}
    judged = decide_verdicts(against, directions, _NONE, alpha)
    return {i for i, comparison in judged.items() if comparison.verdict is Verdict.WORSE}


def _against_worse(row: Row) -> Row:
    """Return the row, with numbers for the runs that lost theirs that make the new side look better."""
    return row.if_lost[METRICS[row.metric].direction is not Direction.LOWER] if row.if_lost else row


def _ruling(row: Row, limits: GateLimits, beyond: Tuple[bool, bool]) -> Ruling:
    """Return the outcome of a row; inconclusive if it depends on numbers that runs lost.

    `beyond`: whether it is surely beyond its limit, and whether `_against_worse` of it is.
    """
    limit = limits.of(row.key)
    assert limit is not None
    outcome, why = _outcome(row, limit, beyond[0])
    if not row.if_lost or not _depends_on_lost(row, limit, outcome, beyond[1]):
        return Ruling(row.id, limit, outcome, why)
    sides = list(zip(("base", "new side"), row.case_runs, row.runs_without))
    judged_sides = sides if limit.is_of_change else sides[1:]
    few = [f"{n - without} of {n} runs of the {side}" for side, n, without in judged_sides if without]
    return Ruling(row.id, limit, GateOutcome.INCONCLUSIVE, f"{' and '.join(few)} have a number")


def _depends_on_lost(row: Row, limit: Limit, outcome: GateOutcome, beyond_if_lost: bool) -> bool:
    """Return whether the outcome of a row with lost numbers may be another one with them."""
    assert row.if_lost
    if outcome is GateOutcome.REGRESSION:
        # lost numbers make no value better
        return limit.is_of_change and _outcome(_against_worse(row), limit, beyond_if_lost)[0] is not outcome
    lower_is_better = METRICS[row.metric].direction is Direction.LOWER if limit.is_of_change else limit.most is not None
    return outcome is GateOutcome.OK and _outcome(row.if_lost[lower_is_better], limit, False)[0] is not outcome


def _outcome(row: Row, limit: Limit, beyond: bool) -> Tuple[GateOutcome, str]:
    return _change(row, limit, beyond) if limit.is_of_change else _value(row, limit)


def _change(row: Row, limit: Limit, beyond: bool) -> Tuple[GateOutcome, str]:
    comparison, allowed = row.comparison, row.allowed
    lower = METRICS[row.metric].direction is Direction.LOWER
    if comparison.change is None or allowed is None:
        return GateOutcome.INCONCLUSIVE, "no change can be computed"
    if comparison.forbidden_by:
        return GateOutcome.INCONCLUSIVE, comparison.forbidden_by.code
    tested, most = comparison, allowed
    limit_text = output.amount(allowed, comparison.unit) if limit.rise is None else limit.text
    of_limit = f", limit {limit_text}"
    if row.against and Allowance(limit.share).factor_of(METRICS[row.metric], comparison.base.value):
        # the limit is a share of a base that scatters: the interval is of the new side and the limit
        tested, most, of_limit = row.against, 0.0, f" than the limit of {limit_text}"
    readings = []
    for low, high in ((tested.change_low, tested.change_high), (tested.inner_low, tested.inner_high)):
        if low is None or high is None:
            alike = any(warning.code == "no-scatter" for warning in tested.warnings)
            return GateOutcome.INCONCLUSIVE, "no-scatter" if alike else "no interval: too few runs"
        readings.append((low, high) if lower else (-high, -low))
    both, sure = (f"{_reading(*ends, comparison.unit)}{of_limit}" for ends in readings)
    if beyond:
        base_gap = comparison.base.value
        if _are_lower_bounds(row.metric, base_gap):  # it may be as long as SURE_GAP, and so may be its share
            longest_allowed = max(allowed, SURE_GAP * (limit.share or 0.0)) - allowed + most
            if readings[0][0] - (SURE_GAP - base_gap) <= longest_allowed:
                return GateOutcome.INCONCLUSIVE, _LOWER_BOUND
        return GateOutcome.REGRESSION, both
    if comparison.capped_by:
        return GateOutcome.INCONCLUSIVE, comparison.capped_by.code
    if allowed < SURE_GAP and _are_lower_bounds(row.metric, comparison.base.value, comparison.new.value):
        return GateOutcome.INCONCLUSIVE, _LOWER_BOUND
    if readings[1][1] < most:
        return GateOutcome.OK, sure
    # of runs with equal values the inner interval may be the longer one at the end next to 0
    return GateOutcome.INCONCLUSIVE, both if readings[0][1] >= most else sure


_LOWER_BOUND = f"a gap below {SURE_GAP:g} s is a lower bound"


def _are_lower_bounds(metric: str, *values: float) -> bool:
    return metric == "longest_gap_s" and max(values) < SURE_GAP


def _reading(least: float, most: float, unit: str) -> str:
    """Return the interval of a change for the worse in words: "worse by 2.1 to 6.3 %"."""
    if most <= 0:
        return f"better by {output.bare_amount(-most, unit)} to {output.amount(-least, unit)}"
    if least >= 0:
        return f"worse by {output.bare_amount(least, unit)} to {output.amount(most, unit)}"
    return f"{output.amount(-least, unit)} better to {output.amount(most, unit)} worse"


def _value(row: Row, limit: Limit) -> Tuple[GateOutcome, str]:
    estimate = row.comparison.new
    low, high = estimate.low, estimate.high
    if estimate.forbidden_by:
        return GateOutcome.INCONCLUSIVE, estimate.forbidden_by.code
    if row.runs[1] == 1 or low is None or high is None:
        low, high = row.new_range
    beyond = low > limit.most if limit.most is not None else high < (limit.least or 0.0)
    before = high <= limit.most if limit.most is not None else low >= (limit.least or 0.0)
    subject = "the value" if low == high else "the interval"
    # so fast at less load than was asked for, or without requests that are missing
    held = estimate.flattered_by if limit.most is None else estimate.capped_by
    if before and held:
        return GateOutcome.INCONCLUSIVE, held.code
    if before and limit.most is not None and _are_lower_bounds(row.metric, limit.most):
        return GateOutcome.INCONCLUSIVE, _LOWER_BOUND
    if beyond or before:
        outcome = GateOutcome.REGRESSION if beyond else GateOutcome.OK
        return outcome, f"{subject} {'is beyond' if beyond else 'keeps'} the limit"
    return GateOutcome.INCONCLUSIVE, "the interval includes the limit"


def _name(limit: Limit) -> str:
    return ".".join(filter(None, (limit.phase, limit.op, limit.metric)))

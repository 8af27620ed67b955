"""Sides of a comparison, their cases (runs of both sides that have one configuration), and the warnings about them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any, Collection, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

from cbt_plugins.compare.comparable_runs import Runs, comparable_runs, first_comparable, merged_run
from cbt_plugins.compare.configuration_differences import (
    Difference,
    Incomparable,
    Scale,
    conflicts,
    differing,
    is_essential,
    short,
    text,
    within,
)
from cbt_plugins.compare.statistics import series_warnings
from cbt_plugins.compare.statistics.run_order import in_groups
from cbt_plugins.compare.statistics.verdicts import Comparison, StatisticsWarning, Verdict
from cbt_plugins.metrics import METRICS, Direction, Metric, MetricSource
from cbt_plugins.results.record_reader import each_record, readable_records
from cbt_plugins.results.result_file import Unreadable
from cbt_plugins.results.run_record import UNREADABLE, Key, Measurement, ResultWarning, RunRecord, Takes
from cbt_plugins.warning_kinds import Severity, caps, forbids_verdict, severity_of


@dataclass(frozen=True)
class Side:
    """One side of a comparison: runs of one or more archives, in the order in which they were given."""

    name: str
    runs: Runs
    given: Tuple[str, ...] = ()  # the paths
    unreadable: Tuple[str, ...] = ()  # runs of these paths that cannot be read: one sentence each


@dataclass(frozen=True)
class Case:
    """Runs of both sides with one configuration."""

    title: str  # "" where there is only one; otherwise what sets it apart: "phase.measure.workers=16"
    base: Runs
    new: Runs
    differences: Tuple[Difference, ...]


@dataclass(frozen=True)
class Alone:
    """Runs of one side in a configuration that the other side does not have."""

    side: str
    title: str  # as that of a case
    runs: Runs
    text: str  # one sentence


def cases(base: Side, new: Side, scale: Optional[Scale] = None) -> Tuple[List[Case], List[Alone]]:
    """Return the cases of both sides, and what only one side has. Raises Incomparable if no case matches."""
    base_groups, new_groups = comparable_runs(base.runs), comparable_runs(new.runs)
    left = list(zip(titles(new_groups), new_groups))
    pairs: List[Tuple[Runs, Runs]] = []
    alone = []
    for title, group in zip(titles(base_groups), base_groups):
        base_of_group = merged_run(group)
        match = next((pair for pair in left if not conflicts(base_of_group, merged_run(pair[1]), scale)), None)
        if match is None:
            nearest = _nearest(group, [runs for _, runs in left], scale)
            alone.append(Alone(base.name, title, group, f"only in {base.name}: {nearest}"))
        else:
            left.remove(match)
            pairs.append((group, match[1]))
    if not pairs:
        raise _incomparable(base, new, scale)
    alone += [Alone(new.name, title, group, f"only in {new.name}: {_names(group)}") for title, group in left]
    names = titles([base_runs for base_runs, _ in pairs])
    return [Case(title, a, b, tuple(differing(a, b))) for title, (a, b) in zip(names, pairs)], alone


def repeats(case: Case, runs_of_sides: Sequence[Sequence[RunRecord]]) -> List[Runs]:
    """Return the groups of runs that repeat one configuration that belongs to the case: they differ by chance only.

    `runs_of_sides`: the runs of each side, and of the history. Runs of two sides are never in one group, because they
    may differ; nor are runs with different options or versions. Each run counts once.
    """
    groups = runs_by_configuration(case, runs_of_sides).values()
    return [tuple(runs) for runs in groups if len(runs) > 1]


def runs_by_configuration(
    case: Case, runs_of_sides: Sequence[Sequence[RunRecord]]
) -> Dict[Tuple[int, Tuple[Tuple[str, str], ...]], List[RunRecord]]:
    """Return the usable runs that belong to the case, each once: (place of the side, configuration) -> runs."""
    runs_by_config: Dict[Tuple[int, Tuple[Tuple[str, str], ...]], List[RunRecord]] = {}
    runs_of_case = merged_run(case.base), merged_run(case.new)
    seen: Set[Tuple[str, str]] = set()
    for side, run in ((side, run) for side, runs in enumerate(runs_of_sides) for run in runs):
        belongs = any(not conflicts(of_side, run) for of_side in runs_of_case)
        if run.usable and belongs and _identity(run) not in seen:
            seen.add(_identity(run))
            config = tuple(sorted((key, text(value)) for key, value in run.config.items()))
            runs_by_config.setdefault((side, config), []).append(run)
    return runs_by_config


def _nearest(group: Runs, others: Sequence[Runs], scale: Optional[Scale]) -> str:
    if not others:
        return _names(group)
    reasons = min((conflicts(merged_run(group), merged_run(candidate), scale) for candidate in others), key=len)
    reason_text = ", ".join(
        f"{difference.key} is {difference.base}, in the other {difference.new}" for difference in reasons[:3]
    )
    return f"{_names(group)} ({reason_text})"


def _incomparable(base: Side, new: Side, scale: Optional[Scale]) -> Incomparable:
    base_runs, new_runs = (list(map(merged_run, comparable_runs(side.runs))) for side in (base, new))
    reasons = min((conflicts(a, b, scale) for a in base_runs for b in new_runs), key=len, default=[])
    return Incomparable(f"cannot compare {base.name} with {new.name}", reasons)


def _names(runs: Runs) -> str:
    return ", ".join(run.name for run in runs)


def titles(case_runs: Sequence[Runs]) -> Iterator[str]:
    """Yield a title for each case: the fewest essential keys that tell all cases of a side apart."""
    if len(case_runs) == 1:
        yield ""
        return
    configs = [runs[0].config for runs in case_runs]
    keys = sorted({key for config in configs for key in config if is_essential(key)})
    chosen: List[str] = []
    while keys and _apart(configs, chosen) < len(configs):
        # of keys that tell as many cases apart, the one that most cases have, and then the first by name
        best = max(keys, key=lambda key: (_apart(configs, [*chosen, key]), sum(key in config for config in configs)))
        if _apart(configs, [*chosen, best]) == _apart(configs, chosen):
            break
        chosen.append(best)
    for config in configs:
        yield ", ".join(f"{key}={text(config.get(key))}" for key in chosen)


def _apart(configs: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> int:
    """Return how many cases these keys tell apart."""
    return len({tuple(text(config.get(key)) for key in keys) for config in configs})


def _everything(_key: Key) -> bool:
    return True


def sides(paths: Sequence[Sequence[Path]], takes: Takes = _everything) -> List[Side]:
    """Return one side for each list of paths. Raises Unreadable, and ValueError when a run comes twice.

    Two sides may be the same runs: everybody tries that first. `takes`: the numbers that are compared.
    """
    return sides_of([_read(side_paths, takes) for side_paths in paths], paths)


def _read(paths: Sequence[Path], takes: Takes) -> List[RunRecord]:
    """Return the records of one side.

    Only the series of one run are compared: of runs that have one configuration the series are dropped, because the
    series of a long run take more memory than all its numbers. Of these runs only the numbers that `takes` takes are
    kept, because a run with many failures has more numbers than a comparison reads.
    """
    keep = _Keeper(takes)
    records: List[RunRecord] = []
    places: List[int] = []  # of the first record of each configuration
    for record in readable_records(paths):
        group = first_comparable([records[place] for place in places], record)
        if group is None:
            places.append(len(records))
            records.append(record)
        else:
            records[places[group]] = keep.numbers_of(records[places[group]])
            records.append(keep.numbers_of(record))
    return records


def former_runs(paths: Sequence[Path], takes: Takes = _everything) -> List[RunRecord]:
    """Return runs that only show by how much repeated runs differ: their numbers, and no series. Raises Unreadable."""
    keep = _Keeper(takes)
    return [keep.numbers_of(_numbers_of(run)) for path in paths for run in each_record(path)]


class _Keeper:
    """Keeps of runs only what is compared; equal keys of different runs are one object."""

    def __init__(self, takes: Takes) -> None:
        self._takes = lru_cache(maxsize=None)(takes)
        self._keys: Dict[Key, Key] = {}

    def numbers_of(self, run: RunRecord) -> RunRecord:
        """Return the run without series, and with the numbers that are compared."""
        if run.all_keys is not None:
            return run
        run = without_series(run)
        # `unrecovered` reads the times that are missing
        kept = tuple(m for m in run.measurements if self._takes(m.key) or (m.metric, m.value) == ("recovery_s", None))
        return replace(run, measurements=kept, all_keys=tuple(self._keys.setdefault(key, key) for key in run.keys))


def _numbers_of(run: RunRecord) -> RunRecord:
    return replace(run, measurements=tuple(replace(measurement, series=None) for measurement in run.measurements))


def without_series(run: RunRecord) -> RunRecord:
    """Return the run with the warnings of its series in place of the series."""
    if not any(measurement.series for measurement in run.measurements):
        return run
    return replace(_numbers_of(run), series_warnings=tuple(_warnings_of_series(run)))


def sides_of(read: Sequence[Sequence[RunRecord]], paths: Sequence[Sequence[Path]]) -> List[Side]:
    """Return one side for each list of records, which were read from these paths. Raises as `sides` does."""
    runs_of_sides = [[run for run in runs if not _unreadable(run)] for runs in read]
    damaged = [tuple(text for run in runs for text in _unreadable(run)) for runs in read]
    for runs, texts in zip(runs_of_sides, damaged):
        if not runs:
            raise Unreadable("; ".join(dict.fromkeys(texts)))
    identities = [set(map(_identity, runs)) for runs in runs_of_sides]
    for runs, own_identities in zip(runs_of_sides, identities):
        first_of: Dict[Tuple[str, str], RunRecord] = {}
        for run in runs:
            first = first_of.setdefault(_identity(run), run)
            if first is not run:
                copies = "" if first.source == run.source else f": {first.source} has the same run"
                raise ValueError(f"{run.source} is given twice{copies}")
        both = [
            run
            for run in runs
            if any(
                _identity(run) in side_identities and side_identities != own_identities
                for side_identities in identities
            )
        ]
        if both:
            raise ValueError(f"{both[0].source} is on both sides")
    releases = [_release(runs) for runs in runs_of_sides]
    names = (
        releases
        if all(releases) and len(set(releases)) == len(releases)
        else [_given(side_paths) for side_paths in paths]
    )
    given = [tuple(str(path) for path in side_paths) for side_paths in paths]
    return [
        Side(name, tuple(runs), *given_and_damaged)
        for name, runs, *given_and_damaged in zip(_unique(names), runs_of_sides, given, damaged)
    ]


def phases_and_operations(keys: Collection[Key]) -> str:
    """Return the phases and the operations that rows can be chosen by."""
    phases, ops = (", ".join(dict.fromkeys(key[place] for key in keys)) or "none" for place in (0, 1))
    return f"the phases are {phases}; the operations are {ops}"


def are_same(base: Runs, new: Runs) -> bool:
    """Return whether both sides are the same runs."""
    return set(map(_identity, base)) == set(map(_identity, new))


def _unreadable(run: RunRecord) -> Sequence[str]:
    """Return the reason why a run cannot be read; [] when it can."""
    return [warning.text for warning in run.warnings if warning.code == UNREADABLE and not run.keys]


def _identity(run: RunRecord) -> Tuple[str, str]:
    """Return a key of the run: a copy of an archive, or of another program's result, has the same one."""
    if run.digest:
        return run.digest, ""
    if run.run_id and run.started is not None:
        return run.run_id, repr(run.started)
    return str(Path(run.source).resolve()), run.name


def _release(runs: Sequence[RunRecord]) -> str:
    labels = {run.label for run in runs}
    return next(iter(labels)) or "" if len(labels) == 1 else ""


def _given(paths: Sequence[Path]) -> str:
    suffix = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{paths[0]}{suffix}"


def _unique(names: Sequence[str]) -> List[str]:
    unique_names: List[str] = []
    for name in names:
        again = sum(earlier_name == name for earlier_name in names[: len(unique_names)])
        unique_names.append(f"{name} ({again + 1})" if again else name)
    return unique_names


#: what matters only where seconds are compared, which says it by itself
_OF_SECONDS = ("autocorrelation", "short-series", "gaps")


@dataclass(frozen=True)
class ComparisonWarning:
    """One warning. `where` names the run, the phase and operation, or the row."""

    code: str
    where: str
    text: str
    key: Tuple[str, str, str] = ("", "", "")  # of a row that there would be: phase, operation, metric


def warnings_of_row(
    runs: Tuple[int, int], without: Tuple[int, int], pairs: Optional[int]
) -> Tuple[StatisticsWarning, ...]:
    """Return the warning about values that some runs of a row lack; `pairs`: those of which both runs have one."""
    if not any(without):
        return ()
    sides_of_runs = zip(("base", "other side"), runs, without)
    base, new = (f"{n - lost} of {n} runs of the {side}" for side, n, lost in sides_of_runs)
    of_pairs = "" if pairs is None else f", both runs of {pairs} pairs"
    return (StatisticsWarning("missing-values", f"{base} and {new} have a number{of_pairs}"),)


def held_back(comparison: Comparison, lower: Comparison, higher: Comparison, direction: Direction) -> Comparison:
    """Return a judged comparison; it is inconclusive if its verdict depends on numbers that runs lost.

    `lower`, `higher`: judged, too, with numbers for these runs that make the new side look lower and higher. A verdict
    must also be that of the one that speaks against it; "equivalent" that of both.
    """
    filled = [lower, higher] if comparison.verdict is Verdict.EQUIVALENT else []
    holds = True
    if comparison.differs:
        looks_higher = comparison.differs in ("higher", "worse" if direction is Direction.LOWER else "better")
        filled.append(lower if looks_higher else higher)
        holds = filled[-1].differs == comparison.differs
    if holds and all(judged.verdict is comparison.verdict for judged in filled):
        return comparison
    return replace(comparison, verdict=Verdict.INCONCLUSIVE)


def forbidding(side: str, runs: Runs, key: Tuple[str, str, str]) -> Tuple[StatisticsWarning, ...]:
    """Return the warnings of a side's runs that forbid a verdict on a row (phase, operation, metric), each kind once.
    """
    metric = key[2]
    texts_by_code: Dict[str, List[str]] = {}
    for warning in (warning for run in runs for warning in run.warnings):
        if (forbids_verdict(warning.code, metric) or caps(warning.code, metric)) and warning.is_about(*key):
            texts_by_code.setdefault(warning.code, []).append(warning.text)
    suffixes = {
        code: f" (and {len(texts) - 1} more)" if len(texts) > 1 else "" for code, texts in texts_by_code.items()
    }
    return tuple(
        StatisticsWarning(code, f"{side}: {texts[0]}{suffixes[code]}") for code, texts in texts_by_code.items()
    )


def other_limits(
    base: Sequence[Measurement], new: Sequence[Measurement], margin: float
) -> Tuple[StatisticsWarning, ...]:
    """Return the warning about bad seconds whose limits are of each side's own baseline, and differ by over `margin`.

    A higher limit of the new side does not explain that it is worse.
    """
    limits_of_sides = [
        [measurement.limit_ms for measurement in side if measurement.limit_ms] for side in (base, new)
    ]
    if not all(limits_of_sides):
        return ()
    first, second = map(median, limits_of_sides)
    if max(first, second) <= (1 + margin) * min(first, second):
        return ()
    text = f"p99 of a bad second: {first:.4g} ms and {second:.4g} ms, by each side's own baseline; give an `objective:`"
    return (StatisticsWarning("lenient-limits" if second > first else "other-limits", text),)


def within_run(metric: Metric) -> Iterator[StatisticsWarning]:
    """Yield the warnings about a comparison of repetitions, in one run of each side."""
    text = "repetitions in one run of each side: how much runs of one build differ is not in the interval"
    yield StatisticsWarning("within-run", text)
    if metric.of_baseline:
        text = "all repetitions of a run are divided by one baseline, whose scatter is not in the interval"
        yield StatisticsWarning("one-baseline", text)


def unrecovered(runs: Runs, key: Tuple[str, str, str]) -> Runs:
    """Return the runs without a number that needs the end of their recovery: the others are not a fair choice."""
    metric = METRICS[key[2]]
    if metric.source is not MetricSource.EPISODE and metric.path[:1] != ("back",):
        return ()
    # the rate of a recovery may be unknown for other reasons, and known of a failure that ended before its recovery
    end = (*key[:2], "recovery_s") if metric.path[0] == "recovery" else key
    return tuple(run for run in runs if None in _values(run, end) and None in (_values(run, key) or [None]))


def _values(run: RunRecord, key: Key) -> List[Optional[float]]:
    return [measurement.value for measurement in run.measurements if measurement.key == key]


def not_recovered(side: str, runs: Runs, key: Tuple[str, str, str]) -> Tuple[StatisticsWarning, ...]:
    """Return the warning about runs without a milestone of their recovery, or without its end."""
    without, metric = len(unrecovered(runs, key)), METRICS[key[2]]
    lacked = "end of the recovery" if metric.path[0] == "recovery" else f"time {metric.title}"
    text = f"{without} of {len(runs)} runs of the {side} side have no {lacked}: not reached, or not seen"
    return (StatisticsWarning("unrecovered-runs", text),) if without else ()


def warnings_of_case(case: Case, rows: Set[Tuple[str, str]]) -> Tuple[ComparisonWarning, ...]:
    """Return the warnings about the runs; those about its series only where `rows` has the phase and operation."""
    if are_same(case.base, case.new):
        text = "both sides are the same runs: nothing can differ"
        return (ComparisonWarning("same-runs", "base, new", text), *_mixed(case), *_runs("base", case.base, rows))
    each = [warning for side in ("base", "new") for warning in _runs(side, getattr(case, side), rows)]
    return (*_mixed(case), *_not_interleaved(case), *_same_archive(case), *each)


def _mixed(case: Case) -> Iterator[ComparisonWarning]:
    for side, runs in (("base", case.base), ("new", case.new)):
        for key, values in within(runs).items():
            if not is_essential(key):
                yield ComparisonWarning(
                    "mixed-side", side, f"{key} differs between its runs: {short(' | '.join(values))}"
                )


def _not_interleaved(case: Case) -> Iterator[ComparisonWarning]:
    """Yield a warning of sides that were made in groups, not in turns: a cluster that drifts looks like a change."""
    times = [[run.started for run in runs if run.started is not None] for runs in (case.base, case.new)]
    if min(len(starts) for starts in times) < 2:
        return
    first, second = times
    if max(first) < min(second) or max(second) < min(first):
        text = "all runs of one side were made before those of the other: the change includes any drift"
    elif in_groups(first, second):
        text = "runs of one side were made in groups, not in turns with the other side: the change may include drift"
    else:
        return
    every = len(case.base) + len(case.new)
    unknown = every - len(first) - len(second)
    if unknown:
        text += f" (no start is known of {unknown} of the {every} runs)"
    yield ComparisonWarning("not-interleaved", "base, new", text)


def _same_archive(case: Case) -> Iterator[ComparisonWarning]:
    """Yield a warning of sides with several iterations of one archive: archives of one build differ by chance, too."""
    sides = []
    for side, runs in (("base", case.base), ("new", case.new)):
        paths = [Path(run.source) for run in runs]
        archives = [path.parent.parent for path in paths if path.name.startswith("id-")]  # results/ITERATION/id-*
        if len(set(archives)) < len(archives):
            sides.append(side)
    if sides:
        text = "several runs are iterations of one archive: how much archives differ by chance is not in the interval"
        yield ComparisonWarning("same-archive", ", ".join(sides), text)


def _runs(side: str, runs: Runs, rows: Set[Tuple[str, str]]) -> Iterator[ComparisonWarning]:
    for run in runs:
        where = f"{side} {run.name}" if len({side_run.source for side_run in runs}) == 1 else f"{side} {run.source}"
        if not run.usable:
            text = "the run is incomplete, lost data, or is not to be trusted: do not use its numbers"
            yield ComparisonWarning("not-usable", where, text)
        for warning in run.warnings:
            if severity_of(warning.code) is not Severity.INFO:  # those of rows say it by themselves
                yield ComparisonWarning(warning.code, where, warning.text)
        yield from _of_series(where, run, rows)


def _of_series(where: str, run: RunRecord, rows: Set[Tuple[str, str]]) -> Iterator[ComparisonWarning]:
    for warning in (*run.series_warnings, *_warnings_of_series(run, rows)):
        if (warning.phase, warning.op) in rows:
            yield ComparisonWarning(warning.code, f"{where} {warning.phase} {warning.op}", warning.text)


def _warnings_of_series(run: RunRecord, rows: Optional[Set[Tuple[str, str]]] = None) -> Iterator[ResultWarning]:
    """Yield the warnings about the series of rates, of these rows or of all."""
    for measurement in run.measurements:
        phase, op = measurement.phase, measurement.op
        if measurement.metric == "obj_per_s" and measurement.series and (rows is None or (phase, op) in rows):
            for warning in series_warnings(np.asarray(measurement.series, dtype=float)):
                if warning.code not in _OF_SECONDS:
                    yield ResultWarning(warning.code, warning.text, phase, op)

"""Histories: metrics over many runs in the order of time, and where their level changed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from decimal import ROUND_FLOOR, Context
from statistics import mean, median, median_low
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from cbt_plugins.compare.allowance import latencies_of_failures
from cbt_plugins.compare.comparable_runs import comparable_runs
from cbt_plugins.compare.configuration_differences import Difference, differing
from cbt_plugins.compare.output import chance, change_of, number
from cbt_plugins.compare.sides import other_limits, titles, unrecovered
from cbt_plugins.compare.statistics import alpha_of_budget, change_points
from cbt_plugins.compare.statistics.change_point_search import SHORTEST, Settled
from cbt_plugins.compare.statistics.verdicts import Verdict
from cbt_plugins.compare.table import RULES, Wanted
from cbt_plugins.formatting import plain, when
from cbt_plugins.formatting.blocks import Block, Heading, Notes, TableGrid, Words
from cbt_plugins.metrics import METRICS, Direction
from cbt_plugins.results.run_record import UNTRUSTED, Key, RunRecord
from cbt_plugins.warning_kinds import caps, forbids_verdict, hides_worse

#: runs below which no change of a level can be found
FEWEST = 2 * SHORTEST


DAY = 86400.0
_DAYS = 365.25
#: days with runs, by which the rate of looks is known
_RECENT = 31


@dataclass(frozen=True)
class AlarmBudget:
    """How often a history may find a change where there is none."""

    #: false alarms a year of all histories together, which are looked at after each run (at most once a day)
    a_year: float = 1.0
    #: instead: the chance of a false change among all tracks in this one look
    alpha: Optional[float] = None

    def part(self, share: float) -> AlarmBudget:
        """Return the budget of a part of the tracks."""
        return AlarmBudget(self.a_year * share, None if self.alpha is None else self.alpha * share)

    def of(self, times: Sequence[float]) -> float:
        """Return the chance of a false change in one look at runs made at these times."""
        if self.alpha is not None:
            return self.alpha
        return alpha_of_budget(self.a_year, self.looks(times))

    @staticmethod
    def looks(times: Sequence[float]) -> float:
        """Return the number of looks in a year, at most one a day, at the rate of the last days that have runs.

        Neither an old run nor a wrong clock makes nightly looks seldom: the middle gap counts, or a smaller mean gap.
        """
        days = sorted({int(time // DAY) for time in times})[-_RECENT:]
        gaps = [after - before for before, after in zip(days, days[1:])]
        return _DAYS / min(median_low(gaps), mean(gaps)) if gaps else _DAYS


#: of a history that is looked at for a long time
DEFAULT_BUDGET = AlarmBudget()


@dataclass(frozen=True)
class LevelWarning:
    """A warning of some runs of a level that forbids a verdict on a track, or is about a limit of the load."""

    code: str
    level: str  # "before" or "after" the change
    runs: int  # that have it, of ...
    of: int
    text: str  # of the first


@dataclass(frozen=True)
class LevelChange:
    """A change of the level between two runs; `differences` are those of their configurations."""

    before_run: RunRecord
    run: RunRecord
    before: float
    after: float
    p: float
    differences: Tuple[Difference, ...]
    warnings: Tuple[LevelWarning, ...]
    forbidden: bool  # at least half of the runs of a level have a warning that forbids this verdict


@dataclass(frozen=True)
class Track:
    """One metric. `values` has a number or None for each run of the case."""

    phase: str
    op: str
    metric: str
    values: Tuple[Optional[float], ...]
    changes: Tuple[LevelChange, ...]

    @property
    def known_values(self) -> List[float]:
        return [value for value in self.values if value is not None]

    def verdict(self, change: LevelChange) -> str:
        if change.forbidden:
            return Verdict.INCONCLUSIVE.value
        direction = METRICS[self.metric].direction
        if direction is Direction.NONE:
            return "differs"
        return "better" if (change.after > change.before) == (direction is Direction.HIGHER) else "worse"


@dataclass(frozen=True)
class History:
    """Runs of one configuration in the order of time, and their tracks."""

    case: str
    runs: Tuple[RunRecord, ...]
    tracks: Tuple[Track, ...]
    alpha: float  # chance of a false change among all tracks in this look
    budget: AlarmBudget  # of these tracks


def histories(
    records: Sequence[RunRecord],
    choice: Wanted,
    budget: AlarmBudget = DEFAULT_BUDGET,
    seed: int = 0,
    settled: Optional[Settled] = None,
) -> List[History]:
    """Return a history for each configuration among the runs, the one with most runs first.

    `budget` is that of the tracks of all histories together; `settled` is that of `change_points`. Raises ValueError
    when a run of several has no time.
    """
    untimed = [record for record in records if record.started is None and record.usable]
    if len(records) > 1 and untimed:
        text = f"{len(untimed)} of {len(records)} results have no time, so they cannot be ordered"
        raise ValueError(f"{text}: the first is {untimed[0].name} of {untimed[0].kind} in {untimed[0].source}")
    ordered = sorted(records, key=lambda record: (record.started or 0.0, record.source, record.name))
    cases = comparable_runs(ordered)
    named = sorted(zip(titles(cases), cases), key=lambda case: (-len(case[1]), case[0]))
    look = _LookOptions(budget, seed, {} if settled is None else settled)
    levels = [_levels(runs, choice) for _, runs in named]
    number = sum(map(_searched, levels))
    return [_history(title, runs, level, number, look) for (title, runs), level in zip(named, levels)]


class _LookOptions(NamedTuple):
    budget: AlarmBudget
    seed: int
    settled: Settled


def _levels(runs: Sequence[RunRecord], choice: Wanted) -> Dict[Key, List[Optional[float]]]:
    """Return the values of each track, one for each run."""
    table: Dict[Key, List[Optional[float]]] = {}
    keys: Set[Key] = set()
    for i, run in enumerate(runs):
        keys.update(run.all_keys or ())
        for measurement in run.measurements:
            key = measurement.key
            if key not in table:
                keys.add(key)
                if not choice.takes(key):
                    continue
                table[key] = [None] * len(runs)
            table[key][i] = measurement.value if run.usable else None
    level = {
        key: values
        for key, values in table.items()
        if METRICS[key[2]].expected is None or len(set(values) - {None}) > 1
    }
    by_name = latencies_of_failures(keys)
    return {key: values for key, values in level.items() if key not in by_name or choice.names(key)}


def _searched(level: Dict[Key, List[Optional[float]]]) -> int:
    """Return how many tracks have enough runs for a change."""
    return sum(len(values) - values.count(None) >= FEWEST for values in level.values())


def _history(
    case: str, runs: Tuple[RunRecord, ...], level: Dict[Key, List[Optional[float]]], number: int, look: _LookOptions
) -> History:
    """Return the history of a configuration; `number`: the tracks of all configurations, which share the budget."""
    budget = look.budget.part(_searched(level) / max(1, number))
    alpha = budget.of([run.started for run in runs if run.started is not None])
    share = _rounded_down(alpha / max(1, _searched(level)))
    tracks = tuple(_track(key, runs, values, share, look) for key, values in level.items())
    return History(case, runs, tracks, alpha, budget)


def _rounded_down(share: float) -> float:
    """Return a share with two digits: it is the same in looks of many nights, and so is what they have settled."""
    return float(Context(prec=2, rounding=ROUND_FLOOR).create_decimal(repr(share)))


def _track(
    key: Key, runs: Sequence[RunRecord], values: Sequence[Optional[float]], alpha: float, look: _LookOptions
) -> Track:
    places = [place for place, value in enumerate(values) if value is not None]
    points = []
    if len(places) >= FEWEST:
        points = change_points([value for value in values if value is not None], alpha, look.seed, look.settled)
    cuts = [0, *(point.index for point in points), len(places)]
    levels = [_level_of(runs, values, places, level) for level in zip(cuts, cuts[1:])]
    changes = []
    for point, both in zip(points, zip(levels, levels[1:])):
        before, after = both[0].runs[-1], both[1].runs[0]
        differences = tuple(differing([before], [after]))
        sides = [_level_warnings(*side, key, forbids_verdict) for side in zip(_SIDES, both)]
        missing = [_missing_numbers(*side, key) for side in zip(_SIDES, both)]
        warned = (runs + len(level.without) for (_, runs), level in zip(sides, both))
        is_lower = point.after < point.before
        of_limits = _limit_warnings(key, both, is_lower)
        of_load, is_capped = _load_warnings(key, both, is_lower)
        forbidden = bool(of_limits) or is_capped or any(2 * n >= level.size for n, level in zip(warned, both))
        of_sides = (warning for (of_runs, _), lost in zip(sides, missing) for warning in (*of_runs, *lost))
        warnings = (*of_sides, *of_limits, *of_load)
        changes.append(LevelChange(before, after, point.before, point.after, point.p, differences, warnings, forbidden))
    return Track(*key, tuple(values), tuple(changes))


class _LevelRuns(NamedTuple):
    """The runs of a level, and the runs of its time that have no number: those with a number are no fair choice."""

    runs: List[RunRecord]
    without: List[RunRecord]

    @property
    def size(self) -> int:
        return len(self.runs) + len(self.without)


def _level_of(
    runs: Sequence[RunRecord], values: Sequence[Optional[float]], places: Sequence[int], level: Tuple[int, int]
) -> _LevelRuns:
    """Return a level, from its first to behind its last one of `places`, the places of the runs with a number.

    A run without a number belongs to the level after it, but for those before the first number, which may have been
    measured later only; the last level lasts until the last run of all.
    """
    begin, end = level
    low = places[begin - 1] + 1 if begin else min(places, default=0)
    high = places[end - 1] + 1 if 0 < end < len(places) else len(runs)
    without = [run for run, value in zip(runs[low:high], values[low:high]) if value is None and run.usable]
    return _LevelRuns([runs[place] for place in places[begin:end]], without)


_SIDES = ("before", "after")


def _level_warnings(
    name: str, level: _LevelRuns, key: Key, counts: Callable[[str, str], bool]
) -> Tuple[List[LevelWarning], int]:
    """Return the warnings of a level's runs about a metric whose code counts for it, each kind once, and how many runs
    have any.
    """
    having = [
        [warning for warning in run.warnings if counts(warning.code, key[2]) and warning.is_about(*key)]
        for run in level.runs
    ]
    texts_by_code: Dict[str, List[str]] = {}
    for each in having:
        for code, text in {warning.code: warning.text for warning in each}.items():
            texts_by_code.setdefault(code, []).append(text)
    warnings = [LevelWarning(code, name, len(texts), level.size, texts[0]) for code, texts in texts_by_code.items()]
    return warnings, sum(map(bool, having))


def _missing_numbers(name: str, level: _LevelRuns, key: Key) -> List[LevelWarning]:
    """Return the warning about runs of a level without a number."""
    if not level.without:
        return []
    code = "unrecovered-runs" if unrecovered(tuple(level.without), key) else "missing-values"
    return [LevelWarning(code, name, len(level.without), level.size, "no number")]


def _load_warnings(key: Key, levels: Sequence[_LevelRuns], is_lower: bool) -> Tuple[List[LevelWarning], bool]:
    """Return the warnings about limits of the load that may be the reason for a change, and whether at least half of
    the runs of a level have one: then the change is not better, nor worse if the limit may be why.
    """
    lower_is_better = METRICS[key[2]].direction is Direction.LOWER
    sides = [_level_warnings(*side, key, caps) for side in zip(_SIDES, levels)]

    def are_reason(before: List[str], after: List[str]) -> bool:
        is_better = is_lower == lower_is_better
        return bool(before or after) and (is_better or hides_worse(before, after, lower_is_better))

    codes = [[warning.code for warning in warnings] for warnings, _ in sides]
    if not are_reason(*codes):
        return [], False
    of_half = [names if 2 * runs >= level.size else [] for names, (_, runs), level in zip(codes, sides, levels)]
    return [warning for warnings, _ in sides for warning in warnings], are_reason(*of_half)


def _limit_warnings(key: Key, levels: Sequence[_LevelRuns], is_lower: bool) -> List[LevelWarning]:
    """Return the warning about bad seconds by the baselines of the runs themselves, if it forbids the verdict."""
    before, after = (
        [measurement for run in level.runs for measurement in run.measurements if measurement.key == key]
        for level in levels
    )
    runs = len(levels[1].runs)
    return [
        LevelWarning(warning.code, "after", runs, levels[1].size, warning.text)
        for warning in other_limits(before, after, RULES.margin_of("p99_ms"))
        if forbids_verdict(warning.code) or (is_lower and caps(warning.code, key[2]))
    ]


HEAD = ("phase", "op", "metric", "unit", "from", "release", "before", "after", "change", "p", "")
LEVELS = ("phase", "op", "metric", "unit", "runs", "median", "lowest", "highest", "last")


def blocks(histories: Sequence[History]) -> List[Block]:
    """Return the histories as blocks: the changes first, then the level of every track."""
    parts: List[Block] = []
    for history in histories:
        if len(histories) > 1:
            parts.append(Heading(history.case))
        parts.append(Words((f"{len(history.runs)} runs, {_span(history)}",)))
        changes = [(track, change) for track in history.tracks for change in track.changes]
        parts += [
            TableGrid(HEAD, tuple(_change(track, change) for track, change in changes), left=6, title="changes"),
            Notes("configuration changes", tuple(_reasons([change for _, change in changes]))),
            Notes("levels with warnings", tuple(_doubts(changes))),
            TableGrid(
                LEVELS, tuple(_level(track) for track in history.tracks if track.known_values), left=4, title="levels"
            ),
            Notes("warnings", tuple(_warnings_of_history(history))),
        ]
        if not changes:
            parts.append(Words((no_change_text(history),)))
        parts.append(Words((_promise(history),)))
    return parts


def no_change_text(history: History) -> str:
    """Return that no level has changed; where the last runs have no number, that nobody knows their level."""
    usable = [run.usable for run in history.runs]
    unknown = {}
    for track in history.tracks:
        values = [value for value, is_usable in zip(track.values, usable) if is_usable]
        number_of_last = next((i for i, value in enumerate(reversed(values)) if value is not None), 0)
        if number_of_last >= SHORTEST:
            unknown[f"{track.phase} {track.op} {METRICS[track.metric].title}"] = number_of_last
    rows = "; ".join(f"the last {runs} runs have no number of {row}" for row, runs in unknown.items())
    return f"no level change found among runs that have a number; {rows}" if rows else "no level change found"


def _promise(history: History) -> str:
    """Return the rate of alarms that noise alone gives, in words."""
    alpha, rows = f"{history.alpha:.2g}", len(history.tracks)
    look = f"the chance of a false change in one look is {alpha}, over {rows} {'row' if rows == 1 else 'rows'}"
    if history.budget.alpha is not None:
        return look
    times = [run.started for run in history.runs if run.started is not None]
    a_year = history.alpha * AlarmBudget.looks(times)
    looks = "looked at after each run, but not more than daily"
    return f"false alarms: at most {a_year:.2g} a year if runs are independent, {looks}; {look}"


def _span(history: History) -> str:
    times = [run.started for run in history.runs if run.started is not None]
    if not times:
        return "at unknown times"
    first, last = times[0], times[-1]
    return f"{when(first)} to {when(last)}"


def _change(track: Track, change: LevelChange) -> Tuple[str, ...]:
    metric = METRICS[track.metric]
    return (
        *(track.phase, track.op, metric.title, metric.unit, when(change.run.started), change.run.label or "-"),
        *(plain(change.before), plain(change.after)),
        *(change_of(metric, change.before, change.after), chance(change.p), track.verdict(change)),
    )


def _level(track: Track) -> Tuple[str, ...]:
    metric, values = METRICS[track.metric], track.known_values
    numbers = (median(values), min(values), max(values), values[-1])
    return (track.phase, track.op, metric.title, metric.unit, str(len(values)), *map(plain, numbers))


def _reasons(changes: Sequence[LevelChange]) -> Iterator[str]:
    for change in _firsts(changes):
        texts = [f"{difference.key}: {difference.base} -> {difference.new}" for difference in change.differences]
        yield f"{when(change.run.started)} ({change.run.source}): {'; '.join(texts) or 'no recorded difference'}"


def _doubts(changes: Sequence[Tuple[Track, LevelChange]]) -> Iterator[str]:
    for track, change in changes:
        row = f"{when(change.run.started)} ({track.phase} {track.op} {METRICS[track.metric].title})"
        for warning in change.warnings:
            yield f"{row}: {warning.code} in {warning.runs} of {warning.of} runs {warning.level} it: {warning.text}"


def _firsts(changes: Sequence[LevelChange]) -> List[LevelChange]:
    """Return the first change of each run."""
    first_changes: Dict[Tuple[str, str], LevelChange] = {}
    for change in changes:
        first_changes.setdefault((change.run.source, change.run.name), change)
    return sorted(first_changes.values(), key=lambda change: change.run.started or 0.0)


def _warnings_of_history(history: History) -> Iterator[str]:
    for run in history.runs:
        if not run.usable:
            reasons = [warning.text for warning in run.warnings if warning.code in ("changed-file", UNTRUSTED)]
            yield f"not-usable ({run.source}): its numbers are left out{''.join(f'; {text}' for text in reasons)}"
    runs = tuple(run for run in history.runs if run.usable)
    for track in history.tracks:
        without = unrecovered(runs, (track.phase, track.op, track.metric))
        if without:
            row = f"{track.phase} {track.op} {METRICS[track.metric].title}"
            many = f"{len(without)} of {len(runs)} runs have no time, the last one of {when(without[-1].started)}"
            yield f"unrecovered-runs ({row}): {many}: not reached, or not seen; the levels are of the other runs"
    short = sum(len(track.known_values) < FEWEST for track in history.tracks)
    if short:
        yield f"too-few-runs: {short} of {len(history.tracks)} series have fewer than {FEWEST} runs: too few"


def table(histories: Sequence[History]) -> List[Sequence[str]]:
    """Return a line for each run, a column for each track, as other change point programs read it; the first names
    the columns.
    """
    names = list(dict.fromkeys(_name(track) for history in histories for track in history.tracks))
    lines: List[Sequence[str]] = [("time", "case", "source", "release", *names)]
    for history in histories:
        tracks = {_name(track): track for track in history.tracks}
        for i, run in enumerate(history.runs):
            values = [number(tracks[name].values[i]) if name in tracks else None for name in names]
            shown = ("" if value is None else f"{value:.10g}" for value in values)
            lines.append((_time(run), history.case, run.source, run.label or "", *shown))
    return lines


def _time(run: RunRecord) -> str:
    if run.started is None:
        return ""
    return datetime.fromtimestamp(run.started, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def data(histories: Sequence[History]) -> List[Dict[str, Any]]:
    """Return the histories as plain values."""
    return [_data(history) for history in histories]


def _data(history: History) -> Dict[str, Any]:
    return {
        "case": history.case,
        "alpha": number(history.alpha),
        "false_alarms_a_year": None if history.budget.alpha is not None else history.budget.a_year,
        "runs": [
            {"source": run.source, "name": run.name, "release": run.label, "started": run.started, "usable": run.usable}
            for run in history.runs
        ],
        "tracks": [
            {
                **{"id": _name(track), "phase": track.phase, "op": track.op, "metric": track.metric},
                "unit": METRICS[track.metric].unit,
                "values": [number(value) for value in track.values],
                "changes": [_change_data(track, history, change) for change in track.changes],
            }
            for track in history.tracks
        ],
    }


def _change_data(track: Track, history: History, change: LevelChange) -> Dict[str, Any]:
    return {
        "run": history.runs.index(change.run),
        "before": number(change.before),
        "after": number(change.after),
        "p": number(change.p),
        "verdict": track.verdict(change),
        "warnings": [asdict(warning) for warning in change.warnings],
        "differences": [
            {"key": difference.key, "before": difference.base, "after": difference.new}
            for difference in change.differences
        ],
    }


def _name(track: Track) -> str:
    return "/".join((track.phase, track.op, track.metric))

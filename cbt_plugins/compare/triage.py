"""triage.yaml: what people have decided about the changes of a history. It lies beside the archives, in git.

    changes:
      - series: measure-aged.GET.p99_ms
        since: 2026-03-02
        state: acknowledged
        bug: https://tracker.ceph.com/issues/12345
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from dataclasses import dataclass
from datetime import date, datetime, timezone
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Dict, List, Optional, Sequence, Tuple

from pydantic import BeforeValidator, Field, field_validator

from cbt_plugins.compare.configuration_differences import text
from cbt_plugins.compare.history import History, LevelChange, Track
from cbt_plugins.compare.statistics.change_point_search import SHORTEST
from cbt_plugins.config.errors import ConfigError, ErrorAt, did_you_mean
from cbt_plugins.config.key_errors import Strict, validate
from cbt_plugins.config.yaml_source import read
from cbt_plugins.metrics import METRICS

FILE = "triage.yaml"
_DAY = 86400.0
_LINK = re.compile(r"https?://[^\s\"'<>\\]+")


class TriageState(Enum):
    """What was decided about a change; "open" without an entry."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    EXPECTED = "expected"
    HIDDEN = "hidden"


_STATES = tuple(state.value for state in TriageState if state is not TriageState.OPEN)


def _time(value: Any) -> float:
    """Return the epoch seconds of a date or time of YAML; times without a zone are UTC."""
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=timezone.utc)).timestamp()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=timezone.utc).timestamp()
    raise ValueError("must be a date or a time (UTC), such as 2026-03-02 or 2026-03-02 22:30:00, without quotes")


class TriageEntry(Strict):
    """A decision about the changes of one or several series at one time."""

    series: str = Field(min_length=1, description="[PHASE.]OPERATION.METRIC, with shell patterns.")
    since: Annotated[float, BeforeValidator(_time)] = Field(description="Date or time of the first run after it.")
    state: str = Field(description="acknowledged, expected or hidden.")
    bug: Optional[str] = Field(None, description="Address of a bug report.")
    note: Optional[str] = Field(None, min_length=1, description="A sentence.")
    case: Optional[str] = Field(None, min_length=1, description="Configuration, with shell patterns. Default: all.")

    @field_validator("series")
    @classmethod
    def _of_metric(cls, text: str) -> str:
        metric = text.rpartition(".")[2]
        if not any(fnmatchcase(name, metric) for name in METRICS):
            raise ValueError(f"{metric!r} is no metric{did_you_mean(metric, METRICS) or '; write OPERATION.METRIC'}")
        return text

    @field_validator("state")
    @classmethod
    def _is_state(cls, text: str) -> str:
        if text not in _STATES:
            raise ValueError(f"must be {', '.join(_STATES[:-1])} or {_STATES[-1]}{did_you_mean(text, _STATES)}")
        return text

    @field_validator("bug")
    @classmethod
    def _is_link(cls, text: Optional[str]) -> Optional[str]:
        if text is not None and not _LINK.fullmatch(text):
            raise ValueError("must be an address that begins with https:// or http://")
        return text

    def is_about(self, history: History, track: Track) -> bool:
        """Tell whether the entry is about the series of a history."""
        names = (".".join((track.phase, track.op, track.metric)), f"{track.op}.{track.metric}")
        return any(fnmatchcase(name, self.series) for name in names) and _has_case(history, self.case or "*")


def _has_case(history: History, case: str) -> bool:
    """Return whether a history is of a case: by its title, or by each KEY=VALUE of its configuration.

    The title of a configuration depends on the others of the history, and on the version that wrote it.
    """
    if fnmatchcase(history.case, case):
        return True
    config = history.runs[0].config
    parts = [part.partition("=") for part in case.split(", ")]
    return all(fnmatchcase(text(config.get(key)), value) for key, _, value in parts)


class TriageFile(Strict):
    """The file."""

    changes: List[TriageEntry] = Field(description="Decisions; of two about one change the first counts.")


@dataclass(frozen=True)
class Triaged:
    """A change of a series, and what was decided about it."""

    history: History
    track: Track
    change: LevelChange
    state: TriageState = TriageState.OPEN
    entry: Optional[TriageEntry] = None


def read_triage(path: Path) -> Tuple[TriageEntry, ...]:
    """Return the entries of a file. Raises ConfigError with every error."""
    source = read(path)
    data: Any = source.data
    errors: List[ErrorAt] = list(source.duplicates)
    if not isinstance(data, dict):
        raise ConfigError([*errors, source.error_at((), "missing `changes:`, a list of decisions")])
    valid, wrong = validate(TriageFile, data)
    errors += [source.error_at(place, text, of_key) for place, text, of_key in wrong]
    if errors or valid is None:
        raise ConfigError(errors)
    return tuple(valid.changes)


def triage(histories: Sequence[History], entries: Sequence[TriageEntry]) -> Tuple[List[Triaged], List[TriageEntry]]:
    """Return every change with its state, and the entries that are about none.

    A change moves by some runs while others follow it: the nearest one counts, at most `SHORTEST` runs from `since`.
    """
    entry_of: Dict[Tuple[int, int, int], TriageEntry] = {}
    idle = []
    for entry in entries:
        places = [
            place
            for h, history in enumerate(histories)
            for t, track in enumerate(history.tracks)
            if entry.is_about(history, track)
            for place in ((h, t, c) for c in _nearest(history, track, entry.since))
        ]
        if not places:
            idle.append(entry)
        for place in places:
            entry_of.setdefault(place, entry)
    triaged = []
    for h, history in enumerate(histories):
        for t, track in enumerate(history.tracks):
            for c, change in enumerate(track.changes):
                found_entry = entry_of.get((h, t, c))
                state = TriageState(found_entry.state) if found_entry else TriageState.OPEN
                triaged.append(Triaged(history, track, change, state, found_entry))
    return triaged, idle


def _nearest(history: History, track: Track, since: float) -> List[int]:
    """Return the number of the track's change that is nearest to a time; [] where none is near.

    No change is near a time that is a day or more before the first run: a change of a run that is gone was meant.
    """
    times = [run.started or 0.0 for run in history.runs]
    first = next(filter(None, times), math.inf)
    if not track.changes or not first - _DAY < since <= times[-1]:
        return []
    at = bisect_left(times, since)
    far, nearest = min((abs(bisect_left(times, c.run.started or 0.0) - at), i) for i, c in enumerate(track.changes))
    return [nearest] if far <= SHORTEST else []

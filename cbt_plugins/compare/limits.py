"""Limits of a gate: how much worse each metric may become, or what it must not pass."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from cbt_plugins.compare.choice import Choice, Key
from cbt_plugins.config.errors import ConfigError, ErrorAt
from cbt_plugins.config.source import Source
from cbt_plugins.metrics import METRICS, Direction

_FORM = re.compile(r"\s*(?P<sign><=|>=|)\s*(?P<number>\d+(\.\d*)?|\.\d+)\s*(?P<percent>%?)\s*\Z")
#: of a limit as one text: "GET.p99_ms=10%", "success_rate>=0.999"
_TEXT = re.compile(r"(?P<key>[^<>=]+?)\s*(?P<sign><=|>=|=)(?P<value>.*)\Z", re.DOTALL)


@dataclass(frozen=True)
class Limit:
    """`text` is what the user wrote; exactly one of the last three is set."""

    text: str
    phase: Optional[str]  # patterns; None: all but states of a failure
    op: Optional[str]  # None: all but totals
    metric: str
    share: Optional[float] = None  # may become worse by so much
    most: Optional[float] = None  # the new value may be so much at most
    least: Optional[float] = None  # ... at least

    def takes(self, key: Key) -> bool:
        phase, op, metric = key
        if self.phase is not None and not fnmatchcase(phase, self.phase):
            return False
        if self.op is not None:
            return fnmatchcase(op, self.op) and metric == self.metric
        everything = Choice(phases=(self.phase,) if self.phase else (), metrics=(self.metric,))
        return everything.takes(key)


@dataclass(frozen=True)
class Limits:
    """All limits of a gate; where several match, the last one counts."""

    limits: Tuple[Limit, ...]

    def takes(self, key: Key) -> bool:
        return self.of(key) is not None

    def asks(self, metric: str) -> bool:
        return True

    def margin(self, key: Key) -> Optional[float]:
        its = self.of(key)
        return its.share if its else None

    def of(self, key: Key) -> Optional[Limit]:
        return next((limit for limit in reversed(self.limits) if limit.takes(key)), None)

    def idle(self, keys: Sequence[Key]) -> List[Limit]:
        """Limits that match none of these rows."""
        return [limit for limit in self.limits if not any(limit.takes(key) for key in keys)]


def of_texts(texts: Sequence[str]) -> List[Limit]:
    """The values of --limit. Raises ValueError."""
    found = []
    for text in texts:
        parts = _TEXT.match(text.strip())
        if not parts:
            raise ValueError(f"--limit {text}: such as GET.p99_ms=10%, or 'success_rate>=0.999'")
        value = parts["value"] if parts["sign"] == "=" else parts["sign"] + parts["value"]
        try:
            found.append(limit(parts["key"], value))
        except ValueError as e:
            raise ValueError(f"--limit {text}: {e}") from None
    return found


def of_file(path: Path) -> List[Limit]:
    """A YAML file `limits: {GET.p99_ms: 10%, ...}`. Raises ConfigError with all errors, each with its place."""
    try:
        source = Source(path.read_bytes(), str(path))
    except OSError as e:
        raise ConfigError([ErrorAt((), f"cannot be read: {e.strerror}", str(path))]) from None
    data = source.data
    errors = list(source.duplicates)
    if not isinstance(data, dict) or not isinstance(data.get("limits"), dict):
        raise ConfigError([*errors, source.error_at((), "no mapping `limits:` of names to limits")])
    errors += [source.error_at((key,), "unknown key; there is only `limits`", True) for key in data if key != "limits"]
    found = []
    for key, value in data["limits"].items():
        try:
            found.append(limit(str(key), str(value)))
        except ValueError as e:
            errors.append(source.error_at(("limits", key), str(e), of_key="metric" in str(e)))
    if errors:
        raise ConfigError(errors)
    return found


def limit(key: str, value: str) -> Limit:
    """ "[[PHASE.]OPERATION.]METRIC" and "10%", "<=50" or ">=0.999". Raises ValueError."""
    *place, metric = key.strip().split(".")
    if metric not in METRICS:
        near = difflib.get_close_matches(metric, METRICS, 1)
        raise ValueError(f"there is no metric {metric}" + (f"; did you mean {near[0]}?" if near else ""))
    form = _FORM.match(value)
    if not form:
        raise ValueError(f"{value!r} is no limit: such as 10%, <=50 or >=0.999")
    number, sign = float(form["number"]), form["sign"]
    op = place.pop() if place else None
    made = Limit(f"{sign}{form['number']}{form['percent']}", ".".join(place) or None, op, metric)
    if sign:
        number = round(number / 100, 12) if form["percent"] else number
        return replace(made, most=number) if sign == "<=" else replace(made, least=number)
    if not form["percent"] or number <= 0:
        raise ValueError(f"{value!r}: a change is in percent and above 0, such as 10%; a value is <= or >= a number")
    if METRICS[metric].direction is Direction.NONE:
        raise ValueError(f"neither way is better for the metric {metric}: it can only have a <= or >= limit")
    return replace(made, share=round(number / 100, 12))

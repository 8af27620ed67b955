"""What a fault consists of: commands and checks as plain data, to be printed, written to disk and run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple

from cbt_plugins.faults.option_value import agrees

#: how to find a value in an answer: a key of an object, {"osd": 3} for the entry of a list that has these values,
#: {"=": "noout"} for a list of plain values that has this one (True)
Place = Tuple[Any, ...]


class FaultError(Exception):
    """A fault that cannot be made, was refused, or did not take; the text is for the user."""


@dataclass(frozen=True)
class Command:
    """A shell command on one node; "" is the machine that leads the run. `root`: by sudo where we are not root."""

    node: str
    text: str
    timeout: float = 60.0  # seconds
    root: bool = False
    secrets: Tuple[str, ...] = ()  # names in our environment whose values must be there, and in no file

    def __str__(self) -> str:
        return f"{self.node or 'here'}: {'sudo ' if self.root else ''}{self.text}"


@dataclass(frozen=True)
class Check:
    """A question whose answer says whether something is so; exit statuses say nothing.

    `want` pairs a place in the JSON answer with its value, None = absent, {"not": value} = there, and another one,
    {"like": value} = the same option in Ceph's own words. The place () is the whole answer as text.
    A check that `lapses` is not asked any more so many seconds after its step's command; one whose command said itself
    that it had failed is waited for as long as `refused` says.
    """

    node: str
    text: str
    want: Tuple[Tuple[Place, Any], ...]
    patience: float = 60.0  # seconds until it must be so
    root: bool = False
    lapses: Optional[float] = None  # None: never
    refused: float = 0.0  # seconds

    def __str__(self) -> str:
        return f"{self.node}: {self.text}, must say " + ", ".join(f"{_where(p)} = {_told(v)}" for p, v in self.want)

    def differs(self, answer: str) -> Optional[str]:
        """None when it is so, else the first thing that is otherwise."""
        try:
            value = json.loads(answer) if any(place for place, _ in self.want) else None
        except ValueError:
            return f"no answer to {self.text!r}"
        for place, wanted in self.want:
            found = find(value, place) if place else answer.strip()
            if not same(found, wanted):
                return f"{_where(place)} is {found!r}, not {_told(wanted)}"
        return None


@dataclass(frozen=True)
class Step:
    """One change and the way back. It is on disk before the first of its commands leaves."""

    what: str
    node: str  # where it happens; the head for what is set on the cluster
    inject: Tuple[Command, ...]
    undo: Tuple[Command, ...]  # may run any number of times
    checks: Tuple[Check, ...]  # all true: undone
    took: Tuple[Check, ...] = ()  # all true: in effect
    former: Mapping[str, Any] = field(default_factory=dict)
    osds: Tuple[int, ...] = ()
    arm: Optional[Command] = None  # a dead man's switch on the node, set before `inject`
    deadline: Optional[float] = None  # seconds after which it fires

    def counting(self, seconds: float, refused: bool) -> Tuple[Check, ...]:
        """The checks that have not lapsed so long after its command; `refused`: this one said that it had failed."""
        return tuple(c for c in self.checks if c.lapses is None or seconds < (c.refused if refused else c.lapses))

    def foreign(self, took: Check, answer: str) -> List[Tuple[str, Any, Any]]:
        """What an answer to one of `took` has that is neither of the step nor of before it: (what, value, before)."""
        try:
            value = json.loads(answer)
        except ValueError:
            return []
        found = []
        for place, ours in took.want:
            before = [v for check in self.checks if check.text == took.text for p, v in check.want if p == place]
            now = find(value, place)
            if before and not same(now, ours) and not same(now, before[0]):
                found.append((_where(place), now, before[0]))
        return found

    def plain(self) -> Dict[str, Any]:
        """For the journal."""
        return asdict(self)

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Step:
        """The way back from `plain`, through JSON."""
        known = dict(data)
        for name in ("inject", "undo"):
            known[name] = tuple(_command(c) for c in data[name])
        for name in ("checks", "took"):
            known[name] = tuple(_check(c) for c in data[name])
        known["osds"] = tuple(data["osds"])
        known["arm"] = _command(data["arm"]) if data["arm"] else None
        return cls(**known)


def _command(data: Mapping[str, Any]) -> Command:
    return Command(**{**data, "secrets": tuple(data["secrets"])})


def _check(data: Mapping[str, Any]) -> Check:
    return Check(**{**data, "want": tuple((tuple(place), value) for place, value in data["want"])})


def find(value: Any, place: Place) -> Any:
    """The value at a place, None when there is none."""
    for part in place:
        if isinstance(part, Mapping):
            entries = value if isinstance(value, list) else []
            if set(part) == {"="}:
                value = True if part["="] in entries else None
            else:
                value = next((e for e in entries if all(e.get(k) == v for k, v in part.items())), None)
        else:
            value = value.get(part) if isinstance(value, Mapping) else None
    return value


def same(found: Any, wanted: Any) -> bool:
    """Equal; weights are stored in 1/65536."""
    if isinstance(wanted, Mapping):
        if "not" in wanted:
            return found not in (None, "", wanted["not"])
        return found is not None and agrees(str(found), str(wanted["like"]))
    numbers = (int, float)
    if isinstance(found, numbers) and isinstance(wanted, numbers) and not isinstance(wanted, bool):
        return abs(found - wanted) < 1e-4
    return bool(found == wanted)


def _told(wanted: Any) -> str:
    if not isinstance(wanted, Mapping):
        return repr(wanted)
    return f"another than {wanted['not']!r}" if "not" in wanted else repr(wanted["like"])


def _where(place: Place) -> str:
    parts = [",".join(f"{k}={v}" for k, v in p.items() if v != "") if isinstance(p, Mapping) else str(p) for p in place]
    return ".".join(parts).replace("==", "") or "it"

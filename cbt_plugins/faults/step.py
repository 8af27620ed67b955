"""Steps of a fault: commands and checks as plain data, to be printed, written to disk and run."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from math import isclose
from typing import Any, Callable, Collection, Dict, List, Mapping, Optional, Sequence, Set, Tuple, TypeVar

from cbt_plugins.cluster.ceph_programs import readable

T = TypeVar("T")

#: path to a value in a reply: a key of an object; {"osd": 3}: the entry of a list that has these values;
#: {"=": "noout"}: True if a list of plain values has this value
Place = Tuple[Any, ...]

#: a value of an OSD in the OSD map: (3, "up")
OsdValue = Tuple[int, str]

_NUMBER = r"[+-]?\d+(?:\.\d*)?(?:e[+-]?\d+)?"
_SIZE = rf"({_NUMBER})([KMGTPE])(i?)B?"
_TRUTH = {"true": True, "false": False}


class FaultError(Exception):
    """A fault that cannot be injected, was refused, or had no effect; the text is for the user."""


class NoAnswer(FaultError):
    """The cluster or a node did not answer a question: the next question may have an answer."""


def run_all(texts: Sequence[str]) -> str:
    """Return shell text that runs each of some texts, also after one that fails, and fails if one of them does."""
    if len(texts) == 1:
        return texts[0]
    ends = ("\n" if "\n" in text else " " for text in texts)  # of a text of several lines the last may be a comment
    return "".join(["s=0; ", *(f"( {text}{end}) || s=1; " for text, end in zip(texts, ends)), "[ $s = 0 ]"])


#: more than one command, or what the shell itself opens or replaces: sudo would be for the first command alone
_OF_SHELL = re.compile(r"[;&|(){}<>*?\[~$`\n]")
_EXIT = re.compile(r"(?:^|[;&|({)]|\b(?:then|do|else))\s*exit\b", re.MULTILINE)


def by_hand(text: str, root: bool) -> str:
    """Return a command as a person may paste it into a shell, which does not end with the command."""
    text = readable(text)
    if root:
        return f"sudo sh -c {shlex.quote(text)}" if _OF_SHELL.search(text) else f"sudo {text}"
    end = "\n" if "\n" in text else " "
    return f"( {text}{end})" if _EXIT.search(text) else text


@dataclass(frozen=True)
class Command:
    """A shell command on one node; "": the leading machine. `root`: with sudo if the user is not root."""

    node: str
    text: str
    timeout: float = 60.0  # seconds
    root: bool = False
    secrets: Tuple[str, ...] = ()  # environment variables that must be set; their values are written to no file
    #: of an undo that restores values of OSDs which another fault may have changed: each value, and its text alone
    parts: Tuple[Tuple[OsdValue, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.node or 'here'}: {by_hand(self.text, self.root)}"

    def without(self, values: Collection[OsdValue]) -> Optional[Command]:
        """Return the command without the parts for some values of OSDs; None if no part is left."""
        parts = tuple((value, text) for value, text in self.parts if value not in values)
        if len(parts) == len(self.parts):
            return self
        return replace(self, text=run_all([text for _, text in parts]), parts=parts) if parts else None


@dataclass(frozen=True)
class Check:
    """A question and the expected reply; exit statuses do not count.

    `want`: pairs of a place in the JSON reply and its value; None = absent, {"not": value} = present and different,
    {"like": value} = equal as an option of Ceph (1 is true), {"while_there": value} = equal, or its list has no such
    entry any more. The place () is the entire reply as text.
    The reply to a check with a `milestone` is "AT NOW", in epoch seconds of the node: when the milestone was reached,
    and the present time. A check with `lapses` is skipped that many seconds after the command of its step, or after
    `refused` seconds if the command failed. Nobody waits for a check with a `reading`: its reply, after the effect, is
    a JSON object that has it, for the event `fault-readings`, and a list of `warnings`.
    """

    node: str
    text: str
    want: Tuple[Tuple[Place, Any], ...]
    timeout: float = 60.0  # seconds until it must hold
    root: bool = False
    lapses: Optional[float] = None  # None: never
    refused: float = 0.0  # seconds
    milestone: str = ""
    reading: str = ""

    def __str__(self) -> str:
        return f"{self.node or 'here'}: {by_hand(self.text, self.root)}, expects " + ", ".join(
            f"{_where(p)} = {_expectation(v)}" for p, v in self.want
        )

    def differs(self, answer: str) -> Optional[str]:
        """Return the first difference to the expected reply, or None."""
        try:
            value = json.loads(answer) if any(place for place, _ in self.want) else None
        except ValueError:
            return f"could not parse the reply to {readable(self.text)!r}"
        reply = ReplyValues(value)
        for place, wanted in self.want:
            actual = reply.find(place) if place else answer.strip()
            if not equals(actual, wanted) and not _gone(reply, place, wanted):
                return f"{_where(place)} is {actual!r}, not {_expectation(wanted)}"
        return None

    def without(self, values: Collection[OsdValue]) -> Check:
        """Return the check without some values of OSDs."""
        return replace(self, want=tuple((place, v) for place, v in self.want if _osd_value(place) not in values))

    @property
    def may_go(self) -> bool:
        """Whether some values count only while their list has the entry."""
        return any(isinstance(wanted, Mapping) and "while_there" in wanted for _, wanted in self.want)

    def missing_entries(self, answer: str) -> List[str]:
        """Return the entries that no longer exist, among those whose values count only while they exist."""
        try:
            reply = ReplyValues(json.loads(answer))
        except ValueError:
            return []
        entries = (_where(_entry(place)[-1:]) for place, wanted in self.want if _gone(reply, place, wanted))
        return list(dict.fromkeys(entries))


@dataclass(frozen=True)
class Step:
    """One change and its undo. It is written to disk before its first command is sent."""

    what: str
    node: str  # node of the change; the head for settings of the cluster
    inject: Tuple[Command, ...]
    undo: Tuple[Command, ...]  # may run any number of times
    checks: Tuple[Check, ...]  # all hold: undone
    took: Tuple[Check, ...] = ()  # all hold: in effect
    former: Mapping[str, Any] = field(default_factory=dict)
    daemons: Tuple[str, ...] = ()  # daemons that it hits: "osd.3"
    arm: Optional[Command] = None  # arms a dead man's switch on the node, before `inject`
    deadline: Optional[float] = None  # seconds after which it fires
    silent: bool = False  # its daemons do not serve, although maps may show them as up
    #: any holds before the undo, once all of `took` held: something else has ended the fault, or a part of it
    ended_early: Tuple[Check, ...] = ()
    #: its commands may run at the same time as those of the steps beside it that have this too (see `lots`)
    side_by_side: bool = False

    @property
    def nodes_of_commands(self) -> Set[str]:
        """Return the nodes on which its commands run, without those of its undo; "": the leading machine."""
        return {self.node, *(command.node for command in self.inject), *([self.arm.node] if self.arm else [])}

    @property
    def osds(self) -> Tuple[int, ...]:
        """Return the OSDs among its daemons."""
        return tuple(int(name[4:]) for name in self.daemons if name.startswith("osd."))

    @property
    def restored(self) -> Set[OsdValue]:
        """Return the values of its OSDs in the OSD map that its undo restores: of OSDs that are only out, not `up`."""
        values = (_osd_value(place) for check in self.checks for place, _ in check.want)
        return {value for value in values if value and value[0] in self.osds}

    def without(self, values: Collection[OsdValue]) -> Step:
        """Return the step with an undo that neither restores nor checks some values of OSDs."""
        undo = tuple(c for c in (command.without(values) for command in self.undo) if c)
        return replace(self, undo=undo, checks=tuple(c for c in (c.without(values) for c in self.checks) if c.want))

    def counting(self, seconds: float, refused: bool) -> Tuple[Check, ...]:
        """Return the checks that have not lapsed, some seconds after the command; `refused`: the command failed."""
        return tuple(c for c in self.checks if c.lapses is None or seconds < (c.refused if refused else c.lapses))

    def overwritten(self, took: Check, answer: str) -> List[Tuple[str, Any, Any]]:
        """Return values that others have set, by the reply to a check of `took`: (name, value, value before).

        A value that the step does not set itself, but its undo does, is one that the cluster has changed because of
        the step.
        """
        try:
            reply = ReplyValues(json.loads(answer))
        except ValueError:
            return []
        values = []
        for place, before in (pair for check in self.checks if check.text == took.text for pair in check.want):
            own_values = [value for p, value in took.want if p == place]
            now = reply.find(place)
            if not any(equals(now, value) for value in (*own_values, before)) and not _gone(reply, place, before):
                values.append((_where(place), now, _value(before)))
        return values

    def plain(self) -> Dict[str, Any]:
        """Return the step as plain data, for the journal."""
        return asdict(self)

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Step:
        """Return the step from plain data."""
        fields = dict(data)
        for name in ("inject", "undo"):
            fields[name] = tuple(_command(c) for c in data[name])
        for name in ("checks", "took"):
            fields[name] = tuple(_check(c) for c in data[name])
        fields["ended_early"] = tuple(_check(c) for c in data.get("ended_early", ()))  # an earlier version wrote none
        fields["daemons"] = tuple(data["daemons"])
        fields["arm"] = _command(data["arm"]) if data["arm"] else None
        return cls(**fields)


def lots(items: Sequence[T], step_of: Callable[[T], Step]) -> List[List[T]]:
    """Return the items in their order, in lots: those of a lot are `side_by_side`, and share no node for commands.

    On one node, such as the leading machine for orders to Rook, the commands of a run follow one another.
    """
    in_lots: List[List[T]] = []
    taken: Set[str] = set()  # by a lot that another step may join
    for item in items:
        step = step_of(item)
        if step.side_by_side and taken and not taken & step.nodes_of_commands:
            in_lots[-1].append(item)
        else:
            in_lots.append([item])
            taken = set()
        taken |= step.nodes_of_commands if step.side_by_side else set()
    return in_lots


@dataclass(frozen=True)
class UndoRecord:
    """An open step: it may be in effect, and its undo was not seen."""

    id: str
    label: str
    kind: str
    step: Step
    at: float  # epoch seconds
    begun: bool  # its command may have been sent ...
    ended: bool  # ... and is known to have ended
    since: float = 0.0  # epoch seconds of the last news of its command
    refused: bool = False  # ... which has failed

    def switch_is_near(self, now: float) -> bool:
        """Return whether the dead man's switch of the step may have fired at a time in epoch seconds."""
        return self.step.deadline is not None and now >= self.at + self.step.deadline

    def age(self, now: float) -> float:
        """Return the seconds from the command to a time in epoch seconds; infinite if no command was sent."""
        return max(0.0, now - self.since) if self.begun else float("inf")


def _command(data: Mapping[str, Any]) -> Command:
    parts = tuple(((osd, name), text) for (osd, name), text in data.get("parts", ()))  # an earlier version wrote none
    return Command(**{**data, "secrets": tuple(data["secrets"]), "parts": parts})


def _check(data: Mapping[str, Any]) -> Check:
    return Check(**{**data, "want": tuple((tuple(place), value) for place, value in data["want"])})


class ReplyValues:
    """Finds values in one reply. Each list is read once, however many of its entries are looked for."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._tables: Dict[Tuple[int, Tuple[str, ...]], Dict[Tuple[Any, ...], Any]] = {}

    def find(self, place: Place) -> Any:
        """Return the value at a place, None when there is none."""
        value = self._value
        for part in place:
            if not isinstance(part, Mapping):
                value = value.get(part) if isinstance(value, Mapping) else None
            elif set(part) == {"="}:
                value = True if isinstance(value, list) and part["="] in value else None
            else:
                value = self._table(value, tuple(part)).get(tuple(part.values())) if isinstance(value, list) else None
        return value

    def _table(self, entries: List[Any], keys: Tuple[str, ...]) -> Dict[Tuple[Any, ...], Any]:
        """Return values of these keys -> the first entry that has them."""
        if (id(entries), keys) not in self._tables:
            table = self._tables[id(entries), keys] = {}
            for entry in entries:
                values = tuple(map(entry.get, keys)) if isinstance(entry, Mapping) else ([],)
                with suppress(TypeError):  # a list among the values, which no place has
                    table.setdefault(values, entry)
        return self._tables[id(entries), keys]


def find(value: Any, place: Place) -> Any:
    """Return the value at a place, None when there is none."""
    return ReplyValues(value).find(place)


def _osd_value(place: Place) -> Optional[OsdValue]:
    """Return the value of an OSD that a place of the OSD map is."""
    in_map = len(place) == 3 and place[0] == "osds" and isinstance(place[1], Mapping) and "osd" in place[1]
    return (place[1]["osd"], place[2]) if in_map else None


def _entry(place: Place) -> Place:
    """Return the place of the entry of a list that a place is in; () when it is in none."""
    return place[: next((i for i, part in enumerate(place, 1) if isinstance(part, Mapping)), 0)]


def _gone(reply: ReplyValues, place: Place, wanted: Any) -> bool:
    entry = _entry(place)
    counts = bool(entry) and isinstance(wanted, Mapping) and "while_there" in wanted
    return counts and isinstance(reply.find(entry[:-1]), list) and reply.find(entry) is None


def _value(wanted: Any) -> Any:
    return wanted["while_there"] if isinstance(wanted, Mapping) and "while_there" in wanted else wanted


def equals(actual: Any, wanted: Any) -> bool:
    """Tell whether a value is as expected; numbers to 1e-4, because Ceph stores weights in units of 1/65536."""
    wanted = _value(wanted)
    if isinstance(wanted, Mapping):
        if "not" in wanted:
            return actual not in (None, "", wanted["not"])
        return actual is not None and agrees(str(actual), str(wanted["like"]))
    numbers = (int, float)
    if isinstance(actual, numbers) and isinstance(wanted, numbers) and not isinstance(wanted, bool):
        return abs(actual - wanted) < 1e-4
    return bool(actual == wanted)


def _expectation(wanted: Any) -> str:
    wanted = _value(wanted)
    if not isinstance(wanted, Mapping):
        return repr(wanted)
    return f"anything but {wanted['not']!r}" if "not" in wanted else repr(wanted["like"])


def _where(place: Place) -> str:
    parts = [",".join(f"{k}={v}" for k, v in p.items() if v != "") if isinstance(p, Mapping) else str(p) for p in place]
    return ".".join(parts).replace("==", "") or "the reply"


def agrees(shown: str, given: str) -> bool:
    """Tell whether `shown` by `ceph config dump` can be an option that was set to `given`.

    Ceph shows 1 as true, 4M as 4194304, 0.5 as 0.500000. Values that cannot be compared count as equal.
    """
    shown, given = shown.strip(), given.strip()
    low = shown.lower()
    if low == given.lower():
        return True
    if low in _TRUTH:
        return _truth(given) in (None, _TRUTH[low])
    if re.fullmatch(_NUMBER, low):
        # Ceph shows six digits
        could = _numbers(given)
        return not could or any(isclose(float(low), number, rel_tol=1e-5, abs_tol=1e-6) for number in could)
    return not (_is_word(shown) and _is_word(given))


def _truth(given: str) -> Optional[bool]:
    if re.fullmatch(_NUMBER, given.lower()):
        return bool(float(given))
    return _TRUTH.get(given.lower())


def _numbers(given: str) -> List[float]:
    """Return the numbers that a text may mean: K is 1000 or 1024, depending on the type of the option."""
    if re.fullmatch(_NUMBER, given.lower()):
        return [float(given)]
    size = re.fullmatch(_SIZE, given)
    if size is None:
        return []
    bases = (1024,) if size[3] else (1024, 1000)
    return [float(size[1]) * base ** ("KMGTPE".index(size[2]) + 1) for base in bases]


def _is_word(text: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z][A-Za-z_-]*", text))

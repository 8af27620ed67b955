"""Undo of a run: its journal, on disk before each change, and what brings the cluster back and sees that it is back.

An undo continues whatever fails on the way: a command, a node, the disk of the journal.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from cbt_plugins.archive_files import PRIVATE
from cbt_plugins.faults import seal
from cbt_plugins.faults.runner import Clock, Runner
from cbt_plugins.faults.scene import ClusterLimits
from cbt_plugins.faults.step import FaultError, Step, UndoRecord
from cbt_plugins.journal import Journal, journal_lines, sync_folder

log = logging.getLogger(__name__)

FILE = "undo.jsonl"
#: closes a step whose undo was not seen: the user has said so
GIVEN_UP = "given-up"
#: labels of the steps that are no faults
SETTINGS, RECOVERY = "settings", "recovery"
#: kind of what a run has made for itself: it stays when the run is broken off, so that it can be resumed
PREPARED = "prepared"
#: the labels of those that hold objects begin so
_WITH_DATA = ("pool ", "rgw placement", "rgw user")
#: kind of a command of the user's
COMMAND = "command"

Event = Callable[..., None]


class UndoJournal:
    """The undo journal of a run, for one process at a time; raises JournalError, and OSError.

    Every line is on disk before the call returns, with the seal of this user for this run. A file that cannot be
    written any more is opened for reading, so that what is in it can be undone. Nothing is written before `identify`.
    """

    def __init__(self, folder: Path, anybodys: bool = False) -> None:
        self._path = folder / FILE
        self._anybodys = anybodys
        self._others: Set[int] = set()  # ids of records that others wrote
        self._journal = Journal(self._path, PRIVATE, to_read=True, anybodys=anybodys)
        sync_folder(folder)  # the file's name, too, must survive a loss of power

    def identify(self, run_id: str, sealed: bool) -> None:
        """Take the ID of the run; `sealed`: it is from a cluster.json whose seal holds (see `lines_of_others`).

        Raises FaultError where a step is open that this user has not sealed for the run.
        """
        seal.of(run_id)  # fails before anything begins
        self._journal.mark = partial(seal.mark, run_id=run_id)
        if self._anybodys:
            return
        lines = self._journal.records
        self._others = {id(line) for line in lines_of_others(lines, run_id, sealed)}
        own = {line["id"] for line in lines if line["event"] == "open" and id(line) not in self._others}
        if not {record.id for record in still_open(lines)} <= own:
            raise FaultError(seal.refusal(self._path))

    def open(self, label: str, kind: str, step: Step) -> UndoRecord:
        """Write a step to disk; only then may it begin."""
        id = f"{len(self._journal.all('open')) + 1}"
        self._journal.write("open", id=id, label=label, kind=kind, step=step.plain())
        return UndoRecord(id, label, kind, step, time.time(), False, False)

    def note(self, event: str, record: UndoRecord, **facts: Any) -> None:
        """Write what became of a step.

        Events: "begun", "armed", "injected", "failed", "confirmed", "undo", "undone", GIVEN_UP, "recovered",
        "overwritten".
        """
        self._journal.write(event, id=record.id, label=record.label, **facts)

    def say(self, event: str, **facts: Any) -> None:
        """Write a line that is about no step: what was chosen, or accepted."""
        self._journal.write(event, **facts)

    @property
    def records(self) -> Sequence[Mapping[str, Any]]:
        """Return all lines but those that others wrote."""
        lines = self._journal.records
        return [line for line in lines if id(line) not in self._others] if self._others else lines

    def still_open(self) -> List[UndoRecord]:
        """Return the open steps, oldest first."""
        return still_open(self.records)

    def close(self) -> None:
        """Close the file."""
        self._journal.close()


def lines_of_others(lines: Sequence[Mapping[str, Any]], run_id: str, sealed: bool) -> List[Mapping[str, Any]]:
    """Return the lines that are not obeyed: this user has not sealed them for the run. Raises FaultError.

    Lines before the first one that has its seal are obeyed, sealed or not, where an earlier version wrote them: there
    are `open` lines, each has that version's seal for this run, and so has its cluster.json (`sealed`). From then on
    each line needs its seal.
    """
    marked = [seal.is_marked(line, run_id) for line in lines]
    end = marked.index(True) if True in marked else len(lines)
    opened = [line for line in lines[:end] if line["event"] == "open"]
    is_former = sealed and opened and all(seal.is_marked_as_before(line, run_id) for line in opened)
    begin = end if is_former else 0
    return [line for line, own in zip(lines[begin:], marked[begin:]) if not own]


def holds_data(label: str) -> bool:
    """Tell whether what a run has made for itself, under this label, holds objects."""
    return label.startswith(_WITH_DATA)


def still_open(lines: Sequence[Mapping[str, Any]]) -> List[UndoRecord]:
    """Return the steps that are not known to be undone, and not given up, oldest first. Raises FaultError."""
    opened: Dict[str, Mapping[str, Any]] = {}
    begun, ended, refused = set(), set(), set()
    since: Dict[str, float] = {}
    for line in lines:
        event, id = line["event"], str(line.get("id"))
        if event in ("open", "begun", "injected", "failed"):
            since[id] = float(line["t"])
        if line.get("refused"):
            refused.add(id)
        if event == "open":
            opened[id] = line
        elif event == "begun":
            begun.add(id)
        elif event == "injected" or line.get("refused"):
            ended.add(id)  # of others that failed nobody knows: their connection was lost, or their time was over
        elif event in ("undone", GIVEN_UP):
            opened.pop(id, None)
    try:
        return [
            UndoRecord(
                id,
                str(line["label"]),
                str(line["kind"]),
                Step.parse(line["step"]),
                line["t"],
                id in begun,
                id in ended,
                since[id],
                id in refused,
            )
            for id, line in opened.items()
        ]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise FaultError(f"{FILE} has an open step that is damaged: {type(error).__name__}: {error}") from error


def open_in(folder: Path) -> List[UndoRecord]:
    """Return the open steps of a run, whoever wrote them, also while another process has its journal.

    Raises OSError, and FaultError for what is no step.
    """
    return still_open(journal_lines(folder / FILE))


def given_up_in(lines: Sequence[Mapping[str, Any]]) -> List[Mapping[str, Any]]:
    """Return the lines of the steps that were given up: t, id, label, what."""
    return [line for line in lines if line["event"] == GIVEN_UP]


@dataclass(frozen=True)
class StillOpen:
    """A step that could not be undone, or not be seen to be; `commands` are for doing it by hand."""

    label: str
    change: str
    why: str
    commands: Tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.label}: {self.change}: {self.why}"


class Undoer:
    """Undoes the steps of one journal."""

    def __init__(self, journal: UndoJournal, runner: Runner, event: Event, limits: ClusterLimits, clock: Clock) -> None:
        self._journal, self._runner, self._event = journal, runner, event
        self._limits, self._clock = limits, clock

    def undo(self, records: Sequence[UndoRecord]) -> List[StillOpen]:
        """Undo steps, the last one first, each until it is seen to be undone; return those that are not."""
        left: List[StillOpen] = []
        waiting = {record.label: sum(r.label == record.label for r in records) for record in records}
        begun = set()
        for record in reversed(records):
            label = record.label
            if label not in begun:
                begun.add(label)
                self._tell("fault-undo-begin", label=label, kind=record.kind, osds=list(record.step.osds))
            try:
                why = self._undo_one(record)
            except Exception as error:  # a bug; the others must be undone
                log.exception("undo of %s", record.step.what)
                why = f"{type(error).__name__}: {error}"
            if why is None:
                waiting[label] -= 1
                if not waiting[label]:
                    self._tell("fault-undone", label=label, kind=record.kind, osds=list(record.step.osds))
                continue
            commands = tuple(map(str, (*record.step.undo, *record.step.checks)))
            left.append(StillOpen(label, record.step.what, why, commands))
            self._tell("fault-failed", label=label, kind=record.kind, why=why)
            log.error("not undone: %s: %s: %s", label, record.step.what, why)
        return left

    def _tell(self, name: str, **facts: Any) -> None:
        """Write an event, if that is possible; no undo depends on it."""
        try:
            self._event(name, **facts)
        except (OSError, ValueError) as error:
            log.error("%s %s could not be written: %s", name, facts.get("label"), error)

    def _note(self, event: str, record: UndoRecord, **facts: Any) -> Optional[str]:
        """Return None, or why it could not be written."""
        try:
            self._journal.note(event, record, **facts)
        except (OSError, ValueError) as error:
            return str(error)
        return None

    def _undo_one(self, record: UndoRecord) -> Optional[str]:
        """Return None when the cluster is seen to be as before, else why not."""
        self._note("undo", record)
        if record.step.undo:  # a command of the user's may have none
            log.info("undo: %s", record.step.what)
        if record.kind in (SETTINGS, RECOVERY):
            self._tell_overwritten(record)
        now = self._clock.now()
        sent = now - record.age(time.time())
        timeout = max((check.timeout for check in record.step.checks), default=0.0)
        if record.step.deadline is not None:  # the node recovers by itself at the latest then
            timeout = min(timeout, max(0.0, record.at + record.step.deadline - time.time()) + self._limits.back)
        until, again = now + timeout, now + self._limits.again
        undone_since: Optional[float] = None
        looks, todo, reason = 0, list(record.step.undo), ""
        while True:
            results = [(command, self._runner.undo(record, command, self._recovered)) for command in todo]
            todo = [command for command, result in results if result]
            reason = next((result.why for _, result in results if result), reason if todo else "")
            # An undo that did not arrive does not stop a command of its fault that is still under way.
            lost = any(result.lost for _, result in results if result)
            different = self._runner.look(record.step.counting(self._clock.now() - sent, record.refused))
            now, looks = self._clock.now(), looks + 1
            undone_since = None if different else now if undone_since is None else undone_since
            # A failed command is not needed where all looks undone, but the map of the cluster may lag behind.
            if undone_since is not None and not lost and (not todo or now - undone_since >= self._limits.lag):
                for name in self._runner.gone(record):
                    log.warning("%s is gone: nothing of it is set back (%s)", name, record.step.what)
                failed = self._note("undone", record)
                return f"undone, but that could not be written: {failed}" if failed else None
            # A command that hangs may use up all of the time; it is tried once more.
            if now >= until and looks > 1 and (undone_since is None or lost):
                return "; ".join(filter(None, (reason, different)))
            if now >= again:
                again, todo = now + self._limits.again, list(record.step.undo)
            self._clock.sleep(self._limits.pause)

    def _tell_overwritten(self, record: UndoRecord) -> None:
        for setting, was, back in self._runner.overwritten(record):
            self._note("overwritten", record, what=setting, was=was, back=back)
            self._tell("setting-overwritten", label=record.label, kind=record.kind, what=setting, was=was, back=back)
            log.warning("%s was set to %s by somebody else during the run; it is set back to %s", setting, was, back)

    def _recovered(self, record: UndoRecord, at: float) -> None:
        """Write that the switch on a node had fired, at a time in epoch seconds, before it was disarmed."""
        at = round(at, 3)
        self._note("recovered", record, at=at)
        self._tell("fault-recovered", label=record.label, kind=record.kind, osds=list(record.step.osds), at=at)

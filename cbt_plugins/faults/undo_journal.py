"""Undo journal of a run: each change with its undo, on disk before the change; it tells which changes are open."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Set, Tuple

from cbt_plugins.archive_files import PRIVATE
from cbt_plugins.faults import undo_seal
from cbt_plugins.faults.step import FaultError, Step, UndoRecord
from cbt_plugins.journal import Journal, read_journal, sync_folder

FILE = "undo.jsonl"
#: event: the user has closed a step whose undo was not seen
GIVEN_UP = "given-up"
#: most damaged lines that an error names by their numbers
_NAMED = 5
#: beginning of the labels of preparations that hold objects
_WITH_DATA = ("pool ", "rgw placement", "rgw user")


class UndoJournal:
    """The undo journal of a run, for one process at a time. Raises JournalError and OSError.

    Every line is on disk before the call returns, with the seal of this user for this run. A read-only file is opened
    for reading, so that its open changes can be undone. Nothing is written before `identify`.
    """

    def __init__(self, folder: Path, anybodys: bool = False) -> None:
        self._path = folder / FILE
        self._anybodys = anybodys
        self._run_id = ""
        self._others: Set[int] = set()  # ids of records that others wrote
        self._journal = Journal(self._path, PRIVATE, to_read=True, anybodys=anybodys)
        sync_folder(folder)  # the name of the file must survive a loss of power, too

    def identify(self, run_id: str, sealed: bool) -> None:
        """Set the ID of the run. `sealed`: the cluster.json of the ID has a valid seal (see `lines_of_others`).

        Raises FaultError if an open step does not have this user's seal for the run.
        """
        undo_seal.of(run_id)  # an error is raised before anything begins
        self._run_id = run_id
        self._journal.mark = partial(undo_seal.mark, run_id=run_id)
        if self._anybodys:
            return
        lines = self._journal.records
        self._others = {id(line) for line in lines_of_others(lines, run_id, sealed)}
        own = {line["id"] for line in lines if line["event"] == "open" and id(line) not in self._others}
        if not {record.id for record in still_open(lines)} <= own:
            raise FaultError(undo_seal.refusal(self._path))

    def name(self, label: str) -> str:
        """Return a name that is unique on the nodes, also when the same fault is injected again.

        Two labels never have the same name: all but ASCII letters, digits and "-" is ".", its code, and ".".
        """
        number = sum(1 for line in self.records if line["event"] == "open" and line["label"] == label)
        signs = (c if c == "-" or (c.isalnum() and c.isascii()) else f".{ord(c):x}." for c in label)
        return f"{self._run_id}-{''.join(signs)}-{number}"

    def write_step(self, label: str, kind: str, step: Step) -> UndoRecord:
        """Write a step to disk; only then may it begin."""
        ids = [str(line.get("id")) for line in self._journal.records]  # the line that opened one may be damaged
        id = f"{max((int(id) for id in ids if id.isdecimal()), default=0) + 1}"
        self._journal.write("open", id=id, label=label, kind=kind, step=step.plain())
        return UndoRecord(id, label, kind, step, time.time(), False, False)

    def note(self, event: str, record: UndoRecord, **facts: Any) -> None:
        """Write an event of a step.

        Events: "begun", "armed", "injected", "failed", "confirmed", "undo", "undone", GIVEN_UP, "recovered",
        "overwritten".
        """
        self._journal.write(event, id=record.id, label=record.label, **facts)

    def say(self, event: str, **facts: Any) -> None:
        """Write a line that belongs to no step, such as chosen targets or accepted findings."""
        self._journal.write(event, **facts)

    @property
    def records(self) -> Sequence[Mapping[str, Any]]:
        """Return all lines except lines that other users wrote."""
        lines = self._journal.records
        return [line for line in lines if id(line) not in self._others] if self._others else lines

    def still_open(self) -> List[UndoRecord]:
        """Return the open steps, oldest first."""
        return still_open(self.records)

    def unknown_changes(self) -> str:
        """Return the error of `unknown_changes` for this journal."""
        return unknown_changes(self._path, self.records, self._journal.damaged)

    def close(self) -> None:
        """Close the file."""
        self._journal.close()


def lines_of_others(lines: Sequence[Mapping[str, Any]], run_id: str, sealed: bool) -> List[Mapping[str, Any]]:
    """Return the lines to ignore, because they lack this user's seal for the run. Raises FaultError.

    An earlier version sealed only `open` lines. Lines before the first sealed line are accepted if that version wrote
    them: there are `open` lines, all have that version's seal for this run, and so has cluster.json (`sealed`). From
    the first sealed line on, each line needs a seal.
    """
    marked = [undo_seal.is_marked(line, run_id) for line in lines]
    end = marked.index(True) if True in marked else len(lines)
    opened = [line for line in lines[:end] if line["event"] == "open"]
    is_former = sealed and opened and all(undo_seal.is_marked_as_before(line, run_id) for line in opened)
    begin = end if is_former else 0
    return [line for line, own in zip(lines[begin:], marked[begin:]) if not own]


def holds_data(label: str) -> bool:
    """Tell whether a preparation of a run holds objects, by its label."""
    return label.startswith(_WITH_DATA)


def still_open(lines: Sequence[Mapping[str, Any]]) -> List[UndoRecord]:
    """Return the steps without a seen undo that were not given up, oldest first. Raises FaultError."""
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
            ended.add(id)  # others may have had an effect: the connection was lost, or the time over
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


def unknown_changes(path: Path, lines: Sequence[Mapping[str, Any]], damaged: Sequence[int]) -> str:
    """Return an error if changes may be open that a journal does not show, "" if there are none.

    `damaged`: the numbers of its damaged lines. A last line that a kill has torn had no effect: each line is on disk
    before the next command is sent.
    """
    ids = {str(line.get("id")) for line in lines if line["event"] in ("open", "undone", GIVEN_UP)}
    lacking = {str(line["id"]): str(line.get("label")) for line in lines if str(line.get("id", "")) not in {"", *ids}}
    first = ", ".join(map(str, damaged[:_NAMED])) + (", ..." if len(damaged) > _NAMED else "")
    reasons = [f"damaged lines: {first}"] if damaged else []
    reasons += [f"the line that opened {label} (id {id}) is missing" for id, label in lacking.items()]
    if not reasons:
        return ""
    to_delete = [*(["these lines"] if damaged else []), *(f"all lines of id {id}" for id in lacking)]
    advice = f"look at the cluster, undo by hand what is left, then delete {' and '.join(to_delete)} from the file"
    return f"{path}: {'; '.join(reasons)}: its open changes are unknown: {advice}"


def injected_in(lines: Sequence[Mapping[str, Any]]) -> Dict[str, bool]:
    """Return the labels whose newest steps were all injected -> whether one of these steps has an undo."""
    steps: Dict[str, Dict[str, bool]] = {}  # label -> id of a step -> has an undo
    injected: Set[str] = set()
    closed: Set[str] = set()
    for line in lines:
        event, label, id = line["event"], str(line.get("label")), str(line.get("id"))
        if event == "open":
            if closed.issuperset(steps.get(label, ())):
                steps[label] = {}  # these are new steps of a label whose earlier steps are undone
            steps[label][id] = bool(line["step"].get("undo"))
        elif event == "injected":
            injected.add(id)
        elif event in ("undone", GIVEN_UP):
            closed.add(id)
    return {label: any(of_label.values()) for label, of_label in steps.items() if injected.issuperset(of_label)}


def open_steps_in(folder: Path) -> List[UndoRecord]:
    """Return the open steps of a run that are known, whoever wrote them, also while another process uses its journal.

    Raises OSError, and FaultError for a damaged step.
    """
    return still_open(read_lines(folder)[0])


def read_lines(folder: Path) -> Tuple[List[Dict[str, Any]], str]:
    """Return the lines of a run's journal, whoever wrote them, and the error of `unknown_changes`. Raises OSError."""
    lines, damaged = read_journal(folder / FILE)
    return lines, unknown_changes(folder / FILE, lines, damaged)


def given_up_in(lines: Sequence[Mapping[str, Any]]) -> List[Mapping[str, Any]]:
    """Return the lines of the steps that were given up: t, id, label, what."""
    return [line for line in lines if line["event"] == GIVEN_UP]

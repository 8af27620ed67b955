"""The undo journal of a run: what was changed, on disk before it was, until it is seen to be as it was."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

from cbt_plugins.faults.step import Step
from cbt_plugins.journal import Journal, json_lines, sync_folder

FILE = "undo.jsonl"
#: closes a step that nobody has seen undone: a human has said so
GIVEN_UP = "given-up"


@dataclass(frozen=True)
class Record:
    """A step that is open: it may be in effect, and nobody has seen it undone."""

    id: str
    label: str
    kind: str
    step: Step
    at: float  # epoch seconds
    begun: bool  # its command may have been sent ...
    ended: bool  # ... and is known to have come to its end
    since: float = 0.0  # epoch seconds of the last that is known of its command
    refused: bool = False  # ... which said that it had failed

    def age(self, now: float) -> float:
        """Seconds since its command, at a time in epoch seconds; endless when none was sent."""
        return max(0.0, now - self.since) if self.begun else float("inf")


class UndoJournal:
    """One process at a time; every line is on disk before the call returns. Raises JournalInUse when another has it.

    What cannot be written any more can still be undone: it is opened to be read then.
    """

    def __init__(self, folder: Path) -> None:
        self._journal = Journal(folder / FILE, to_read=True)
        sync_folder(folder)  # the file's name, too, must survive a loss of power

    def open(self, label: str, kind: str, step: Step) -> Record:
        """Write a step down. Only then may it begin."""
        id = f"{len(self._journal.all('open')) + 1}"
        self._journal.write("open", id=id, label=label, kind=kind, step=step.plain())
        return Record(id, label, kind, step, time.time(), False, False)

    def note(self, event: str, record: Record, **facts: Any) -> None:
        """What became of it: "begun", "armed", "injected", "failed", "confirmed", "undo", "undone", GIVEN_UP; and what
        was found then: "healed", "overwritten"."""
        self._journal.write(event, id=record.id, label=record.label, **facts)

    def say(self, event: str, **facts: Any) -> None:
        """A line that is about no step: what was chosen, or accepted."""
        self._journal.write(event, **facts)

    @property
    def records(self) -> Sequence[Mapping[str, Any]]:
        """All lines."""
        return self._journal.records

    def still_open(self) -> List[Record]:
        """Oldest first."""
        return still_open(self._journal.records)

    def close(self) -> None:
        """Close the file."""
        self._journal.close()


def still_open(lines: Sequence[Mapping[str, Any]]) -> List[Record]:
    """The steps that are not known to be undone, and not given up, oldest first."""
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
        elif event in ("injected", "failed"):
            ended.add(id)
        elif event in ("undone", GIVEN_UP):
            opened.pop(id, None)
    return [
        Record(
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


def open_in(folder: Path) -> List[Record]:
    """The open steps of a run, also while another process is at work on them."""
    return still_open(json_lines(folder / FILE))


def given_up_in(folder: Path) -> List[Mapping[str, Any]]:
    """The lines of the steps that were given up: t, id, label, what."""
    return [line for line in json_lines(folder / FILE) if line["event"] == GIVEN_UP]

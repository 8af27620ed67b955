"""Changes that a killed process of this run has left open: no new fault before their undo; pools and users are kept.

Injector.undo_earlier undoes them.
"""

from __future__ import annotations

from typing import Dict, List

from cbt_plugins.cluster_conditions import PREPARED
from cbt_plugins.faults.step import FaultError
from cbt_plugins.faults.undo_journal import UndoJournal


class ResumeCheck:
    """Changes of earlier processes of this run that the journal has as open, when this process begins."""

    def __init__(self, journal: UndoJournal) -> None:
        self._journal = journal
        self._ids = {record.id for record in journal.still_open() if record.kind != PREPARED}

    def refuse_before_undo(self) -> None:
        """Raise FaultError while a fault or a setting of an earlier process is open: no fault is injected then."""
        left = [record for record in self._journal.still_open() if record.id in self._ids]
        if left:
            many = "; ".join(f"{record.label}: {record.step.what}" for record in left)
            raise FaultError(f"an earlier process left open changes: {many}; run `cbt-tools undo` first")

    def half_made(self) -> List[str]:
        """Return the labels of open preparations of the run (pools, users) that are half made or half undone."""
        injected_ids = {line["id"] for line in self._journal.records if line["event"] == "injected"}
        gone = self.no_longer_made()
        records = [record for record in self._journal.still_open() if record.kind == PREPARED]
        return [record.label for record in records if record.id not in injected_ids or record.label in gone]

    def no_longer_made(self) -> List[str]:
        """Return the labels of preparations of the run whose undo has begun or ended."""
        present: Dict[str, bool] = {}
        for line in self._journal.records:
            if line["event"] == "open" and line["kind"] == PREPARED:
                present[line["label"]] = True
            elif line["event"] in ("undo", "undone") and line["label"] in present:
                present[line["label"]] = False
        return [label for label, is_present in present.items() if not is_present]

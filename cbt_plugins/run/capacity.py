"""How full the cluster is at the border of two phases: beside what a phase has written, what it has moved."""

from __future__ import annotations

import time
from pathlib import Path

from cbt_plugins.cluster.ceph import Ceph, CephError
from cbt_plugins.journal import write_json
from cbt_plugins.run.outcome import Outcome

#: version 1: the first
VERSION = 1
FILE = "capacity.json"
#: seconds for an answer; a cluster that is broken on purpose may have none
_PATIENCE = 30.0


def note_capacity(ceph: Ceph, folder: Path, outcome: Outcome) -> None:
    """Write what `ceph df` and `ceph osd df` say at a phase's end; without an answer the phase gets a warning."""
    try:
        answers = {name: ceph.json(question, _PATIENCE) for name, question in _QUESTIONS.items()}
    except CephError as error:
        outcome.warn("no-capacity", f"how full the cluster was at the end is not known: {error}")
        return
    write_json(folder / FILE, {"version": VERSION, "t": time.time(), **answers})


_QUESTIONS = {"df": "df detail", "osd_df": "osd df"}

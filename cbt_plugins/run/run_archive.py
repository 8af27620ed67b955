"""Archive of one run: where its files are, and how the folder of a phase begins, ends, or is set aside."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, Iterator, List, Optional

from cbt_plugins.journal import RUNNING_PHASE, sync_folder, write_json
from cbt_plugins.plan import Plan

RUNNING, PARTIAL = ".running", ".partial-"


class RunArchive:
    """Paths of one run. A phase works in NN-name.running and is renamed to NN-name when all of it is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = folder / "journal.jsonl"
        self.events = folder / "events.jsonl"
        self.plan = folder / "plan.json"
        self.manifest = folder / "manifest.json"
        self.generator = folder / "generator.json"
        self.complete = folder / "complete"
        self.monitors = folder / "monitors"
        self._phases = folder / "phases"

    def files_of_begun_run(self) -> List[str]:
        """Return the names of the files that only a run that has begun leaves; plan.json is there before that."""
        names = ("cluster.json", "undo.jsonl", self.manifest.name, "cluster", self._phases.name)
        return [name for name in names if os.path.lexists(self.folder / name)]

    def other_plan(self, plan: Plan) -> Optional[str]:
        """Return the first key of the kept plan that differs, "s3.urls"; None where it does not, or there is none.

        A field that only one of the two knows, of another version of ours, differs when it is set.
        """
        if not self.plan.exists():
            return None
        try:
            kept = json.loads(self.plan.read_text())
        except ValueError:
            return self.plan.name
        return next(_differences(kept, json.loads(json.dumps(asdict(plan)))), None)

    def monitors_of(self, invocation: int) -> Path:
        """Return the folder of the monitors' files of one invocation, counted from 1."""
        return self.monitors / f"{invocation:02d}"

    def cluster(self, when: str) -> Path:
        """Return the folder of a cluster snapshot: "before" or "after"."""
        return self.folder / "cluster" / when

    def phase(self, index: int, name: str) -> Path:
        """Return the folder of a finished phase."""
        return self._phases / f"{index:02d}-{name}"

    def running(self, index: int, name: str) -> Path:
        """Return the folder of a phase under way."""
        return self._phases / f"{index:02d}-{name}{RUNNING}"

    def finished(self, index: int, name: str) -> Optional[Any]:
        """Return phase.json of a finished phase; None when it has not finished."""
        path = self.phase(index, name) / "phase.json"
        return json.loads(path.read_text()) if path.exists() else None

    def attempts(self, index: int, name: str) -> List[Path]:
        """Return the folders of all attempts at a phase, oldest first; the last may be under way, or finished."""
        last = [path for path in (self.running(index, name), self.phase(index, name)) if path.exists()]
        return [*self._kept(index, name), *last[:1]]

    def _kept(self, index: int, name: str) -> Iterator[Path]:
        """Yield the folders of attempts that were set aside, oldest first."""
        for number in itertools.count(1):
            kept = self._phases / f"{index:02d}-{name}{PARTIAL}{number}"
            if not kept.exists():
                return
            yield kept

    def keep_partial(self, index: int, name: str) -> Optional[Path]:
        """Set the folder of a phase that was broken off aside and return it; None when there is none."""
        running = self.running(index, name)
        if not running.exists():
            return None
        number = 1 + sum(1 for _ in self._kept(index, name))
        kept = self._phases / f"{index:02d}-{name}{PARTIAL}{number}"
        running.rename(kept)
        return kept

    def finish(self, index: int, name: str, phase: Any) -> Path:
        """Write phase.json and give the folder of a whole phase its name."""
        running, folder = self.running(index, name), self.phase(index, name)
        write_json(running / "phase.json", phase)
        (running / RUNNING_PHASE).unlink(missing_ok=True)
        running.rename(folder)
        sync_folder(self._phases)
        return folder


def _differences(old: Any, new: Any, place: str = "") -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            if key in old and key in new:
                yield from _differences(old[key], new[key], f"{place}.{key}".lstrip("."))
            elif old.get(key) or new.get(key):
                yield f"{place}.{key}".lstrip(".")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, pair in enumerate(zip(old, new)):
            yield from _differences(*pair, f"{place}[{number}]")
    elif old != new:
        yield place

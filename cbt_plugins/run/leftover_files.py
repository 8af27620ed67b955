"""Files of a killed invocation: rows and monitor files are fetched from the nodes, its phase is kept as partial."""

from __future__ import annotations

import logging
from pathlib import PurePosixPath
from typing import Any, Mapping, Sequence

from cbt_plugins.cluster.remote import RemoteError
from cbt_plugins.faults import undo_seal
from cbt_plugins.load.load_session import LoadError, collect
from cbt_plugins.monitors.lifecycle import bring_left
from cbt_plugins.plan import Phase
from cbt_plugins.run.context import LOAD, RunContext

log = logging.getLogger(__name__)


def fetch_leftovers(run: RunContext) -> None:
    """Bring in the rows and monitor files of a killed invocation, and keep its phase as partial.

    A phase that was set aside already may have files on the nodes too: after a second signal only the undo is waited
    for, and a node may have been unreachable.
    """
    last = run.journal.last("invocation")
    if not last:
        return
    if not undo_seal.is_marked(last, run.run_id) and not _is_of_earlier_version(run, last):
        log.warning(
            "the files of %s in %s on the nodes are not fetched: their line in the journal does not have this user's "
            "seal for this folder (another user, machine or version wrote it, or the key was removed)",
            run.run_id,
            last.get("run_dir"),
        )
        return _set_all_aside(run)
    clients = [node for node in last["clients"] if node in run.watched]
    for index, phase in enumerate(run.plan.phases, 1):
        if phase.kind != "wait":
            _collect_attempts(run, index, phase, clients)
    folder_of_monitors = run.archive.monitors_of(len(run.journal.all("invocation")))
    bring_left(run.cbt_run.cluster, run.cbt_run.common, run.watched, last["run_dir"], folder_of_monitors)
    _set_all_aside(run)


def _collect_attempts(run: RunContext, index: int, phase: Phase, clients: Sequence[str]) -> None:
    """Bring in the rows of each attempt at a phase that has not finished it, the earlier ones too: a client may have
    been unreachable when its attempt ended, and at each invocation since.
    """
    folders = [record["scratch"] for record in run.journal.all("phase-begun") if record["phase"] == phase.name]
    attempts = run.archive.attempts(index, phase.name)
    if len(folders) != len(attempts):  # one ended before it had a folder: only the last ones are surely a pair
        folders, attempts = folders[-1:], attempts[-1:]
    for folder, attempt in zip(folders, attempts):
        if attempt != run.archive.phase(index, phase.name) and _is_scratch(run, PurePosixPath(folder)):
            try:
                collect(run.remote, clients, folder, attempt)
            except (RemoteError, LoadError) as error:
                log.warning("%s: its unfinished rows are still on the nodes, in %s: %s", phase.name, folder, error)


def _is_of_earlier_version(run: RunContext, last: Mapping[str, Any]) -> bool:
    """Tell whether a line has no seal, as earlier versions wrote it, and names the folder that this process uses too.

    Whoever wrote such a line, nothing outside the run's own folder is touched.
    """
    return "seal" not in last and last.get("run_dir") == run.cbt_run.run_dir


def _set_all_aside(run: RunContext) -> None:
    for index, phase in enumerate(run.plan.phases, 1):
        set_aside(run, index, phase, "the run was killed")


def _is_scratch(run: RunContext, folder: PurePosixPath) -> bool:
    """Tell whether this run makes folders of that name: what is in them is removed, whoever wrote the journal."""
    return folder.name.startswith(f"{run.run_id}-") and folder.parent.name == LOAD and ".." not in folder.parts


def set_aside(run: RunContext, index: int, phase: Phase, why: str) -> None:
    """Keep what an unfinished attempt at a phase left, under another name."""
    kept = run.archive.keep_partial(index, phase.name)
    if kept is not None:
        run.events.write("phase-broken-off", phase=phase.name, kept=kept.name, why=why)
        log.warning("%s was broken off (%s); its files are kept in %s", phase.name, why, kept.name)

"""Scratch folders of a run on its nodes: cleaned at the end of each invocation, removed when nobody resumes the run."""

from __future__ import annotations

import contextlib
import os
import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Dict, Iterable, List, Mapping, Sequence

from cbt_plugins.checksums import add_sums
from cbt_plugins.cluster.remote import Remote, RemoteError
from cbt_plugins.cluster.shell_programs import find_own
from cbt_plugins.faults import ClusterAccess, undo_seal
from cbt_plugins.inventory import nodes_of
from cbt_plugins.journal import journal_lines
from cbt_plugins.load.load_session import END_AGENT, END_LIMIT
from cbt_plugins.monitors.lifecycle import bring_left
from cbt_plugins.run.context import CEILING, LOAD
from cbt_plugins.run.run_archive import RunArchive

#: seconds for removing files
_LIMIT = 300.0


@dataclass(frozen=True)
class ScratchFolder:
    """The folder that a process of a run has made on the nodes."""

    path: str
    pid: int

    def __str__(self) -> str:
        return f"scratch folder {self.path}"

    def clean(self, remote: Remote, nodes: Sequence[str], with_load: bool = False) -> None:
        """Remove programs and empty folders; rows and monitor files that could not be fetched stay. Raises RemoteError.

        The iteration's folder goes with its last run, and a tmp_dir of the process (CBT's default) with that.
        `with_load`: rows go, too, after their agents have ended.
        """
        iteration = PurePosixPath(self.path).parent
        tmp_dir = iteration.parent
        own = [self.path, str(iteration), *([str(tmp_dir)] if tmp_dir.name == f"cbt.{self.pid}" else [])]
        end = f'for session in {LOAD}/*/; do (cd "$session" && {{ {END_AGENT}; }}) & done; wait; ' if with_load else ""
        command = (
            f"{find_own(self.path)}cd {shlex.quote(self.path)} || exit; {end}"
            f"rm -rf -- bin probe {LOAD if with_load else f'{LOAD}/*{CEILING}*'}; "
            f"find . -depth -type d -empty -delete 2>/dev/null; cd / && rmdir -- {shlex.join(own)} 2>/dev/null || true"
        )
        remote.run(nodes, command, timeout=_LIMIT + (END_LIMIT if with_load else 0.0))

    def nodes_with(self, remote: Remote, nodes: Sequence[str]) -> List[str]:
        """Return the nodes that have the folder, and those that gave no answer, with these words."""
        results = remote.run(nodes, f"{find_own(self.path)}echo present", 60.0, check=False)
        silent = [f"{node} (no answer)" for node in nodes if node not in results or results[node].status]
        return [*(node for node in nodes if node in results and results[node].stdout.strip()), *silent]


def abandoned_folders(folder: Path, access: ClusterAccess, data: bool) -> List[ScratchFolder]:
    """Return the scratch folders that a run may have left; with `data` those of a complete run, too.

    A complete run has cleaned its nodes, but for one that was unreachable. Raises OSError.
    """
    archive = RunArchive(folder)
    if os.path.lexists(archive.complete) and not data:
        return []
    lines = (line for line in journal_lines(archive.journal) if line["event"] == "invocation")
    return scratch_folders(lines, access.run_id)


def scratch_folders(lines: Iterable[Mapping[str, Any]], run_id: str) -> List[ScratchFolder]:
    """Return the folders that these lines of `invocation` name.

    Only lines are believed that this user has sealed for the run, and only names that such a run gives.
    """
    sealed = [line for line in lines if undo_seal.is_marked(line, run_id) and _is_of_run(line, run_id)]
    pids: Dict[str, int] = {str(line["run_dir"]): int(line["pid"]) for line in sealed}
    return [ScratchFolder(path, pid) for path, pid in pids.items()]


def _is_of_run(line: Mapping[str, Any], run_id: str) -> bool:
    path = PurePosixPath(str(line.get("run_dir")))
    is_named = path.is_absolute() and path.name.endswith(f"-{run_id}") and path.parent.name.isdigit()
    return is_named and ".." not in path.parts and isinstance(line.get("pid"), int)


def remove_abandoned(folder: Path, access: ClusterAccess, scratch: ScratchFolder) -> None:
    """Bring the monitors' files of a run that nobody resumes into its archive, then remove its folder on the nodes.

    Their sums are added to those of a complete run.

    Where a file could not be fetched, the folder stays. Raises OSError.
    """
    archive, nodes = RunArchive(folder), list(nodes_of(access.cluster))
    number = sum(line["event"] == "invocation" for line in journal_lines(archive.journal))
    keep = partial(add_sums, folder)
    bring_left(access.cluster, access.common, nodes, scratch.path, archive.monitors_of(number), keep)
    with contextlib.suppress(RemoteError):  # the caller asks which nodes still have it
        scratch.clean(access.remote, nodes, with_load=True)

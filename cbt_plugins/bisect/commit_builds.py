"""Builds of commits: each made once, in one worktree of our own, so that a compiler's cache finds the same paths.

    FOLDER/COMMIT-HASH/     build.log, build.json (the mark: written last) and files/, the $CBT_PLUGINS_BUILD
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterator, Optional

from cbt_plugins.bisect.commit_history import Worktree
from cbt_plugins.campaigns.trial import FOLDER, CommandEnd, put_aside, run_command
from cbt_plugins.journal import write_json

VERSION = 2
FILES = "files"
#: in the environment of build and deploy
COMMIT, BUILD, WORKTREE = "CBT_PLUGINS_COMMIT", "CBT_PLUGINS_BUILD", "CBT_PLUGINS_WORKTREE"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Builds:
    """The builds of a command in a folder, which several searches may share. Raises GitError, OSError."""

    #: resolved: by the path in their environment the processes of a killed build are known
    folder: Path
    worktree: Worktree
    command: Optional[str]  # None: nothing is built, and a deployment takes the worktree
    note: Callable[[str, CommandEnd], None]  # called for each command that has ended, with the commit

    def folder_of(self, sha: str) -> Path:
        """Return the folder of a build."""
        mark = hashlib.sha256((self.command or "").encode()).hexdigest()[:8]
        return self.folder / f"{sha[:16]}-{mark}"

    def has(self, sha: str) -> bool:
        """Return whether nothing must be built any more."""
        return self.command is None or (self.folder_of(sha) / "build.json").exists()

    def build(self, sha: str, limit: float) -> Optional[str]:
        """Build a commit unless it is there; return why it cannot be built."""
        if self.has(sha):
            return None
        folder = self.folder_of(sha)
        with self._alone(folder):
            return None if self.has(sha) else self._build(sha, folder, limit)

    @contextlib.contextmanager
    def _alone(self, folder: Path) -> Iterator[None]:
        """Hold the lock of a build folder: searches may share it."""
        folder.parent.mkdir(parents=True, exist_ok=True)
        with open(folder.with_name(f".{folder.name}.lock"), "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                log.info("waiting for another search, which builds %s", folder)
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _build(self, sha: str, folder: Path, limit: float) -> Optional[str]:
        partial = put_aside(folder)
        if partial:
            shutil.rmtree(partial, ignore_errors=True)
        (folder / FILES).mkdir(parents=True)
        self.worktree.take(sha)
        log.info("build %s", sha[:12])
        output = folder / "build.log"
        own = {**self.environment(sha), FOLDER: str(folder)}
        end = run_command(self.in_worktree(self.command or ""), output, own, limit)
        self.note(sha, end)
        if end.status == 0:
            write_json(folder / "build.json", {"version": VERSION, "sha": sha, "seconds": end.seconds})
            return None
        return f"build {end.how} (see {output})"

    def in_worktree(self, command: str) -> str:
        """Return the shell command that runs a command in the worktree."""
        return f"cd {shlex.quote(str(self.worktree.folder))} && eval {shlex.quote(command)}"

    def environment(self, sha: str) -> Dict[str, str]:
        """Return the variables that tell a command its commit."""
        folder = str(self.folder_of(sha) / FILES) if self.command else ""
        return {COMMIT: sha, WORKTREE: str(self.worktree.folder), BUILD: folder}

"""A git repository as a line of commits, and a worktree of our own in which they are built."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.campaigns.trial import environment
from cbt_plugins.config.bisect import WEIGHT
from cbt_plugins.journal import read_text

#: commits of a search; more are a mistake
MOST = 20_000
#: file in the git folder of a checkout that was made here
MARK = "cbt-plugins"
#: seconds of a git command, and from SIGTERM to SIGKILL
_LIMIT, _GRACE = 600.0, 10.0


class GitError(Exception):
    """What git could not do; its text is for the user."""


@dataclass(frozen=True)
class Commit:
    """One commit of the line. Its weight is its prior: how likely it is the culprit, against the others."""

    sha: str
    subject: str
    parents: Tuple[str, ...] = ()
    weight: float = WEIGHT

    @property
    def short(self) -> str:
        """What people write."""
        return self.sha[:12]

    def __str__(self) -> str:
        return f"{self.short} {self.subject[:60]}".rstrip()


def git(folder: Path, *words: str) -> str:
    """Return the output of a git command, which asks for no password. Raises GitError."""
    command = ["git", "-c", "core.hooksPath=/dev/null", "-c", "core.quotepath=off", *words]
    own = {**environment(), "GIT_TERMINAL_PROMPT": "0"}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    try:
        process = subprocess.Popen(command, cwd=folder, env=own, start_new_session=True, **pipes)  # type: ignore[call-overload]
    except FileNotFoundError as e:
        raise GitError(f"{folder}: no such folder" if e.filename != "git" else "git is not installed") from None
    except NotADirectoryError:
        raise GitError(f"{folder}: not a folder") from None
    try:
        output, errors = process.communicate(timeout=_LIMIT)
    except BaseException as e:
        _end(process)
        if not isinstance(e, subprocess.TimeoutExpired):
            raise
        raise GitError(f"{folder}: git {words[0]} took longer than {_LIMIT:g} s") from None
    if process.returncode:
        text = errors.decode("utf-8", "replace").strip().splitlines()
        reasons = [line for line in text if line.startswith(("fatal: ", "error: "))] or text  # not the advice behind it
        raise GitError(f"{folder}: git {words[0]}: {[f'ended with status {process.returncode}', *reasons][-1]}")
    return str(output.decode("utf-8", "replace"))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End git and those that it has started, which hold the pipes. By SIGTERM it removes its locks first."""
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=_GRACE)
    except BaseException as e:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if not isinstance(e, (ProcessLookupError, subprocess.TimeoutExpired)):
            raise


def resolve(folder: Path, revision: str) -> str:
    """Return the hash of a commit. Raises GitError."""
    try:
        return git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}").strip()
    except GitError as e:
        if "git rev-parse: ended" not in str(e):
            raise
        raise GitError(f"{folder}: no commit {revision!r}: fetch it, or give another commit") from None


def line(folder: Path, good: str, bad: str, paths: Mapping[str, float]) -> List[Commit]:
    """Return the commits from good to bad, both included, as the first parents of bad have them. Raises GitError.

    A merge is one commit: when it is the culprit, its branch is searched next. `paths`: pattern of touched files ->
    weight of such a commit; of a file's patterns the last one counts, of a commit's files the heaviest.
    """
    first, last = resolve(folder, good), resolve(folder, bad)
    if first == last:
        raise GitError(f"good and bad are the same commit, {first[:12]}")
    base = git(folder, "merge-base", first, last).strip()
    if base != first:
        raise GitError(f"{good} is not an ancestor of {bad}: use their merge base {base[:12]} as the good commit")
    words = ["--first-parent", "--reverse", "--format=%x00%H%x00%P%x00%s", *(["-m", "--name-only"] if paths else [])]
    text = git(folder, "log", *words, f"{first}..{last}", "--")
    commits = []
    fields = text.split("\0")[1:]  # no subject has this byte
    for sha, parents, lines in zip(fields[::3], fields[1::3], fields[2::3]):
        subject, _, files = lines.partition("\n")
        commits.append(Commit(sha, subject, tuple(parents.split()), _weight(files.split("\n"), paths)))
    if len(commits) > MOST:
        text = f"{len(commits)} commits from {good} to {bad}, but the limit is {MOST}"
        raise GitError(f"{text}: give commits that are closer to each other")
    return [Commit(first, git(folder, "log", "-1", "--format=%s", first).strip()), *commits]


def check_line(folder: Path, commits: Sequence[Commit], good: str, bad: str) -> None:
    """Raise GitError for a good commit of a merged branch: commits of the line before the merge do not contain it."""
    first, second, last = commits[0], commits[1], commits[-1]
    if second.parents[:1] == (first.sha,):
        return
    after = set(git(folder, "rev-list", "--ancestry-path", f"{first.sha}..{last.sha}").split())
    merge = next(commit for commit in commits if commit.sha in after)
    remedies = [f"{sha[:12]} (the last one that {good} contains)" for sha in second.parents[:1]]
    remedies += [f"{merge.short} (the first one that contains {good})"] if merge is not last else []
    text = f"{good} is not on the line of first parents of {bad}: use a commit of this line as the good commit"
    raise GitError(f"{text}: {' or '.join(remedies)}" if remedies else text)


def _weight(files: Sequence[str], paths: Mapping[str, float]) -> float:
    heaviest = [
        [weight for pattern, weight in paths.items() if fnmatchcase(file, pattern)][-1:] or [WEIGHT]
        for file in files
        if file
    ]
    return max((weight for (weight,) in heaviest), default=WEIGHT)


class Worktree:
    """A checkout of our own beside the user's, which stays as it is."""

    def __init__(self, repo: Path, folder: Path) -> None:
        self._repo = repo
        self.folder = folder

    def take(self, sha: str) -> None:
        """Have the files of a commit there. What git ignores stays, so that a build can reuse it. Raises GitError."""
        if self._begun.exists():
            self.remove()
        if not (self.folder / ".git").exists():
            if self.folder.exists() and not (self.folder.is_dir() and not any(self.folder.iterdir())):
                raise GitError(f"{self.folder}: is not empty, and no checkout: move it, or give another folder with -a")
            self._begun.parent.mkdir(parents=True, exist_ok=True)
            self._begun.touch()
            # forced: its folder may be lost while its entry is there. No prune: it takes the user's own entries, too
            git(self._repo, "worktree", "add", "--force", "--detach", str(self.folder), sha)
            self._mark.touch()
            self._begun.unlink()
        elif not self._is_ours:
            raise GitError(
                f"{self.folder}: no checkout of this program, so nothing in it was changed: move it, or give another "
                f"folder with -a; if an earlier version made it: "
                f"git -C {self._repo} worktree remove -f -f {self.folder}"
            )
        for lock in self._mark.parent.glob("*.lock"):  # of a git that was killed: nobody else uses this checkout
            lock.unlink()
        for words in (("checkout", "--quiet", "--force", "--detach", sha), ("clean", "-ffdq")):
            try:
                git(self.folder, *words)
            except GitError:
                _make_writable(self.folder)
                git(self.folder, *words)

    def commit(self) -> Optional[str]:
        """Return the commit that was taken last; None where there is no checkout of our own. Raises GitError."""
        return resolve(self.folder, "HEAD") if self._is_ours and not self._begun.exists() else None

    @property
    def _begun(self) -> Path:
        """The file beside the checkout while it is made or removed: a kill, or an error, can leave half a checkout."""
        return self.folder.with_name(f"{self.folder.name}.{MARK}")

    @property
    def _is_ours(self) -> bool:
        """Whether it is a linked checkout with the mark; False also where its own git folder is gone."""
        return (self.folder / ".git").is_file() and self._mark.exists()

    @property
    def _mark(self) -> Path:
        """The file in the checkout's own git folder by which a checkout of the user is known from ours."""
        return self.folder / read_text(self.folder / ".git").partition("gitdir:")[2].strip() / MARK

    def remove(self) -> None:
        """Take it away again, unless it is a checkout of the user. Raises GitError."""
        if not self._is_ours and not self._begun.exists():
            return
        try:
            self._begun.touch()
            if self.folder.exists():
                _make_writable(self.folder)
                shutil.rmtree(self.folder)
        except OSError as e:
            raise GitError(f"{self.folder}: cannot be removed: {e}: remove this folder") from e
        with contextlib.suppress(GitError):  # it may have no entry yet
            git(self._repo, "worktree", "remove", "--force", "--force", str(self.folder))
        self._begun.unlink()


def _make_writable(folder: Path) -> None:
    """Let the user change all directories of a folder: Go's module cache, for one, is read-only."""
    _allow_changes(folder)
    for path, names, _ in os.walk(folder):  # a directory is read after it was changed
        for name in names:
            _allow_changes(Path(path, name))


def _allow_changes(folder: Path) -> None:
    with contextlib.suppress(OSError):  # who needs the directory says why it cannot be changed
        if not folder.is_symlink():
            folder.chmod(stat.S_IMODE(folder.stat().st_mode) | stat.S_IRWXU)

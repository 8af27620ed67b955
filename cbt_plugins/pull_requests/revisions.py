"""The two sides of a pull request: commits of a repository, or names that only their deployment knows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Tuple

from cbt_plugins.bisect.commit_history import GitError, git, resolve
from cbt_plugins.config.pull_request import BASE, HEAD

#: of what a user may name: commits, releases, images of containers, folders
_NAME = re.compile(r"[A-Za-z0-9_./~][A-Za-z0-9_./@{}^~+:-]{0,250}")
#: a pull request of GitHub, by its number
_PULL = re.compile(r"pull/([1-9]\d{0,8})")


@dataclass(frozen=True)
class Revision:
    """One side."""

    arm: str
    name: str  # as it was given
    sha: str = ""  # "" without a repository
    subject: str = ""  # an attacker's text

    @property
    def fixed(self) -> str:
        """The name that means the same tomorrow, if there is one."""
        return self.sha or self.name

    def __str__(self) -> str:
        return f"{self.name} {self.sha[:12]} {self.subject[:60]}".strip()


def check_side_name(name: str) -> str:
    """Return the name of a side; raises ValueError for what is none."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name of a commit, a release, an image or a folder")
    return name


def revisions(repo: Optional[Path], base: str, head: str) -> Tuple[Revision, Revision]:
    """Return base and head. Raises GitError.

    The base of commits is their merge base: what others have changed since then is no change of the pull request.
    """
    if repo is None:
        return Revision(BASE, base), Revision(HEAD, head)
    first, last = (resolve(repo, _fetched(repo, name)) for name in (base, head))
    try:
        fork = git(repo, "merge-base", first, last).strip()
    except GitError as e:
        raise GitError(f"{repo}: {base} and {head} have no common ancestor ({e})") from None
    base_side, head_side = (
        Revision(arm, name, sha, git(repo, "log", "-1", "--format=%s", sha).strip())
        for arm, name, sha in ((BASE, base, fork), (HEAD, head, last))
    )
    return base_side, head_side


def _fetched(repo: Path, name: str) -> str:
    """Return a name that the repository has; a pull request (`pull/1234`) is fetched from `origin` anew."""
    match = _PULL.fullmatch(name)
    if not match:
        return name
    ref = f"refs/cbt-plugins/pull/{match[1]}"
    git(repo, "fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "origin", f"+refs/pull/{match[1]}/head:{ref}")
    return ref

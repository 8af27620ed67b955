"""The line of commits of a generated repository, and the worktree in which its commits are built."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from test_bisect_run import commit, git, merged
from waiting import wait_for

from cbt_plugins.bisect import commit_history
from cbt_plugins.bisect.commit_history import GitError, Worktree, check_line, line


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository of 3 commits; the file `speed` has the number of the commit."""
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for number in range(3):
        commit(folder, {"speed": f"{number}\n"}, f"commit {number}")
    return folder


def test_a_subject_with_control_characters_is_a_subject(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    first = commit(tmp_path, {"a": "1"}, "one")
    last = commit(tmp_path, {"a": "2"}, "evil \x01 \x02 subject")
    for paths in ({}, {"a": 3.0}):
        assert [(its.sha, its.subject) for its in line(tmp_path, first, "main", paths)[1:]] == [
            (last, "evil \x01 \x02 subject")
        ]


def test_history_is_a_line_of_first_parents(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    first = commit(tmp_path, {"a": "1"}, "one")
    git(tmp_path, "checkout", "-qb", "side")
    side = commit(tmp_path, {"src/rgw/b": "1"}, "side")
    git(tmp_path, "checkout", "-q", "main")
    second = commit(tmp_path, {"doc/c": "1"}, "two")
    merged(tmp_path, "side")
    commits = line(tmp_path, first, "main", {"src/*": 10.0, "doc/*": 0.1})
    assert [(its.subject, its.weight) for its in commits] == [("one", 1.0), ("two", 0.1), ("merge", 10.0)]
    assert commits[-1].parents == (second, side)
    for good, bad, text in (
        (second, side, f"use their merge base {first[:12]}"),
        ("nothing", "main", "no commit 'nothing'"),
        ("main", "main", "the same commit"),
    ):
        with pytest.raises(GitError, match=text):
            line(tmp_path, good, bad, {})


def test_the_good_commit_of_a_search_is_on_the_line_of_first_parents(tmp_path: Path) -> None:
    """Not a tag that was made on a branch and merged back: commits of the line before the merge do not contain it."""
    git(tmp_path, "init", "-q", "-b", "main")
    origin = commit(tmp_path, {"a": "1"}, "origin")
    git(tmp_path, "checkout", "-qb", "release")
    commit(tmp_path, {"b": "1"}, "release")
    git(tmp_path, "tag", "v1")
    git(tmp_path, "checkout", "-q", "main")
    commit(tmp_path, {"a": "2"}, "before the merge, and without v1")
    merge = merged(tmp_path, "v1")
    last = commit(tmp_path, {"a": "3"}, "last")
    for bad, remedies in (
        (last, f"{origin[:12]} (the last one that v1 contains) or {merge[:12]} (the first one that contains v1)"),
        (merge, f"{origin[:12]} (the last one that v1 contains)"),
    ):
        with pytest.raises(GitError) as error:
            check_line(tmp_path, line(tmp_path, "v1", bad, {}), "v1", bad)
        assert str(error.value).endswith(f" of {bad}: use a commit of this line as the good commit: {remedies}")
        for good in {origin, merge} - {bad}:
            check_line(tmp_path, line(tmp_path, good, bad, {}), good, bad)


def test_a_worktree_is_clean_but_for_what_git_ignores(repo: Path, tmp_path: Path) -> None:
    commit(repo, {".gitignore": "*.o\n"}, "ignore")
    commit(repo, {"speed": "9\n"}, "nine")
    tree = Worktree(repo, tmp_path / "tree")
    tree.take("HEAD")
    (tree.folder / "new").write_text("")
    (tree.folder / "kept.o").write_text("")
    (tree.folder / "speed").write_text("changed")
    tree.take("HEAD~1")
    assert sorted(path.name for path in tree.folder.iterdir()) == [".git", ".gitignore", "kept.o", "speed"]
    assert (tree.folder / "speed").read_text() == "2\n"
    tree.remove()
    assert not tree.folder.exists()


def test_a_lost_worktree_is_made_anew_and_those_of_the_user_stay(repo: Path, tmp_path: Path) -> None:
    mine, away = tmp_path / "mine", tmp_path / "unplugged"
    git(repo, "worktree", "add", "--detach", str(mine))
    mine.rename(away)
    tree = Worktree(repo, tmp_path / "tree")
    for _ in range(2):
        tree.take("HEAD")
        shutil.rmtree(tree.folder)
    away.rename(mine)
    assert git(mine, "rev-parse", "HEAD") == git(repo, "rev-parse", "HEAD")


def test_half_a_worktree_is_made_anew(repo: Path, tmp_path: Path) -> None:
    attributes = repo / ".git" / "info" / "attributes"
    attributes.parent.mkdir(exist_ok=True)
    attributes.write_text("speed filter=killed\n")
    git(repo, "config", "filter.killed.smudge", "kill -9 0")  # git, while it writes the files
    for again in (True, False):
        with pytest.raises(GitError, match="git worktree: "):
            Worktree(repo, tmp_path / "tree").take("HEAD")
        assert " locked" in git(repo, "worktree", "list") and not (tmp_path / "tree" / "speed").exists()
        if again:
            Worktree(repo, tmp_path / "tree").remove()
            assert git(repo, "worktree", "list").count("\n") == 0
            assert not list(tmp_path.glob("tree*"))
    attributes.unlink()
    tree = Worktree(repo, tmp_path / "tree")
    tree.take("HEAD")
    assert (tmp_path / "tree" / "speed").read_text() == "2\n"
    tree.remove()
    assert git(repo, "worktree", "list").count("\n") == 0 and not list(tmp_path.glob("tree*"))


def test_an_interrupted_checkout_can_be_taken_again(repo: Path, tmp_path: Path) -> None:
    tree, started = Worktree(repo, tmp_path / "tree"), tmp_path / "started"
    newest = git(repo, "rev-parse", "HEAD")
    tree.take("HEAD~1")
    (lock,) = (place / "index.lock" for place in (repo / ".git" / "worktrees").iterdir())
    attributes = repo / ".git" / "info" / "attributes"
    attributes.parent.mkdir(exist_ok=True)
    attributes.write_text("speed filter=slow\n")
    git(repo, "config", "filter.slow.smudge", f"touch {started}; sleep 60")

    def interrupt() -> None:
        wait_for(started.exists, "the checkout")
        assert lock.exists()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        tree.take(newest)
    thread.join()
    assert not lock.exists()
    attributes.unlink()
    lock.touch()  # git was killed before it removed its lock
    with pytest.raises(GitError, match=f"git checkout: fatal: Unable to create '{lock}': File exists"):
        commit_history.git(tree.folder, "checkout", "--force", newest)
    tree.take(newest)
    assert (tree.folder / "speed").read_text() == "2\n"


#: takes two commits and removes the checkout, in which a build leaves directories that nobody may change
READ_ONLY = """
import os, sys
from pathlib import Path
from cbt_plugins.bisect.commit_history import Worktree
repo, outside, tree = Path(sys.argv[1]), Path(sys.argv[2]), Worktree(Path(sys.argv[1]), Path(sys.argv[3]))
for sha in sys.argv[4:]:
    tree.take(sha)
    assert [path.name for path in tree.folder.iterdir() if path.name != ".git"] == ["speed"]
    module = tree.folder / "mod" / "module"
    module.mkdir(parents=True)
    (module / "file").touch()
    (module / "link").symlink_to(outside)
    for path in (module, module.parent):
        path.chmod(0o500)
tree.remove()
assert not tree.folder.exists() and outside.stat().st_mode & 0o777 == 0o500
"""


def test_directories_that_a_build_left_read_only_are_removed(repo: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    shas = git(repo, "rev-list", "HEAD").split()[:2]
    # root without its capabilities obeys modes, too
    user = ["setpriv", "--bounding-set", "-all"] if os.geteuid() == 0 else []
    words = [*user, sys.executable, "-c", READ_ONLY, *map(str, (repo, outside, tmp_path / "tree")), *shas]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert git(repo, "worktree", "list").count("\n") == 0 and not list(tmp_path.glob("tree*"))


def test_a_removal_that_failed_is_repeated(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Worktree(repo, tmp_path / "tree")
    tree.take("HEAD")

    def fail(_: Path) -> None:
        raise OSError("busy")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", fail)
        with pytest.raises(GitError, match="tree: cannot be removed: busy"):
            tree.remove()
    assert tree.commit() is None
    tree.take("HEAD")
    assert (tree.folder / "speed").exists() and tree.commit()
    tree.remove()
    assert not list(tmp_path.glob("tree*"))


def test_a_checkout_whose_git_folder_is_gone_is_left_alone(repo: Path, tmp_path: Path) -> None:
    """It may be the user's: its mark is gone, too."""
    tree = Worktree(repo, tmp_path / "tree")
    tree.take("HEAD")
    shutil.rmtree(repo / ".git" / "worktrees")
    tree.remove()
    with pytest.raises(GitError, match="no checkout of this program, so nothing in it was changed: move it"):
        tree.take("HEAD")
    assert (tree.folder / "speed").exists()


def test_a_folder_of_the_user_is_left_alone(repo: Path, tmp_path: Path) -> None:
    tree = Worktree(repo, tmp_path / "tree")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "mine.txt").write_text("notes")
    for _ in range(2):
        with pytest.raises(GitError, match="is not empty, and no checkout"):
            tree.take("HEAD")
        tree.remove()
    assert (tmp_path / "tree" / "mine.txt").read_text() == "notes"

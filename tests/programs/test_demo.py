"""`./run demo`, with stand-ins of the programs that it calls."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Dict

PROJECT = Path(__file__).resolve().parents[2]

_STUB = """#!/bin/sh
case "$*" in
  *"lab run"*) echo "$@" >>"$LOG"; until [ "$(wc -l <"$LOG")" = 2 ]; do sleep 0.05; done ;;
  *"lab down"*) echo "$@" >>"$LOG.down" ;;
  *"lab status"*) exit 1 ;;
esac
"""


def checkout(folder: Path, **stubs: str) -> Dict[str, str]:
    """Make a checkout with stand-ins of programs and return its environment."""
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, text in {"python": _STUB, "dpkg-query": "#!/bin/sh\necho installed\n", **stubs}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (folder / ".ci").mkdir()
    for name in ("run", "setup.cfg", "pyproject.toml", ".ci/requirements.txt"):
        shutil.copy(PROJECT / name, folder / name)
    own = {"LOG": folder / "log", "XDG_CACHE_HOME": folder / "cache", "CBT_HOME": folder / "none"}
    return {**os.environ, **{name: str(path) for name, path in own.items()}}


def test_a_folder_that_cannot_be_made_ends_the_demo(tmp_path: Path) -> None:
    """Another reason than a folder of that name: a full disk, or one that is read-only."""
    refusing = "#!/bin/sh\necho 'mkdir: No space left on device' >&2\nexit 1\n"
    environment = checkout(tmp_path, mkdir=refusing)
    done = subprocess.run([tmp_path / "run", "demo"], env=environment, text=True, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 1
    assert "mkdir: No space left on device; name another folder: ./run demo DIR" in done.stderr


def test_two_demos_at_once_have_a_lab_and_an_archive_each(tmp_path: Path) -> None:
    """And what is left of one that was killed is removed; no lab of the user's is."""
    environment = checkout(tmp_path)
    killed = tmp_path / "cache" / "cbt-plugins" / "lab-demo-0"
    for name in (killed.name, "lab-demo", "lab-demo-ec", "lab-demo-ec-0"):
        killed.with_name(name).mkdir(parents=True)
    log = tmp_path / "log"
    log.touch()
    subprocess.run([tmp_path / "run", "setup"], env=environment, check=True)
    started = [
        subprocess.Popen([tmp_path / "run", "demo"], env=environment, text=True, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    lines = [line.split() for line in log.read_text().splitlines()]
    for option in ("--dir", "-a"):
        assert len({words[words.index(option) + 1] for words in lines}) == 2, option
    assert {path.name for path in tmp_path.glob("archive-demo-*")} == {"archive-demo-1", "archive-demo-2"}
    removed = {line.split(" --dir ")[1] for line in (tmp_path / "log.down").read_text().splitlines()}
    assert removed == {str(killed)}
    assert all("next, a file of yours (docs/LAB.md)" in text.splitlines()[-1] for text in said)

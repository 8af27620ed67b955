"""`./run demo`, with stand-ins of the programs that it calls."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]

_STUB = """#!/bin/sh
case "$*" in
  *"lab run"*) echo "$@" >>"$LOG"; until [ "$(wc -l <"$LOG")" = 2 ]; do sleep 0.05; done ;;
  *"lab down"*) echo "$@" >>"$LOG.down" ;;
  *"lab status"*) exit 1 ;;
esac
"""


def test_two_demos_at_once_have_a_lab_and_an_archive_each(tmp_path: Path) -> None:
    """And what is left of one that was killed is removed; no lab of the user's is."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, text in {"python": _STUB, "dpkg-query": "#!/bin/sh\necho installed\n"}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (tmp_path / ".ci").mkdir()
    for name in ("run", "setup.cfg", "pyproject.toml", ".ci/requirements.txt"):
        shutil.copy(PROJECT / name, tmp_path / name)
    killed = tmp_path / "cache" / "cbt-plugins" / "lab-demo-0"
    for name in (killed.name, "lab-demo", "lab-demo-ec", "lab-demo-ec-0"):
        killed.with_name(name).mkdir(parents=True)
    log = tmp_path / "log"
    log.touch()
    own = {"LOG": log, "XDG_CACHE_HOME": tmp_path / "cache", "CBT_HOME": tmp_path / "none"}
    environment = {**os.environ, **{name: str(path) for name, path in own.items()}}
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

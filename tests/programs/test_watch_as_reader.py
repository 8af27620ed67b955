"""`cbt-tools watch` of who may only read the archive, and its result after the end of the run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator

import archive_builder
import pytest

from cbt_plugins.tools.__main__ import main

#: a user who owns nothing
NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that all users can reach."""
    with tempfile.TemporaryDirectory() as path:
        os.chmod(path, 0o755)
        yield Path(path)


def test_another_user_watches_without_the_journal(folder: Path) -> None:
    """Files without the right to write; the journal cannot even be read."""
    run = folder / "archive" / "results" / "00000000" / "id-1a2b3c4d"
    shutil.copytree(archive_builder.HALF, run)
    (run / "journal.jsonl").write_text("")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    (run / "journal.jsonl").chmod(0)
    user: Dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}

    def ask(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [sys.executable, *words], cwd="/", env=environment, capture_output=True, text=True, **user
        )

    if ask("-c", "import cbt_plugins").returncode:
        pytest.skip("another user cannot read the installed package")
    before = sorted(folder.rglob("*"))
    done = ask("-m", "cbt_plugins.tools", "watch", str(folder / "archive"))
    assert done.returncode == 4 and "Traceback" not in done.stderr, done.stderr
    assert "the run has ended without a result" in done.stdout and "02 no-failure" in done.stdout
    assert sorted(folder.rglob("*")) == before
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)


def test_after_the_end_watch_says_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = archive_builder.run(tmp_path / "archive")
    status = main(["watch", str(run)])
    out = capsys.readouterr().out
    assert main(["report", str(run), "--format", "text"]) == status
    report = capsys.readouterr().out
    assert out.startswith(f"{run.parent.name}/{run.name}: complete\n")
    assert len(report.splitlines()) > 5 and out.endswith(f"\n\n{report}")

"""A user without rights on a client: gets no command run by root, no file replaced, no secret read."""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator

import pytest
import yaml
from attacker import LINKED
from cycles import S3, Cycle
from running_lab import RunningLab

pytestmark = pytest.mark.lab

AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
WARP = {"s3": S3, "size": "4KiB", "cycle": {"phases": [{"fill": {"objects": 40}}]}}


@contextmanager
def attacked(lab: RunningLab, node: str, folder: str) -> Iterator[Dict[str, Any]]:
    """An attacker is at work on a node while the context is open; then the mapping says what it could do."""
    secret = json.loads((lab.dir / "s3.json").read_text())["secret_key"]
    # the program over its argument: the attacker may not enter the project's folder
    text = (Path(__file__).parent / "attacker.py").read_text()
    lab.exec(node, ["rm", "-f", "/tmp/was-run-by"])
    argv = lab.lab.enter(node, [*AS_NOBODY, "python3", "-c", text, folder])
    said: Dict[str, Any] = {}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        try:
            process.stdin.write(f"{secret}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "ready\n"
            yield said
            out, _ = process.communicate("end\n", timeout=60)
            said.update(json.loads(out))
        finally:
            process.kill()
    said["root ran it"] = lab.exec(node, ["cat", "/tmp/was-run-by"]).stdout.split()


def cycle_in(lab: RunningLab, folder: Path, tmp_dir: str) -> Cycle:
    """A short cycle with this `tmp_dir:`."""
    folder.mkdir()
    cycle = Cycle(lab, folder, {"resources": {}}, warp=WARP)
    config = yaml.safe_load(cycle.file.read_text())
    config["cluster"]["tmp_dir"] = tmp_dir
    cycle.file.write_text(yaml.safe_dump(config))
    return cycle


def test_a_folder_that_somebody_has_made_before_is_refused(lab: RunningLab, tmp_path: Path) -> None:
    with attacked(lab, "client1", "/tmp/made-before") as said:
        done = cycle_in(lab, tmp_path / "made", "/tmp/made-before").run()
        assert done.returncode == 1
        assert "client1: exit status 77: /tmp/made-before belongs to user nobody" in done.stderr
        assert "remove it as root, or set cluster: tmp_dir: to a folder that only you can write" in done.stderr
        assert "Traceback" not in done.stderr
    assert said["tries"] > 10
    assert (said["done"], said["root ran it"]) == ([], [])
    # nobody's links are there and not followed
    assert lab.exec("client1", ["find", LINKED, "-printf", "%m %p\n"]).stdout == f"755 {LINKED}\n"


@pytest.mark.long
def test_a_run_beside_an_attacker_is_not_affected(lab: RunningLab, tmp_path: Path) -> None:
    with attacked(lab, "client1", "/tmp/cbt-shared/x") as said:
        cycle = cycle_in(lab, tmp_path / "beside", "/tmp/cbt-shared")
        done = cycle.run()
        assert done.returncode == 0, done.stderr[-3000:]
    assert cycle.summary()["phases"][0]["status"] == "ok"
    assert said["looks"] > 100
    assert (said["done"], said["root ran it"]) == ([], [])

"""The fragments of docs/PERF-LAB.md, with stand-ins for what is not here."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any, Dict, List

import fake_cycle
import pytest
import yaml

from cbt_plugins.config.file_check import load_file
from cbt_plugins.tools.__main__ import main, parser_of

PAGE = (Path(__file__).parents[2] / "docs" / "PERF-LAB.md").read_text(encoding="utf-8")


def fragment(title: str) -> str:
    """The indented lines of a section."""
    part = next(part for part in PAGE.split("\n## ") if part.startswith(title))
    return "\n".join(line[4:] for line in part.splitlines() if line.startswith("    "))


def handed_over(task: Dict[str, Any]) -> Dict[str, Any]:
    """What qa/tasks/cbt.py of Ceph makes of its part of a job, with the hosts of the job."""
    hosts, asked = ["mon.example", "osd1.example", "osd2.example"], task.get("cluster", {})
    cluster = {
        **{"user": asked.get("user", "ubuntu"), "head": hosts[0], "osds": hosts[1:], "mons": hosts[:1]},
        **{"clients": ["client.example"], "rgws": asked.get("rgws", {"client.example": None})},
        **{"osds_per_node": asked.get("osds_per_node", 1), "rebuild_every_test": False, "use_existing": True},
        **{"is_teuthology": True, "iterations": asked.get("iterations", 1), "tmp_dir": "/tmp/cbt"},
        **{"pool_profiles": asked.get("pool_profiles"), "pid_dir": "/var/run/ceph"},
    }
    sections = {"client_endpoints": None, "monitoring_profiles": {}, "benchmarks": None}
    return {"cluster": cluster, **{key: task.get(key, default) for key, default in sections.items()}}


def test_the_job_of_teuthology_is_a_file_without_errors(tmp_path: Path) -> None:
    (task,) = yaml.safe_load(fragment("teuthology"))["tasks"]
    path = tmp_path / "cbt_config.yaml"
    path.write_text(yaml.safe_dump(handed_over(task["cbt"]), default_flow_style=False))
    (run,) = load_file(path).runs
    assert [phase.name for phase in run.plan.phases][-1] == "measure"


def test_the_gate_of_the_job_needs_more_than_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for cbt.py makes the archives; the pull request is 20 % slower."""
    monkeypatch.setenv("FAKE_ARCHIVE", str(fake_cycle.template(tmp_path / "made")))
    monkeypatch.setenv("FAKE_EFFECTS", json.dumps({"pr": 0.8}))
    monkeypatch.setenv("FAKE_NOISE", "0.003")
    for side in ("base", "pr"):
        monkeypatch.setenv("CBT_PLUGINS_ARM", side)
        monkeypatch.setenv("CBT_PLUGINS_TRIAL", side)
        monkeypatch.setattr("sys.argv", ["cbt.py", "-a", str(tmp_path / side)])
        fake_cycle.main()
    gate = next(line for line in fragment("A Jenkins").splitlines() if " gate " in line)
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(gate)[1:]) == 3
    assert (tmp_path / "gate.md").read_text()


@pytest.mark.parametrize(
    ("status", "conclusion", "result"),
    [
        (0, "success", "SUCCESS"),
        (1, "failure", "FAILURE"),
        (3, "neutral", "UNSTABLE"),
        (125, "neutral", "UNSTABLE"),
        (125, "failure", "FAILURE"),
        (125, "", "NOT_BUILT"),
        (1, "", "NOT_BUILT"),  # a Python traceback
        (2, "", "NOT_BUILT"),
        (4, "", "NOT_BUILT"),
    ],
)
def test_the_result_of_the_job_is_that_of_the_check(tmp_path: Path, status: int, conclusion: str, result: str) -> None:
    """A stand-in for cbt-tools ends with each exit status."""
    job = fragment("A Jenkins")
    script = job.split("script: '''")[1].split("'''")[0]
    stand_in, folder = tmp_path / "cbt-tools", tmp_path / "pr-7"
    answer = f"mkdir {folder} && echo '{json.dumps({'conclusion': conclusion}, indent=1)}' > {folder}/pr.json\n"
    stand_in.write_text(f'#!/bin/sh\necho "$@" > words\n{answer if conclusion else ""}exit {status}\n')
    stand_in.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PULL": "1234", "BUILD_NUMBER": "7"}
    ended = subprocess.run(["sh", "-xe", "-c", script], cwd=tmp_path, env=environment, check=False)
    words = "pr origin/main pull/1234 --config pr.yaml --within 8h -a pr-7"
    assert (tmp_path / "words").read_text().strip() == words
    results = dict(re.findall(r"(\d): '(\w+)'", job))
    (default,) = re.findall(r"get\(status, '(\w+)'\)", job)
    assert results.get(str(ended.returncode), default) == result


def test_the_other_commands_are_ones_that_are_there() -> None:
    lines: List[str] = [line for line in PAGE.splitlines() if line.startswith("    ") and "cbt-tools" in line]
    for line in lines:
        words = shlex.split(line.split("cbt-tools ", 1)[1].split(" || ")[0], comments=True)
        assert callable(parser_of(words[0]).parse_args(words).run)

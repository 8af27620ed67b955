"""The resources profile under an unmodified cbt.py, before and after monitoring became a package."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from .conftest import Cbt

pytestmark = pytest.mark.upstream


@pytest.mark.parametrize("tree", ["23acfbf", "9d6480f", "newest"], indirect=True)
def test_the_resources_profile_runs_and_its_samples_arrive(cbt: Cbt, tree: Path) -> None:
    (cbt.tmp / "stubs" / "pdsh").write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    here = socket.gethostname()
    config = cbt.config(
        {"example": {"watch": True}},
        profiles={"resources": {"interval": 0.1}},
        iterations=1,
        head=here,
        clients=[here],
        osds=[here],
        mons=[here],
        tmp_dir=str(cbt.tmp / "node"),
    )
    outcome = cbt.cbt(tree, config)
    assert outcome.status == 0, outcome.output
    file = outcome.runs()[0] / "monitors" / f"resources.{here}" / f"{here}.jsonl"
    about, named, *_, last = [json.loads(line) for line in file.read_text().splitlines()]
    assert about["version"] == 1 and named["names"]["k"] and last["end"] == "told"
    (mine,) = [its for its in named["names"]["d"].values() if its["class"] == "monitor"]
    assert not Path(f"/proc/{mine['pid']}").exists()
    assert not list((cbt.tmp / "node").rglob("resources*"))

"""What acts rather than watches, under an unmodified cbt.py: its place among the monitors, and a load without it."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, Dict

import pytest

from .conftest import Cbt

pytestmark = pytest.mark.upstream

#: CBT's own, which starts and stops its monitors in the same order; one of a plug-in, which does not
OWN = {"hsbench": {"size": "4K", "client_endpoints": "s3", "duration": 1}}
FAULTS = "events:\n- {at: 1s, fault: {label: a, kind: stop, nodes: [192.0.2.4]}}\n"


@pytest.mark.parametrize("benchmarks", [OWN, {"example": {"watch": True}}], ids=["own", "plugin"])
def test_what_acts_begins_last_and_ends_first(cbt: Cbt, tree: Path, benchmarks: Dict[str, Any]) -> None:
    """The clock of faults is that of the load, and what watches sees them undone."""
    note, here = cbt.tmp / "note", socket.gethostname()
    (cbt.tmp / "stubs" / "pdsh").write_text("#!/bin/sh\nexit 0\n")
    # hsbench runs on this machine, through sudo, and leaves output
    place = "out=$(printf '%s\\n' \"$*\" | sed -n 's/.* -o \\([^ ]*\\).*/\\1/p')"
    leave = f'{place}; [ -z "$out" ] || echo 4711 > "$out"\n'
    (cbt.tmp / "stubs" / "sudo").write_text(f"#!/bin/sh\n{leave}")
    profile = {"nodes": ["clients"], "note": str(note)}
    nodes: Dict[str, Any] = {"head": here, "clients": [here], "osds": [here], "mons": {here: {"a": "127.0.0.1:6789"}}}
    config = cbt.config(
        benchmarks,
        profiles={"breaker": profile, "witness": profile},
        iterations=1,
        tmp_dir=str(cbt.tmp / "node"),
        **nodes,
    )
    outcome = cbt.cbt(tree, config)
    assert outcome.status == 0, outcome.output
    begin, end = f"start {here}", "stop same"
    assert note.read_text().splitlines() == [begin, f"breaker: {begin}", f"breaker: {end}", end]


def test_a_load_without_its_faults_is_no_result(cbt: Cbt, tree: Path) -> None:
    """The cluster does not answer, so that nothing is broken; another invocation does the run again."""
    (cbt.tmp / "faults.yaml").write_text(FAULTS)
    config = cbt.config(OWN, profiles={"faults": {"file": str(cbt.tmp / "faults.yaml")}}, iterations=1)
    for _ in range(2):
        outcome = cbt.cbt(tree, config)
        assert outcome.status == 1, outcome.output
        assert "0 of 1 planned runs executed, 1 failed" in outcome.output
        assert "failed: hsbench" in outcome.output and "exit status 1 before the load" in outcome.output
    (run,) = outcome.runs()
    for journal in outcome.archive.glob("faults/*/events.jsonl"):
        assert f'"run": "{run.parent.name}/{run.name}"' in journal.read_text()

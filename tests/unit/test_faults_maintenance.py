"""A host of cephadm in maintenance: what is refused before its order, and the undo of an order that was cut short."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Sequence, cast

import pytest
from faults_judge import PACIFIC

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.transports.transport import Result
from cbt_plugins.faults.cluster_facts import Facts
from cbt_plugins.faults.kinds.maintenance import Maintenance
from cbt_plugins.faults.scene import Scene, Targets
from cbt_plugins.faults.step import FaultError, Step

FSID = PACIFIC["osd dump"]["fsid"]
HOST = "node1"
FQDN = "node1.example.com"


class Answers:
    """Stands where `Remote` does."""

    def __init__(self) -> None:
        self.unit = "ceph-{fsid}@{name}.service"
        self.hosts: List[Dict[str, Any]] = [{"hostname": HOST, "status": ""}]

    def run(self, nodes: Sequence[str], command: str, **_: Any) -> Dict[str, Result]:
        text = json.dumps(self.hosts)
        if "orch host ls" not in command:
            daemons = re.findall(r"\b(?:osd|mon|mgr|rgw)\.[\w.]+", command.splitlines()[0])
            units = [(name, self.unit.format(fsid=FSID, name=name)) for name in dict.fromkeys(daemons)]
            text = "".join(f"unit {name} {unit} active\n" for name, unit in units)
        return {nodes[0]: Result(text, "", 0)}


def step(answers: Answers, host: str = HOST, **changed: Any) -> Step:
    facts = Facts({**PACIFIC, **changed})
    ceph = SimpleNamespace(command="ceph", head="node0", remote=answers, kubernetes=None, in_pods=())
    nodes = ("node0", *facts.hosts, "gw1")
    (made,) = Maintenance(None).steps(Scene(cast(Ceph, ceph), facts, nodes, "r1"), Targets((host,), (), (host,)))
    return made


def test_the_undo_needs_no_status_of_the_host() -> None:
    made = step(Answers())
    (enter,) = made.inject
    assert f"ceph orch host maintenance enter {HOST} --force" in enter.text
    leave, start, flag = made.undo
    assert leave.text.startswith("! ceph orch host ls | ")
    assert leave.text.endswith(f"|| ceph orch host maintenance exit {HOST}")
    assert (start.node, start.root, f"start ceph-{FSID}.target" in start.text) == (HOST, True, True)
    assert flag.text == f"ceph osd unset-group noout {HOST}"
    assert any(check.want == ((("crush_node_flags", HOST), None),) for check in made.checks)


@pytest.mark.parametrize(
    ("answer", "status", "exit_status"),
    [
        ("Ceph cluster f on node2 moved to maintenance", 0, 0),
        ("ALERT: Cannot stop ['mgr.b'] in Mgr service. Not enough remaining Mgr daemons.", 0, 1),
        ("Error EINVAL: unknown host", 22, 1),
    ],
)
def test_a_refusal_of_the_orchestrator_is_an_error(
    tmp_path: Path, answer: str, status: int, exit_status: int
) -> None:
    """Reef refuses with exit status 0."""
    ceph = tmp_path / "ceph"
    ceph.write_text(f"#!/bin/sh\necho {shlex.quote(answer)} >&2\nexit {status}\n")
    ceph.chmod(0o755)
    (enter,) = step(Answers()).inject
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", enter.text], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, answer in done.stderr) == (exit_status, bool(exit_status))


def test_a_host_without_osds() -> None:
    """It has no entry in the CRUSH tree, so the orchestrator sets no flag for it."""
    answers = Answers()
    answers.hosts = [{"hostname": "gw1", "status": ""}]
    mons = [*PACIFIC["mon metadata"], {"name": "x", "hostname": "gw1"}]
    made = step(answers, "gw1", **{"mon metadata": mons})
    assert "ceph orch host maintenance enter gw1 --force" in made.inject[0].text
    assert not any("unset-group" in command.text for command in made.undo)


def in_domain(**changed: Any) -> Dict[str, Any]:
    """Return recorded replies in which the host has a name with a domain; its CRUSH bucket has none."""
    rows = {key: deepcopy(PACIFIC[key]) for key in ("osd metadata", "mon metadata", "mgr metadata")}
    for row in (row for key in rows for row in rows[key] if row.get("hostname") == HOST):
        row["hostname"] = FQDN
    return {**rows, **changed}


def test_a_host_named_with_its_domain() -> None:
    """The orchestrator sets the flag for the bucket, whose name is the first label."""
    answers = Answers()
    answers.hosts = [{"hostname": FQDN, "status": ""}]
    planned = step(answers, FQDN, **in_domain())
    assert f"ceph orch host maintenance enter {FQDN} --force" in planned.inject[0].text
    assert planned.undo[-1].text == f"ceph osd unset-group noout {HOST}"
    assert any(check.want == ((("crush_node_flags", HOST), None),) for check in planned.checks)
    dump = {**PACIFIC["osd dump"], "crush_node_flags": {HOST: ["noout"]}}
    with pytest.raises(FaultError, match=f"noout is set for {FQDN} already"):
        step(answers, FQDN, **in_domain(**{"osd dump": dump}))


@pytest.mark.parametrize(
    ("answers", "changed", "text"),
    [
        ({"hosts": []}, {}, f"{HOST} is not a host of the orchestrator"),
        ({"hosts": [{"hostname": HOST, "status": "Offline"}]}, {}, f"{HOST} has the status Offline already"),
        ({}, {"osd dump": {**PACIFIC["osd dump"], "crush_node_flags": {HOST: ["noout"]}}}, "noout is set for node1"),
        ({}, {"mgr metadata": [{"name": "node0", "hostname": HOST}]}, "mgr.node0 on node1 is the active manager"),
        ({"unit": "ceph-x@{name}.service"}, {}, "not run by cephadm"),
    ],
)
def test_what_its_undo_could_not_keep_is_refused(answers: Dict[str, Any], changed: Dict[str, Any], text: str) -> None:
    given = Answers()
    vars(given).update(answers)
    with pytest.raises(FaultError, match=text):
        step(given, **changed)

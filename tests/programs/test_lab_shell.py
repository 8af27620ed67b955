from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict

import pytest

from cbt_plugins.tools.lab import Topology
from cbt_plugins.tools.lab.daemons import Daemons, await_up
from cbt_plugins.tools.lab.process import CephShell
from cbt_plugins.tools.lab.requirements import LabError
from cbt_plugins.tools.lab.topology import LabNode

#: Speaks as `ceph -f json` (16.2.15, 18.2.7) does when its input is a pipe: an empty line before each answer,
#: errors and remarks on standard error.
FAKE = """#!/bin/sh
while read -r line; do
    case "$line" in
    fsid) printf '\\n{"fsid":"f-1"}\\n' ;;
    status) printf '\\n{"fsid":"f-1","health":{"status":"HEALTH_OK"},"osdmap":{"num_up_osds":3}}\\n' ;;
    "osd dump") printf '\\n{"osds":[{"osd":0,"up":1},{"osd":1,"up":1},{"osd":2,"up":1},{"osd":3,"up":0}]}\\n' ;;
    "osd pool create p") echo "pool 'p' created" >&2 ;;
    die) echo "no cluster" >&2; exit 1 ;;
    hang) exec sleep 60 ;;
    *) echo "Error EINVAL: no such thing" >&2 ;;
    esac
done
"""


@pytest.fixture
def environment(tmp_path: Path) -> Dict[str, str]:
    (tmp_path / "ceph").write_text(FAKE)
    (tmp_path / "ceph").chmod(0o755)
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}"}


def test_answers_belong_to_their_commands(environment: Dict[str, str]) -> None:
    with CephShell(["env"], environment, "f-1") as ceph:
        assert ceph.ask("osd pool create p") == "pool 'p' created"
        assert ceph.status()["health"] == {"status": "HEALTH_OK"}
        assert ceph.ask("osd pool create p") == "pool 'p' created"


def test_a_refused_command_is_told_in_cephs_words(environment: Dict[str, str]) -> None:
    with CephShell(["env"], environment, "f-1") as ceph:
        with pytest.raises(LabError, match=r"ceph osd fly: Error EINVAL: no such thing"):
            ceph.ask("osd fly")
        assert ceph.status()["health"]


def test_a_command_that_ends_or_hangs_is_no_end_of_the_world(environment: Dict[str, str]) -> None:
    with (
        CephShell(["env"], environment, "f-1") as ceph,
        pytest.raises(LabError, match=r"ceph hang: no reply within the timeout"),
    ):
        ceph.ask("hang", seconds=0.2)
    with CephShell(["env"], environment, "f-1") as ceph, pytest.raises(LabError, match=r"no cluster|ended"):
        ceph.ask("die")


def test_osds_that_do_not_come_up_are_named(environment: Dict[str, str]) -> None:
    with CephShell(["env"], environment, "f-1") as ceph:
        with pytest.raises(LabError, match=r"OSDs are down: osd\.3 on node2 \(see nodes/NODE/log"):
            await_up(ceph, Topology(osd_nodes=2), seconds=0)
        await_up(ceph, Topology(osd_nodes=1, osds_per_node=3))


def test_a_gateway_that_does_not_answer_at_once_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def run(argv: Any, **options: Any) -> Any:
        asked.append(options["timeout"])
        if len(asked) < 3:
            raise subprocess.TimeoutExpired(argv, options["timeout"])
        return SimpleNamespace(stdout="HTTP/1.0 200 OK\r\n")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(Daemons, "running", lambda _: {"rgw1": {"rgw": None}})
    spaces: Any = SimpleNamespace(in_network=lambda node: [])
    Daemons(spaces).await_rgws([LabNode("rgw1", "10.77.1.1", rgw=True)])
    assert asked == [30, 30, 30]

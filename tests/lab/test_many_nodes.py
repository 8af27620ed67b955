"""A run with fifty clients, of which three die under load in its hour 30, after a kill -9. Twenty minutes:

    CBT_PLUGINS_LONG=1 ./run test tests/lab/test_many_nodes.py
"""

from __future__ import annotations

import json
import re
import signal
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Dict, Iterator

import pytest
from cycles import CLUSTER, S3, Cycle
from long_past import is_under_load, lengthen
from running_lab import RunningLab, need_machine

from cbt_plugins.tools.lab import Lab, Topology

pytestmark = [pytest.mark.lab, pytest.mark.long]

CLIENTS = [f"client{n}" for n in range(1, 51)]
#: 6 % of the clients
DEAD = ["client7", "client33", "client48"]


class ManyClients(Cycle):
    """A run on all clients."""

    cluster: ClassVar[Dict[str, Any]] = {
        **CLUSTER,
        "clients": CLIENTS,
        "osds": ["node1", "node2"],
        "rgws": ["rgw1"],
        "transport": "ssh",
    }


@pytest.fixture
def many(tmp_path: Path) -> Iterator[RunningLab]:
    need_machine(1)
    lab = Lab(tmp_path / "lab", say=lambda _: None)
    try:
        lab.up(Topology(2, 1, 1, len(CLIENTS), bind=(str(tmp_path),)), detach=False)
        yield RunningLab(lab, [])
    finally:
        lab.down(wipe=True)


def test_clients_that_die_in_hour_30_are_named(many: RunningLab, tmp_path: Path) -> None:
    load = {"duration": "90s", "warmup": "5s", "mix": {"get": 60, "put": 40}}
    section = {
        "s3": {**S3, "urls": ["http://rgw1:7480"]},
        "engine": "cbt-load",
        "size": "4KiB",
        "workers": 1,
        "cycle": {"phases": [{"fill": {"objects": 800}}, {"hybrid": load, "name": "measure"}]},
    }
    cycle = ManyClients(many, tmp_path, {"resources": {}, "recovery": {}}, warp=section)
    assert cycle.broken_off(partial(is_under_load, cycle, 1), "the load", signal.SIGINT) == 130
    lengthen(cycle.folder, "fill", 29)
    assert cycle.broken_off(partial(is_under_load, cycle, 2), "the load again") == -9
    cycle.start()
    cycle.await_moment(partial(is_under_load, cycle, 3), "the load once more")
    for client in DEAD:
        assert many.exec(client, ["ip", "link", "set", "eth0", "down"]).returncode == 0
    # ssh notices a silent client after 30 s, and each of the other steps has a limit of its own
    assert cycle.ended() == 1
    log = cycle.log.read_text()
    lost = re.findall(r"lost the connection to ([\w, ]+): (?:no message for \d+ s|.*Timeout)", log)
    assert lost and set(", ".join(lost).split(", ")) <= set(DEAD), log[-3000:]
    for client in DEAD:
        assert f"monitor files of {client} stay in " in log
    summary = json.loads((cycle.folder / "summary.json").read_text())
    codes = {warning["code"] for warning in summary["warnings"]}
    assert {"incomplete", "missing-phase", "resources-gap", "partial-attempt"} <= codes and not summary["usable"]
    (fill,) = summary["phases"]
    assert fill["name"] == "fill" and fill["window"]["end"] - fill["window"]["start"] > 29 * 3600
    # the others have been left in order
    living = [client for client in CLIENTS if client not in DEAD]
    for client in living:
        processes = many.exec(client, ["ps", "-eo", "args"]).stdout
        assert "cbt-load" not in processes and "agent" not in processes, client
    for client in DEAD:
        assert many.exec(client, ["ip", "link", "set", "eth0", "up"]).returncode == 0
    resumed = cycle.run()
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    phases = cycle.phases()
    assert phases["measure"]["status"] == "ok" and len(phases["measure"]["jobs"]) == len(CLIENTS)

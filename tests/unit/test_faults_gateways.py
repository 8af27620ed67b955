"""A gateway is restarted by what runs it, and seen to be another process with the options that were set; a drain."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from faults_world import CLUSTER, Connections, injector

from cbt_plugins.cluster.remote import Result
from cbt_plugins.faults import FaultError
from cbt_plugins.faults.cluster_facts import DaemonName, Facts
from cbt_plugins.faults.rgw_settings import RgwSettings
from cbt_plugins.faults.scene import ClusterLimits, Scene
from cbt_plugins.faults.service_managers import Service
from cbt_plugins.faults.step import run_all
from cbt_plugins.plan import Fault, Gateways

NAME = DaemonName("rgw", "rgw1")
FSID = "01234567-89ab-cdef-0123-456789abcdef"
UNITS = {"systemd": "ceph-radosgw@rgw.rgw1.service", "cephadm": f"ceph-{FSID}@rgw.rgw1.service"}


def maker(manager: str, monkeypatch: pytest.MonkeyPatch, **before: str) -> RgwSettings:
    ceph = cast(Any, SimpleNamespace(head="node0", command="ceph", admin="radosgw-admin"))
    daemons = {"4114": {"gid": 4114, "metadata": {"id": "rgw1", "hostname": "rgw1"}}}
    facts = Facts({"service dump": {"services": {"rgw": {"daemons": daemons}}}})
    scene = Scene(ceph, facts, ("rgw1",), "r1-rgw", ClusterLimits())
    service = Service(NAME, "rgw1", manager, UNITS[manager], None)
    monkeypatch.setattr(RgwSettings, "services_of", lambda self, name: (scene, [service]))
    monkeypatch.setattr(RgwSettings, "shown_options", lambda self, names=(): {"rgw1": before})
    return RgwSettings(ceph, {"rgws": ["rgw1"]}, ClusterLimits(), "r1", Gateways(threads=2048), ("u",))


@pytest.mark.parametrize("manager", list(UNITS))
def test_a_unit_is_stopped_and_started(manager: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step = maker(manager, monkeypatch, gid="4114", rgw_thread_pool_size="512").restart_step(NAME)
    (inject,) = step.inject
    (undo,) = step.undo  # a run that was killed between the two leaves it running
    assert inject.node == "rgw1" and inject.root
    assert inject.text == run_all((f"systemctl stop {UNITS[manager]}", undo.text))
    assert undo.text.endswith(f"systemctl start {UNITS[manager]}")


@pytest.mark.parametrize("manager", list(UNITS))
def test_what_it_then_runs_with_is_seen(manager: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = maker(manager, monkeypatch, gid="4114", rgw_thread_pool_size="512")
    (said,) = [check for check in made.restart_step(NAME).took if "rgw_thread_pool_size" in check.text]
    assert said.node == "node0"
    assert (("rgw1", "gid"), {"not": "4114"}) in said.want
    assert (("rgw1", "rgw_thread_pool_size"), {"like": "2048"}) in said.want
    after = made.restore_step(NAME)
    assert after.inject == () and after.undo[0].text == made.restart_step(NAME).inject[0].text
    assert (("rgw1", "rgw_thread_pool_size"), {"like": "512"}) in after.checks[-1].want


def test_each_gateway_and_option_has_its_time() -> None:
    limits = []

    def run(command: str, timeout: float) -> Result:
        limits.append(timeout)
        return Result("{}", "", 0)

    ceph = cast(Any, SimpleNamespace(head="node0", command="ceph", run=run))
    for many in (1, 40):
        made = RgwSettings(ceph, {}, ClusterLimits(), "r1", Gateways(threads=2048), ("u",))
        assert made.shown_options([DaemonName("rgw", f"rgw{n}") for n in range(many)]) == {}
    assert limits[1] >= limits[0] + 39 * 1.0  # a `ceph` takes half a second where nothing else runs


class TwoGateways(Connections):
    """rgw.rgw1 and rgw.rgw2; the file `log` has the orders of systemd, beside the lines that commands write there."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log = log
        self.state["gateways"]["rgw2"], self.state["gids"]["rgw2"] = "active", 4200

    def probe(self, node: str, text: str) -> str:
        return f"unit rgw.{node} ceph-radosgw@rgw.{node}.service active\n"

    def play(self, node: str, text: str) -> Result:
        before = self.state["gateways"]["rgw1"]
        if "systemctl is-active" in text:  # how many units are
            return Result("1\n" if before == "active" else "0\n", "", 0)
        result = super().play(node, text)
        if self.state["gateways"]["rgw1"] != before:
            with self._log.open("a") as file:
                file.write(f"{self.state['gateways']['rgw1']}\n")
        return result


@pytest.mark.parametrize("works", [True, False])
def test_a_drain_by_commands_leaves_the_balancer_before_the_stop(tmp_path: Path, works: bool) -> None:
    log = tmp_path / "log"
    log.touch()
    world = TwoGateways(log)
    made = injector(tmp_path, world, cluster={**CLUSTER, "rgws": ["rgw1", "rgw2"]})
    made.acquire()
    off, on = (f"echo {word} {{daemon}} {{node}} >> {log}" for word in ("off", "on"))
    fault = Fault("d", "drain", ("rgw.rgw1",), options={"off": off if works else f"{off}; exit 1", "on": on})
    if works:
        made.inject(fault)
        assert log.read_text() == "off rgw.rgw1 rgw1\ninactive\n"
        assert made.undo_all() == []
        assert log.read_text().endswith("inactive\nactive\non rgw.rgw1 rgw1\n")
    else:  # what the command has done until its end is undone, and no gateway is stopped
        with pytest.raises(FaultError, match="the steps so far are undone"):
            made.inject(fault)
        assert log.read_text() == "off rgw.rgw1 rgw1\non rgw.rgw1 rgw1\n"
    assert made.open_changes == [] and world.state["gateways"] == {"rgw1": "active", "rgw2": "active"}
    made.close()

"""Kinds of other distributions: checked as ours are, with line and column; and daemons that are no OSDs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Iterator

import pytest
from faults_world import CLUSTER, MADE, Connections, injector

from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.events import load_fault_file
from cbt_plugins.faults import FaultError, Injector
from cbt_plugins.plan import Fault, Settings

#: one file is a whole kind
KINDS = '''
from pydantic import Field

from cbt_plugins.faults.kind import Kind, KindOptions, Seconds
from cbt_plugins.faults.kinds.stop_crash import Stop


class StopGateway(Stop):
    """Stops gateways."""

    takes = "daemon"
    daemon_types = ("rgw",)


class Slow(Kind):
    """Slows OSDs down."""

    class Options(KindOptions):
        """How much."""

        delay: Seconds = Field(description="Of each request.")
        share: float = Field(1.0, gt=0, le=1, description="Of the requests.")

    def warnings(self):
        yield f"{self.options.share:.0%} of the requests take {self.options.delay:g} s more"
'''


@pytest.fixture(autouse=True)
def others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another distribution is installed."""
    package = tmp_path / "lib" / "others-1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Name: others\nVersion: 1\n")
    (package / "entry_points.txt").write_text(
        "[cbt_plugins.faults]\nstop-rgw = other_kinds:StopGateway\nslow = other_kinds:Slow\nlost = other_kinds:Lost\n"
    )
    (tmp_path / "lib" / "other_kinds.py").write_text(KINDS)
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))


def error(tmp_path: Path, fault: str) -> str:
    file = tmp_path / "f.yaml"
    file.write_text(f"events:\n  - at: 0s\n    fault: {{label: a, {fault}}}\n")
    with pytest.raises(ConfigError) as refused:
        load_fault_file(file, ["node1"])
    (text,) = str(refused.value).splitlines()
    return text.replace(f"{file}:", "")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("kind: slow, osds: [1], options: {dely: 1s, delay: 1s}", "3:56: events[0].fault.options.dely: unknown key"),
        ("kind: slow, osds: [1], options: {delay: 5}", "3:63: events[0].fault.options.delay: 5: seconds? write 5s"),
        ("kind: slow, osds: [1], options: {delay: 5s, share: 2}", "3:74: events[0].fault.options.share: must be at"),
        ("kind: slow, osds: [1]", "3:12: events[0].fault.options.delay: this key is required"),
        ("kind: stop-rgw, nodes: [node1]", "3:39: events[0].fault.nodes: stop-rgw hits rgw daemons: use daemons"),
        ("kind: stop-rgw, daemons: [osd.1]", "3:39: events[0].fault.daemons: stop-rgw hits rgw daemons"),
        ("kind: out, daemons: [rgw.a]", "3:34: events[0].fault.daemons: out hits osd daemons"),
        ("kind: lost, osds: [1]", "3:29: events[0].fault.kind: fault kind 'lost' of other_kinds:Lost: AttributeError"),
    ],
)
def test_their_options_and_targets_are_checked(tmp_path: Path, fault: str, message: str) -> None:
    assert error(tmp_path, fault).startswith(message)


def test_they_are_planned(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(
        "events:\n"
        "  - {at: 0s, fault: {label: a, kind: slow, osds: [1], options: {delay: 1m}}}\n"
        "  - {at: 1s, fault: {label: b, kind: stop-rgw, daemons: [rgw.a]}}\n"
        "  - {at: 2s, fault: {label: c, kind: stop-rgw, daemon_number: 1}}\n"
    )
    events, settings = load_fault_file(file)
    assert [event.inject for event in events] == [
        Fault("a", "slow", ("osd.1",), options={"delay": 60.0}),
        Fault("b", "stop-rgw", ("rgw.a",)),
        Fault("c", "stop-rgw", choose=1, choose_of="rgw"),
    ]
    assert settings == Settings()


# ---- a gateway


FSID = "35488bad-fc53-478d-bd88-f0c5b5e8aaa0"
UNIT = {"systemd": "ceph-radosgw@rgw.a.service", "cephadm": f"ceph-{FSID}@rgw.a.service"}


class Gateways(Connections):
    """rgw.a on node1 and rgw.b on node2."""

    def __init__(self, manager: str) -> None:
        super().__init__()
        self.manager = manager
        rows = {name: {"metadata": {"id": name, "hostname": f"node{i}"}} for i, name in enumerate("ab", 1)}
        dump: Dict[str, Any] = {"services": {"rgw": {"daemons": {"summary": "", **rows}}}}
        self.world.ceph_service_dump = lambda: dump

    def probe(self, node: str, text: str) -> str:
        if self.manager in UNIT:
            unit = UNIT[self.manager]
            return f"unit rgw.a {unit} active\nunit rgw.b {unit.replace('rgw.a', 'rgw.b')} active\n"
        argv, around = "cmFkb3NndwAtbgBjbGllbnQucmd3LmEA", "MCAwCi8K"  # radosgw -n client.rgw.a, 0 0 /
        return f"process radosgw 7 77 1024 {argv} {around}\n"


@pytest.fixture
def made(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Injector]:
    cluster = {**CLUSTER, "rgws": ["node1", "node2"]}
    one = injector(tmp_path, Gateways(request.param), cluster=cluster)
    one.acquire()
    yield one
    while MADE:
        MADE.pop().close()


STOP = Fault("a", "stop-rgw", ("rgw.a",))


@pytest.mark.parametrize(
    ("made", "node", "stop", "start", "counted"),
    [
        (
            "systemd",
            "node1",
            "systemctl stop ceph-radosgw@rgw.a.service",
            "systemctl start ceph-radosgw@rgw.a.service",
            "systemctl is-active ceph-radosgw@rgw.a.service",
        ),
        (
            "cephadm",
            "node1",
            f"systemctl stop ceph-{FSID}@rgw.a.service",
            f"systemctl start ceph-{FSID}@rgw.a.service",
            f"systemctl is-active ceph-{FSID}@rgw.a.service",
        ),
        (
            "process",
            "node1",
            "action=signal; signal=TERM; processes=7:77",
            "action=start; programs=radosgw; ",
            "action=count; programs=radosgw; ",
        ),
    ],
    indirect=["made"],
)
def test_the_next_kind_needs_one_file(made: Injector, node: str, stop: str, start: str, counted: str) -> None:
    """A gateway is stopped and started by each service manager, without a line about gateways but its own."""
    (step,) = made.prepare(STOP).steps
    assert step.daemons == ("rgw.a",) and step.osds == () and step.what == "stop rgw.a on node1"
    (inject,), (undo, *looks), (took,), checks = step.inject, step.undo, step.took, step.checks
    assert stop in inject.text and inject.node == node
    assert start in undo.text and undo.node == node
    assert counted in took.text and took.want == (((), "0"),) and took.node == node
    assert counted in checks[0].text and checks[0].want == (((), "1"),)
    # until the orchestrator looks at the host again it may count the daemon as stopped
    look = "timeout 20 ceph -c /etc/ceph/ceph.conf orch ps node1 --refresh >/dev/null 2>&1 || :"
    assert [command.text for command in looks] == ([look] if ".service" in stop and FSID in stop else [])


@pytest.mark.parametrize("made", ["systemd"], indirect=True)
def test_gateways_are_counted_and_chosen(made: Injector) -> None:
    (warning,) = made.prepare(STOP).assessment.warnings
    assert warning == "1 of 2 nodes with RADOS gateways would be left; requests to node1 would fail"
    assert [f.rule for f in made.prepare(Fault("b", "stop-rgw", ("rgw.a", "rgw.b"))).refused] == ["rgw"]
    assert made.prepare(Fault("c", "stop-rgw", choose=1)).targets.named[0] in ("rgw.a", "rgw.b")
    for fault, message in [
        (Fault("d", "stop-rgw", ("rgw.c",)), r"the cluster has no rgw\.c"),
        (Fault("d", "stop-rgw", choose=3), r"need 3 healthy rgw daemons, found 2: rgw\.a, rgw\.b"),
        (Fault("d", "stop-rgw", ("osd.1",)), r"stop-rgw hits rgw daemons, but osd\.1 is no such daemon"),
        (Fault("d", "slow", ("osd.1",), options={"delay": 1.0, "share": 0}), "options.share: must be more than 0"),
    ]:
        with pytest.raises(FaultError, match=message):
            made.prepare(fault)

"""`events:` and `settings:`: what becomes of them in the plan, and every fault at its place."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

import pytest
from config_files import CLUSTER, RGWTEST, WARP, errors_in, marked
from event_plans import FILL, S3, hybrid, warp

from cbt_plugins.config import plugins
from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.fault_spans import fault_spans
from cbt_plugins.config.section_to_plan import plan_of
from cbt_plugins.config.settings import LimitsSection
from cbt_plugins.faults.cluster_access import LIMITS
from cbt_plugins.faults.kind import make
from cbt_plugins.faults.scene import ClusterLimits
from cbt_plugins.plan import Event, Fault, Settings

STOP = {"label": "a", "kind": "stop", "nodes": ["node1"]}


def fault_of(**keys: Any) -> Fault:
    inject = warp(FILL, hybrid({"at": "0s", "fault": {"label": "a", **keys}})).phases[1].events[0].inject
    assert inject is not None
    return inject


def test_events_of_all_phases_that_have_them() -> None:
    mark = {"events": [{"at": "1m", "mark": "x"}]}
    made = warp(
        {"fill": {"duration": "10m", **mark}},
        {"hybrid": {"duration": "10m", **mark}},
        {"warp": {"op": "get", "duration": "10m", **mark}},
        {"wait": {"duration": "10m", **mark}},
        {"wait": {"clean": True, "at_most": "1h", "stalled": "5m", **mark}},
        {"verify": {}},
    )
    assert [phase.events for phase in made.phases] == [(Event(60.0, mark="x"),)] * 5 + [()]
    assert [(phase.at_most, phase.stalled) for phase in made.phases[3:5]] == [(None, None), (3600.0, 300.0)]


def test_faults_their_targets_and_their_undo() -> None:
    choice = {"label": "b", "kind": "stop", "osd_nodes": 2, "seed": 7, "accept": ["inactive", "clean"]}
    disk = {"label": "c", "kind": "out", "osds": [3, 12]}
    made = warp(
        FILL,
        hybrid(
            {"at": "0s", "fault": {**STOP, "nodes": ["root@node1", "node2"]}},
            {"at": "0s", "mark": "down"},
            {"at": "1m30s", "fault": choice},
            {"at": "2m", "undo": "a"},
        ),
        hybrid({"at": "0s", "fault": disk}, {"at": "5m", "undo": "all"}),
    )
    b = Fault("b", "stop", choose=2, choose_of="node", seed=7, accept=("inactive", "clean"))
    c = Fault("c", "out", ("osd.3", "osd.12"))
    assert made.phases[1].events == (
        Event(0.0, inject=Fault("a", "stop", ("node1", "node2"))),
        Event(0.0, mark="down"),
        Event(90.0, inject=b),
        Event(120.0, undo=("a",)),
    )
    assert made.phases[2].events == (Event(0.0, inject=c), Event(300.0, undo=("b", "c")))


def test_times_are_scaled_as_durations_are() -> None:
    events = ({"at": "0s", "fault": STOP}, {"at": "5m", "undo": ["a"]})
    made = warp(FILL, hybrid(*events, ramp="1m"), scale=0.1)
    assert [event.at for event in made.phases[1].events] == [0.0, 30.0]
    # ramp and warm-up are part of the phase: 11 minutes
    assert warp(FILL, hybrid({"at": "10m30s", "mark": "late"}, ramp="1m")).phases[1].events[0].at == 630.0
    # at_most is not scaled, so that any moment before it is possible
    wait = {"wait": {"clean": True, "at_most": "10m", "events": [{"at": "15m", "mark": "x"}]}}
    assert warp(wait, scale=0.5).phases[0].events[0].at == 450.0


def test_options_as_the_kinds_take_them() -> None:
    network = fault_of(kind="network", osd_nodes=1, options={"interfaces": ["eth0", "eth1"], "deadline": "20m"})
    assert network.options == {"interfaces": ["eth0", "eth1"], "deadline": 1200.0}
    command = "ipmitool -H {node} -U admin -P ${IPMI_PASSWORD} power off"
    back = 'x --password="${OTHER}" ${OTHER}'
    power = fault_of(kind="power", nodes=["node1"], options={"off": command, "on": back})
    assert make("power", power.options).options.needed == ("IPMI_PASSWORD", "OTHER")
    consent = {"consent": "osd.3 will be destroyed"}
    assert fault_of(kind="replace", osds=[3], options=consent).options == consent
    assert "secrets" not in fault_of(kind="power", nodes=["node1"], options={"off": "a", "on": "b"}).options


def test_settings() -> None:
    settings = {
        "scrub": False,
        "flags": ["noout", "noscrub"],
        "config": {"osd": {"osd_max_backfills": 4, "osd_x": True}, "osd/class:ssd": {"osd_recovery_sleep": 0.5}},
        "balancer": "off",
        "autoscaler": True,
        "recovery": "aggressive",
    }
    expected = Settings(
        flags=("noscrub", "nodeep-scrub", "noout"),
        config=(
            ("osd", "osd_max_backfills", "4"),
            ("osd", "osd_x", "true"),
            ("osd/class:ssd", "osd_recovery_sleep", "0.5"),
        ),
        balancer=False,
        autoscaler=True,
        recovery="aggressive",
    )
    assert warp(FILL, settings=settings).settings == expected
    rgwtest = plan_of("rgwtest", {"s3": S3, "settings": settings}, {"clients": ["c1"]}, None)
    assert rgwtest.settings == expected
    assert warp(FILL).settings == warp(FILL, settings={"scrub": True}).settings == Settings()


def test_how_long_the_cluster_may_take() -> None:
    """Only what is named is in the plan; a node that starts anew never has less time than its OSDs."""

    def planned(**limits: str) -> Mapping[str, float]:
        return warp(FILL, settings={"limits": limits}).settings.limits

    assert planned() == {}
    assert planned(down="2m", command="1m30s", daemons="5m") == {"down": 120.0, "command": 90.0, "daemons": 300.0}
    assert planned(back="10m") == {"back": 600.0}
    assert planned(back="20m") == {"back": 1200.0, "boot": 1200.0}
    assert planned(back="20m", boot="30m") == {"back": 1200.0, "boot": 1800.0}
    short = {"s3": S3, "scale": 0.01, "settings": {"limits": {"back": "20m"}}, "cycle": {"phases": [FILL]}}
    assert plan_of("warp", short, {"clients": ["c1"]}, None).settings.limits["back"] == 1200.0


def test_limits_that_are_not_named_are_what_the_page_says() -> None:
    section, real = LimitsSection.model_validate({}), ClusterLimits()
    assert {name: getattr(real, field) for name, field in LIMITS.items()} == dict(section)


def test_when_faults_are_in_force() -> None:
    made = warp(
        {"fill": {"duration": "10m", "events": [{"at": "5m", "fault": STOP}]}},
        hybrid({"at": "1m", "fault": {"label": "b", "kind": "stop", "nodes": ["node2"]}}, {"at": "2m", "undo": "a"}),
        {"wait": {"clean": True, "at_most": "1h"}},
        hybrid({"at": "3m", "undo": "b"}, {"at": "4m", "fault": {"label": "c", "kind": "out", "osds": [1]}}),
    )
    found = [(s.fault.label, s.phase, s.undone, s.seconds, [f.label for f in s.beside]) for s in fault_spans(made)]
    assert found == [
        ("a", "fill", ("hybrid", 120.0), 420.0, []),
        ("b", "hybrid", ("hybrid-2", 180.0), None, ["a"]),  # nobody knows how long the wait takes
        ("c", "hybrid-2", None, 360.0, []),
    ]


EVENTS = "benchmarks.warp.cycle.phases[1].hybrid.events"
A = "{label: a, kind: stop, nodes: [node1]}"


def events(*texts: str) -> str:
    listed = ", ".join(texts)
    hybrid = f"{{hybrid: {{duration: 10m, events: [{listed}]}}}}"
    return f"    engine: cbt-load\n    cycle: {{phases: [{{fill: {{objects: 5}}}}, {hybrid}]}}\n"


def fault(text: str) -> str:
    return events("{at: 0s, fault: {label: a, " + text + "}}")


FAULTS = [
    (events("{at: §5, mark: x}"), "[0].at: 5: seconds? write 5s"),
    (events("§{at: 5s}"), "[0]: needs one of fault, thrash, run, upgrade, undo, mark"),
    (events("§{at: 5s, mark: x, undo: a}"), "[0]: undo and mark exclude each other"),
    (events("{at: 5s, §marc: x}"), "[0].marc: unknown key; did you mean 'mark'?"),
    (events("{at: §10m, mark: x}"), "[0].at: 10m: the phase is over after 10m"),
    (events("{at: 5m, mark: x}", "{at: §4m, mark: y}"), "[1].at: 4m comes before 5m: events are in order of time"),
    (events("{at: 5m, mark: x}", "{at: 6m, mark: §x}"), "[1].mark: 'x' is a part of this phase already"),
    (events("{at: 0s, undo: §a}"), "[0].undo: no fault 'a' is in force then; no fault is"),
    (events("{at: 0s, undo: §all}"), "[0].undo: no fault is in force then"),
    (events("{at: 0s, undo: §[a, all]}"), "[0].undo: all takes no other label beside it"),
    (
        events(f"{{at: 0s, fault: {A}}}", "{at: 1s, undo: §b}"),
        "[1].undo: no fault 'b' is in force then; in force are a",
    ),
    (
        events(f"{{at: 0s, fault: {A.replace('label: a', 'label: node-a')}}}", "{at: 1s, undo: [node-a, §node_a]}"),
        "[1].undo[1]: no fault 'node_a' is in force then; did you mean 'node-a'?",
    ),
    (
        events(f"{{at: 0s, fault: {A}}}", "{at: 1s, undo: a}", "{at: 1s, undo: §a}"),
        "[2].undo: no fault 'a' is in force then; it has been undone",
    ),
    (
        events(f"{{at: 0s, fault: {A}}}", "{at: 1s, undo: a}", "{at: 2s, fault: {label: §a, kind: out, osds: [1]}}"),
        "[2].fault.label: 'a' is the label of an earlier fault; every fault has its own",
    ),
    (
        events(f"{{at: 0s, fault: {A}}}", "{at: 2s, fault: {label: b, kind: stop, nodes: [§node1]}}"),
        "[1].fault.nodes[0]: node1 is hit by 'a' already, which is in force then",
    ),
    (events("{at: 0s, fault: {label: §all, kind: stop, osds: [1]}}"), "[0].fault.label: 'all' is reserved"),
    (events("{at: 0s, fault: {label: §recovery, kind: stop, osds: [1]}}"), "[0].fault.label: 'recovery' is reserved"),
    (events("{at: 0s, fault: {label: §a b, kind: stop, osds: [1]}}"), "[0].fault.label: 'a b': a label is made of a-z"),
    (events("{at: 0s, fault: {label: §Störung, kind: stop, osds: [1]}}"), "[0].fault.label: 'Störung': a label is"),
    (
        fault("kind: §stp, osds: [1]"),
        f"[0].fault.kind: unknown kind of fault 'stp'; known are {', '.join(plugins.names(plugins.FAULTS))}",
    ),
    (
        events("{at: 0s, fault: §{label: a, kind: stop}}"),
        "[0].fault: needs one of nodes, osds, daemons, crush, crush_type, osd_nodes",
    ),
    (
        events("{at: 0s, fault: §{label: a, kind: stop, osds: [1], osd_nodes: 1}}"),
        "[0].fault: osds and osd_nodes exclude each other: keep one",
    ),
    (fault("kind: stop, nodes: [§nod1]"), "[0].fault.nodes[0]: nod1 is not among the cluster's osds; did you mean 'no"),
    (fault("kind: stop, nodes: [node1, §node1]"), "[0].fault.nodes[1]: node1 is in the list twice"),
    (fault("kind: stop, osds: [1, §1]"), "[0].fault.osds[1]: 1 is in the list twice"),
    (fault("kind: stop, osds: [§-1]"), "[0].fault.osds[0]: must be at least 0"),
    (fault("kind: stop, osd_nodes: §0"), "[0].fault.osd_nodes: must be at least 1"),
    (fault("kind: stop, nodes: [node1], §seed: 7"), "[0].fault.seed: chooses targets, and nodes names them already"),
    (fault("kind: out, §nodes: [node1]"), "[0].fault.nodes: out hits osd daemons: use osds or osd_number"),
    (fault("kind: reboot, §osd_number: 1"), "[0].fault.osd_number: reboot hits whole nodes: use nodes or osd_nodes"),
    (fault("kind: stop, osds: [1], accept: [§inactiv]"), "[0].fault.accept[0]: unknown safety rule: 'inactiv'; did"),
    (fault("kind: stop, osds: [1], accept: [data, §data]"), "[0].fault.accept[1]: data is in the list twice"),
    (fault("kind: stop, osds: [1], options: {§deamons: cephadm}"), "[0].fault.options.deamons: unknown key; known "),
    (fault("kind: out, osds: [1], options: {§x: 1}"), "[0].fault.options.x: unknown key"),
    (fault("kind: stop, osds: [1], options: {service_manager: §docker}"), "[0].fault.options.service_manager: must be"),
    (fault("kind: stop, osds: [1], options: {§daemons: cephadm}"), "[0].fault.options.daemons: unknown key; it is"),
    (fault("kind: network, osd_nodes: 1, options: §{method: link}"), "[0].fault.options: network needs the option int"),
    (fault("kind: network, osd_nodes: 1, options: {method: §ntf}"), "[0].fault.options.method: must be link or nft"),
    (
        fault("kind: network, osd_nodes: 1, options: {method: nft, deadline: §900}"),
        "[0].fault.options.deadline: 900: seconds? write 900s",
    ),
    (
        fault("kind: network, osd_nodes: 1, options: {method: nft, deadline: §4s}"),
        "[0].fault.options.deadline: must be 5s to 7d",
    ),
    (
        fault("kind: network, osd_nodes: 1, options: {method: nft, ssh_port: §'22'}"),
        "[0].fault.options.ssh_port: must be a whole number",
    ),
    (
        fault("kind: network, osd_nodes: 1, options: {interfaces: §{eth0: up}}"),
        "[0].fault.options.interfaces: must be a list",
    ),
    (fault("kind: power, osd_nodes: 1, options: §{'off': x}"), "[0].fault.options: power needs the option on: a comma"),
    (fault("kind: power, osd_nodes: 1, options: {§off: x, 'on': y}"), "[0].fault.options[False]: YAML makes true and"),
    (fault("kind: replace, §osd_number: 1"), "[0].fault.osd_number: replace destroys data: name the OSDs with osds: ["),
    (
        fault("kind: replace, osds: [3], options: §{consent: 'yes'}"),
        "[0].fault.options: replace destroys data: give the option consent: 'osd.3 will be destroyed', word for word",
    ),
    (
        "    settings: {flags: [nodown]}\n" + fault("kind: stop, osds: [1]").replace("fault:", "§fault:"),
        "[0].fault: settings: nodown hides the fault from the cluster (accept: [flags] overrides)",
    ),
    (fault("kind: stop, osd_nodes: §2"), "[0].fault.osd_nodes: 2 nodes, and the cluster has 1 with OSDs"),
]


@pytest.mark.parametrize(("section", "message"), FAULTS)
def test_errors_of_events(tmp_path: Path, section: str, message: str) -> None:
    text, (place,) = marked(CLUSTER + WARP + section)
    (found,) = errors_in(tmp_path, text)
    assert found.startswith(place + EVENTS + message), found


ROOK = CLUSTER + "  transport: kubectl\n  kubernetes: {context: prod}\n"


@pytest.mark.parametrize(
    ("cluster", "refused"),
    [
        (ROOK, True),
        (ROOK.replace("transport: kubectl", "transport: {node0: kubectl}"), True),
        (ROOK.replace("transport: kubectl", "transport: {client1: kubectl, client2: kubectl}"), False),
        (CLUSTER, False),
    ],
)
def test_rook_is_not_upgraded_by_the_orchestrator(tmp_path: Path, cluster: str, refused: bool) -> None:
    """A cluster whose clients alone are pods may have an orchestrator that upgrades."""
    event = "{at: 1m, upgrade: {to: '18.2', image: §'quay.io/ceph/ceph:v18', irreversible: true}}"
    text, (place,) = marked(cluster + WARP + events(event))
    message = f"{place}{EVENTS}[0].upgrade.image: the operator of Rook upgrades its cluster, "
    errors = errors_in(tmp_path, text)
    assert [error[: len(message)] for error in errors] == [message] * refused, errors
    by_command = text.replace("image: 'quay.io/ceph/ceph:v18'", "command: x")
    assert errors_in(tmp_path, by_command) == []


def test_events_of_a_phase_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text("events: [{at: 0s, fault: {label: a, kind: stop, nodes: [node1]}}, {at: 5m, undo: a}]\n")
    phase = {"duration": "10m", "events": {"file": str(file)}}
    made = warp(FILL, {"hybrid": phase}, {"wait": {**phase, "events": [{"at": "0s", "mark": "x"}]}}, scale=0.5)
    assert made.phases[1].events == (
        Event(0.0, inject=Fault("a", "stop", ("node1",))),
        Event(150.0, undo=("a",)),
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("events: [{at: 0s, fault: {label: a, kind: stop, nodes: [nod1]}}]", "nod1 is not among the cluster's osds"),
        ("events: [{at: 0s, undo: a}]", ":1:25: events[0].undo: no fault 'a' is in force then"),
        ("settings: {scrub: off}\nevents: [{at: 0s, mark: x}]", "has settings:, which are set for a whole run"),
        (None, "cannot be read"),
        ("events: [{at: 20m, mark: x}]", "20m: the phase is over after 10m"),
    ],
)
def test_errors_of_a_file_are_those_of_the_phase(tmp_path: Path, content: Optional[str], message: str) -> None:
    file = tmp_path / "faults.yaml"
    if content is not None:
        file.write_text(content + "\n")
    phases = f"[{{fill: {{objects: 5}}}}, {{hybrid: {{duration: 10m, §events: {{file: {file}}}}}}}]"
    text, (place,) = marked(CLUSTER + WARP + f"    cycle: {{phases: {phases}}}\n")
    (found,) = errors_in(tmp_path, text)
    line = place.split(":")[1]
    assert found.startswith(f"f.yaml:{line}:") and EVENTS in found and message in found, found


def test_events_are_a_list_or_a_file(tmp_path: Path) -> None:
    phases = "[{fill: {objects: 5}}, {hybrid: {duration: 10m, events: {path: x}}}]"
    (found,) = errors_in(tmp_path, CLUSTER + WARP + f"    cycle: {{phases: {phases}}}\n")
    assert "must be a list of events, or {file: PATH} of a fault file" in found


def test_an_undo_of_a_later_phase_counts(tmp_path: Path) -> None:
    both = events(f"{{at: 0s, fault: {A}}}")
    both = both.replace("]}}]}\n", "]}}, {wait: {duration: 5m, events: [{at: 0s, undo: a}, {at: 1s, undo: §a}]}}]}\n")
    text, (place,) = marked(CLUSTER + WARP + both)
    (found,) = errors_in(tmp_path, text)
    assert found.startswith(f"{place}benchmarks.warp.cycle.phases[2].wait.events[1].undo: no fault 'a' is in force")


def test_flags_that_are_accepted_hide_nothing(tmp_path: Path) -> None:
    text = "    settings: {flags: [nodown]}\n" + fault("kind: stop, osds: [1], accept: [flags]")
    assert errors_in(tmp_path, CLUSTER + WARP + text) == []


@pytest.mark.parametrize(
    "command",
    [
        "ipmitool -H bmc -U admin -P hunter2 power off",
        "ipmitool -H bmc -Phunter2 power off",
        "redfish --password hunter2 off",
        "redfish --password='hunter2' off",
        "curl -u admin:hunter2 https://bmc/off",
        "curl https://admin:hunter2@bmc/off",
        "sshpass -p hunter2 ssh bmc off",
        "env BMC_PASSWORD=hunter2 off",
    ],
)
def test_passwords_come_from_the_environment_and_are_never_repeated(tmp_path: Path, command: str) -> None:
    options = '{"on": "x", "off": §"' + command + '"}'
    text, (place,) = marked(CLUSTER + WARP + fault(f"kind: power, osd_nodes: 1, options: {options}"))
    (found,) = errors_in(tmp_path, text)
    assert found.startswith(f"{place}{EVENTS}[0].fault.options.off: password in the text: take it from the environ")
    assert "hunter2" not in found
    good = text.replace("hunter2", "${SECRET}")
    assert errors_in(tmp_path, good) == []


SETTINGS = [
    ("{flags: [§nooout]}", ".flags[0]: not a flag that a run may set: 'nooout'; did you mean 'noout'?"),
    ("{flags: [noout, §noout]}", ".flags[1]: noout is in the list twice"),
    ("{scrub: §maybe}", ".scrub: must be on, off or deep-after"),
    ("{balancer: §1}", ".balancer: must be on or off"),
    ("{recovery: §agressive}", ".recovery: must be aggressive; did you mean 'aggressive'?"),
    ("{config: §[a]}", ".config: must be a mapping such as {osd: {osd_max_backfills: 4}}"),
    ("{config: {§osds: {a: 1}}}", ".config.osds: unknown target 'osds' of `ceph config set`"),
    ("{config: {osd: §4}}", ".config.osd: must be a mapping: option -> value"),
    ("{config: {osd: {a: §[1]}}}", ".config.osd.a: must be text, a number, or true or false"),
    ("{config: {osd: {rgw_keystone_admin_password: §x1}}}", ".config.osd.rgw_keystone_admin_password: no secret in th"),
    ("{§noout: true}", ".noout: unknown key"),
    ("{limits: {down: §60}}", ".limits.down: 60: seconds? write 60s"),
    ("{limits: {back: §0s}}", ".limits.back: must be more than 0s"),
    ("{limits: {back: 10m, boot: §5m}}", ".limits.boot: is shorter than back, 10m: the OSDs of a node come back after"),
    ("{limits: {boot: §4m}}", ".limits.boot: is shorter than back, 5m"),
    ("{limits: {§dwon: 2m}}", ".limits.dwon: unknown key; did you mean 'down'?"),
    ("{limits: §5m}", ".limits: must be a mapping"),
]


@pytest.mark.parametrize(("settings", "message"), SETTINGS)
def test_errors_of_settings(tmp_path: Path, settings: str, message: str) -> None:
    text, (place,) = marked(CLUSTER + RGWTEST + f"    settings: {settings}\n")
    (found,) = errors_in(tmp_path, text)
    assert found.startswith(f"{place}benchmarks.rgwtest.settings{message}"), found


RUN = [
    ("{label: a, command: x, §udno: x}", ".udno: unknown key; did you mean 'undo'?"),
    ("{label: §all, command: x}", ".label: 'all' is reserved; so are all, settings, recovery"),
    ("{label: a, command: §''}", ".command: must be shell text of at most 4000 characters"),
    ("{label: a, command: §'curl -u me:hunter2 x'}", ".command: password in the text: take it from the environment"),
    ("{label: a, command: x, node: §nod1}", ".node: nod1 is not a node of cluster:; did you mean 'node1'?"),
    ("{label: a, command: x, timeout: §60}", ".timeout: 60: seconds? write 60s"),
    ("{label: a, command: x, timeout: §2d}", ".timeout: is more than 1d"),
    ("{label: a, command: x, undo: §3}", ".undo: must be text, not a number"),
]


def test_errors_of_a_command(tmp_path: Path) -> None:
    phases = "".join(f"        - wait: {{duration: 5s, events: [{{at: 0s, run: {run}}}]}}\n" for run, _ in RUN)
    text, places = marked(CLUSTER + WARP + "    cycle:\n      phases:\n" + phases)
    found = errors_in(tmp_path, text)
    assert len(found) == len(RUN), found
    for n, (place, (_, message)) in enumerate(zip(places, RUN)):
        where = f"benchmarks.warp.cycle.phases[{n}].wait.events[0].run"
        assert any(line.startswith(f"{place}{where}{message}") for line in found), (message, found)


def test_a_command_in_force_and_its_undo(tmp_path: Path) -> None:
    events = "[{at: 0s, run: {label: a, command: x, undo: y}}, {at: 1s, run: {label: b, command: x}}, {at: 2s, undo: a}"
    good = CLUSTER + WARP + f"    cycle: {{phases: [{{wait: {{duration: 5s, events: {events}]}}}}]}}\n"
    assert errors_in(tmp_path, good) == []
    twice, (place,) = marked(good.replace("label: b", "label: §a"))
    (found,) = errors_in(tmp_path, twice)
    assert found.startswith(f"{place}") and "'a' is the label of an earlier run; every run has its own" in found
    (found,) = errors_in(tmp_path, good.replace("undo: a}", "undo: b}"))
    assert "no fault 'b' is in force then" in found


@pytest.mark.parametrize(
    ("wait", "message"),
    [
        ("{duration: 5m, §stalled: 1m}", ".stalled: goes with clean: true or gc: true only"),
        ("§{gc: true}", ": gc needs at_most: without it the wait may never end"),
        ("§{gc: true, clean: true, at_most: 1h}", ": clean and gc exclude each other: keep one"),
        ("{gc: §false}", ".gc: must be true"),
        ("{duration: 5m, drop_caches: §yess}", ".drop_caches: must be true"),
        ("{clean: true, at_most: 5m, stalled: §1h}", ".stalled: is longer than at_most, which ends the wait before"),
        ("{clean: true, at_most: 5m, stalled: §60}", ".stalled: 60: seconds? write 60s"),
        ("{clean: true, at_most: 5m, events: [{at: §5m, mark: x}]}", ".events[0].at: 5m: the phase is over after 5m"),
    ],
)
def test_errors_of_a_wait(tmp_path: Path, wait: str, message: str) -> None:
    text, (place,) = marked(CLUSTER + WARP + f"    cycle: {{phases: [{{wait: {wait}}}]}}\n")
    (found,) = errors_in(tmp_path, text)
    assert found.startswith(f"{place}benchmarks.warp.cycle.phases[0].wait{message}"), found


def test_a_file_without_faults_loads_nothing_of_them() -> None:
    config = Path(__file__).parents[2] / "benchmark_configs" / "quickstart.yaml"
    code = (
        "import sys; from cbt_plugins.config.file_check import load_file; "
        f"load_file({str(config)!r}); print([m for m in sys.modules if m.startswith('cbt_plugins.faults')])"
    )
    line = [sys.executable, "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, cwd=config.parents[1], check=True)
    assert done.stdout == "[]\n"


def names_in(text: str, words: List[str]) -> List[str]:
    return [word for word in words if f"`{word}`" not in text]


def test_the_page_names_every_kind() -> None:
    page = (Path(__file__).parents[2] / "docs" / "CONFIG-REFERENCE.md").read_text(encoding="utf-8")
    assert names_in(page, plugins.names(plugins.FAULTS)) == []


def test_each_kind_has_its_row() -> None:
    page = (Path(__file__).parents[2] / "docs" / "FAULTS.md").read_text(encoding="utf-8")
    assert [kind for kind in plugins.built_in(plugins.FAULTS) if f"\n| `{kind}` | " not in page] == []


def test_no_kind_is_known_by_name_where_faults_are_checked() -> None:
    kinds = plugins.built_in(plugins.FAULTS)
    for name in ("fault.py", "fault_spans.py"):
        tree = ast.parse((Path(__file__).parents[2] / "cbt_plugins" / "config" / name).read_text(encoding="utf-8"))
        constants = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        texts = [value for value in constants if isinstance(value, str)]
        assert [kind for kind in kinds for text in texts if text == kind or f"`{kind}`" in text] == [], name


@pytest.mark.parametrize(
    ("phase", "message"),
    [
        (
            {"hybrid": {"duration": "30s"}, "events": [{"at": "5s", "mark": "x"}]},
            "events: unknown key; it belongs inside fill, hybrid, warp or wait",
        ),
        ({"fault": {"kind": "stop", "nodes": ["osd1"]}}, "fault: unknown key; it belongs inside the list events"),
        ({"undo": "a"}, "undo: unknown key; it belongs inside the list events"),
        ({"wait": "30s"}, "wait: must be a mapping (key: value), not text; write {duration: 30s}"),
        ({"wait": "soon"}, "wait: must be a mapping (key: value), not text\n"),
    ],
)
def test_a_key_at_the_wrong_place_is_told_its_own(phase: Dict[str, Any], message: str) -> None:
    section = {"s3": {"urls": ["http://a"], "user": "u"}, "workers": 1, "cycle": {"phases": [phase]}}
    with pytest.raises(ConfigError) as refused:
        plan_of("warp", section, {"clients": ["c1"]}, None)
    assert message in f"{refused.value}\n"

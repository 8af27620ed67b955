"""`osdfailure:`, in both shapes: phases, events, buckets, settings, and every fault at its place."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, List, Tuple

import pytest
from config_files import CLUSTER, S3, errors_in, marked

from cbt_plugins.config import plugins
from cbt_plugins.config.file_check import load_file
from cbt_plugins.config.section_to_plan import plan_of
from cbt_plugins.plan import CALIBRATE, Event, Fault, Goal, Keys, Phase, Plan, Settings

#: with as many OSD nodes as go down by default
TWO = CLUSTER.replace("osds: [node1]", "osds: [node1, node3]")
HOUR = 3600.0
MIX = {"GET": 45.0, "PUT": 35.0, "STAT": 15.0, "DELETE": 5.0}
NODES = {"clients": ["c1", "c2"], "osds": ["node1", "node2", "node3"]}


def plan(**keys: Any) -> Plan:
    """Without the calibration, which has a test of its own."""
    made = plan_of("osdfailure", {"s3": {"urls": ["http://rgw1:7480"], "user": "cbt"}, **keys}, NODES, None)
    return dataclasses.replace(made, phases=tuple(p for p in made.phases if p.name != CALIBRATE))


def happens(made: Plan) -> List[Tuple[str, Tuple[Event, ...]]]:
    return [(phase.name, phase.events) for phase in made.phases if phase.events]


def classic(**keys: Any) -> Plan:
    return plan(shape="classic", **keys)


def test_the_published_second_cycle() -> None:
    made = plan()
    node_a, node_b = (Fault(label, "stop", choose=1, choose_of="node") for label in ("node-a", "node-b"))
    load = Phase("", "hybrid", "measure", duration=2 * HOUR, mix=MIX, engine="cbt-load")
    assert made.phases == (
        Phase("fill", "fill", "fill", goal=Goal(duration=4 * HOUR), engine="cbt-load"),
        dataclasses.replace(load, name="no-failure"),
        dataclasses.replace(load, name="one-down", events=(Event(0.0, inject=node_a),)),
        dataclasses.replace(load, name="two-down", events=(Event(0.0, inject=node_b),)),
        dataclasses.replace(load, name="recover", events=(Event(0.0, undo=("node-a", "node-b")),)),
        Phase("wait-clean", "wait", wait_clean=True, at_most=100 * HOUR, stalled=2 * HOUR),
    )
    assert [bucket.key for bucket in made.buckets] == ["1KiB", "4KiB", "8KiB", "64KiB", "256KiB"]
    assert made.benchmark == "osdfailure"
    assert made.settings == Settings(flags=("noscrub", "nodeep-scrub"))


def test_nodes_kind_and_rules_of_the_reef_shape() -> None:
    fault = {
        "kind": "network",
        "nodes": ["node3", "node1"],
        "options": {"interfaces": ["eth0"], "deadline": "3h"},
        "accept": ["quorum"],
        "accept_second": ["clean", "inactive"],
    }
    options = {"interfaces": ["eth0"], "deadline": 3 * HOUR}
    first = Fault("node-a", "network", ("node3",), options=options, accept=("quorum",))
    second = Fault("node-b", "network", ("node1",), options=options, accept=("quorum", "clean", "inactive"))
    assert happens(plan(fault=fault)) == [
        ("one-down", (Event(0.0, inject=first),)),
        ("two-down", (Event(0.0, inject=second),)),
        ("recover", (Event(0.0, undo=("node-a", "node-b")),)),
    ]
    assert happens(plan(fault=fault, down_nodes=1)) == [
        ("one-down", (Event(0.0, inject=first),)),
        ("recover", (Event(0.0, undo=("node-a",)),)),
    ]
    del fault["options"]["deadline"]  # each is undone after two phases, or one, of 2 h
    deadlines = [events[0].inject.options["deadline"] for _, events in happens(plan(fault=fault))[:2]]
    assert deadlines == [4 * HOUR + 300, 2 * HOUR + 300]
    (_, (only,)), _ = happens(plan(fault=fault, down_nodes=1, scale=0.5))
    assert only.inject.options["deadline"] == HOUR + 300
    chosen = happens(plan(fault={"kind": "crash", "seed": 9}, down_nodes=1))[0][1][0].inject
    assert chosen == Fault("node-a", "crash", choose=1, choose_of="node", seed=9)


def test_keys_as_in_rgwtest() -> None:
    made = plan(
        engine="cbt-load",
        objects={"sizes": ["4KiB"]},
        drivers_per_size=2,
        workers=3,
        mix={"get": 50, "list": 50},
        fill={"objects": 1000},
        phase={"duration": "1h"},
        wait={"at_most": "2h", "stalled": "10m"},
        scale=0.1,
    )
    assert made.phases[0].goal == Goal(objects=100)
    loads = {(p.duration, p.engine, tuple(p.mix or ())) for p in made.phases[1:5]}
    assert loads == {(360.0, "cbt-load", ("GET", "LIST"))}
    assert (made.phases[5].at_most, made.phases[5].stalled) == (7200.0, 600.0)  # neither is scaled
    assert [(d.id, d.node, d.workers) for d in made.drivers] == [("01-4KiB", "c1", 3), ("02-4KiB", "c2", 3)]


def test_settings_of_the_cycle() -> None:
    assert plan(settings={"recovery": "aggressive", "flags": ["noout"]}).settings == Settings(
        flags=("noscrub", "nodeep-scrub", "noout"), recovery="aggressive"
    )
    assert plan(settings={"scrub": True}).settings == Settings()
    assert classic().settings.flags == ("noscrub", "nodeep-scrub")


def test_calibration_of_warp_comes_before_anything_is_broken() -> None:
    section = {"s3": {"urls": ["http://rgw1:7480"], "user": "cbt"}, "engine": "warp"}
    names = [phase.name for phase in plan_of("osdfailure", section, NODES, None).phases]
    assert names[:3] == ["fill", CALIBRATE, "no-failure"]


def test_warp_mixed_comes_before_anything_is_broken() -> None:
    names = [phase.name for phase in plan(warp_mixed="10m").phases]
    assert names[:4] == ["fill", "no-failure", "warp-mixed", "one-down"]


def test_the_older_tools_shape() -> None:
    made = classic(fill={"objects": 400000}, size="64KiB")
    phases = [(p.name, p.kind, p.role, p.duration) for p in made.phases]
    assert phases == [
        ("fill", "fill", "fill", None),
        *(
            one
            for name in ("control", "device", "network")
            for one in (
                (name, "hybrid", "measure", 4800.0),
                (f"{name}-settle", "wait", "none", 30.0),
                (f"{name}-clean", "wait", "none", None),
            )
        ),
    ]
    assert made.phases[3] == Phase("control-clean", "wait", wait_clean=True, at_most=100 * HOUR, stalled=2 * HOUR)
    device = Fault("device", "stop", choose=1, choose_of="osd")
    network = Fault("network", "network", choose=1, choose_of="node", options={"method": "nft", "deadline": 900.0})
    marks = [Event(at, mark=mark) for at, mark in ((0.0, "start"), (600.0, "failure"), (1200.0, "recovery"))]
    assert happens(made) == [
        ("control", tuple(marks)),
        ("device", (*marks[:2], Event(600.0, inject=device), marks[2], Event(1200.0, undo=("device",)))),
        ("network", (*marks[:2], Event(600.0, inject=network), marks[2], Event(1200.0, undo=("network",)))),
    ]


def test_each_phase_of_the_older_shape_writes_into_its_own_bucket() -> None:
    made = classic(size={"4KiB": "50%", "1MiB": "50%"}, drivers=3, faults={"device": {}, "reboot": {}})
    buckets = ("control", "device", "reboot")
    assert tuple(bucket.key for bucket in made.buckets) == buckets
    assert {bucket.sizes for bucket in made.buckets} == {((4096, 4096, 0.5), (1 << 20, 1 << 20, 0.5))}
    assert [(d.id, d.node, d.buckets) for d in made.drivers] == [
        ("01-sizes", "c1", buckets),
        ("02-sizes", "c2", buckets),
        ("03-sizes", "c1", buckets),
    ]
    loads = [phase for phase in made.phases if phase.kind == "hybrid"]
    assert [phase.roles for phase in loads] == [{"PUT": (name,), "DELETE": (name,)} for name in buckets]
    assert {tuple((phase.mix or {}).items()) for phase in loads} == {(("PUT", 60.0), ("DELETE", 40.0))}
    assert all(phase.keys == {"PUT": Keys("s(N+1,10N)"), "DELETE": Keys("s(1,10N)")} for phase in loads)
    assert {phase.engine for phase in (*loads, made.phases[0])} == {"cbt-load"}


def test_the_hybrid_workload_reads_from_buckets_that_nobody_writes() -> None:
    made = classic(workload="hybrid", faults={"device": {"osds": [7]}})
    assert [bucket.key for bucket in made.buckets] == ["control", "device", "read-1", "read-2"]
    device = next(phase for phase in made.phases if phase.name == "device")
    read = ("read-1", "read-2")
    assert device.mix == {"GET": 60.0, "PUT": 20.0, "DELETE": 10.0, "LIST": 10.0}
    assert device.roles == {"GET": read, "LIST": read, "PUT": ("device",), "DELETE": ("device",)}
    assert device.keys["GET"] == Keys("u(1,N)") and "LIST" not in device.keys
    assert device.events[2].inject == Fault("device", "stop", ("osd.7",))


def test_parts_and_deadlines_of_the_older_shape() -> None:
    made = classic(
        parts={"start": "1m", "failure": "20m", "recovery": "2m"},
        settle="40s",
        scale=0.5,
        faults={
            "network": {"nodes": ["node1"], "options": {"interfaces": ["eth0"]}},
            "reboot": {"kind": "network", "osd_nodes": 2, "seed": 5, "options": {"method": "nft", "deadline": "1h"}},
        },
    )
    control, settle, _, network, *_, reboot = made.phases[1:8]
    assert (control.duration, settle.duration) == (690.0, 20.0)
    assert [event.at for event in network.events] == [0.0, 30.0, 30.0, 630.0, 630.0]
    fault = network.events[2].inject
    assert fault and fault.targets == ("node1",)
    assert fault.options == {"interfaces": ["eth0"], "deadline": 900.0}  # 10 minutes, and 5 more
    again = reboot.events[2].inject
    assert again == Fault(
        "reboot", "network", choose=2, choose_of="node", seed=5, options={"method": "nft", "deadline": HOUR}
    )


def test_a_sweep_over_one_and_two_nodes(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(TWO + "benchmarks:\n  osdfailure:\n" + S3 + "    down_nodes: [1, 2]\n", encoding="utf-8")
    assert [len(run.plan.phases) for run in load_file(file).runs] == [5, 6]


def test_an_open_loop_of_one_rate_in_each_measurement() -> None:
    made = plan(rate="500/s", objective={"GET/p99_ms": 50, "success_rate": "99.5%"})
    rates = {phase.name: phase.rate for phase in made.phases if phase.kind == "hybrid"}
    assert rates == dict.fromkeys(("no-failure", "one-down", "two-down", "recover"), 500.0)
    assert made.objective == {"GET/p99_ms": 50.0, "success_rate": 0.995}
    assert {phase.rate for phase in plan().phases} == {None} and not plan().objective
    assert classic(objective={"p99_ms": 50}).objective == {"p99_ms": 50.0}


def test_a_node_may_be_named_without_its_domain(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    full = CLUSTER.replace("osds: [node1]", "osds: [node1.lab.example.com, node2.lab.example.com]")
    command = "    wait: {at_most: 1h}\n    down_nodes: 1\n    fault: {nodes: [node2]}\n"
    file.write_text(full + "benchmarks:\n  osdfailure:\n" + S3 + command, encoding="utf-8")
    (run,) = load_file(file).runs
    (fault,) = [event.inject for phase in run.plan.phases for event in phase.events if event.inject]
    assert fault.targets == ("node2.lab.example.com",)


REEF = [
    ("    down_nodes: §3\n", ".down_nodes: must be 1 or 2"),
    ("    shape: §clasic\n", ".shape: must be reef or classic; did you mean 'classic'?"),
    ("    engine: warp\n    shape: §classic\n", ".shape: classic writes and deletes by ranges of keys, which warp"),
    ("    §workload: hybrid\n", ".workload: goes with shape: classic, but the shape here is reef"),
    ("    §settle: 30s\n", ".settle: goes with shape: classic, but the shape here is reef"),
    ("    engine: warp\n    mix: {get: 50, list: §50}\n", ".mix.list: warp cannot mix list with other operations"),
    ("    fault: {nodes: §[node1]}\n", ".fault.nodes: 1 named here, but down_nodes is 2"),
    ("    fault: {nodes: [node1, §node2]}\n", ".fault.nodes[1]: node2 is not among the cluster's osds; did you mean"),
    ("    fault: {kind: §reboot}\n", ".fault.kind: reboot ends by itself, and its phase would measure nodes that"),
    ("    fault: {§osds: [3]}\n", ".fault.osds: unknown key"),
    ("    fault: {nodes: [node1], §seed: 3}\n    down_nodes: 1\n", ".fault.seed: chooses targets, and nodes names"),
    ("    fault: {accept_second: [§stedy]}\n", ".fault.accept_second[0]: unknown safety rule: 'stedy'; known are"),
    ("    fault: {kind: §out}\n", ".fault.kind: out hits osd daemons, not nodes"),
    ("    fault: {kind: power, options: §{'on': x}}\n", ".fault.options: power needs the option off: a command"),
    ("    wait: {at_most: 1h, stalled: §2h}\n", ".wait.stalled: is longer than at_most"),
    ("    settings: §{flags: [nodown]}\n", ".settings: settings: nodown hides the fault from the cluster (accept: ["),
    ("    engine: warp\n    rate: §500/s\n", ".rate: goes with engine: cbt-load, and the engine here is warp"),
    ("    objective: {§p50_ms: 3}\n", ".objective.p50_ms: a second is judged by p99_ms and success_rate only"),
    ("    objective: {success_rate: §99}\n", ".objective.success_rate: 99: percent? write 99%"),
    ("    §phases: []\n", ".phases: the phases of osdfailure are fixed; for your own use warp: {cycle: {phases: [...]"),
]
CLASSIC = [
    ("    §down_nodes: 1\n", ".down_nodes: goes with shape: reef, but the shape here is classic"),
    ("    §rate: 500/s\n", ".rate: goes with shape: reef, but the shape here is classic"),
    ("    §objects: {set: small}\n", ".objects: goes with shape: reef, but the shape here is classic"),
    ("    §warp_mixed: 10m\n", ".warp_mixed: goes with shape: reef, but the shape here is classic"),
    ("    §mix: {get: 100}\n", ".mix: goes with shape: reef, but the shape here is classic"),
    ("    faults: §{}\n", ".faults: needs device, network or reboot"),
    ("    faults: {network: §{}}\n", ".faults.network.options: network needs the option interfaces: [names]"),
    ("    faults: {device: {osds: [1], §osd_number: 1}}\n", ".faults.device.osd_number: either osd_number or osds"),
    ("    faults: {reboot: {nodes: [node1], §osd_nodes: 1}}\n", ".faults.reboot.osd_nodes: either osd_nodes or nodes"),
    ("    faults: {reboot: {nodes: [§node7]}}\n", ".faults.reboot.nodes[0]: node7 is not among the cluster's osds"),
    ("    faults: {device: {kind: §reboot}}\n", ".faults.device.kind: reboot hits whole nodes, not OSDs"),
    ("    faults: {device: §{kind: replace}}\n", ".faults.device.osd_number: replace destroys data: name the OSDs wit"),
    ("    parts: {start: §10}\n", ".parts.start: 10: seconds? write 10s"),
]


@pytest.mark.parametrize(
    ("section", "message"),
    [*REEF, *(("    shape: classic\n" + section, message) for section, message in CLASSIC)],
)
def test_errors_of_osdfailure(tmp_path: Path, section: str, message: str) -> None:
    text, (place,) = marked(TWO + "benchmarks:\n  osdfailure:\n" + S3 + section)
    (found,) = errors_in(tmp_path, text)
    assert found.startswith(f"{place}benchmarks.osdfailure{message}"), found


def test_the_host_finds_it() -> None:
    assert "osdfailure" in plugins.built_in(plugins.BENCHMARKS)
    assert plugins.loaders(plugins.BENCHMARKS)["osdfailure"]().__name__ == "OsdFailure"


def test_more_nodes_than_there_are_do_not_go_down(tmp_path: Path) -> None:
    (found,) = errors_in(tmp_path, CLUSTER + "benchmarks:\n  osdfailure:\n" + S3)
    assert "down_nodes: 2 nodes, and the cluster has 1 with OSDs" in found

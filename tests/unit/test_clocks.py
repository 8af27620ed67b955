"""Nodes whose clocks differ from that of the machine that leads the run."""

from __future__ import annotations

import contextlib
import json
import time
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, Tuple, cast

import pytest
from resources_lines import Made, write
from run_context import context

from cbt_plugins.cluster.ceph_programs import CephPrograms
from cbt_plugins.cluster.clock_offsets import Offset
from cbt_plugins.cluster.cluster_watch import ClusterWatch
from cbt_plugins.cluster.remote import RemoteError, Result
from cbt_plugins.cluster.s3_keys import S3Keys
from cbt_plugins.cluster.state_sampler_agent import state_of
from cbt_plugins.journal import Journal, json_lines
from cbt_plugins.load.generator import LoadStart
from cbt_plugins.plan import S3, Driver, Phase, Plan
from cbt_plugins.results.archive import read_run
from cbt_plugins.results.clock_drift import NO_DRIFT, ClockDrift, ClockLine
from cbt_plugins.results.environment import Clocks
from cbt_plugins.results.nodes.node_files import read_nodes
from cbt_plugins.results.recovery.cluster_samples import read_samples, samples_of
from cbt_plugins.results.recovery.impact import failure
from cbt_plugins.results.recovery.milestones import milestones
from cbt_plugins.results.sql.event_and_state_tables import TABLES
from cbt_plugins.results.sql.table_type import TableRun as Source
from cbt_plugins.run import load_phase, sampler_clock
from cbt_plugins.run import wait_phase as waiting
from cbt_plugins.run.load_phase import LoadPhase
from cbt_plugins.run.phase_outcome import PhaseOutcome
from cbt_plugins.run.preflight import Ready
from cbt_plugins.run.run_archive import RunArchive
from cbt_plugins.run.sampler_clock import SamplerClock

DATA = Path(__file__).parents[1] / "data" / "recovery"
FAST = 0.8


def archive(folder: Path, name: str, asked: float, monitors: float) -> Path:
    """A recorded failure, with the clocks of the node that was asked and of the monitors so many seconds ahead."""
    run = folder / "results" / "00000000" / "id-1"
    into = run / "phases" / "01-down" / "monitors" / "recovery.ceph1"
    into.mkdir(parents=True)
    offsets = {"ceph1": asked, "mon1": monitors, "mon2": monitors}
    manifest = {"clock_offsets": {node: {"seconds": its, "error": 0.001} for node, its in offsets.items()}}
    (run / "manifest.json").write_text(json.dumps(manifest))
    (run / "cluster.json").write_text(json.dumps({"cluster": {"head": "ceph1", "mons": ["mon1", "mon2"]}}))
    (run / "events.jsonl").write_text((DATA / f"{name}-events.jsonl").read_text())
    with (into / "recovery.jsonl").open("w") as out:
        for line in json_lines(DATA / f"{name}.jsonl"):
            for change in line.get("map") or ():
                change["t"] += monitors
            out.write(json.dumps({**line, "t": line["t"] + asked}) + "\n")
    return run


@pytest.mark.parametrize("name", ["one", "two"])
@pytest.mark.parametrize(
    ("ppm", "monitors_drift", "mons"),
    [
        *((30.0, False, ["mon1"]), (-30.0, False, ["ceph1"]), (30.0, True, ["mon1"]), (-30.0, True, ["ceph1"])),
        *((0.3, False, ["mon1"]), (0.3, True, ["ceph1"])),  # too little for the samples to tell which clocks drift
    ],
)
def test_milestones_are_the_same_whatever_a_clock_drifts(
    tmp_path: Path, name: str, ppm: float, monitors_drift: bool, mons: List[str]
) -> None:
    """From 36 h before to the end of a failure, as the run has measured before and behind it.

    The node that is asked drifts alone, or the machine that leads does: then the monitors' clock seems to drift, too.
    """
    run = archive(tmp_path, name, 0.0, 0.0)
    (run / "cluster.json").write_text(json.dumps({"cluster": {"head": "ceph1", "mons": mons}}))
    events = json_lines(run / "events.jsonl")
    begun = events[0]["t"] - 36 * 3600.0
    file = run / "phases" / "01-down" / "monitors" / "recovery.ceph1" / "recovery.jsonl"
    lines = json_lines(file)

    def drift(t: float) -> float:
        return (t - begun) * ppm * 1e-6

    for line in lines:
        line["t"] += drift(line["t"])
        for change in line.get("map") or ():
            change["t"] += drift(change["t"]) if monitors_drift else 0.0
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    measured = [{"t": t, "event": "clock-offset", "node": "ceph1", "seconds": drift(t), "error": 0.001} for t in (
        begun, events[0]["t"] - 1.0, events[-1]["t"] + 60.0
    )]  # fmt: skip
    measured[0]["seconds"] = 0.0
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in [*measured, *events]))
    recorded = milestones(read_samples([DATA / f"{name}.jsonl"]), events)
    archived = read_run(run)
    made = failure(archived, [], samples_of(archived))["milestones"]
    for (kind, which, t), (*also, known) in zip(times(made), times(recorded)):
        assert [kind, which] == also
        assert t == (known if known is None else pytest.approx(known, abs=0.002))
    assert made["warnings"] == recorded["warnings"]


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (-2.5, True),
        (-1.5, False),  # too small for the agent to tell it
        (-30.0, False),  # its line is lost
    ],
)
def test_a_step_that_a_line_tells_or_times_show_is_taken_off_once(tmp_path: Path, step: float, told: bool) -> None:
    """2.5 s in 36 h would be a drift of 19 ppm: half of it would be taken off the samples before the step, too."""
    run = archive(tmp_path, "one", 0.0, 0.0)
    events = json_lines(run / "events.jsonl")
    file = run / "phases" / "01-down" / "monitors" / "recovery.ceph1" / "recovery.jsonl"
    lines = json_lines(file)
    measured = [{"t": t, "event": "clock-offset", "node": "ceph1", "seconds": s, "error": 0.001} for t, s in (
        (events[0]["t"] - 36 * 3600.0, 0.0), (lines[-1]["t"] + 1.0, step)
    )]  # fmt: skip
    for line in lines[3:]:
        line["t"] += step
    lines[3].update({"step": step} if told else {})
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in [*measured, *events]))
    recorded = read_samples([DATA / "one.jsonl"])
    made = samples_of(read_run(run))
    exact = 0.002 if told else 0.02  # the agent does not sample at exact intervals
    assert made.clock_steps == [pytest.approx(step, abs=exact)]
    assert [sample.t for sample in made.samples] == pytest.approx([sample.t for sample in recorded.samples], abs=exact)
    assert made.skew == 0.0


def at_failure(hours: float, seconds: float) -> Callable[[float], float]:
    """Seconds that a clock was set by some hours before the failure."""
    return lambda t: seconds if t > -3600.0 * hours else 0.0


@pytest.mark.parametrize(
    ("moved", "told", "agents"),
    [
        (lambda t: (t + 36 * 3600.0) * 1.5e-4, {}, []),
        (lambda t: (t + 36 * 3600.0) * -4e-4, {}, []),
        (lambda t: min(1.9, max(0.0, (t + 25.5 * 3600.0) * 0.05)), {}, []),  # slewed
        (at_failure(25.5, 5.0), {-25.5: 5.0}, []),
        (at_failure(25.5, -5.0), {-25.5: -5.0}, []),
        (at_failure(25.5, -5.0), {-25.5: -5.0}, [-25.4, -20.0]),
        (lambda t: at_failure(25.5, -5.0)(t) + at_failure(15.5, 5.0)(t), {-25.5: -5.0, -15.5: 5.0}, []),
        (lambda t: at_failure(25.5, 5.0)(t) + at_failure(15.5, -5.0)(t), {-25.5: 5.0, -15.5: -5.0}, []),
        (lambda t: at_failure(25.5, 5.0)(t) + at_failure(25.4, -5.0)(t), {-25.5: 5.0, -25.4: -5.0}, []),
        (lambda t: (t + 36 * 3600.0) * 1.5e-4 + at_failure(25.5, 5.0)(t), {-25.5: 5.0}, []),
        (at_failure(25.0 + 1e-4, 5.0), {-25.0: 5.0}, []),  # measured before a line told it
        (at_failure(25.0 + 1e-4, -5.0), {-25.0: -5.0}, []),
        (lambda t: t * 1e-5, {-25.5: 600.0}, []),  # a pause
        (at_failure(25.4, 5.0), {-25.5: 600.0, -25.4: 5.0}, []),  # a pause, then a step
        (lambda t: t * 1e-5 + at_failure(0.0, 3.0)(t), {0.0: 3.0}, []),  # in the failure itself
        (lambda t: t * 1e-5 + at_failure(0.0, -3.0)(t), {0.0: -3.0}, []),
        (lambda t: at_failure(25.5, 900.0)(t), {}, [-25.5]),  # no agent ran when the clock was set
        (lambda t: at_failure(25.5, -900.0)(t), {}, [-25.5]),
    ],
)
def test_milestones_are_the_same_however_a_clock_moves_that_is_measured(
    tmp_path: Path, moved: Callable[[float], float], told: Dict[float, float], agents: List[float]
) -> None:
    """`moved`: seconds, at a time from the failure; `told`: hours -> step that a line tells; `agents`: hours."""
    run = archive(tmp_path, "one", 0.0, 0.0)
    events = json_lines(run / "events.jsonl")
    header, *lines = json_lines(DATA / "one.jsonl")
    failed = events[0]["t"]
    state = {key: value for key, value in lines[0].items() if key not in ("map", "gap")}
    early = [failed + 3600.0 * hours + s for hours in {*told, *agents} if hours for s in (-1.0, 0.1, 1.1)]
    lines = [*({**state, "t": t} for t in sorted(early)), *lines]
    for hours, step in told.items():
        next(line for line in lines if line["t"] > failed + 3600.0 * hours)["step"] = step
    begins = [{**header, "t": failed + 3600.0 * hours + 0.05} for hours in agents]
    lines = [header, *sorted([*lines, *begins], key=lambda line: float(line["t"]))]
    clock = {t: moved(t - failed) for t in (
        *(failed - 3600.0 * hours for hours in range(36, 0, -1)), failed - 1.0, lines[-1]["t"] + 1.0
    )}  # fmt: skip
    clock[min(clock)] = 0.0
    event = {"event": "clock-offset", "node": "ceph1", "error": 0.001}
    measured = [{**event, "t": t, "seconds": seconds} for t, seconds in clock.items()]
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in [*measured, *events]))
    (run / "phases" / "01-down" / "monitors" / "recovery.ceph1" / "recovery.jsonl").write_text(
        "".join(json.dumps({**line, "t": line["t"] + moved(line["t"] - failed)}) + "\n" for line in lines)
    )
    recorded = milestones(read_samples([DATA / "one.jsonl"]), events)
    archived = read_run(run)
    samples = samples_of(archived)
    of_samples = [line["t"] for line in lines if not {"version", "end", "event"} & line.keys()]
    assert [sample.t for sample in samples.samples] == pytest.approx(of_samples, abs=0.02)
    assert times(failure(archived, [], samples)["milestones"]) == [
        (kind, name, None if t is None else pytest.approx(t, abs=0.003)) for kind, name, t in times(recorded)
    ]


def test_a_clock_that_was_set_between_two_measurements() -> None:
    """A resumed run has the offset of before in its manifest."""
    offsets = [(0.0, 0.1), (1000.0, 0.2), (2000.0, 5.2), (3000.0, 5.3)]
    events = [{"t": t, "event": "clock-offset", "node": "n", "seconds": s, "error": 0.001} for t, s in offsets]
    drift = ClockDrift.of(events, "n", 0.2)
    assert [drift.at(t) for t in (-9.0, 0.0, 500.0, 1000.0, 1502.5, 2505.05, 9000.0)] == pytest.approx(
        [-0.1, -0.1, -0.05, 0.0, 2.5, 5.05, 5.1], abs=0.001
    )
    assert ClockDrift.of(events, "other", 0.0) is NO_DRIFT and NO_DRIFT.at(500.0) == 0.0
    told = ClockDrift.of(events, "n", 0.1, [ClockLine(1505.15, 5.0)])
    assert told.begins == {1505.15: (1, 5.0)}
    assert [told.at(t) for t in (0.0, 500.0, 1500.0)] == pytest.approx([0.0, 0.05, 0.1], abs=0.001)
    assert [told.at(t, 1) for t in (1505.0, 2005.0, 2505.0, 9000.0)] == pytest.approx([5.1, 5.1, 5.15, 5.2], abs=0.001)
    # no line tells the step: no agent ran
    header = ClockLine(1300.1, is_header=True)
    assert list(ClockDrift.of(events, "n", 0.1, [header]).begins) == [1300.1]
    # a step that an agent would not tell may be before the header or behind it
    events[2]["seconds"] = events[3]["seconds"] = 2.1
    unknown = ClockDrift.of(events, "n", 0.1, [header])
    assert not unknown.begins
    assert [unknown.at(t) for t in (1000.1, 1501.05, 2002.0)] == pytest.approx([0.1, 1.05, 2.0], abs=0.001)
    # before the first measurement, and after the last one: no time comes twice
    steps = [ClockLine(-55.0, -5.0), ClockLine(45.0, -5.0), ClockLine(99.0, 3.0)]
    open_ends = ClockDrift.of(events[:1], "n", 0.1, steps)
    assert [open_ends.at(0.0, stretch) for stretch in range(4)] == [5.0, 0.0, -5.0, -2.0]


def times(made: Dict[str, Any]) -> List[Tuple[str, str, Any]]:
    return [(e["kind"], m["name"], m["t"]) for e in made["episodes"] for m in e["milestones"]]


@pytest.mark.parametrize("name", ["one", "two", "killed"])
@pytest.mark.parametrize(("asked", "monitors"), [(FAST, FAST), (FAST, 0.0), (0.0, FAST), (-FAST, FAST)])
def test_milestones_are_the_same_whatever_the_nodes_clocks_say(
    tmp_path: Path, name: str, asked: float, monitors: float
) -> None:
    recorded = milestones(read_samples([DATA / f"{name}.jsonl"]), json_lines(DATA / f"{name}-events.jsonl"))
    run = read_run(archive(tmp_path, name, asked, monitors))
    made = failure(run, [], samples_of(run))["milestones"]
    for (kind, which, t), (*also, known) in zip(times(made), times(recorded)):
        assert [kind, which] == also
        assert t == (known if known is None else pytest.approx(known, abs=0.002))
    assert made["warnings"] == recorded["warnings"]
    assert made["gaps"] == [pytest.approx(gap, abs=0.002) for gap in recorded["gaps"]]


def test_a_question_in_sql_sees_the_same_times(tmp_path: Path) -> None:
    run = archive(tmp_path, "one", FAST, FAST)
    (table,) = (table for table in TABLES if table.name == "recovery")
    (columns,) = table.fill(Source(run, "00000000/id-1", True))
    first = read_samples([DATA / "one.jsonl"]).samples[0].t
    assert columns["time"][0] == pytest.approx(first, abs=0.002)


def test_all_monitors_are_put_on_one_clock_by_one_measurement(tmp_path: Path) -> None:
    run = archive(tmp_path, "one", FAST, 0.0)
    write(run / "phases" / "01-down" / "monitors", "ceph1", Made([("osd", "1", 1.0, 100)]))
    clocks = Clocks.of(read_run(run))
    (node,) = read_nodes(run / "phases" / "01-down" / "monitors", clocks.nodes)
    (as_written,) = read_nodes(run / "phases" / "01-down" / "monitors", {})
    assert as_written.daemons[0].at - node.daemons[0].at == pytest.approx(FAST)


def test_a_clock_without_a_measurement() -> None:
    assert Clocks().of_file(Path("x/recovery.ceph1/recovery.jsonl")) == 0
    assert Clocks({"ceph1": 1.0}).of_file(Path("x/recovery/recovery.jsonl")) == 0


STATUS = {
    "health": {"status": "HEALTH_OK"},
    "pgmap": {"num_pgs": 4, "pgs_by_state": [{"state_name": "active+clean", "count": 4}]},
    "osdmap": {"num_osds": 3, "num_up_osds": 3, "num_in_osds": 3},
}


class Head:
    """The cluster, its head node and a stream of status from there; host and timeline too."""

    failure, head, command, conf_file, open, left = None, "ceph1", "ceph", "/nowhere", True, 0
    programs = CephPrograms.of({})

    def __init__(self, at: float) -> None:
        self.remote, self.at = self, at
        self.messages: List[str] = []

    def send(self, program: str) -> None:
        """It needs no agent."""

    def stream(self, nodes: Any, command: str) -> Head:
        return self

    def lines(self, timeout: float) -> Iterator[Tuple[str, str]]:
        sample = {"t": self.at, **state_of(STATUS, {"stats": {"total_used_raw_ratio": 0.1}})}
        time.sleep(0.01)
        yield "ceph1", json.dumps(sample)

    @contextlib.contextmanager
    def monitors(self, folder: Path, *without: str, acting: bool = False) -> Iterator[None]:
        yield

    def prepare(self) -> None: ...

    def undo_left(self) -> None: ...

    def begin(self, at: float) -> None: ...

    def close(self) -> None: ...

    def note(self, outcome: Any) -> None: ...


def test_the_time_of_the_status_is_the_leading_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "STABLE_IN_WAIT", 0.0)
    head = cast(Any, Head(1000.0 + FAST))
    phase = Phase("w", "wait", wait_clean=True, at_most=60.0)
    plan = Plan("warp", S3(urls=("http://a",)), (), (), (phase,))
    watch = ClusterWatch(head, "ceph1", tmp_path / "recovery.jsonl", {}, offset=FAST)
    run = context(cbt_run=head, plan=plan, ceph=head, archive=RunArchive(tmp_path), watch=watch)
    with watch:
        outcome = waiting.wait(run, 1, phase, head)
    assert outcome.extra["clean_at"] == pytest.approx(1000.0)
    assert json_lines(watch.file)[0]["t"] == pytest.approx(1000.0 + FAST)  # as it came: results take the offset off


def test_the_samples_of_an_earlier_invocation_are_not_all_in_memory(tmp_path: Path) -> None:
    """A run of 72 hours has a quarter of a million samples."""
    file = tmp_path / "recovery.jsonl"
    with file.open("w") as out:
        for t in range(20_000):
            out.write(json.dumps({"t": 1000.0 + t, "pgs": {"active+clean": 65536}, "rates": [t, t, 0]}) + "\n")

    def stream(nodes: Any, line: str) -> Any:
        raise OSError("no processes")

    remote, programs = SimpleNamespace(stream=stream), SimpleNamespace(python="python3")
    watch = ClusterWatch(cast(Any, SimpleNamespace(remote=remote, programs=programs)), "ceph1", file, {})
    tracemalloc.start()
    try:
        with watch:
            assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


class Begun(Exception):
    """The jobs of a phase are made: nothing more is of interest."""


@pytest.mark.parametrize("answers", [True, False])
def test_a_phase_begins_with_the_clocks_of_now(monkeypatch: pytest.MonkeyPatch, answers: bool) -> None:
    """Two days after the check, 40 ppm are 7 s: a minute of load would lack them in the run's time."""
    asked: List[Any] = []

    def offsets(remote: Any, nodes: Any) -> Dict[str, Offset]:
        asked.append(list(nodes))
        if not answers:
            raise RemoteError("asking for the time", {"c1": Result("", "no reply", 255)})
        return {"c1": Offset(7.0, 0.001)}

    def begun(*_: Any) -> None:
        raise Begun

    monkeypatch.setattr(load_phase, "offsets", offsets)
    monkeypatch.setattr(LoadPhase, "jobs_of", begun)
    drivers = tuple(Driver(f"0{i}", node, ("b",), 1) for i, node in enumerate(("c1", "here")))
    plan = Plan("warp", S3(urls=("http://a",)), (), drivers, ())
    remote = SimpleNamespace(has_own_clock=lambda node: node != "here")
    known = {"c1": Offset(0.0, 0.001), "here": Offset(0.0, 0.0), "rgw1": Offset(0.1, 0.001)}
    nothing = cast(Any, None)
    load = LoadPhase(context(plan=plan, remote=remote), Ready(S3Keys("A", "S"), known, {}, {}), nothing, nothing)
    with pytest.raises(Begun):
        load.run(1, Phase("a", "hybrid"), LoadStart(), nothing, "/nowhere")
    assert asked == [["c1"]]
    assert load.ready.offsets == {**known, "c1": Offset(7.0 if answers else 0.0, 0.001)}


def test_a_clock_that_drifts_within_a_phase_is_told() -> None:
    outcome = PhaseOutcome(1, Phase("a", "hybrid"), jobs=[{"node": "c1"}, {"node": "c1"}, {"node": "c2"}])
    before = {"c1": Offset(0.1, 0.05), "c2": Offset(0.1, 0.05), "rgw1": Offset(0.0, 0.0)}
    outcome.note_clocks(before, {**before, "c1": Offset(0.44, 0.05), "rgw1": Offset(9.0, 0.0)})
    assert not outcome.warnings  # measured to 0.1 s
    outcome.note_clocks(before, {**before, "c1": Offset(-0.3, 0.01)})
    (warning,) = outcome.warnings
    moved = "the clock of c1, and the times of its requests, moved by -0.400 s during the phase"
    assert warning["code"] == "clock-offset" and moved in warning["text"]


@pytest.mark.parametrize("answers", [True, False])
def test_the_clock_of_the_sampler_is_measured_at_the_end_of_each_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    """40 h of 30 ppm are 4 s: the milestones of a failure would come by so much too late, and nobody would know."""
    now = [Offset(0.3, 0.01), Offset(4.3, 0.01)]

    def offsets(remote: Any, nodes: Any) -> Dict[str, Offset]:
        if not answers:
            raise RemoteError("asking for the time", {"head": Result("", "no reply", 255)})
        return {node: now.pop(0) for node in nodes}

    monkeypatch.setattr(sampler_clock, "offsets", offsets)
    watch = cast(Any, SimpleNamespace(node="head", offset=0.1))
    remote = SimpleNamespace(has_own_clock=lambda node: True)
    with contextlib.closing(Journal(tmp_path / "events.jsonl")) as events:
        run = context(watch=watch, events=events, remote=remote)
        clock = SamplerClock.of(run, Ready(S3Keys("A", "S"), {"head": Offset(0.1, 0.01)}, {}, {}))
        phases = [PhaseOutcome(i, Phase("a", "wait")) for i in (1, 2)]
        for outcome in phases:
            clock.measure(outcome)
    noted = [(line["node"], line["seconds"]) for line in json_lines(tmp_path / "events.jsonl")]
    assert noted == [("head", 0.1), *([("head", 0.3), ("head", 4.3)] if answers else [])]
    assert watch.offset == (4.3 if answers else 0.1)
    warned = [[warning["text"].partition(":")[0] for warning in outcome.warnings] for outcome in phases]
    text = "the clock of head, which samples the cluster, moved by +4.200 s since the run began"
    assert warned == [[], [text] if answers else []]


def test_the_clock_of_this_machine_is_not_measured() -> None:
    remote = SimpleNamespace(has_own_clock=lambda node: False)
    ready = Ready(S3Keys("A", "S"), {"head": Offset(0.0, 0.0)}, {}, {})
    clock = SamplerClock.of(context(watch=SimpleNamespace(node="head", offset=0.0), remote=remote), ready)
    clock.measure(PhaseOutcome(1, Phase("a", "wait")))
    assert clock.first is None

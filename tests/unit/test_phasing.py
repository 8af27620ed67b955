"""Phases that were broken off, refused or failed, and what the next start does; a stand-in cluster, and no load."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Dict, Iterator, List, Optional, Sequence, Tuple, cast

import pytest
from faults_world import ANYTHING, Connections, injector
from run_context import context

from cbt_plugins.cbt_run import RunFailed
from cbt_plugins.cluster.ceph import Ceph, Status
from cbt_plugins.cluster.clock_offsets import Offset
from cbt_plugins.config.fault import kind_class
from cbt_plugins.faults import FaultError
from cbt_plugins.journal import Journal, json_lines
from cbt_plugins.plan import S3, Bucket, Event, Fault, Phase, Plan, Settings
from cbt_plugins.run import event_schedule, phase_runner
from cbt_plugins.run import wait_phase as waiting
from cbt_plugins.run.phase_outcome import PhaseOutcome
from cbt_plugins.run.phase_runner import PhaseRunner, Watchers
from cbt_plugins.run.phase_start_state import lost_events
from cbt_plugins.run.run_archive import RunArchive
from cbt_plugins.run.sampler_clock import SamplerClock

A = Fault("a", "stop", ("node1",))
B = Fault("b", "stop", ("node3",), accept=tuple(rule for rule in ANYTHING if rule != "clean"))
HASTY = Fault("b", "stop", ("node3",), accept=ANYTHING)
WAIT = Phase("clean", "wait", wait_clean=True, at_most=3600.0, stalled=600.0)


def load(name: str, *events: Event) -> Phase:
    return Phase(name, "hybrid", duration=10.0, engine="cbt-load", events=events)


def cycle(second: Fault = B) -> Tuple[Phase, ...]:
    return (
        load("no-failure"),
        load("one-down", Event(0.0, inject=A)),
        load("two-down", Event(0.0, inject=second)),
        load("recover", Event(0.0, undo=("a", "b"))),
        WAIT,
    )


class Recovery(Connections):
    """A cluster that needs so many samples of its status to recover; `left` = None: it never does."""

    def __init__(self) -> None:
        super().__init__()
        self.left: Optional[int] = 0
        self.watched = 0
        still = self.world.pgs

        def pgs() -> Iterator[Dict[str, Any]]:
            for pg in still():
                if self.left != 0 and pg["state"].startswith("active") and pg["pgid"].endswith("0"):
                    pg["state"] = "active+undersized+degraded+remapped+backfilling"
                yield pg

        self.world.pgs = pgs

    @contextlib.contextmanager
    def feed(self) -> Iterator[Recovery]:
        yield self

    def ask(self, commands: Sequence[str], timeout: float) -> List[Any]:
        return [{} for _ in commands]

    def poll(self, timeout: float) -> List[Tuple[float, Status]]:
        self.watched += 1
        assert self.watched < 20000, "this wait has no end"
        sample = time.time(), Status.parse(self.world.ceph_status())
        if self.left:
            self.left -= 1
        return [sample]


class NoLoad:
    """Stands for LoadPhase, buckets, agents and host: a phase lasts until its events have happened."""

    run_id = "r1"
    run_dir = "/nowhere"
    cluster: ClassVar[Dict[str, Any]] = {"head": "node0"}

    def __init__(self, archive: RunArchive) -> None:
        self.archive = archive
        self.killed_in = self.not_undone_after = self.ends_early = ""
        self.begun: List[str] = []
        self.ready = SimpleNamespace(offsets={"node0": Offset(0.0, 0.0)})

    def counts(self) -> Dict[str, int]:
        return {}

    def empty(self, counts: Dict[str, int]) -> None:
        pass

    def close(self) -> None:
        pass

    @contextlib.contextmanager
    def monitors(self, folder: Path, *without: str, acting: bool = False, reconnects: bool = False) -> Iterator[None]:
        yield

    def run(self, index: int, phase: Phase, start: Any, timeline: Any, scratch: str) -> PhaseOutcome:
        self.archive.running(index, phase.name).mkdir(parents=True)
        self.begun.append(phase.name)
        timeline.prepare()
        timeline.begin(time.time())
        while timeline.left and timeline.failure is None and phase.name != self.ends_early:
            time.sleep(0.01)
        timeline.close()
        if phase.name == self.killed_in:
            raise KeyboardInterrupt
        outcome = PhaseOutcome(index, phase)
        if phase.name == self.not_undone_after:
            outcome.not_undone = "osd.1 is down"
        if timeline.failure is not None:
            outcome.warn("fault-failed", timeline.failure)
            outcome.degrade("failed")
        return outcome


class Run:
    """One run; each `go` is an invocation of its own, which first undoes what the one before has left."""

    def __init__(self, folder: Path, world: Recovery, phases: Tuple[Phase, ...], settings: Optional[Settings] = None):
        self.folder, self.world, self.settings = folder, world, settings
        self.plan = Plan("warp", S3(urls=("http://a",)), (), (), phases)
        self.archive = RunArchive(folder)
        self.load = NoLoad(self.archive)
        self.lost: List[str] = []
        self.open: List[str] = []  # at the end of the last invocation, before anything was undone

    def go(self, killed_in: str = "") -> List[bool]:
        self.load.killed_in, self.load.begun = killed_in, []
        anything = cast(Any, self.load)
        ceph = Ceph(cast(Any, self.world), {"head": "node0"})
        with contextlib.ExitStack() as stack:
            journal, events = (
                stack.enter_context(contextlib.closing(Journal(path)))
                for path in (self.archive.journal, self.archive.events)
            )
            faults = injector(self.folder, self.world, self.settings, events.write)
            faults.undo_all()
            faults.acquire()
            self.world.watched = 0
            stack.callback(faults.close)
            stack.callback(lambda: setattr(self, "open", sorted({record.label for record in faults.open_changes})))
            watch = cast(Any, self.world)
            run = context(
                cbt_run=anything, plan=self.plan, ceph=ceph, archive=self.archive, injector=faults, watch=watch
            )
            run = replace(run, journal=journal, events=events)
            watchers = Watchers(run, stack.enter_context(contextlib.ExitStack()))
            self.lost = lost_events(run)
            runner = PhaseRunner(run, anything.ready, anything, watchers, anything, SamplerClock(run, None))
            return [runner.run_unless_finished(i, phase) for i, phase in enumerate(self.plan.phases, 1)]

    def events(self, name: str) -> List[Dict[str, Any]]:
        return [line for line in json_lines(self.archive.events) if line["event"] == name]

    @property
    def whole(self) -> List[str]:
        return [p.name for i, p in enumerate(self.plan.phases, 1) if self.archive.finished(i, p.name)]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Recovery:
    made = Recovery()
    monkeypatch.setattr(waiting, "STABLE_IN_WAIT", 0.0)
    monkeypatch.setattr(event_schedule, "ONCE_MORE", 0.0)
    monkeypatch.setattr(phase_runner, "LoadPhase", lambda run, ready, buckets, agents: buckets)
    return made


def test_monitors_without_agents_begin_anew_after_a_node_was_restarted(tmp_path: Path) -> None:
    seen: List[str] = []

    class Host:
        @contextlib.contextmanager
        def monitors(self, folder: Path, *without: str, acting: bool, reconnects: bool) -> Iterator[None]:
            assert without == ("recovery",) and acting is False
            name = f"{folder.name} {'agents' if reconnects else 'others'}"
            seen.append(f"begin {name}")
            yield
            seen.append(f"end {name}")

    journal = SimpleNamespace(all=lambda event: [{}, {}])
    run = context(cbt_run=Host(), archive=RunArchive(tmp_path), journal=journal)
    with contextlib.ExitStack() as stack:
        watchers = Watchers(run, stack)
        for anew in (False, False, True, False):
            watchers.start(anew)
    again = ["end 02 others", "begin 02.2 others", "end 02.2 others"]
    assert seen == ["begin 02 agents", "begin 02 others", *again, "end 02 agents"]


@pytest.mark.parametrize(
    ("kind", "options", "lost"), [("power", {"off": "x {node}", "on": "y {node}"}, True), ("stop", {}, False)]
)
def test_a_node_without_power_has_lost_its_monitors(kind: str, options: Dict[str, Any], lost: bool) -> None:
    fault = Fault("a", kind, ("node1",), options=options)
    cycle = (load("one-down", Event(0.0, inject=fault)), load("back", Event(0.0, undo=("a",))))
    plan = Plan("warp", S3(urls=("http://a",)), (), (), cycle)
    assert [phase_runner.restarts_nodes(plan, index) for index in (1, 2)] == [False, lost]


def test_a_pool_that_a_phase_makes_is_set_before_the_next(
    tmp_path: Path, world: Recovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As RGW's, at the first object."""
    run = Run(tmp_path, world, (load("fill"), load("measure")))
    run.plan = replace(run.plan, settings=Settings(autoscaler=False))
    play, seen = run.load.run, []

    def fills(index: int, phase: Phase, *rest: Any) -> PhaseOutcome:
        seen.append(dict(world.state["autoscale"]))
        if phase.name == "fill":
            world.state["pools"].append({**world.state["pools"][0], "pool": 9, "pool_name": "new"})
            world.state["autoscale"]["new"] = "on"
        return play(index, phase, *rest)

    monkeypatch.setattr(run.load, "run", fills)
    assert run.go() == [True] * 2
    assert seen[1] == {"rbd": "off", "data": "off", "new": "off"}


def test_a_run_that_is_not_broken_off_waits_for_nothing(tmp_path: Path, world: Recovery) -> None:
    run = Run(tmp_path, world, cycle()[:4])
    assert run.go() == [True] * 4 and world.watched == 0
    assert run.events("settle-begin") == []


def test_a_broken_phase_is_repeated_when_the_cluster_has_recovered(tmp_path: Path, world: Recovery) -> None:
    """Its fault accepts nothing: on a cluster that still recovers from the undo it would be refused."""
    run = Run(tmp_path, world, cycle())
    with pytest.raises(KeyboardInterrupt):
        run.go(killed_in="one-down")
    world.left = 5
    assert run.go() == [True] * 5
    assert world.left == 0 and run.load.begun == ["one-down", "two-down", "recover"]
    (begun,), (ended,) = run.events("settle-begin"), run.events("settle-end")
    assert (begun["phase"], begun["before"], begun["down"]) == ("one-down", ["a"], [])
    assert ended["given_up"] is None
    order = [line["event"] for line in map(json.loads, run.archive.events.read_text().splitlines())]
    assert order.index("settle-end") < len(order) - 1 - order[::-1].index("phase-begin")


def test_the_cluster_settles_before_the_first_of_earlier_faults(tmp_path: Path, world: Recovery) -> None:
    """What the first one takes keeps PGs from being clean for as long as it is in force."""
    phases = (*cycle()[:3], load("both"), load("last", Event(0.0, undo=("a", "b"))))
    run = Run(tmp_path, world, phases)
    with pytest.raises(KeyboardInterrupt):
        run.go(killed_in="both")
    world.left = 5
    assert run.go() == [True] * 5
    assert [line["before"] for line in run.events("settle-begin")] == [["a"], ["b"]]
    assert world.left == 0 and run.open == []
    warned = run.archive.finished(4, "both")["warnings"]  # type: ignore[index]
    text = "{} was undone when the run was broken off, and injected again"
    assert warned == [{"code": "injected-again", "text": text.format(label)} for label in "ab"]


@pytest.mark.parametrize("damage", ["cut", "empty"])
def test_a_fault_without_its_event_is_injected_again_all_the_same(damage: str, tmp_path: Path, world: Recovery) -> None:
    """The undo journal has it too; what results lack is known from then on."""
    run = Run(tmp_path, world, (*cycle()[:2], load("both"), load("last", Event(0.0, undo=("a",)))))
    with pytest.raises(KeyboardInterrupt):
        run.go(killed_in="both")
    lines = run.archive.events.read_bytes().splitlines(keepends=True)
    (at,) = [i for i, line in enumerate(lines) if b'"fault-injected"' in line and b'"label": "a"' in line]
    lines[at] = lines[at][:40] + b"\n"
    run.archive.events.write_bytes(b"".join(lines) if damage == "cut" else b"")
    assert run.go() == [True] * 4
    assert [event["label"] for event in run.events("fault-injected")] == ["a"]
    assert [line["code"] for line in run.archive.finished(3, "both")["warnings"]] == ["injected-again"]  # type: ignore[index]
    damaged = ["events.jsonl has 1 damaged line"] if damage == "cut" else []
    assert run.lost == [*damaged, "events.jsonl does not have the injection of a"]


@pytest.mark.parametrize("without_event", [False, True])
def test_a_fault_whose_targets_return_by_themselves_is_not_injected_again(
    without_event: bool, tmp_path: Path, world: Recovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that has booted would be rebooted in a later phase."""
    monkeypatch.setattr(kind_class("stop"), "lasts", False)
    run = Run(tmp_path, world, (load("one", Event(0.0, inject=A)), load("two")))
    with pytest.raises(KeyboardInterrupt):
        run.go(killed_in="two")
    assert [event["label"] for event in run.events("fault-injected")] == ["a"]
    if without_event:
        run.archive.events.write_bytes(b"")
    assert run.go() == [True] * 2
    assert len(run.events("fault-injected")) == (0 if without_event else 1)
    assert run.archive.finished(2, "two")["warnings"] == []  # type: ignore[index]


def test_waits_directly_before_a_broken_load_are_done_again(
    tmp_path: Path, world: Recovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its attempt has read what was to be read from disks; a wait before another load prepares nothing for it."""
    dropped: List[str] = []
    monkeypatch.setattr(waiting, "drop_caches", lambda run: dropped.append("dropped"))
    cold = Phase("cold", "wait", duration=0.01, drop_caches=True)
    other, clean = replace(cold, name="other"), replace(WAIT, stalled=0.01)
    run = Run(tmp_path, world, (other, load("fill"), clean, cold, load("read"), Phase("end", "wait", duration=0.01)))
    with pytest.raises(KeyboardInterrupt):
        run.go(killed_in="fill")
    with pytest.raises(KeyboardInterrupt):
        run.go(killed_in="read")
    assert len(dropped) == 3 and [line["wait"] for line in run.events("wait-again-begin")] == ["other"]
    world.left = None
    assert run.go() == [True] * 6
    assert len(dropped) == 4 and [line["wait"] for line in run.events("wait-again-end")] == ["other", "clean", "cold"]
    (warning,) = run.archive.finished(5, "read")["warnings"]  # type: ignore[index]
    assert warning["code"] == "not-clean" and "before its repetition: 2 PGs are not active+clean" in warning["text"]


@pytest.mark.parametrize("loaded", [True, False])
def test_only_a_load_that_had_begun_has_left_objects(loaded: bool, tmp_path: Path, world: Recovery) -> None:
    run = Run(tmp_path, world, (load("fill"), load("more")))
    with pytest.raises(KeyboardInterrupt):
        run.go(killed_in="more")
    with contextlib.closing(Journal(run.archive.journal)) as journal:
        journal.write("load-begun", phase="more" if loaded else "fill")
    assert run.go() == [True, True]
    warned = run.archive.finished(2, "more")["warnings"]  # type: ignore[index]
    assert [warning["code"] for warning in warned] == (["repeated"] if loaded else [])


def test_an_existing_bucket_has_what_the_first_attempt_has_written(tmp_path: Path, world: Recovery) -> None:
    """Nobody empties it, so its fill is repeated on what is there, and the result says so."""
    run = Run(tmp_path, world, (load("fill"), load("measure")))
    run.plan = replace(run.plan, buckets=(Bucket("b", ((1, 1, 1.0),), existing=True),))
    with pytest.raises(KeyboardInterrupt):
        run.go(killed_in="fill")
    with contextlib.closing(Journal(run.archive.journal)) as journal:
        journal.write("load-begun", phase="fill")
    assert run.go() == [True] * 2
    (fill,) = [run.archive.finished(1, "fill")]
    assert [warning["code"] for warning in fill["warnings"]] == ["repeated"]


def test_a_fault_whose_time_never_came_is_not_injected_again(tmp_path: Path, world: Recovery) -> None:
    """Its phase ended before it; a later phase only undoes it."""
    run = Run(tmp_path, world, (load("fill", Event(30.0, inject=A)), load("after", Event(0.0, undo=("a",)))))
    run.load.ends_early = "fill"
    assert run.go() == [True] * 2
    injected = [event for event in run.events("fault-injected") if event["label"] == "a"]
    assert injected == [] and run.events("settle-begin") == []


def test_a_fault_that_cannot_be_undone_ends_the_run_and_keeps_the_phase(tmp_path: Path, world: Recovery) -> None:
    run = Run(tmp_path, world, (load("fill"), load("more")))
    run.load.not_undone_after = "fill"
    with pytest.raises(RunFailed, match=r"not undone after fill: osd\.1 is down"):
        run.go()
    assert run.whole == ["fill"]
    assert run.go() == [True, True] and run.load.begun == ["more"]


def test_who_accepts_an_unsteady_cluster_does_not_wait(tmp_path: Path, world: Recovery) -> None:
    run = Run(tmp_path, world, cycle(HASTY))
    with pytest.raises(KeyboardInterrupt):
        run.go(killed_in="two-down")
    world.left = 4
    run.go()
    assert [line["before"] for line in run.events("settle-begin")] == [["a"]]  # and none before b
    hasty = Run(tmp_path / "other", Recovery(), (load("x", Event(0.0, inject=HASTY)),))
    hasty.folder.mkdir()
    with pytest.raises(KeyboardInterrupt):
        hasty.go(killed_in="x")
    hasty.world.left = None
    assert hasty.go() == [True] and hasty.world.watched == 0


def test_not_recovered_is_the_refusal_and_the_next_start_goes_on(
    tmp_path: Path, world: Recovery, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(tmp_path, world, cycle())
    longer = run.plan
    run.plan = replace(longer, phases=(*longer.phases[:4], replace(WAIT, stalled=0.01)))
    with pytest.raises(KeyboardInterrupt):
        run.go(killed_in="two-down")
    world.left = None
    with pytest.raises(FaultError, match=r"^a: refused. clean: 2 of 16 PGs are not active\+clean: 2 active\+under"):
        run.go()
    assert "2 PGs are not active+clean, without progress for" in run.events("settle-end")[-1]["given_up"]
    assert "two-down: not recovered: 2 PGs" in caplog.text
    assert run.whole == ["no-failure", "one-down"] and world.differences() == set()
    world.left, run.plan = 3, longer
    assert run.go() == [True] * 5 and run.load.begun == ["two-down", "recover"]


def test_osds_down_before_are_named(tmp_path: Path, world: Recovery, caplog: pytest.LogCaptureFixture) -> None:
    run = Run(tmp_path, world, (*cycle()[:2], Phase("clean", "wait", wait_clean=True, at_most=0.01)))
    with pytest.raises(KeyboardInterrupt):
        run.go(killed_in="one-down")
    world.state["osds"]["3"]["up"] = 0
    with pytest.raises(FaultError, match=r"a: refused. clean: .*; these OSDs are down, but not by this run: osd\.3 \|"):
        run.go()
    assert "these OSDs are down, but not by this run: osd.3" in caplog.text
    assert run.events("settle-begin")[-1]["down"] == [3]


def test_a_fault_that_is_refused_is_asked_for_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The balancer moves PGs when it likes."""
    monkeypatch.setattr(event_schedule, "ONCE_MORE", 0.0)
    answers: List[Any] = [FaultError("a: refused. ok-to-stop: 2 PGs"), "prepared"]

    def ready(fault: Fault) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, FaultError):
            raise answer
        return answer

    fault = Fault("a", "stop", ("node4",))
    schedule = event_schedule.EventSchedule(
        [Event(0.0, inject=fault)], cast(Any, SimpleNamespace(ready=ready)), print, "x"
    )
    schedule.prepare()
    assert schedule.prepared == "prepared" and answers == []  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("fails", [False, True])
def test_a_fault_that_is_refused_or_fails(tmp_path: Path, world: Recovery, fails: bool) -> None:
    """Its phase is no result, and is the first thing that the next start does."""
    run = Run(tmp_path, world, cycle()[:4])
    if fails:
        world.fail = ["systemctl stop"]
    else:
        world.state["flags"].append("noup")
    kind, said = (RunFailed, "^one-down failed: a: ") if fails else (FaultError, "^a: refused. flags: ")
    with pytest.raises(kind, match=said):
        run.go()
    assert run.whole == ["no-failure"] and run.open == []
    kept = tmp_path / "phases" / "02-one-down.partial-1" / "phase.json"
    assert not fails or json.loads(kept.read_text())["status"] == "failed"
    world.fail = []
    world.state["flags"] = list(world.first["flags"])
    assert run.go() == [True] * 4 and run.load.begun == ["one-down", "two-down", "recover"]


def test_a_failure_of_a_scorecard_that_is_refused_makes_no_load(
    tmp_path: Path, world: Recovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is noted once, the run goes on, and the phase is not repeated when the run is resumed."""
    monkeypatch.setattr(event_schedule, "ONCE_MORE", 0.0)
    two = Fault("two", "stop", ("node1", "node3"))
    refused = load("two-nodes", Event(0.0, inject=two, optional=True), Event(0.0, undo=("two",)))
    other = load("node-down", Event(0.0, inject=A, optional=True), Event(0.1, undo=("a",)))
    run = Run(tmp_path, world, (replace(refused, failure="two nodes"), replace(other, failure="node down")))
    assert run.go() == [True, True] and run.load.begun == ["node-down"]
    (skipped,) = run.events("fault-skipped")
    assert skipped["label"] == "two" and "inactive" in skipped["why"]
    record = json.loads((tmp_path / "phases" / "01-two-nodes" / "phase.json").read_text())
    assert (record["status"], record["jobs"]) == ("ok", [])
    assert run.go() == [True, True] and run.load.begun == [] and len(run.events("fault-skipped")) == 1


def test_recovery_is_fast_again_where_it_was(tmp_path: Path, world: Recovery) -> None:
    """`recovery: aggressive` is from the first fault to the end of the run, in whatever invocation that was."""
    run = Run(tmp_path, world, cycle(), Settings(recovery="aggressive"))
    with pytest.raises(KeyboardInterrupt):
        run.go(killed_in="recover")
    assert run.go() == [True] * 5
    world.left = 2
    shutil.rmtree(run.archive.phase(5, "clean"))
    assert run.go() == [True] * 5
    assert "recovery" in run.open


def test_how_long_is_the_plans_own() -> None:
    other = Phase("short", "wait", wait_clean=True, at_most=60.0)
    plan = Plan("warp", S3(urls=("http://a",)), (), (), (load("x"), WAIT, load("y"), other, load("z")))
    found = [waiting.wait_limits(plan, index) for index in (1, 2, 3, 5)]
    assert found == [(3600.0, 600.0), (3600.0, 600.0), (60.0, None), (60.0, None)]
    assert waiting.wait_limits(Plan("warp", plan.s3, (), (), (load("x"),)), 1) == (360000.0, 7200.0)

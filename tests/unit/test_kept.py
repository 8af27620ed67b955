"""Every way out of a run, at every moment, with things that the run has made: they stay, and the same command goes on.

The runner of the plan, the injector, the journals and the signals are real; the cluster is a stand-in, and there is no
load.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Iterator, List, Optional, Sequence, cast

import pytest
from faults_world import Connections, injector, mark_of, part
from run_context import context, runner_of

from cbt_plugins.cbt_run import RunFailed
from cbt_plugins.cluster.fan_out import Pending
from cbt_plugins.cluster.remote import RemoteError
from cbt_plugins.faults.pool_settings import Part
from cbt_plugins.faults.undo_journal import open_steps_in
from cbt_plugins.journal import Journal, json_lines
from cbt_plugins.load.load_session import LoadError
from cbt_plugins.plan import S3, Phase, Plan, Settings
from cbt_plugins.run import phase_runner, phase_start_state, pools_and_rgw
from cbt_plugins.run import plan_runner as engine_module
from cbt_plugins.run.context import RunContext
from cbt_plugins.run.load_phase import LoadPhase
from cbt_plugins.run.phase_outcome import PhaseOutcome
from cbt_plugins.run.plan_runner import PlanRunner

#: labels of what a run makes for itself, in their order
PREPARED = (
    "pool data",
    "existing pool log",
    "rgw.a as before",
    "rgw options",
    "rgw placement",
    "rgw placement acme$b",
    "rgw.a restarted",
    "rgw user",
    "rgw user acme$b",
)
PHASES = (
    Phase("fill", "fill", engine="cbt-load"),
    Phase("age", "hybrid", duration=1.0, engine="cbt-load"),
    Phase("clean", "wait", duration=1.0),
    Phase("read", "hybrid", duration=1.0, engine="cbt-load"),
)
BEFORE = ("fetch_leftovers", "check", "set-up", "ceilings")
WITHIN = tuple(phase.name for phase in PHASES)
AFTER = ("after the phases", "remove buckets")
WAYS = ("lost client", "lost head", "full disk", "1 signal", "2 signals", "3 signals")


class Cluster(Connections):
    """A stand-in that sends signals to this process while it is asked to undo."""

    signals = 0

    def run(self, nodes: Sequence[str], command: str, timeout: float = 60.0, check: bool = True) -> Any:
        if self.signals and "osd unset" in command:
            self.signals -= 1
            os.kill(os.getpid(), signal.SIGTERM)
        return super().run(nodes, command, timeout, check)

    @property
    def made(self) -> List[str]:
        return [label for label in PREPARED if mark_of(label) in self.state["flags"]]


class Accidents:
    """What happens to a run at one of its moments."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster, self._monkeypatch = cluster, monkeypatch
        self.at, self.way = "", ""
        self.write = Journal.write

    def moment(self, name: str) -> None:
        if name != self.at:
            return
        self.at = ""
        if self.way == "lost client":
            raise LoadError("client1 was lost")
        if self.way == "lost head":
            self.cluster.fail = [""]
            raise RemoteError("node0: no route to host", {})
        if self.way == "full disk":
            self._monkeypatch.setattr(Journal, "write", self._refuse)
            raise OSError(errno.ENOSPC, "No space left on device")
        self.cluster.signals = int(self.way[0]) - 1
        os.kill(os.getpid(), signal.SIGTERM)

    @staticmethod
    def _refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def clear(self) -> None:
        self.cluster.fail, self.cluster.signals = [], 0
        self._monkeypatch.setattr(Journal, "write", self.write)


class Session:
    """Stands for the load of a phase: it is over as soon as it has begun."""

    go_at, go_clock, latest_end, over = None, None, None, True
    jobs: Sequence[Any] = ()

    def __init__(self, moment: Callable[[], None]) -> None:
        self.start = moment

    def break_off(self) -> None:
        pass

    def collect(self, folder: Path) -> None:
        pass


class Run:
    """One run on the stand-in; each `go` is an invocation of the same command."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.cluster = folder, Cluster()
        self.accidents = Accidents(self.cluster, monkeypatch)
        self._patch(monkeypatch)

    def go(self, at: str = "", way: str = "") -> Optional[BaseException]:
        """Run it to its end, which is returned: None is a good one."""
        self.accidents.clear()
        self.accidents.at, self.accidents.way = at, way
        runner = runner_of(self.folder)
        runner.plan = Plan("warp", S3(urls=("http://a",)), (), (), PHASES, settings=Settings(flags=("noout",)))
        try:
            runner.execute()
        except (RunFailed, KeyboardInterrupt, OSError) as end:
            return end
        finally:
            self.accidents.clear()
        return None

    def begun(self) -> List[str]:
        """Phases, as often as an attempt at them began."""
        return [line["phase"] for line in json_lines(self.folder / "journal.jsonl") if line["event"] == "phase-begun"]

    def _patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        moment = self.accidents.moment

        def at(name: str, answer: Any = None) -> Callable[..., Any]:
            def play(*_: object) -> Any:
                moment(name)
                return answer

            return play

        ready = SimpleNamespace(offsets={}, manifest={})
        ready.keys = ready.others = None
        monkeypatch.setattr(engine_module, "fetch_leftovers", at("fetch_leftovers"))
        monkeypatch.setattr(engine_module, "check", at("check", ready))
        monkeypatch.setattr(pools_and_rgw, "set_up", self._set_up)
        monkeypatch.setattr(PlanRunner, "describe", at("manifest"))
        monkeypatch.setattr(PlanRunner, "snapshot", at("snapshot"))
        monkeypatch.setattr(PlanRunner, "context", lambda runner, *journals: self._context(runner, *journals))
        monkeypatch.setattr(PhaseOutcome, "note_capacity", at("capacity"))
        monkeypatch.setattr(engine_module, "clean_nodes", at("clean nodes"))
        monkeypatch.setattr(engine_module, "summarize", at("summary"))
        monkeypatch.setattr(engine_module, "after_phases", at("after the phases"))
        buckets = SimpleNamespace(claim=at("buckets"), remove=at("remove buckets"), counts=dict, empty=at("empty"))
        monkeypatch.setattr(engine_module, "Buckets", lambda *_: buckets)
        monkeypatch.setattr(engine_module, "Agents", lambda *_: SimpleNamespace(close=at("close")))
        ceilings = SimpleNamespace(measure=at("ceilings"))
        monkeypatch.setattr(engine_module, "GeneratorCeilings", lambda *_: ceilings)
        monkeypatch.setattr(phase_runner, "wait", self._wait)
        monkeypatch.setattr(phase_start_state, "wait_again", at("wait again"))
        monkeypatch.setattr(phase_runner, "LoadPhase", self._load)

    def _set_up(self, run: RunContext, ready: Any) -> Any:
        def parts() -> Iterator[Part]:
            for label in PREPARED:
                if label == "rgw placement":
                    self.accidents.moment("set-up")
                yield part(label)

        run.injector.set_up(parts())
        return ready

    def _load(self, run: RunContext, *parts: Any) -> Any:
        load = LoadPhase(run, *parts)

        def play(index: int, phase: Phase, start: Any, schedule: Any, scratch: str) -> PhaseOutcome:
            folder = run.archive.running(index, phase.name)
            folder.mkdir(parents=True)
            outcome = PhaseOutcome(index, phase)
            session: Any = Session(lambda: self.accidents.moment(phase.name))
            load.make_load(session, outcome, schedule, folder, cast(Any, Pending(dict)))
            return outcome

        return SimpleNamespace(run=play)

    def _wait(self, run: RunContext, index: int, phase: Phase, schedule: Any) -> PhaseOutcome:
        run.archive.running(index, phase.name).mkdir(parents=True)
        self.accidents.moment(phase.name)
        return PhaseOutcome(index, phase)

    @contextlib.contextmanager
    def _context(self, runner: Any, journal: Any, events: Any) -> Iterator[RunContext]:
        journal.write("run", run_id="r1")
        plan, archive = runner.plan, runner.archive
        faults = injector(self.folder, self.cluster, plan.settings, events.write)
        watch = SimpleNamespace(node="node0", feed=lambda: contextlib.nullcontext(None))
        host = SimpleNamespace(monitors=lambda *_, **__: contextlib.nullcontext(), run_dir="/nowhere/a/b")
        host.cluster, host.config_text = {"head": "node0"}, None
        parts = {"cbt_run": host, "plan": plan, "archive": archive, "watch": watch, "injector": faults}
        with contextlib.closing(faults):
            yield context(**parts, journal=journal, events=events)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # no test here loses power
    return Run(tmp_path, monkeypatch)


def test_a_run_removes_at_its_end_what_it_has_made(run: Run) -> None:
    assert run.go() is None
    assert run.cluster.differences() == set() and open_steps_in(run.folder) == []
    assert run.begun() == list(WITHIN)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("moment", [*BEFORE, *WITHIN, *AFTER])
def test_a_run_that_is_broken_off_keeps_what_it_has_made(run: Run, moment: str, way: str) -> None:
    assert isinstance(run.go(moment, way), BaseException)
    kept = {record.label for record in open_steps_in(run.folder)} & set(PREPARED)
    if moment in WITHIN + AFTER:
        assert run.cluster.made == list(PREPARED) and kept == set(PREPARED)
    elif way not in ("lost head", "3 signals"):  # nothing was written into it yet
        assert run.cluster.made == []
    assert run.go() is None
    assert run.cluster.differences() == set() and open_steps_in(run.folder) == []
    repeated = [moment] if moment in WITHIN else []
    assert sorted(run.begun()) == sorted([*WITHIN, *repeated])


@pytest.mark.parametrize("way", ["lost client", "2 signals"])
@pytest.mark.parametrize("moment", [*BEFORE, "read", *AFTER])
def test_a_resumed_run_that_is_broken_off_keeps_it_too(run: Run, moment: str, way: str) -> None:
    assert run.go("age", "1 signal") is not None
    assert run.go(moment, way) is not None
    assert run.cluster.made == list(PREPARED)
    assert run.go() is None
    assert run.cluster.differences() == set() and open_steps_in(run.folder) == []

"""Failures and returns of runs that were broken off, undone by the user, or resumed with a fault in force."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from cbt_plugins.cluster_conditions import UNDO_BY_USER
from cbt_plugins.results.attempts_in_events import Attempt, attempts, broken_off
from cbt_plugins.results.recovery.episodes import Episode, episodes, is_planned

PHASES = ["no-failure", "one-down", "measure", "recover"]


class Log:
    """The lines of an event log, one a second unless another time is given."""

    def __init__(self) -> None:
        self.t = 0.0
        self.lines: List[Dict[str, Any]] = []

    def add(self, name: str, seconds: float = 1.0, **facts: Any) -> Log:
        self.t += seconds
        self.lines.append({"t": self.t, "event": name, **facts})
        return self

    def begun(self) -> Log:
        return self.add("run-begun", phases=PHASES)

    def phase(self, name: str, end: bool = True, fault: str = "") -> Log:
        """A phase of a minute; `fault`: "inject" or "undo" when its load begins."""
        self.add("phase-begin", phase=name).add("load-go", 2.0, phase=name, at=self.t + 4.0)
        self.t += 2.0
        if fault:
            self.fault(fault)
        self.t += 60.0
        return self.add("phase-end", phase=name) if end else self

    def fault(self, verb: str) -> Log:
        done = {"inject": "fault-injected", "undo": "fault-undone"}[verb]
        facts = {"label": "a", "kind": "stop", "osds": [6]}
        return self.add(f"fault-{verb}-begin", **facts).add(done, **facts)

    def kept(self, name: str) -> Log:
        return self.add("phase-broken-off", phase=name, kept=f"03-{name}.partial-1")

    def episodes(self) -> List[Episode]:
        return episodes(self.lines, self.t + 30.0)

    def told(self) -> List[Tuple[str, str, Optional[float]]]:
        return [(its.kind, its.aborted, its.again) for its in self.episodes()]


def before(name: str) -> Log:
    """A run up to a phase, with a fault from `one-down` on."""
    log = Log().begun()
    for phase in PHASES[: PHASES.index(name)]:
        log.phase(phase, fault="inject" if phase == "one-down" else "")
    return log


def test_a_run_as_planned() -> None:
    log = before("recover").phase("recover", fault="undo")
    assert log.told() == [("failure", "", None), ("return", "", None)]
    assert list(broken_off(log.lines)) == [] and len(list(attempts(log.lines))) == 4


def test_what_the_user_undoes_is_of_the_attempt_and_no_early_end() -> None:
    log = before("one-down").phase("one-down", end=False, fault="inject").add(UNDO_BY_USER, 600.0).fault("undo")
    assert log.told() == [("failure", "one-down", None), ("return", "one-down", None)]
    assert log.episodes()[0].until == log.episodes()[1].begin
    log.add("run-begun", phases=PHASES).phase("one-down", fault="inject")
    assert log.told()[2:] == [("failure", "", None)]


def test_a_failure_of_a_whole_phase_stays_one_when_the_user_undoes_it_later() -> None:
    log = before("measure").phase("measure", end=False).add(UNDO_BY_USER, 600.0).fault("undo")
    assert log.told() == [("failure", "", None), ("return", "measure", None)]


def test_an_undo_between_two_phases_is_not_the_plans() -> None:
    log = before("measure").add("run-interrupted").fault("undo").begun().fault("inject").phase("measure")
    assert [its[:2] for its in log.told()] == [("failure", ""), ("return", "between phases"), ("failure", "")]


def test_an_undo_after_the_last_phase_is_the_plans() -> None:
    log = before("recover").phase("recover").fault("undo").add("run-failed")
    assert log.told() == [("failure", "", None), ("return", "", None)]
    log = before("recover").phase("recover").add(UNDO_BY_USER).fault("undo")
    assert log.told() == [("failure", "", None), ("return", "", None)]


def test_a_fault_that_is_injected_again_for_a_moment_is_no_failure() -> None:
    """The run is broken off in the phase that undoes it: it is undone as soon as that begins anew."""
    log = before("recover").phase("recover", end=False).fault("undo").kept("recover").add("run-interrupted")
    log.begun().fault("inject").phase("recover", fault="undo")
    failure, aborted, back = log.episodes()
    assert (failure.kind, failure.aborted) == ("failure", "") and aborted.aborted == "03-recover.partial-1"
    assert back.kind == "return" and back.aborted == "" and back.again == 7.0
    assert all(its.end - its.begin > 5.0 for its in log.episodes() if not its.aborted)


def test_a_fault_that_is_injected_again_for_a_phase_is_in_force_in_it_and_no_result() -> None:
    log = before("measure").phase("measure", end=False).fault("undo").kept("measure").add("run-interrupted")
    log.begun().fault("inject").phase("measure").phase("recover", fault="undo")
    told = log.told()
    assert [its[:2] for its in told] == [
        ("failure", ""),
        ("return", "03-measure.partial-1"),
        ("failure", ""),
        ("return", ""),
    ]
    assert told[0][2] is None and told[2][2] == told[3][2] is not None
    plain = [{"kind": kind, "aborted": aborted, "again": again} for kind, aborted, again in told]
    assert [is_planned(its) for its in plain] == [True, False, False, True]


def test_one_that_is_injected_again_and_broken_off_again_belongs_to_the_attempt() -> None:
    log = before("measure").phase("measure", end=False).fault("undo").kept("measure").add("run-interrupted")
    log.begun().fault("inject").phase("measure", end=False).fault("undo").kept("measure").add("run-failed")
    assert [aborted for _, aborted, _ in log.told()] == ["", *["03-measure.partial-1"] * 3]


def test_faults_without_phases_are_as_they_are() -> None:
    log = Log().fault("inject").fault("undo")
    assert log.told() == [("failure", "", None), ("return", "", None)]


def test_an_attempt_ends_with_its_phase_or_the_next_invocation() -> None:
    log = Log().begun().phase("no-failure", end=False).begun().phase("no-failure")
    first, second = attempts(log.lines)
    assert first == Attempt(2.0, 6.0, 67.0) and second.end == log.t

"""Events at their times, with an injector that only takes notes."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from types import SimpleNamespace
from typing import Any, List, Optional, Tuple, cast

import pytest
from waiting import wait_for

from cbt_plugins import signals
from cbt_plugins.faults import FaultError, Injector, NoAnswer
from cbt_plugins.faults.safety_case import Finding
from cbt_plugins.plan import Event, Fault
from cbt_plugins.run import event_schedule
from cbt_plugins.run.event_schedule import EventSchedule
from cbt_plugins.run.phase_outcome import PhaseOutcome

A = Fault("a", "stop", ("node4",))


class Notes:
    """Stands for the injector, and for whoever writes events down."""

    def __init__(self, refuses: str = "", open_after_undo: Tuple[str, ...] = ()) -> None:
        self.seen: List[Any] = []
        self.refuses = refuses
        self.open_after_undo = open_after_undo
        self.happened = threading.Event()

    def ready(self, fault: Fault) -> Any:
        if self.refuses:
            raise FaultError(self.refuses)
        self.seen.append(("ready", fault.label))
        return fault

    def shut(self) -> None:
        self.seen.append("shut")

    def inject_ready(self, ready: Any) -> None:
        self.seen.append(("inject", ready.label))

    def undo(self, labels: Any) -> List[str]:
        self.seen.append(("undo", tuple(labels)))
        return list(self.open_after_undo)

    def note(self, event: str, **facts: Any) -> None:
        self.seen.append((event, facts.get("name") or facts.get("inject") or facts.get("undo")))


def timeline(notes: Notes, *events: Event) -> EventSchedule:
    return EventSchedule(events, cast(Injector, notes), notes.note, "p")


@pytest.mark.parametrize(("at", "kept"), [(0.0, True), (3600.0, False)])
def test_a_check_before_the_load_is_that_of_a_fault_that_comes_soon(at: float, kept: bool) -> None:
    notes = Notes()
    made = timeline(notes, Event(at, inject=A, optional=True))
    assert made.refusal() == "" and notes.seen == [("ready", "a")]
    if kept:
        made.begin(time.time())
        wait_for(lambda: made.left == 0)
    assert (made.prepared is None) and (notes.seen[1:] == [("event", "a"), ("inject", "a")]) == kept
    made.close()


class Slow(Notes):
    """Checks take a while, and injections begin late."""

    def __init__(self, takes: float, late: float = 0.0) -> None:
        super().__init__()
        self.takes, self.late, self.times = takes, late, []  # type: ignore[var-annotated]

    def ready(self, fault: Fault) -> Any:
        time.sleep(self.takes)
        return super().ready(fault)

    def inject_ready(self, ready: Any) -> None:
        self.times.append(time.monotonic())

    def undo(self, labels: Any) -> List[str]:
        self.times.append(time.monotonic())
        return super().undo(labels)


def test_a_failure_of_a_scorecard_begins_when_it_is_checked_and_lasts_as_long_as_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_schedule, "AGAIN", 0.1)
    notes = Slow(takes=1.0)
    made = timeline(notes, Event(0.2, inject=A, optional=True), Event(0.7, undo=("a",)))
    assert made.refusal() == "" and made.postpone() == 2.0  # 1.5 s for the check, in whole seconds
    begun = time.monotonic()
    made.begin(time.time())
    wait_for(lambda: made.left == 0)
    made.close()
    assert notes.times[0] - begun >= 2.1 and notes.times[1] - notes.times[0] == pytest.approx(0.5, abs=0.2)
    outcome = PhaseOutcome(1, cast(Any, None))
    made.note(outcome)
    assert outcome.warnings == []


def test_a_failure_that_is_late_all_the_same_is_undone_as_much_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_schedule, "AGAIN", 0.1)
    notes = Slow(takes=0.0)
    made = timeline(notes, Event(0.2, inject=A, optional=True), Event(0.7, undo=("a",)))
    assert made.refusal() == "" and made.postpone() == 0.0
    notes.takes = 2.5  # the second check takes longer than the first one
    made.begin(time.time())
    wait_for(lambda: made.left == 0)
    made.close()
    assert notes.times[1] - notes.times[0] == pytest.approx(0.5, abs=0.2)
    outcome = PhaseOutcome(1, cast(Any, None))
    made.note(outcome)
    assert [warning["code"] for warning in outcome.warnings] == ["faults-late"]


@pytest.mark.parametrize("stays", [(), ("osd.1 is down",)])
def test_a_failure_whose_effect_came_after_its_load_is_undone_before_the_next_phase(stays: Tuple[str, ...]) -> None:
    """An effect that took longer than the phase: the fault would be in force while the next failure is measured."""
    notes = Slow(takes=0.0)
    notes.open_after_undo = stays
    notes.open_changes = [SimpleNamespace(label="a"), SimpleNamespace(label="settings")]  # type: ignore[attr-defined]
    made = timeline(notes, Event(0.0, inject=A, optional=True), Event(3600.0, undo=("a",)))
    assert made.refusal() == "" and made.postpone() == 0.0
    made.begin(time.time())
    wait_for(lambda: made.left == 1)
    made.close()
    made.undo_left()
    assert notes.seen[-1] == ("undo", ("a",)) and made.failure is None
    outcome = PhaseOutcome(1, cast(Any, None))
    made.note(outcome)
    assert outcome.status == "degraded" and outcome.not_undone == "".join(stays)
    assert [warning["code"] for warning in outcome.warnings] == ["fault-failed" if stays else "events-left"]


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
def test_a_clock_that_is_set_moves_no_event(step: float, monkeypatch: pytest.MonkeyPatch) -> None:
    notes, clock = Notes(), time.time
    made = timeline(notes, Event(0.0, mark="first"), Event(0.5, mark="second"), Event(1.0, mark="third"))
    made.begin(time.time())
    wait_for(lambda: made.left == 2)
    monkeypatch.setattr(time, "time", lambda: clock() + step)
    begun = time.monotonic()
    wait_for(lambda: made.left == 0)
    made.close()
    outcome = PhaseOutcome(1, cast(Any, None))
    made.note(outcome)
    assert outcome.warnings == [] and time.monotonic() - begun > 0.4


def test_a_mark_that_cannot_be_written_ends_nothing() -> None:
    """The archive's disk is full: the load goes on, and the fault after it comes."""
    notes = Notes()

    def full(event: str, **facts: Any) -> None:
        if event == "mark":
            raise OSError(errno.ENOSPC, "No space left on device")
        notes.note(event, **facts)

    made = EventSchedule((Event(0.0, mark="m"), Event(0.05, inject=A)), cast(Injector, notes), full, "p")
    made.begin(time.time())
    wait_for(lambda: made.left == 0)
    made.close()
    assert made.failure is None and ("inject", "a") in notes.seen


def test_what_takes_time_is_done_before_the_load_begins() -> None:
    notes = Notes()
    made = timeline(notes, Event(0.0, inject=A), Event(0.0, undo=("a",)), Event(0.0, mark="after"))
    made.prepare()
    assert notes.seen == [("ready", "a")]
    made.begin(time.time())
    wait_for(lambda: made.left == 0)
    made.close()
    assert notes.seen[1:] == [
        ("event", "a"),
        ("inject", "a"),
        ("event", ["a"]),
        ("undo", ("a",)),
        ("mark", "after"),
    ]
    assert made.failure is None and made.unmade == []


def test_a_signal_while_its_clock_is_started_comes_after_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that has not quite started cannot be waited for: the end of the run would be an internal error."""

    class Slow(threading.Thread):
        def start(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            super().start()

    monkeypatch.setattr(threading, "Thread", Slow)
    notes = Notes()
    made = timeline(notes, Event(3600.0, mark="late"))
    with pytest.raises(KeyboardInterrupt), signals.handled():
        made.begin(time.time())
    made.abandon()
    assert notes.seen == ["shut"] and made.failure is None


def test_a_mark_does_not_keep_what_takes_time_from_being_done_before() -> None:
    """Under a heavy load the questions to a cluster take longer than there is between a mark and its fault."""
    notes = Notes()
    made = timeline(notes, Event(0.0, mark="before"), Event(5.0, inject=A))
    made.prepare()
    assert notes.seen == [("ready", "a")]


class Moving(Notes):
    """The rule `clean` refuses the first looks; another rule refuses none of them."""

    def __init__(self, refused: List[str]) -> None:
        super().__init__()
        self.rules = refused

    def prepare(self, fault: Fault) -> Any:
        self.seen.append(("look", fault.label))
        return SimpleNamespace(refused=[Finding(rule, "5 PGs") for rule in self.rules[:1] if self.rules.pop(0)])


def test_a_fault_that_waits_for_a_clean_cluster_makes_what_follows_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cbt_plugins.run.event_schedule.ONCE_MORE", 0.5)
    notes = Moving(["clean", "clean", "domain"])
    made = timeline(notes, Event(0.0, inject=A, after_clean=True), Event(0.2, undo=("a",)))
    made.prepare()
    assert notes.seen == []
    begun = time.time()
    made.begin(begun)
    wait_for(lambda: made.left == 0)
    made.close()
    assert notes.seen[:4] == [("look", "a")] * 3 + [("ready", "a")] and notes.seen[-1] == ("undo", ("a",))
    assert made.failure is None and time.time() - begun >= 1.2


B = Fault("b", "stop", ("node3",))


def test_pg_states_of_before_an_undo_do_not_end_a_wait_for_a_clean_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The manager still shows all PGs active+clean when OSDs have just come back."""
    monkeypatch.setattr("cbt_plugins.run.event_schedule.ONCE_MORE", 0.2)
    monkeypatch.setattr("cbt_plugins.run.event_schedule.STALE", 1.0)
    notes = Moving([""] * 1000)
    events = (Event(0.0, undo=("a",)), Event(0.0, inject=B, after_clean=True, at_most=3600.0), Event(0.1, undo=("b",)))
    made = timeline(notes, *events)
    begun = time.monotonic()
    made.begin(time.time())
    wait_for(lambda: made.left == 0)
    made.close()
    assert made.failure is None and time.monotonic() - begun >= 1.1
    kinds = [entry[0] for entry in notes.seen]
    assert kinds.count("look") >= 3 and kinds[-5:] == ["ready", "event", "inject", "event", "undo"]


def test_pg_states_that_were_asked_for_in_time_do_not_count_although_the_answer_came_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A check takes longer than PG states lag behind."""
    never = threading.Event()

    class Slow(Moving):
        def prepare(self, fault: Fault) -> Any:
            never.wait(0.0 if ("look", fault.label) in self.seen else 0.5)
            return super().prepare(fault)

    monkeypatch.setattr("cbt_plugins.run.event_schedule.ONCE_MORE", 0.1)
    monkeypatch.setattr("cbt_plugins.run.event_schedule.STALE", 0.3)
    notes = Slow([""] * 1000)
    schedule = timeline(notes, Event(0.0, undo=("a",)), Event(0.0, inject=B, after_clean=True, at_most=3600.0))
    schedule.begin(time.time())
    wait_for(lambda: schedule.left == 0)
    schedule.close()
    assert [name for name, _ in notes.seen].count("look") >= 2


def test_a_cluster_that_does_not_become_clean_in_time_fails_the_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cbt_plugins.run.event_schedule.ONCE_MORE", 0.1)
    notes = Moving(["clean"] * 1000)
    made = timeline(notes, Event(0.0, inject=A, after_clean=True, at_most=0.5))
    made.begin(time.time())
    try:
        wait_for(lambda: made.failure is not None)
    finally:
        made.close()
    assert made.failure == "a: waited 0.5 s for active+clean PGs. clean: 5 PGs" and ("inject", "a") not in notes.seen


class Unanswered(Moving):
    """The cluster does not answer the looks that are "no answer"."""

    def prepare(self, fault: Fault) -> Any:
        prepared = super().prepare(fault)
        if prepared.refused and prepared.refused[0].rule == "no answer":
            raise NoAnswer("ceph pg dump shows 0 of 5 PGs")
        return prepared


@pytest.mark.parametrize("at_most", [None, 3600.0])
def test_a_look_without_an_answer_does_not_end_a_wait_for_a_clean_cluster(
    monkeypatch: pytest.MonkeyPatch, at_most: Optional[float]
) -> None:
    monkeypatch.setattr("cbt_plugins.run.event_schedule.ONCE_MORE", 0.05)
    notes = Unanswered(["no answer", "clean", "no answer", "domain"])
    schedule = timeline(notes, Event(0.0, inject=A, after_clean=True, at_most=at_most))
    schedule.begin(time.time())
    wait_for(lambda: schedule.left == 0 or schedule.failure is not None)
    schedule.close()
    assert schedule.failure is None and notes.seen[-1] == ("inject", "a")
    assert notes.seen.count(("look", "a")) == 4


@pytest.mark.parametrize(
    ("at_most", "failure"),
    [
        (None, "ceph pg dump shows 0 of 5 PGs"),
        (0.5, "a: waited 0.5 s for active+clean PGs. ceph pg dump shows 0 of 5 PGs"),
    ],
)
def test_a_cluster_that_never_answers_fails_the_phase(
    monkeypatch: pytest.MonkeyPatch, at_most: Optional[float], failure: str
) -> None:
    monkeypatch.setattr("cbt_plugins.run.event_schedule.ONCE_MORE", 0.05)
    monkeypatch.setattr("cbt_plugins.run.event_schedule.NO_ANSWER", 0.3)
    notes = Unanswered(["no answer"] * 1000)
    schedule = timeline(notes, Event(0.0, inject=A, after_clean=True, at_most=at_most))
    schedule.begin(time.time())
    try:
        wait_for(lambda: schedule.failure is not None or schedule.left == 0)
    finally:
        schedule.close()
    assert schedule.failure == failure and notes.seen.count(("look", "a")) > 1


class Impossible(Moving):
    """A fault that no wait makes possible."""

    def prepare(self, fault: Fault) -> Any:
        super().prepare(fault)
        raise FaultError("node3 has the active manager")


def test_a_fault_that_cannot_be_injected_does_not_wait_for_a_clean_cluster() -> None:
    notes = Impossible(["clean"] * 1000)
    schedule = timeline(notes, Event(0.0, inject=A, after_clean=True, at_most=3600.0))
    schedule.begin(time.time())
    wait_for(lambda: schedule.failure is not None)
    schedule.close()
    assert schedule.failure == "node3 has the active manager" and notes.seen.count(("look", "a")) == 1


def test_looks_at_a_cluster_that_answers_slowly_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mgr of a large cluster takes seconds for each look."""
    never = threading.Event()
    begins: List[float] = []

    class SlowAnswer(Moving):
        def prepare(self, fault: Fault) -> Any:
            begins.append(time.monotonic())
            never.wait(0.1)
            return super().prepare(fault)

    monkeypatch.setattr("cbt_plugins.run.event_schedule.ONCE_MORE", 0.01)
    schedule = timeline(SlowAnswer(["clean", "clean", "domain"]), Event(0.0, inject=A, after_clean=True))
    schedule.begin(time.time())
    wait_for(lambda: schedule.left == 0)
    schedule.close()
    assert len(begins) == 3 and begins[2] - begins[0] >= 2 * (0.1 + 3 * 0.1)


def test_a_fault_of_a_thrash_that_is_refused_is_skipped_with_its_undo() -> None:
    notes = Notes(refuses="domain: too many")
    made = timeline(notes, Event(0.0, inject=A, optional=True), Event(0.1, undo=("a",)), Event(0.2, mark="after"))
    made.prepare()
    made.begin(time.time())
    wait_for(lambda: made.left == 0, limit=60.0)
    made.close()
    assert [name for name, _ in notes.seen] == ["fault-skipped", "mark"] and made.failure is None


def test_a_phase_that_ends_ends_the_wait_for_a_clean_cluster() -> None:
    notes = Moving(["clean"] * 1000)
    made = timeline(notes, Event(0.0, inject=A, after_clean=True))
    made.begin(time.time())
    wait_for(lambda: notes.seen)
    made.close()
    assert made.unmade == ["a"] and ("inject", "a") not in notes.seen


def test_a_later_fault_is_looked_at_shortly_before() -> None:
    notes = Notes()
    made = timeline(notes, Event(100.0, inject=A))
    made.prepare()
    assert notes.seen == []
    made.begin(time.time() - 85.0)  # 15 s before it
    wait_for(lambda: notes.seen)
    made.close()
    assert notes.seen == [("ready", "a")] and made.left == 1 and made.unmade == ["a"]


def test_a_fault_is_judged_once_more_right_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cbt_plugins.run.event_schedule.AHEAD", 1000.0)
    monkeypatch.setattr("cbt_plugins.run.event_schedule.AGAIN", 993.0)
    notes = Notes()
    made = timeline(notes, Event(1000.0, inject=A))
    made.begin(time.time() - 5.0)
    wait_for(lambda: len(notes.seen) == 2)
    made.close()
    assert notes.seen == [("ready", "a"), ("ready", "a")] and made.left == 1


def outcome_of(made: EventSchedule) -> PhaseOutcome:
    outcome = PhaseOutcome("p", "hybrid", "measure")
    made.note(outcome)
    return outcome


def test_a_fault_that_is_late_and_too_short_says_so() -> None:
    """Its check took so long under load that little was left of its time; the undo came as planned."""
    made = timeline(Notes(), Event(0.0, inject=A), Event(10.5, undo=("a",)))
    made.begin(time.time() - 10.0)
    wait_for(lambda: made.left == 0)
    made.close()
    said = {warning["code"]: warning["text"] for warning in outcome_of(made).warnings}
    assert said["faults-late"].startswith("a began 10.") and said["fault-time"].startswith("a was in force for 0.")
    assert said["fault-time"].endswith("instead of 10.5 s")


def test_a_fault_at_its_times_says_nothing() -> None:
    made = timeline(Notes(), Event(0.0, inject=A), Event(0.0, undo=("a",)))
    made.begin(time.time())
    wait_for(lambda: made.left == 0)
    made.close()
    assert outcome_of(made).warnings == []


def test_the_second_check_has_the_time_that_the_first_one_took() -> None:
    notes = Notes()
    made = timeline(notes, Event(1e5, inject=A))
    made.longest_check = 1e5
    made.prepared = cast(Any, A)
    made.begin(time.time())
    wait_for(lambda: notes.seen)
    made.close()
    assert notes.seen == [("ready", "a")]


def test_a_run_that_ends_shuts_the_injector_before_it_waits() -> None:
    notes = Notes()
    made = timeline(notes, Event(1000.0, inject=A))
    made.begin(time.time())
    made.abandon()
    assert notes.seen == ["shut"]


def test_a_refusal_before_the_load_is_raised_and_a_later_one_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cbt_plugins.run.event_schedule.ONCE_MORE", 0.0)
    made = timeline(Notes("too many"), Event(0.0, inject=A))
    with pytest.raises(FaultError, match="too many"):
        made.prepare()
    late = timeline(Notes("too many"), Event(0.0, undo=("b",)), Event(0.0, inject=A))
    late.prepare()
    late.begin(time.time())
    wait_for(lambda: late.failure)
    late.close()
    assert late.failure == "too many" and late.left == 1


def test_an_undo_that_leaves_something_open_is_a_failure() -> None:
    made = timeline(Notes(open_after_undo=("a: still down",)), Event(0.0, undo=("a",)))
    made.begin(time.time())
    wait_for(lambda: made.failure)
    made.close()
    assert made.failure == "a: still down"


def test_nothing_is_started_after_the_end() -> None:
    notes = Notes()
    made = timeline(notes, Event(1000.0, undo=("a",)))
    made.begin(time.time())
    made.close()
    assert notes.seen == [] and made.left == 1
    assert timeline(notes).begun

"""The undo promise, on a stand-in cluster in memory: any order, any end, any instant, by chance."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Optional, Set

from faults_world import OUT, SETTINGS, STOP, Connections, Died, injector
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cbt_plugins.faults import FaultError, Injector
from cbt_plugins.faults.undo_journal import open_steps_in

FAULTS = {**{f.label: f for f in STOP.values()}, "out": OUT}


def covered(injector: Injector) -> Set[str]:
    """What the open records say may differ."""
    found: Set[str] = set()
    for record in injector.open_changes:
        former = record.step.former
        found |= {f"osd.{n}" for n in record.step.osds}
        if record.step.what.startswith("set ") and "flags" in former:
            found |= {f"flag {w}" for w in record.step.what[4:].split(", ")}
        elif record.step.what.startswith("switch the balancer"):
            found |= {"balancer", "config mgr/balancer/active"}
        elif record.step.what.startswith("set pg_autoscale_mode"):
            found |= {f"autoscale {pool}" for pool in former}
        elif not record.step.osds:
            found |= {f"config {key.split(' ')[1]}" for key in former}
    return found


class Promise(RuleBasedStateMachine):
    """Open records = differences from the initial state."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.connections = Connections()
        self.injector: Optional[Injector] = None
        self.exact = True  # no run has died since everything was whole
        self._start()

    def _start(self) -> None:
        self.injector = injector(self.folder, self.connections, SETTINGS)
        self.injector.lock.identity["pid"] = len(self.injector.records)  # another process, as it were
        self.connections.state["keys"].clear()
        self.injector.acquire()

    def _do(self, action: Any) -> None:
        """An action that may be the last of its process."""
        assert self.injector is not None
        try:
            action(self.injector)
        except Died:
            self.injector.close()
            self.injector = None
            self.exact = False
        except FaultError:
            pass
        self.connections.die_at = self.connections.die_at_change = None

    @rule(
        at=st.integers(1, 25), how=st.sampled_from(["before", "after", "late"]), what=st.sampled_from(sorted(FAULTS))
    )
    @precondition(lambda self: self.injector is not None)
    def die_in_inject(self, at: int, how: str, what: str) -> None:
        self.connections.die_at = (self.connections.calls + at, how)
        self._do(lambda i: i.inject(FAULTS[what]))

    @rule(
        at=st.integers(1, 2), how=st.sampled_from(["before", "after", "late"]), what=st.sampled_from(sorted(FAULTS))
    )
    @precondition(lambda self: self.injector is not None)
    def die_in_a_change(self, at: int, how: str, what: str) -> None:
        self.connections.die_at_change = (self.connections.changes + at, how)
        self._do(lambda i: i.inject(FAULTS[what]))

    @rule(at=st.integers(1, 16), how=st.sampled_from(["before", "after", "late"]))
    @precondition(lambda self: self.injector is not None)
    def die_in_apply(self, at: int, how: str) -> None:
        self.connections.die_at = (self.connections.calls + at, how)
        self._do(lambda i: i.apply())

    @rule(at=st.integers(1, 16))
    @precondition(lambda self: self.injector is not None)
    def die_in_undo(self, at: int) -> None:
        self.connections.die_at = (self.connections.calls + at, "after")
        self._do(lambda i: i.undo_all())

    @rule(what=st.sampled_from(sorted(FAULTS)))
    @precondition(lambda self: self.injector is not None)
    def inject(self, what: str) -> None:
        self._do(lambda i: i.inject(FAULTS[what]))

    @rule()
    @precondition(lambda self: self.injector is not None)
    def apply(self) -> None:
        self._do(lambda i: i.apply())

    @rule(what=st.sampled_from(sorted(FAULTS)))
    @precondition(lambda self: self.injector is not None)
    def undo(self, what: str) -> None:
        self._do(lambda i: i.undo([what]))

    @rule()
    @precondition(lambda self: self.injector is not None)
    def undo_all(self) -> None:
        assert self.injector is not None
        assert self.injector.undo_all() == []
        self.exact = True
        assert self.connections.differences() == set()

    @rule()
    @precondition(lambda self: self.injector is None)
    def restart(self) -> None:
        self._start()

    @rule()
    def what_was_under_way_arrives(self) -> None:
        self.connections.arrive()

    @invariant()
    def open_is_what_differs(self) -> None:
        different = self.connections.differences()
        if self.injector is not None:
            known = covered(self.injector)
            assert different <= known
            if self.exact:
                for record in self.injector.open_changes:
                    one = {f"osd.{n}" for n in record.step.osds}
                    assert not one or one & different, f"{record.label} is open and nothing differs"
        else:
            assert bool(different) <= bool(open_steps_in(self.folder))

    def teardown(self) -> None:
        if self.injector is None:
            self._start()
        assert self.injector is not None
        assert self.injector.undo_all() == []
        self.connections.arrive()
        assert self.connections.differences() == set()
        self.injector.release()
        assert self.connections.state["keys"] == {}
        self.injector.close()
        shutil.rmtree(self.folder)


#: by chance, and others in each run of the tests
EXAMPLES = 200 if os.environ.get("CBT_PLUGINS_LONG") else 25
TestPromise = Promise.TestCase
TestPromise.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)

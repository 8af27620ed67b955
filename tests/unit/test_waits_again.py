"""Waits that are done again before a load of which an attempt was broken off, and the faults among them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, List

import pytest
from test_phasing import HASTY, WAIT, A, B, Recovery, Run, load
from test_phasing import world as world  # a fixture

from cbt_plugins.cluster.remote import RemoteError
from cbt_plugins.cluster.transports.transport import Result
from cbt_plugins.journal import json_lines
from cbt_plugins.plan import Event, Phase
from cbt_plugins.run import wait_phase
from cbt_plugins.warning_kinds import forbids_verdict

COLD = Phase("cold", "wait", duration=0.05, drop_caches=True)


def order_of(run: Run) -> List[str]:
    """Return the repeated waits and the faults between the first attempt at "read" and the second, in their order."""
    lines = list(json_lines(run.archive.events))
    first, last = [i for i, line in enumerate(lines) if line["event"] == "phase-begin" and line["phase"] == "read"]
    names = ("wait-again-begin", "wait-again-end", "fault-injected")
    return [line.get("wait") or line["label"] for line in lines[first:last] if line["event"] in names]


def test_the_faults_of_a_pause_come_after_its_repetition(
    tmp_path: Path, world: Recovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caches of a node that its own fault cuts off could not be dropped."""
    in_force: List[List[str]] = []
    monkeypatch.setattr(
        wait_phase, "drop_caches", lambda run: in_force.append([r.label for r in run.injector.open_changes])
    )
    cold = replace(COLD, events=(Event(0.0, inject=HASTY),))
    run = Run(tmp_path, world, (load("fill", Event(0.0, inject=A)), cold, load("read")))
    with pytest.raises(KeyboardInterrupt):
        run.go(killed_in="read")
    assert run.go() == [True] * 3 and run.open == ["a", "b"]
    assert in_force == [["a"], ["a"]]
    assert order_of(run) == ["a", "cold", "cold", "b"]


def test_the_faults_of_a_wait_for_the_cluster_come_before_its_repetition(tmp_path: Path, world: Recovery) -> None:
    """It ends when the cluster has recovered as far as it can beside them."""
    wait = replace(WAIT, stalled=0.01, events=(Event(0.0, inject=B),))
    run = Run(tmp_path, world, (load("fill"), wait, load("read")))
    with pytest.raises(KeyboardInterrupt):
        run.go(killed_in="read")
    run.go()
    assert order_of(run) == ["b", "clean", "clean"]


def test_an_error_of_a_repeated_wait_does_not_end_the_run(
    tmp_path: Path, world: Recovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each resume would have it."""

    def refuse(run: Any) -> None:
        raise RemoteError("sync", {"node1": Result("", "no route to host", 255)})

    monkeypatch.setattr(wait_phase, "drop_caches", lambda run: None)
    run = Run(tmp_path, world, (load("fill"), COLD, load("read")))
    with pytest.raises(KeyboardInterrupt):
        run.go(killed_in="read")
    monkeypatch.setattr(wait_phase, "drop_caches", refuse)
    assert run.go() == [True] * 3
    (warning,) = run.archive.finished(3, "read")["warnings"]  # type: ignore[index]
    assert warning["code"] == "not-prepared" and forbids_verdict("not-prepared")
    assert warning["text"].startswith("before its repetition: sync failed on 1 of 1 nodes: node1: exit status 255")

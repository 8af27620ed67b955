"""Names of failures and labels of faults: folders, files and units are named after them, so they have limits."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, Dict

import pytest
from config_files import CLUSTER, CYCLE, S3, WARP, errors_in
from event_plans import FILL, hybrid, warp

from cbt_plugins.config.fault import LONGEST_LABEL, usable_label
from cbt_plugins.faults.undo_journal import UndoJournal

#: the label that gets the longest name on a node
WORST = f"a{'_' * (LONGEST_LABEL - 2)}a"


@pytest.mark.parametrize(("length", "refused"), [(80, False), (81, True)])
def test_a_failure_has_a_name_of_at_most_80_characters(tmp_path: Path, length: int, refused: bool) -> None:
    name = f"node {'d' * (length - 5)}"
    text = f"{CLUSTER}benchmarks:\n  resilience:\n{S3}    failures:\n      {name}: {{kind: stop, osds: [1]}}\n"
    errors = errors_in(tmp_path, text)
    assert len(errors) == refused
    if refused:
        assert errors[0].startswith("f.yaml:12:7: ")
        assert errors[0].endswith("has 81 characters, and 80 are the limit of a name")


def in_phase(event: str) -> str:
    cycle = CYCLE.replace("60s", f"10m, events: [{event}]")
    return CLUSTER + WARP + "    engine: cbt-load\n" + cycle


@pytest.mark.parametrize(
    "key", ["fault: {kind: stop, osds: [1], label: ", "thrash: {for: 2m, label: ", "run: {label: "]
)
def test_a_label_has_at_most_50_characters(tmp_path: Path, key: str) -> None:
    command = ", command: x" if key.startswith("run") else ""
    assert errors_in(tmp_path, in_phase(f"{{at: 0s, {key}{WORST}{command}}}}}")) == []
    (error,) = errors_in(tmp_path, in_phase(f"{{at: 0s, {key}{WORST}a{command}}}}}"))
    assert error.endswith(".label: has 51 characters, and 50 are the limit of a label")


def test_the_longest_label_makes_names_that_a_node_takes(tmp_path: Path) -> None:
    thrash: Dict[str, Any] = {"at": "0s", "thrash": {"for": "2m", "label": usable_label(WORST)}}
    drawn = [event.inject.label for event in warp(FILL, hybrid(thrash)).phases[1].events if event.inject]
    assert drawn == [f"{WORST}-1", f"{WORST}-2"]
    with closing(UndoJournal(tmp_path)) as journal:
        journal.identify("inject-0a1b2c3d", sealed=False)
        name = journal.name(f"{WORST}-10000")
    assert 230 < len(f"cbt-plugins-{name}.service") <= 255


@pytest.mark.parametrize("kind", ["partition", "delay"])
def test_peers_are_nodes_of_the_cluster(tmp_path: Path, kind: str) -> None:
    fault = f"{{label: a, kind: {kind}, nodes: [node1], options: {{peers: [node0, root@client1, 'client2']}}}}"
    assert errors_in(tmp_path, in_phase(f"{{at: 0s, fault: {fault}}}")) == []
    wrong = fault.replace("'client2'", "cleint2").replace("root@", "")
    (error,) = errors_in(tmp_path, in_phase(f"{{at: 0s, fault: {wrong}}}"))
    assert ".options.peers[2]: cleint2 is not a node of cluster:; did you mean 'client2'?" in error

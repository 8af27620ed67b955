"""Numbers of an agent's lines protect a run that has no sums yet: a line counts once, a lost one is said."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy as np
import pytest

from cbt_plugins.results.nodes.node_samples import read_node
from cbt_plugins.results.numbered_lines import each_line_and_loss, numbered_lines

HEADER = {"version": 2, "interval": 1.0, "cpus": 4, "hz": 100, "boot": "b", "t": 1000.0}


def lines() -> List[Dict[str, Any]]:
    """Ten seconds in which an OSD uses half a core, and the node a whole one."""
    about = {"class": "osd", "id": "0", "pid": 7, "since": 1000.0, "io": True}
    every: List[Dict[str, Any]] = [HEADER, {"t": 1000.0, "names": {"d": {"0": about}}}]
    for t in range(1, 11):
        sample = {"t": 1000.0 + t, "s": 1.0, "c": [100, 0, 0, 300, 0, 0, 0, 0]}
        every.append({**sample, "d": [[0, 50, 100, 3, 0, 0]], "k": [], "n": []})
    return [{**line, "i": number} for number, line in enumerate(every)]


def write(path: Path, texts: List[str]) -> Path:
    path.write_text("".join(texts))
    return path


def texts(every: List[Dict[str, Any]]) -> List[str]:
    return [json.dumps(line, separators=(",", ":")) + "\n" for line in every]


def peak(path: Path) -> Any:
    node = read_node(path, "node1")
    if node is None or not node.daemons:
        return None, node.damage if node else ()
    used = sum(daemon.used.rises(np.arange(1000.0, 1011.0))[:, 0] for daemon in node.daemons)
    return round(float(np.max(used)), 3), node.damage


def test_all_lines_count_once(tmp_path: Path) -> None:
    assert peak(write(tmp_path / "x.jsonl", texts(lines()))) == (0.5, ())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda its: [*its[:6], its[5], *its[6:]], "1 line doubled or out of order"),
        (lambda its: [*its, *its], "12 lines doubled or out of order"),
        (lambda its: [*its[:6], *its[8:]], "2 lines lost"),
        (lambda its: [*its[:6], "{]\n", *its[7:]], "1 line lost"),
        (lambda its: [*its[:6], its[6].replace("[0,50", '["x",50'), *its[7:]], "1 line damaged"),
        (lambda its: [*its[:6], its[6].replace('"s":1.0', '"s":{}'), *its[7:]], "1 line damaged"),
        (lambda its: [*its[:6], "[]\n", its[6].replace('"c":[100', '"c":[[]'), *its[7:]], "2 lines damaged"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(
    change: Callable[[List[str]], List[str]], told: str, tmp_path: Path
) -> None:
    most, damage = peak(write(tmp_path / "x.jsonl", change(texts(lines()))))
    assert most == 0.5 and told in str(damage) and str(damage).count("left out") == 1


@pytest.mark.parametrize("damaged", range(11))
def test_a_damaged_number_costs_at_most_its_line(damaged: int, tmp_path: Path) -> None:
    every = lines()
    every[damaged]["i"] = 9000
    notes: Dict[str, None] = {}
    path = write(tmp_path / "x.jsonl", texts(every))
    assert len(numbered_lines(path, notes)) >= 11 and "left out" in str(notes)
    if damaged != 1:  # the line with the names of the daemons
        most, damage = peak(path)
        assert most == 0.5 and damage


def test_a_lost_line_is_no_idle_second(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", [*texts(lines())[:6], *texts(lines())[8:]])
    node = read_node(path, "node1")
    assert node is not None and node.processors.watched_seconds((1000.0, 1010.0))[0] == pytest.approx(8.0)


def test_agents_of_earlier_versions_have_no_numbers(tmp_path: Path) -> None:
    every = [{key: value for key, value in line.items() if key != "i"} for line in lines()]
    assert peak(write(tmp_path / "x.jsonl", texts(every))) == (0.5, ())


def test_a_new_connection_counts_anew(tmp_path: Path) -> None:
    second = [{**line, "t": line["t"] + 20} for line in lines()]
    path = write(tmp_path / "x.jsonl", texts([*lines()[:8], *second]))
    notes: Dict[str, None] = {}
    assert len(numbered_lines(path, notes)) == 20 and notes == {}


@pytest.mark.parametrize("number", range(100))
def test_any_damage_is_said_or_changes_no_number(number: int, tmp_path: Path) -> None:
    chance = random.Random(number)
    every = texts(lines())
    for _ in range(chance.choice((1, 3))):
        at = chance.randrange(len(every) - 1)
        how = chance.randrange(4)
        if how == 0:
            every.insert(at, every[at])
        elif how == 1:
            del every[at]
        elif how == 2:
            every[at], every[at + 1] = every[at + 1], every[at]
        else:
            every[at] = re.sub(r"\d+", chance.choice(('"x"', "[]", "null", "{}")), every[at], count=1)
    node = read_node(write(tmp_path / "x.jsonl", every), "node1")
    if node is not None and not node.damage:
        assert peak(tmp_path / "x.jsonl")[0] == 0.5


@pytest.mark.parametrize("agent", ["resources", "perf_counters", "backlog", "stacks"])
def test_agents_number_their_lines(agent: str) -> None:
    folder = Path(__file__).parents[2] / "monitors"
    text = (folder / f"{agent}_agent.py").read_text()
    if "numbered_output" in text:
        text += (folder / "numbered_output.py").read_text()
    assert 'record["i"]' in text


def test_a_line_of_an_agent_whose_first_line_is_lost_does_not_follow_the_agent_before(tmp_path: Path) -> None:
    """Its numbers begin anew: the first ones are there already, and one fits at last."""
    agent = texts([{"version": 1, "t": 0.0, "i": 0}, *({"t": float(i), "i": i} for i in range(1, 6))])
    later = texts([{"version": 1, "t": 100.0, "i": 0}, *({"t": 100.0 + i, "i": i} for i in range(1, 9))])
    third = texts([{"version": 1, "t": 200.0, "i": 0}, {"t": 201.0, "i": 1}])

    def losses(*its: str) -> List[float]:
        read = each_line_and_loss(write(tmp_path / "x.jsonl", [*its]), {})
        return [line["t"] for line, is_behind_loss in read if is_behind_loss]

    torn = '{"ver\n'
    assert losses(*agent, torn, *later[1:]) == [106.0]
    assert losses(*agent, torn, *later[1:3], *third) == [200.0]
    assert losses(*agent, *agent[2:], *later) == [] and losses(*agent, *later, *third) == []

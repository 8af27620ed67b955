"""What changed with the culprit, beside the metric that was searched."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, List

import numpy as np
import pytest

from cbt_plugins.bisect import output
from cbt_plugins.bisect.loop import CULPRIT_FOUND, companions

GROUPS, CHANGED = 60, 5
SECTION = SimpleNamespace(metric="measure.total.obj_per_s")


def listed(measurements: int, change: float, seed: int) -> List[str]:
    """Return the thread groups that are listed, where the first CHANGED of GROUPS changed."""
    chance = np.random.default_rng(seed)
    names = [("measure", f"osd.thread{number}", "cpu_ms_per_op") for number in range(GROUPS)]
    true = np.where(np.arange(GROUPS) < CHANGED, 1 + change, 1.0)
    noise = chance.uniform(0.03, 0.1, GROUPS)
    drawn = np.exp(noise * chance.normal(size=(measurements, 2, GROUPS)))
    pairs = [(dict(zip(names, good)), dict(zip(names, true * bad))) for good, bad in drawn]
    session: Any = SimpleNamespace(
        section=SECTION,
        commits=[SimpleNamespace(sha="good"), SimpleNamespace(sha="culprit")],
        blocks=[{"sha": "culprit", "pair": pair} for pair in pairs],
        values=lambda block: block["pair"],
    )
    now: Any = SimpleNamespace(outcome=CULPRIT_FOUND, suspects=[session.commits[1]])
    return [row["name"] for row in companions(session, now)]


@pytest.mark.parametrize("measurements", [3, 5, 8])
def test_what_did_not_change_is_hardly_ever_listed(measurements: int) -> None:
    answers = [listed(measurements, 0.0, seed) for seed in range(100)]
    assert sum(map(bool, answers)) <= 12  # 5 of 100 are expected


def test_what_changed_is_listed_and_little_else() -> None:
    answers = [listed(8, 0.5, seed) for seed in range(50)]
    changed = {f"measure.osd.thread{number}.cpu_ms_per_op" for number in range(CHANGED)}
    assert sum(changed <= set(names) for names in answers) >= 48
    assert np.mean([len(set(names) - changed) / len(names) for names in answers if names]) < 0.1


def test_a_number_without_scatter_is_listed_from_three_measurements_on() -> None:
    key = ("measure", "rgw", "rss_mib")
    commits = [SimpleNamespace(sha="good"), SimpleNamespace(sha="culprit")]
    session: Any = SimpleNamespace(section=SECTION, commits=commits)
    now: Any = SimpleNamespace(outcome=CULPRIT_FOUND, suspects=[session.commits[1]])
    for blocks, new, rows in ((2, 150.0, 0), (3, 150.0, 1), (3, 101.0, 0), (3, 100.0, 0)):
        session.blocks = [{"sha": "culprit"}] * blocks
        session.values = lambda _, new=new: ({key: 100.0}, {key: new})
        assert len(companions(session, now)) == rows


@pytest.mark.parametrize(("number", "more"), [(12, ""), (30, "18 more numbers changed with it: see bisect.json")])
def test_the_metric_of_the_search_is_not_listed_and_what_is_not_shown_is_counted(number: int, more: str) -> None:
    names = [("measure", f"osd.thread{n}", "cpu_ms_per_op") for n in range(number)]
    values = dict.fromkeys([*names, ("measure", "total", "obj_per_s")], 100.0)
    commits = [SimpleNamespace(sha="good"), SimpleNamespace(sha="culprit")]
    session: Any = SimpleNamespace(section=SECTION, commits=commits)
    session.blocks = [{"sha": "culprit"}] * 3
    session.values = lambda _: (values, dict.fromkeys(values, 150.0))
    now: Any = SimpleNamespace(outcome=CULPRIT_FOUND, suspects=[session.commits[1]])
    rows = companions(session, now)
    assert {row["name"] for row in rows} == {".".join(name) for name in names}
    cells, text = output.changed_numbers(session, now)
    assert (len(cells), text) == (12, more)

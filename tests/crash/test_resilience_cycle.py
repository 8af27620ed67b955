"""`resilience:` on the stand-in cluster: killed in a failure and begun again, a failure refused, and the scorecard."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import pytest
from test_cycle_at_each_call import CycleOnStandIn, url

from cbt_plugins.report.scorecard import refusals
from cbt_plugins.results.summary_numbers import numbers_of

__all__ = ["url"]


class Scorecard(CycleOnStandIn):
    """The cycle."""

    def config(self, url: str) -> Dict[str, Any]:
        config = super().config(url)
        ((_, other),) = config["benchmarks"].items()
        section = {key: other[key] for key in ("s3", "objects", "workers", "fill", "settings", "wait")}
        failures = {
            "node down": {"kind": "stop", "nodes": ["node1"]},
            "two nodes": {"kind": "stop", "nodes": ["node1", "node3"]},
        }
        parts = {"start": "1s", "failure": "2s", "recovery": "2s"}
        section.update(rate="20/s", baseline="2s", parts=parts, failures=failures)
        return {**config, "benchmarks": {"resilience": section}}


@pytest.mark.long
def test_a_run_that_is_killed_in_a_failure_has_its_whole_scorecard(tmp_path: Path, url: str) -> None:
    world = Scorecard(tmp_path / "w", url)
    assert world.play(at=("systemctl stop", "kill")) == -9
    assert world.play() == 0, world.said
    assert world.settle() + world.changes() == []
    (folder,) = world.archive.glob("results/*/id-*")
    assert [path.name for path in folder.glob("phases/*node-down*")] and (folder / "complete").exists()
    card = numbers_of(folder)["scorecard"]
    node, two = card["failures"]
    (score,) = node["scores"]
    assert (score["phase"], score["labels"]) == ("node-down", ["node-down"]) and 3 <= score["seconds"] <= 4
    assert two["scores"] == [] and "inactive" in "".join(refusals(card))

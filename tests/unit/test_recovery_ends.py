"""What looks like the end of a recovery and is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from recovery_times import reasons
from watched_failures import DOWN, FAULT, SETTLED, only, watched

from cbt_plugins.cluster.state_sampler_agent import are_all_clean
from cbt_plugins.cluster_conditions import found_in, is_active, is_clean
from cbt_plugins.faults.pool_settings import COUNT_PGS

STALE = {"pgs": {"active+clean": 39, "stale+active+clean": 10}, "num_pgs": 49}


def test_pgs_whose_osds_are_all_down_are_neither_clean_nor_active(tmp_path: Path) -> None:
    """Ceph goes on to show the state that they had, with the word `stale` in front."""
    samples = watched(tmp_path, DOWN, {"t": 12.0, **STALE}, SETTLED)
    failure = only(samples, FAULT)
    assert failure["outcome"] == "not recovered" and reasons(failure)["clean"].startswith("not until the samples end")
    (seen,) = {(sample.not_clean, sample.inactive, sample.all_copies) for sample in samples.samples[20:]}
    assert seen == (10, 10, False)
    assert found_in(STALE) == {"not-clean": "10 of 49 PGs: 10 stale+active+clean"}


@pytest.mark.parametrize(
    ("state", "active", "clean"),
    [
        ("active+clean", True, True),
        ("active+clean+scrubbing+deep", True, True),
        ("active+undersized+degraded", True, False),
        ("stale+active+clean", False, False),
        ("stale+active+undersized+degraded", False, False),
        ("peering", False, False),
    ],
)
def test_all_who_ask_agree_which_pgs_are_clean(state: str, active: bool, clean: bool) -> None:
    assert (is_active(state), is_clean(state), are_all_clean({state: 3}, 3)) == (active, clean, clean)
    reply = json.dumps({"pg_stats": [{"state": state}] * 3})
    command = [sys.executable, "-c", COUNT_PGS]
    counts = json.loads(subprocess.run(command, input=reply, stdout=subprocess.PIPE, check=True, text=True).stdout)
    assert counts == {"pgs": 3, "not_clean": 0 if clean else 3}

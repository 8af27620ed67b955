"""The recovery profile under an unmodified cbt.py, before and after monitoring became a package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .conftest import Cbt

pytestmark = pytest.mark.upstream

#: answers to what it reads, one a line
CEPH = """\
#!{python} -u
import json, sys
osds = [{{"osd": 0, "up": 1, "in": 1, "up_from": 1}}]
status = {{
    "health": {{"status": "HEALTH_OK", "checks": {{}}}},
    "mgrmap": {{"available": False}},
    "osdmap": {{"epoch": 1, "num_osds": 1, "num_up_osds": 1, "num_in_osds": 1, "osd_up_since": 1}},
    "pgmap": {{"pgs_by_state": [{{"state_name": "active+clean", "count": 4}}], "num_pgs": 4}},
}}
answers = {{"status": status, "osd": {{"epoch": 1, "modified": "2026-11-21T13:56:05.6+0000", "osds": osds}}}}
answers.update(mgr={{"active_name": "x"}}, config=1.0)
for line in sys.stdin:
    print(json.dumps(answers[line.split()[0]]), flush=True)
"""


@pytest.mark.parametrize("tree", ["master", "newest"], indirect=True)
def test_the_recovery_profile_runs_and_its_samples_arrive(cbt: Cbt, tree: Path) -> None:
    (cbt.tmp / "stubs" / "ceph").write_text(CEPH.format(python=sys.executable))
    about, first, *_, last = cbt.watched(tree, "recovery", "recovery.jsonl", interval=0.1, librados=False)
    assert about["via"] == "ceph" and first["pgs"] == {"active+clean": 4} and last["end"] == "told"

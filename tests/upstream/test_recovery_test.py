"""CBT's own recovery test, `recovery_test:` under librbdfio, with our monitoring profiles beside it."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest

from .conftest import Cbt

pytestmark = pytest.mark.upstream

#: A cluster of one PG: degraded after `osd down`, clean two questions later; moving after `osd in`, likewise. Its log
#: is what it was told. It also answers our monitor, which writes its questions into a pipe.
CEPH = """\
#!{python} -u
import json, pathlib, sys
log = pathlib.Path({log!r})
words = [word for word in sys.argv[1:] if not word.startswith("-") and not word.endswith(".conf")]
told = " ".join(words)
status = {{
    "health": {{"status": "HEALTH_OK", "checks": {{}}}},
    "mgrmap": {{"available": False}},
    "osdmap": {{"epoch": 1, "num_osds": 1, "num_up_osds": 1, "num_in_osds": 1, "osd_up_since": 1}},
    "pgmap": {{"pgs_by_state": [{{"state_name": "active+clean", "count": 4}}], "num_pgs": 4}},
}}
osds = [{{"osd": 0, "up": 1, "in": 1, "up_from": 1}}]
answers = {{"status": status, "osd": {{"epoch": 1, "modified": "2026-11-21T13:56:05.6+0000", "osds": osds}}}}
answers.update(mgr={{"active_name": "x"}}, config=1.0)
if not words or words == ["json"]:  # -f json, and the questions come through the pipe; or -s
    if "-s" not in sys.argv:
        for line in sys.stdin:
            print(json.dumps(answers[line.split()[0]]), flush=True)
        sys.exit()
with log.open("a") as out:
    out.write((told or "-s") + "\\n")
lines = log.read_text().splitlines()
if told == "health":
    down = max(i for i, line in enumerate(lines) if line.startswith("osd down"))
    print("HEALTH_OK" if lines[down:].count("health") > 2 else "HEALTH_WARN 1 pg degraded")
elif "--format=json" in sys.argv:
    print(json.dumps(dict(status, pgmap=dict(status["pgmap"], degraded_objects=3, degraded_total=9))))
elif "-s" in sys.argv:
    back = max(i for i, line in enumerate(lines) if line.startswith("osd in"))
    print("ok" if lines[back:].count("-s") > 2 else "5/9 objects misplaced")
"""
#: writes until it is interrupted, which is what CBT's test does at its end
FIO = """\
#!/bin/sh
for i in $(seq 600); do
  grep -q "sudo killall -2 fio" {log} && break
  sleep 0.1
done
printf 'Starting 1 process\\n{{"jobs": []}}\\n\\n'
"""


@pytest.mark.parametrize("tree", ["master", "newest"], indirect=True)
def test_cbts_own_recovery_test_comes_to_its_end_beside_our_monitors(cbt: Cbt, tree: Path) -> None:
    stubs, told, here = cbt.tmp / "stubs", cbt.tmp / "told", socket.gethostname()
    (stubs / "pdsh").write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    (stubs / "ceph").write_text(CEPH.format(python=sys.executable, log=str(told)))
    (stubs / "fio").write_text(FIO.format(log=cbt.stub_log))
    (stubs / "fio").chmod(0o755)
    config = cbt.config(
        {
            "librbdfio": {
                "cmd_path": str(stubs / "fio"),
                "no_sudo": True,
                "use_existing_volumes": True,
                "idle_monitor_sleep": 0,
                "wait_pgautoscaler_timeout": 0,
                "op_size": 4096,
            }
        },
        profiles={
            "recovery": {"interval": 0.2, "librados": False},
            "resources": {"interval": 0.2},
        },
        iterations=1,
        tmp_dir=str(cbt.tmp / "node"),
        health_wait=0,
        ceph_cmd=str(stubs / "ceph"),
        recovery_test={"osds": [0], "pre_time": 0, "post_time": 0},
        head=here,
        clients=[here],
        osds=[here],
        mons=[here],
    )
    outcome = cbt.cbt(tree, config)
    assert outcome.status == 0, outcome.output
    changes = [line for line in told.read_text().splitlines() if line.startswith("osd ")]
    assert changes == ["osd set noup", "osd down 0", "osd out 0", "osd unset noup", "osd up 0", "osd in 0"]
    (log,) = outcome.runs()[0].rglob("recovery.log*")
    assert "Done.  Calling parent callback function." in log.read_text()
    watched = max(outcome.runs()[0].rglob("recovery.jsonl"), key=lambda path: path.stat().st_size)
    about, *_, last = [json.loads(line) for line in watched.read_text().splitlines()]
    assert about["via"] == "ceph" and last["end"] == "told"

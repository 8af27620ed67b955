"""Monitor `backlog`: what its agent asks RGW, and what a phase says of its garbage and its sync."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

import pytest
from counters_archive import T0, archive, made_of

from cbt_plugins.monitors import backlog_agent
from cbt_plugins.monitors.backlog import Backlog
from cbt_plugins.monitors.perf_counters import PerfCounters
from cbt_plugins.results.nodes.perf_counters import counter_rows, counter_warnings

#: a part of `radosgw-admin sync status`, as 20.2 prints it
ZONE_BEHIND = """\
      data sync source: a14ebf6d-97b9-4ac6-8ce6-fcae612b9d48 (z2)
                        syncing
                        full sync: 0/128 shards
                        incremental sync: 128/128 shards
                        data is behind on 4 shards
                        behind shards: [13,14,15,16]
                        3 shards are recovering
                        recovering shards: [13,15,17]"""


def test_the_backlog_is_asked_with_the_files_command(tmp_path: Path) -> None:
    admin = tmp_path / "radosgw-admin"
    admin.write_text(
        """#!/bin/sh
case "$1" in
  gc) printf '[\\n  {\\n "tag": "1",\\n "objs": []\\n },\\n {\\n "tag": "2"\\n }\\n]\\n' ;;
  reshard) echo '[{"bucket_name": "b"}, {"bucket_name": "a"}, {"bucket_name": "b"}]' ;;
  sync) echo 'data is behind on 3 shards' ;;
esac
"""
    )
    admin.chmod(0o755)
    assert backlog_agent.sample(str(admin), True) == {"gc": 2, "reshard": ["a", "b"], "sync": 3}
    admin.write_text("#!/bin/sh\necho '[]'\n")
    assert backlog_agent.sample(str(admin), False) == {"gc": 0, "reshard": []}
    admin.write_text("#!/bin/sh\nexit 1\n")
    assert backlog_agent.sample(str(admin), False) == {}
    cluster = {"head": "h", "radosgw-admin_cmd": "podman exec r radosgw-admin", "osds": ["o1"], "rgws": ["r1"]}
    its = Backlog({"interval": 5}, cluster, {})
    assert json.loads(its.argument()) == {"admin": "podman exec r radosgw-admin -c /etc/ceph/ceph.conf", "interval": 5}
    assert its.nodes == ["h"] and PerfCounters({}, cluster, {}).nodes == ["o1", "r1"]
    assert Backlog({"nodes": ["rgws", "osds"]}, cluster, {}).nodes == ["r1"]
    with pytest.raises(ValueError, match="backlog: no node from which the cluster can be asked; check nodes:"):
        Backlog({"nodes": "mgrs"}, cluster, {})


def test_garbage_that_cannot_be_listed_in_time_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = tmp_path / "radosgw-admin"
    slow = """gc) echo '['; echo '  {  "tag": "1",'; exec sleep 60 ;;"""
    admin.write_text(f'#!/bin/sh\ncase "$1" in {slow} esac\necho "[]"\n')
    admin.chmod(0o755)
    monkeypatch.setattr(backlog_agent, "LIMITED", "timeout --foreground -k 1 0.5 ")
    assert backlog_agent.sample(str(admin), False) == {"gc": None, "reshard": []}


def test_garbage_that_was_not_counted_at_the_end_is_not_known(tmp_path: Path) -> None:
    looks: List[Dict[str, Any]] = [{"version": 1, "t": T0}]
    looks += [{"t": T0 - 5, "s": 1.0, "gc": 10}, {"t": T0 + 60, "s": 90.0, "gc": 400, "sync": 2}]
    looks += [{"t": T0 + 600 * i, "s": 121.0, "gc": None} for i in (1, 2, 3)]
    made = made_of(archive(tmp_path, {"backlog.n0/backlog.jsonl": looks}), (0.0, 1700.0))
    assert made["phases"]["x"]["backlog"]["gc"] == [10, None] and made["phases"]["x"]["backlog"]["sync"] == [2, None]
    (warning,) = counter_warnings(made)
    assert warning["code"] == "garbage-unknown"
    assert warning["text"] == "RGW's garbage was 10 entries at the start, and could not be counted at the end"
    rows = {row[0]: row[1:] for row in counter_rows(made)}
    assert rows["garbage entries"] == ["", "10 → -"]
    assert made_of(tmp_path, (7200.0, 9000.0)) == {"phases": {}}  # the looks are too old
    again = made_of(tmp_path, (0.0, 61.0))  # one look that failed is not the end of it
    assert again["phases"]["x"]["backlog"]["gc"] == [10, 400]
    late = made_of(tmp_path, (700.0, 1700.0))
    assert late["phases"]["x"]["backlog"]["gc"] == [None, None]
    (warning,) = counter_warnings(late)
    assert warning["text"] == "RGW's garbage could not be counted"


@pytest.mark.parametrize(
    ("text", "shards"),
    [
        ("metadata is caught up with master\n data is caught up with source", 0),
        ("metadata sync syncing\n metadata is behind on 2 shards\n behind shards: [3,4]\n" + ZONE_BEHIND, 2 + 5),
        ("metadata sync no sync (zone is master)\n data sync source: a (z2)\n data is behind on 12 shards", 12),
        (ZONE_BEHIND + "\n source: b (z3)\n data is caught up with source", 5),
        ("data sync source: a (z2)\n 3 shards are recovering\n recovering shards: [60,62,63]", 3),
        ("realm  ()", None),
    ],
)
def test_sync_status(text: str, shards: Any) -> None:
    assert backlog_agent.behind(text) == shards

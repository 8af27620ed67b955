"""RGWs of the load that `resources` did not watch, although it watched others."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Sequence

import pytest

from cbt_plugins.results.nodes.node_samples import DaemonSamples, NodeSamples
from cbt_plugins.results.nodes.unwatched_osds import unwatched_gateways


@pytest.mark.parametrize(
    ("gateways", "watched", "unwatched"),
    [
        (["a rgw1", "b rgw2", "c rgw3"], ["rgw1 a", "rgw2 b"], 0),
        (["a rgw1", "b rgw2", "c rgw3"], ["rgw1 rgw.a", "rgw3 rgw.c"], 1),  # started as client.rgw.a
        (["a rgw1", "b rgw2", "c rgw3"], ["rgw1 a"], 1),
        (["a rgw1", "b rgw2", "c rgw3"], ["rgw1 a", "rgw3 c"], 1),  # c is idle
        (["a rgw1", "b rgw2", "c rgw3"], ["rgw1 a", "rgw2 new"], 0),  # b may have got another name since
        (["a rgw1", "a rgw2"], ["rgw1 a", "rgw2 a"], 0),
        (["a rgw1", "a rgw2"], ["rgw1 a"], 1),
        (["a rgw1", "b rgw2", "a rgw3"], ["rgw2 b", "rgw3 a"], 1),  # the a of rgw3 is idle
        (["a rgw1", "a rgw1", "b rgw2"], ["rgw1 a", "rgw2 b"], 0),  # restarted less than a minute ago
        (["a rgw1", "b rgw2"], [], 0),
    ],
)
def test_a_gateway_of_the_load_without_samples_counts(
    tmp_path: Path, gateways: Sequence[str], watched: Sequence[str], unwatched: int
) -> None:
    """`gateways`: ID and host; `watched`: node and ID. The endpoints are rgw1 and rgw2."""
    rows = {
        str(gid): {"addr": f"10.0.0.{host[-1]}:0/{gid}", "metadata": {"id": id, "hostname": f"{host}.example"}}
        for gid, (id, host) in enumerate(text.split() for text in gateways)
    }
    status = tmp_path / "cluster" / "before" / "status.json"
    status.parent.mkdir(parents=True)
    status.write_text(json.dumps({"servicemap": {"services": {"rgw": {"daemons": {"summary": "", **rows}}}}}))
    nodes = [
        NodeSamples(node, daemons=[DaemonSamples("rgw", id, 1, True), DaemonSamples("osd", id, 2, True)])
        for node, id in (text.split() for text in watched)
    ]
    assert unwatched_gateways(tmp_path, ["http://rgw1:7480", "http://10.0.0.2:7480"], nodes) == unwatched


@pytest.mark.parametrize(
    ("gateways", "unwatched"),
    [
        (["pod1 09:00:00", "pod2 11:59:30"], 0),
        (["pod1 09:00:00", "pod2 11:58:30"], 1),  # the first one would be gone
        (["pod1 09:00:00", "pod2 09:00:00", "pod3 11:59:30"], 1),
        (["pod1 11:59:30", "pod2 11:59:30"], 1),  # both are new
        (["pod1 09:00:00", "pod1 11:59:30", "pod2 09:00:00"], 1),  # restarted on its host
        (["pod1 09:00:00", "pod2 now"], 1),
    ],
)
def test_a_gateway_that_moved_within_the_last_minute_counts_once(
    tmp_path: Path, gateways: Sequence[str], unwatched: int
) -> None:
    """As on Rook, where the pods of a deployment have one ID, and one of them is watched. The run begins at 12:00."""
    rows = {}
    for gid, (host, begin) in enumerate(text.split() for text in gateways):
        stamp = {"start_stamp": f"2026-11-22T{begin}.486582+0000", "addr": f"10.0.0.{gid}:0/1"}
        rows[str(gid)] = {**stamp, "metadata": {"id": "a", "hostname": host}}
    status = tmp_path / "cluster" / "before" / "status.json"
    status.parent.mkdir(parents=True)
    status.write_text(json.dumps({"servicemap": {"services": {"rgw": {"daemons": {"summary": "", **rows}}}}}))
    begin_of_run = datetime(2026, 11, 22, 12, tzinfo=timezone.utc).timestamp()
    (tmp_path / "events.jsonl").write_text(json.dumps({"t": begin_of_run, "event": "run-begun"}) + "\n")
    nodes = [NodeSamples("node1", daemons=[DaemonSamples("rgw", "a", 1, True)])]
    assert unwatched_gateways(tmp_path, ["http://service:80"], nodes) == unwatched

"""The resources monitor: its section, and what its agent makes of what it reads."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest

from cbt_plugins.cluster import state_sampler_agent, state_sampler_maps, state_sampler_sources
from cbt_plugins.config import plugins
from cbt_plugins.config.key_errors import validate
from cbt_plugins.load import client_agent, generator_process, hsbench_agent
from cbt_plugins.monitors import backlog_agent, node_daemons, numbered_output, perf_counters_agent, resources_agent
from cbt_plugins.monitors.resources import Resources
from cbt_plugins.run import bucket_agent

CLUSTER: Dict[str, Any] = {"head": "n", "clients": ["n"], "osds": ["n"], "mons": ["n"]}


def test_the_last_sample_of_a_long_run_is_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples are rarer then: from the one before the last up to ten times as many seconds may have passed."""
    asked: List[float] = []
    sampler = type("Sampler", (), {"samples": 0, "begin": lambda *its: None, "line": lambda *its: None})()

    def sample(due: float, last: bool = False) -> None:
        asked.append(due)
        sampler.samples += 1

    sampler.sample = sample
    monkeypatch.setattr(resources_agent, "FINE", 1)
    monkeypatch.setattr(resources_agent, "NodeSampler", lambda: sampler)
    monkeypatch.setattr(resources_agent.select, "select", lambda *its: ([0] if len(asked) == 2 else [], [], []))
    monkeypatch.setattr(resources_agent.os, "read", lambda *its: b"")
    resources_agent.main(1.0)
    assert asked == [1.0, 10.0, 10.0]


@pytest.mark.parametrize(
    ("name", "words", "its"),
    [
        ("ceph-osd", "-f --cluster ceph --id 12 --setuser ceph --setgroup ceph", ("osd", "12")),
        ("ceph-osd", "-n osd.3 -f --setuser ceph --default-log-to-file=false", ("osd", "3")),
        ("ceph-osd", "-i 7 --pid-file /run/ceph/osd.7.pid", ("osd", "7")),
        ("ceph-osd", "--name=osd.41 -f", ("osd", "41")),
        ("radosgw", "-n client.rgw.zone.node1.abcdef -f", ("rgw", "rgw.zone.node1.abcdef")),
        ("radosgw", "-n client.rgw2 --pid-file /run/x", ("rgw", "rgw2")),
        ("ceph-mon", "-n mon.node1 -f", ("mon", "node1")),
        ("ceph-mgr", "-i x", ("mgr", "x")),
        ("ceph-mds", "--id=fs.a", ("mds", "fs.a")),
        ("ceph-mds", "", ("mds", "")),
        ("ceph-mon", "-f -i", ("mon", "")),
        ("warp", "get --host x", ("generator", "warp")),
        ("rados", "-p rbd bench 10 write", ("generator", "rados")),
        ("rados", "-p rbd ls", None),
        ("conmon", "--name osd.3", None),
        ("docker-init", "-- /usr/bin/ceph-osd -n osd.3", None),
    ],
)
def test_what_a_daemon_is(name: str, words: str, its: Optional[Tuple[str, str]]) -> None:
    assert node_daemons.recognize(name, words.split()) == its


def test_a_name_with_brackets_is_no_trap() -> None:
    stat = b"12 (a) 7 (b)) S 1 12 12 0 -1 4194304 0 0 0 0 33 44 0 0 20 0 9 0 555 1000 77 0\n"
    fields = node_daemons.fields(stat)
    positions = ("UTIME", "STIME", "NUM_THREADS", "START_TIME", "RSS")
    assert tuple(fields[getattr(node_daemons, name)] for name in positions) == (b"33", b"44", b"9", b"555", b"77")


def test_only_new_processes_are_looked_at_between_two_looks_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: List[int] = []
    processes = node_daemons.Processes(os.getpid())
    monkeypatch.setattr(processes, "process_of", lambda pid, mine: asked.append(pid))
    there = ["1", "2", "self", "3"]
    gone = type("Gone", (), {"pid": 9, "since": 0, "close": lambda self: None})
    monkeypatch.setattr(resources_agent.os, "listdir", lambda path: list(there))

    def scan(now: float) -> List[int]:
        asked.clear()
        processes.scan(now)
        return sorted(asked)

    assert scan(100.0) == [1, 2, 3]
    there.append("4")
    assert scan(101.0) == [4]
    assert scan(102.0) == [4]  # what was new may have become something else
    assert scan(103.0) == []
    assert scan(130.0) == []
    there.append("5")
    assert scan(135.0) == []  # in ten seconds
    assert scan(140.0) == [5]
    assert scan(401.0) == [1, 2, 3, 4, 5]
    processes.watched[0] = gone()
    there.append("6")
    assert scan(403.0) == []
    processes.gone(0, 403.0)
    assert scan(404.0) == [6]  # it may come back
    assert 0 not in processes.watched


@pytest.mark.parametrize(
    "program",
    [
        client_agent,
        backlog_agent,
        bucket_agent,
        generator_process,
        hsbench_agent,
        perf_counters_agent,
        node_daemons,
        numbered_output,
        resources_agent,
        state_sampler_agent,
        state_sampler_maps,
        state_sampler_sources,
    ],
)
def test_programs_for_nodes_are_ones_for_old_pythons(program: Any) -> None:
    ast.parse(Path(program.__file__).read_text(), feature_version=(3, 6))


@pytest.mark.parametrize(
    ("profile", "text"),
    [
        ({"intervall": 1}, "unknown key; did you mean"),
        ({"interval": 0}, "at least 0.1"),
        ({"interval": "1s"}, "must be a number"),
        ({"nodes": 3}, "must be"),
    ],
)
def test_faults_of_the_resources_profile(profile: Dict[str, Any], text: str) -> None:
    (fault, *_) = validate(Resources.Section, profile)[1]
    assert text in fault.text
    with pytest.raises(ValueError, match="monitoring_profiles: resources: "):
        Resources(profile, CLUSTER, {})


def test_every_node_is_watched_by_default() -> None:
    cluster = {"head": "h", "clients": ["c"], "osds": ["o1", "o2"], "mons": ["h"], "rgws": ["r"], "mgrs": ["g"]}
    assert Resources({}, cluster, {}).nodes == ["c", "o1", "o2", "h", "r", "g"]
    assert Resources({"nodes": ["osds"]}, cluster, {}).nodes == ["o1", "o2"]
    assert Resources({"nodes": "rgws"}, cluster, {}).nodes == ["r"]
    assert plugins.loaders(plugins.MONITORS)["resources"]() is Resources
    assert tuple(Resources.Section().nodes) == Resources.DEFAULT_NODES


def test_counters_that_begin_anew_count_from_zero() -> None:
    last: Dict[int, Any] = {}
    assert resources_agent.difference(last, 3, [10, 500]) == []  # the first reading says nothing
    assert resources_agent.difference(last, 3, [10, 500]) == []
    assert resources_agent.difference(last, 3, [14, 20]) == [[3, 4, 20]]


def test_addresses_of_an_interface() -> None:
    assert "127.0.0.1/8" in resources_agent.addresses("lo")
    assert resources_agent.addresses("nothing0") == []

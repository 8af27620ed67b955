"""Memory limits of cgroups and OOM kills: what the agent of `resources` reads."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest

from cbt_plugins.monitors import node_daemons, resources_agent

PROCESSES = {7: SimpleNamespace(pid=41)}
#: in the form of the kernel's admin-guide/cgroup-v2
EVENTS = "low 0\nhigh 0\nmax 12\noom 1\noom_kill {}\noom_group_kill 0\n"
STAT_V2 = "anon {}\nfile 271794176\nkernel 2289664\nkernel_stack 262144\nsock 0\nshmem 1048576\nfile_mapped 12288\n"
#: recorded on Linux 6.18 with cgroup v1
NO_LIMIT_V1 = "9223372036854771712\n"
OOM_CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
STAT_V1 = "cache 0\nrss 10477568\nhierarchical_memory_limit 67108864\ntotal_rss {}\ntotal_shmem 1048576\n"
V1, V2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Dict[str, str]:
    """The files of a node, by their paths."""
    texts: Dict[str, str] = {}
    monkeypatch.setattr(node_daemons, "read", lambda path: texts[path].encode() if path in texts else None)
    return texts


def group_v2(folder: str, limit: str, anon: int, kills: int = 0) -> Dict[str, str]:
    contents = {"memory.max": f"{limit}\n", "memory.events": EVENTS.format(kills), "memory.stat": STAT_V2.format(anon)}
    return {f"{V2}{folder}/{name}": content for name, content in contents.items()}


def group_v1(folder: str, limit: str, rss: int, kills: int = 0) -> Dict[str, str]:
    names = ("memory.limit_in_bytes", "memory.oom_control", "memory.stat")
    contents = (f"{limit}\n", OOM_CONTROL.format(kills), STAT_V1.format(rss))
    return {f"{V1}{folder}/{name}": content for name, content in zip(names, contents)}


def test_the_limit_of_a_service_on_cgroup_v2(files: Dict[str, str]) -> None:
    files["/proc/41/cgroup"] = "0::/system.slice/ceph-osd@3.service\n"
    files.update(group_v2("/system.slice/ceph-osd@3.service", "536870912", 511 << 20))
    files.update(group_v2("/system.slice", "max", 1 << 40, kills=3))
    limits = node_daemons.MemoryLimits()
    assert limits.rows(PROCESSES) == [[7, 524288, 524288, 0]]  # anon and shmem: its page cache can be taken back
    files.update(group_v2("/system.slice/ceph-osd@3.service", "536870912", 0, kills=2))
    files.update(group_v2("/system.slice", "max", 0, kills=5))
    assert limits.rows(PROCESSES) == [[7, 524288, 1024, 2]]
    assert limits.rows(PROCESSES) == [[7, 524288, 1024, 0]]  # those since the call before


def test_the_limit_of_a_pod_is_the_root_that_it_sees(files: Dict[str, str]) -> None:
    files["/proc/41/cgroup"] = "0::/\n"
    files.update(group_v2("", "4294967296", 1 << 30))
    assert node_daemons.MemoryLimits().rows(PROCESSES) == [[7, 4 << 20, 1025 << 10, 0]]


def test_the_limit_that_is_used_most_counts(files: Dict[str, str]) -> None:
    files["/proc/41/cgroup"] = "0::/ceph.slice/osd\n"
    files.update(group_v2("/ceph.slice/osd", str(4 << 30), 1 << 30))
    files.update(group_v2("/ceph.slice", str(8 << 30), 7 << 30))
    assert node_daemons.MemoryLimits().rows(PROCESSES) == [[7, 8 << 20, (7 << 20) + 1024, 0]]


def test_the_limit_of_a_container_on_cgroup_v1(files: Dict[str, str]) -> None:
    """Without a namespace of its own, it has the path of its machine, and its cgroup where the root would be."""
    files["/proc/41/cgroup"] = "5:cpu,cpuacct:/kubepods/pod1/a\n4:memory:/kubepods/pod1/a\n0::/\n"
    files.update(group_v1("", "67108864", 47 << 20))
    limits = node_daemons.MemoryLimits()
    assert limits.rows(PROCESSES) == [[7, 65536, 48 << 10, 0]]
    files.update(group_v1("", "67108864", 47 << 20, kills=1))
    assert limits.rows(PROCESSES) == [[7, 65536, 48 << 10, 1]]


def test_without_a_limit_there_are_only_kills(files: Dict[str, str]) -> None:
    files["/proc/41/cgroup"] = "4:memory:/system.slice/ceph-osd@3.service\n"
    files.update(group_v1("/system.slice/ceph-osd@3.service", NO_LIMIT_V1, 1 << 30))
    files.update(group_v1("", NO_LIMIT_V1, 1 << 34))
    limits = node_daemons.MemoryLimits()
    assert limits.rows(PROCESSES) == []
    files.update(group_v1("/system.slice/ceph-osd@3.service", NO_LIMIT_V1, 0, kills=1))
    assert limits.rows(PROCESSES) == [[7, 0, 0, 1]]
    del files["/proc/41/cgroup"]
    assert node_daemons.MemoryLimits().rows(PROCESSES) == []


def test_a_cgroup_that_outlives_a_process_knows_whether_it_was_killed(
    files: Dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    inodes: List[int] = [1]
    monkeypatch.setattr(node_daemons, "inode_of", lambda path: inodes[0])
    for pid in (41, 42):
        files[f"/proc/{pid}/cgroup"] = "0::/osd\n"
    files.update(group_v2("/osd", "max", 0, kills=3))
    both, second = {**PROCESSES, 8: SimpleNamespace(pid=42)}, {8: SimpleNamespace(pid=42)}
    limits = node_daemons.MemoryLimits()
    assert limits.rows(PROCESSES) == []
    assert limits.rows({}) == [[7, 0, 0, 0]]  # it ended, and not by a kill
    limits.rows(PROCESSES)
    files.update(group_v2("/osd", "max", 0, kills=4))
    assert limits.rows(second) == [[7, 0, 0, 1]]  # the next one was not there before the kill
    limits.rows(both)
    inodes[0] = 2  # a new cgroup of the same name
    files.update(group_v2("/osd", "max", 0))
    assert limits.rows({}) == []


def test_a_cgroup_above_knows_it_with_v2_only(files: Dict[str, str]) -> None:
    files["/proc/41/cgroup"] = "0::/ceph.slice/osd\n"
    files.update({**group_v2("/ceph.slice/osd", "max", 0), **group_v2("/ceph.slice", "max", 0)})
    limits = node_daemons.MemoryLimits()
    limits.rows(PROCESSES)
    del files[f"{V2}/ceph.slice/osd/memory.max"]
    files.update(group_v2("/ceph.slice", "max", 0, kills=1))
    assert limits.rows({}) == [[7, 0, 0, 1]]
    files["/proc/41/cgroup"] = "4:memory:/ceph.slice/osd\n"
    files.update({**group_v1("/ceph.slice/osd", NO_LIMIT_V1, 0), **group_v1("/ceph.slice", NO_LIMIT_V1, 0)})
    limits.rows(PROCESSES)
    del files[f"{V1}/ceph.slice/osd/memory.limit_in_bytes"]
    assert limits.rows({}) == []


def test_the_kills_of_a_cgroup_above_are_counted_once(files: Dict[str, str]) -> None:
    """Four of five daemons end at once, one by a signal; the other one lives in a cgroup that has a kill, too."""
    processes = {number: SimpleNamespace(pid=40 + number) for number in range(1, 6)}
    for number in processes:
        files[f"/proc/{40 + number}/cgroup"] = f"0::/ceph.slice/osd{number}\n"
        files.update(group_v2(f"/ceph.slice/osd{number}", "max", 0))
    files.update(group_v2("/ceph.slice", "max", 0))
    limits = node_daemons.MemoryLimits()
    limits.rows(processes)
    for number in (1, 2, 3):
        del files[f"{V2}/ceph.slice/osd{number}/memory.max"]
    files.update(group_v2("/ceph.slice/osd4", "max", 0, kills=2))  # its cgroup outlives it
    files.update(group_v2("/ceph.slice/osd5", "max", 0, kills=1))
    files.update(group_v2("/ceph.slice", "max", 0, kills=5))
    rows = limits.rows({5: processes[5]})
    assert sorted(rows) == [[1, 0, 0, 1], [2, 0, 0, 1], [3, 0, 0, 0], [4, 0, 0, 2], [5, 0, 0, 1]]


def test_the_kills_of_the_machine_are_in_each_sample(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    no_processes = SimpleNamespace(watched={}, scan=lambda now: {})
    monkeypatch.setattr(resources_agent, "Processes", lambda me: no_processes)
    sampler = resources_agent.NodeSampler()
    counters: Dict[bytes, bytes] = {b"oom_kill": b"3"}
    monkeypatch.setattr(resources_agent, "counters_of", lambda path: counters)
    sampler.begin(1.0)
    sampler.sample(1.0)
    counters[b"oom_kill"] = b"4"
    sampler.sample(1.0)
    del counters[b"oom_kill"]  # before Linux 4.13
    sampler.sample(1.0)
    samples = [line for line in map(json.loads, capfd.readouterr().out.splitlines()) if "s" in line]
    assert [line.get("o") for line in samples] == [3, 4, None]

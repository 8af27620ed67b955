"""What holds for a CBT file as a whole: its sections, the keys that CBT reads there, and that it runs anything."""

from __future__ import annotations

from typing import AbstractSet, Any, Dict, FrozenSet, Iterator, List, Mapping, Set

from cbt_plugins.config import plugins
from cbt_plugins.config.errors import ErrorAt, Path, near_miss
from cbt_plugins.config.yaml_source import YamlSource
from cbt_plugins.inventory import ROLES

_NEEDED = ("cluster", "benchmarks")
_SECTIONS = frozenset(
    [*_NEEDED, "common", "client_endpoints", "monitoring_profiles", "report", "campaign", "bisect", "pr"]
)
_COMMON = frozenset({"pdsh_cmd", "pdsh_ssh_args", "pdcp_cmd", "rpdcp_cmd", "scp_cmd"})
#: programs and folders of `cluster:`, in any of CBT's versions
_PROGRAMS = (
    *("ceph", "ceph-authtool", "ceph-fuse", "ceph-mds", "ceph-mgr", "ceph-mon", "ceph-osd", "ceph-rgw", "ceph-run"),
    *("mount", "rados", "radosgw-admin", "rbd", "rbd-fuse", "rbd-nbd"),
)
_CLUSTER = frozenset(
    [
        *ROLES,
        *(f"{program}_cmd" for program in _PROGRAMS),
        *(f"{prefix}_dir" for prefix in ("archive", "core", "log", "mnt", "osd", "pid", "run", "tmp")),
        *(f"{prefix}_profiles" for prefix in ("crush", "erasure", "pool")),
        *(f"{prefix}_valgrind" for prefix in ("mgr", "mon", "osd", "rgw")),
        *("auth_urls", "ceph", "ceph.conf", "cephfs_pools", "clusterid", "conf_file", "crimson_cpusets"),
        *("disable_balancer", "disabled_features", "fs", "health_wait", "idle_duration", "init_estimate_secs"),
        *("is_teuthology", "iterations", "kubernetes", "mkfs_opts", "mount_opts", "newstore_block", "osd_online_rate"),
        *("osd_online_timeout", "osd_parallel_creates", "osd_ra", "osds_per_node", "pdsh_ssh_args"),
        *("rebuild_every_test", "recovery_test", "rgw_pools", "tiering", "tmp_conf", "transport", "urls"),
        *("use_existing", "user", "version_compat"),
    ]
)
#: profiles of CBT's own, in any of its versions
_PROFILES = frozenset({"blktrace", "collectl", "osd_perf", "osd_top", "perf", "top"})


def is_ours(source: YamlSource) -> bool:
    """Return whether a file has a benchmark or a monitor that is no part of CBT; it is CBT's own affair otherwise."""
    return any(
        name in plugins.references(group)
        for section, group in (("benchmarks", plugins.BENCHMARKS), ("monitoring_profiles", plugins.MONITORS))
        for name in _names(source, section)
    )


def _names(source: YamlSource, section: str) -> Iterator[Any]:
    """Yield the names in a section, be it misspelt."""
    for key, value in source.data.items() if isinstance(source.data, dict) else ():
        if isinstance(key, str) and isinstance(value, dict) and near_miss(key, [section]):
            yield from value


def errors_of_sections(source: YamlSource) -> List[ErrorAt]:
    """Return the sections that miss at the top of a file, and those that are misspelt."""
    if not isinstance(source.data, dict):
        description = "empty" if source.data is None else "not a CBT file"
        return [source.error_at((), f"{description}: needs the sections `cluster:` and `benchmarks:`")]
    if "events" in source.data and not source.data.get("benchmarks"):
        text = "a fault file: name it in a CBT file, under monitoring_profiles: {faults: {file: PATH}}, "
        text += "or in a phase of warp:, as events: {file: PATH}"
        return [source.error_at(("events",), text, of_key=True)]
    meant: Dict[str, str] = {}
    errors = list(_misspelt(source, (), _SECTIONS, meant))
    for name in _NEEDED if is_ours(source) else ("benchmarks",):
        if name in meant.values():
            continue
        if not source.data.get(name):
            errors.append(source.error_at((name,), "the section is missing or empty"))
        elif not isinstance(source.data[name], dict):
            hint = ", not a list: remove the - before its keys" if isinstance(source.data[name], list) else ""
            errors.append(source.error_at((name,), f"must be a mapping (key: value){hint}"))
    return errors


def misspelt_keys(source: YamlSource, meant: Dict[str, str]) -> Iterator[ErrorAt]:
    """Yield the near misses of keys that CBT, or we, read; others it may know since a newer version.

    `meant` gets key -> what it should be, for those of `cluster:`.
    """
    yield from _misspelt(source, ("cluster",), _CLUSTER, meant)
    yield from _misspelt(source, ("common",), _COMMON, {})
    yield from _misspelt(source, ("monitoring_profiles",), _monitors(), {})


def _monitors() -> FrozenSet[str]:
    return frozenset([*_PROFILES, *plugins.names(plugins.MONITORS)])


def unknown_keys(source: YamlSource) -> Iterator[ErrorAt]:
    """Yield the keys at the top and of `cluster:`, and the monitors, that neither we know nor any version of CBT."""
    named = {key for key in _watched(source.data.get("monitoring_profiles")) if isinstance(key, str)}
    for path, keys in (((), _SECTIONS), (("cluster",), _CLUSTER | named)):
        data = source.data if not path else source.data.get(path[0])
        for key in data if isinstance(data, dict) else ():
            if isinstance(key, str) and key not in keys:
                yield source.error_at((*path, key), "unknown key: it has no effect; remove it", of_key=True)
    yield from unknown_monitors(source, _monitors())


def unknown_monitors(source: YamlSource, names: AbstractSet[str]) -> Iterator[ErrorAt]:
    """Yield an error for each monitor of a file that is not one of `names`."""
    profiles = source.data.get("monitoring_profiles")
    for name in profiles if isinstance(profiles, dict) else ():
        if isinstance(name, str) and name not in names:
            text = f"unknown monitor; there is {', '.join(sorted(names))}"
            yield source.error_at(("monitoring_profiles", name), text, of_key=True)


def _watched(profiles: Any) -> Iterator[Any]:
    """Yield the keys of `cluster:` that monitors watch, whatever they are called."""
    for profile in profiles.values() if isinstance(profiles, dict) else ():
        nodes = profile.get("nodes") if isinstance(profile, dict) else None
        yield from [nodes] if isinstance(nodes, str) else filter(None, nodes if isinstance(nodes, list) else ())


def _misspelt(source: YamlSource, path: Path, keys: FrozenSet[str], meant: Dict[str, str]) -> Iterator[ErrorAt]:
    data = source.data if not path else source.data.get(path[0])
    given: Set[Any] = set(data) if isinstance(data, dict) else set()
    for key in data if given else ():
        near = near_miss(key, keys - given) if isinstance(key, str) and key not in keys else None
        if near:
            meant[key] = near
            yield source.error_at((*path, key), f"unknown key; did you mean {near!r}?", of_key=True)


def ignored_recovery_test(source: YamlSource) -> Iterator[ErrorAt]:
    """Yield an error for `cluster: recovery_test:` in a file with benchmarks of plug-ins."""
    benchmarks, cluster = source.data.get("benchmarks"), source.data.get("cluster")
    names = benchmarks if isinstance(benchmarks, dict) else ()
    ours = [name for name in names if name in plugins.references(plugins.BENCHMARKS)]
    if ours and isinstance(cluster, dict) and "recovery_test" in cluster:
        text = f"has no effect on {', '.join(ours)}: only CBT's own benchmarks do this; use `events:` with a fault of "
        yield source.error_at(("cluster", "recovery_test"), f"{text}`kind: mark`", of_key=True)


def nothing_to_run(source: YamlSource, others: Mapping[str, Any]) -> Iterator[ErrorAt]:
    """Yield the reasons why CBT would make no run of the sections that we do not check."""
    cluster = source.data["cluster"]
    iterations = cluster.get("iterations", 0)
    if not isinstance(iterations, int) or iterations < 1:
        text = "nothing to run (CBT's default is 0); set it to 1 or more"
        yield source.error_at(("cluster", "iterations"), text)
    for name, section in others.items():
        if not isinstance(section, dict):
            yield source.error_at(("benchmarks", name), "must be a mapping; write {} for the defaults")
            continue
        for key, value in section.items():
            if value == [] and key != "acceptable":
                text = "empty list, nothing to run: fill it or remove the key"
                yield source.error_at(("benchmarks", name, key), text)

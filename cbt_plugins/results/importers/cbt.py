"""What CBT writes down of a run of one of its own benchmarks: benchmark_config.yaml and cbt_config.yaml as keys of a
record.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Tuple

from cbt_plugins.inventory import nodes_of

Pairs = Iterator[Tuple[str, Any]]

_WORDS = """
    acceptable bucket_prefix client_endpoints cmd_path data_pool_profile idle_monitor_sleep iteration log_bw
    log_iops log_lat log_avg_msec logging no_sudo object_prefix object_set_id pool_profile poolname rbdname
    recov_pool_name recov_pool_profile target_pool use_existing_volumes valgrind
"""
#: of a benchmark: it differs between labs and names, and does not change what is measured
_NAMES = frozenset(_WORDS.split())
#: CBT's name -> ours
_LOAD = {"iodepth": "queue_depth", "concurrent_ops": "queue_depth", "bs": "op_size"}
_OBJECTS = {"buckets": "objects.buckets", "objects": "objects.count"}
_SECRET = re.compile(r"(password|passwd|secret|token|access_?key|(^|_)key$)", re.IGNORECASE)


def configuration(run: Path) -> Dict[str, Any]:
    """Flat keys; {} where nothing was written down."""
    benchmark = _yaml(run / "benchmark_config.yaml").get("cluster") or {}
    found = dict(_benchmark(benchmark if isinstance(benchmark, dict) else {}))
    found.update(_cluster(_archive(run)))
    document = _document(run)
    if document and "faults" not in (document.get("monitoring_profiles") or {}):
        found["load.faults"] = "none"
    return found


def clients(run: Path) -> List[str]:
    """The hosts that should have left results, without their users."""
    return list(nodes_of(_archive(run), "clients"))


def _archive(run: Path) -> Mapping[str, Any]:
    cluster: Mapping[str, Any] = _document(run).get("cluster") or {}
    return cluster


def _document(run: Path) -> Mapping[str, Any]:
    """The archive's cbt_config.yaml."""
    for directory in list(run.resolve().parents)[:2]:
        document = _yaml(directory / "cbt_config.yaml")
        if isinstance(document.get("cluster"), dict):
            return document
    return {}


def _yaml(path: Path) -> Mapping[str, Any]:
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return data if isinstance(data, dict) else {}


def _benchmark(section: Mapping[str, Any]) -> Pairs:
    for key, value in _flat(section):
        head = key.partition(".")[0]
        if head == "benchmark":
            yield "benchmark", value
        elif head == "iteration" or _SECRET.search(key):
            continue
        elif key in _OBJECTS:
            yield _OBJECTS[key], value
        else:
            yield f"cbt.{key}" if head in _NAMES else f"load.{_LOAD.get(key, key)}", value


def _cluster(section: Mapping[str, Any]) -> Pairs:
    osds = len(nodes_of(section, "osds"))
    if osds:
        yield "cluster.osd_nodes", osds
        if isinstance(section.get("osds_per_node"), int):
            yield "cluster.osds", osds * section["osds_per_node"]
    rgws = section.get("rgws")
    if rgws:
        listed = len(nodes_of(section, "rgws"))
        yield "cluster.rgws", sum(len(its or ()) or 1 for its in rgws.values()) if isinstance(rgws, dict) else listed
    clients = len(nodes_of(section, "clients"))
    if clients:
        yield "cluster.clients", clients
    for name, profile in (section.get("pool_profiles") or {}).items():
        kind = (profile or {}).get("replication")
        if kind is not None:
            yield f"pool.{name}.type", "erasure" if kind == "erasure" else "replicated"
            yield f"pool.{name}.size", None if kind == "erasure" else kind
        for key in ("pg_size", "pgp_size", "erasure_profile"):
            if key in (profile or {}):
                yield f"pg.{name}.{key}", profile[key]


def _flat(section: Mapping[str, Any], above: str = "") -> Pairs:
    for key, value in section.items():
        name = f"{above}{key}"
        if isinstance(value, dict):
            yield from _flat(value, f"{name}.")
        else:
            plain = value is None or isinstance(value, (str, int, float, bool))
            yield name, value if plain else " ".join(map(str, value)) if isinstance(value, list) else str(value)

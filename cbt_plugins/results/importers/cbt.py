"""Runs of CBT's own benchmarks as its archive describes them: their configuration, clients and faults.

`monitoring_profiles: {faults: ...}` leaves its events in the archive's faults/<time>/, the profile `recovery` its
samples in the run's directory.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from cbt_plugins.inventory import nodes_of
from cbt_plugins.journal import json_lines, read_text
from cbt_plugins.results.recovery.cluster_samples import files_of, read_samples
from cbt_plugins.results.recovery.episodes import stretches
from cbt_plugins.results.recovery.milestones import milestones
from cbt_plugins.results.run_record import STATE, Measurement, ResultWarning, of_episode
from cbt_plugins.warning_kinds import LATE_EVENT

Pairs = Iterator[Tuple[str, Any]]
_JournalEvent = Mapping[str, Any]

#: key of a record: what was injected and when, "10s:stop*1 30s:undo*1"
FAULTS_KEY = "load.faults"
#: what is cut at the states of the cluster
_RATES = ("obj_per_s", "mib_per_s")

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
#: values in a file, its aliases followed; characters of a text that counts as one of them
_MOST_VALUES, _LONG = 100_000, 100
_SECRET = re.compile(r"(password|passwd|secret|token|access_?key|(^|_)key$)", re.IGNORECASE)


def configuration(run: Path) -> Dict[str, Any]:
    """Return flat keys of RunRecord.config; {} where nothing was written down."""
    benchmark = _yaml(run / "benchmark_config.yaml").get("cluster") or {}
    config = dict(_benchmark(benchmark if isinstance(benchmark, dict) else {}))
    config.update(_cluster(cluster_of(run)))
    document = _document(run)
    if document and "faults" not in (document.get("monitoring_profiles") or {}):
        config["load.faults"] = "none"
    return config


def clients(run: Path) -> List[str]:
    """Return the hosts that should have left results, without their users."""
    return list(nodes_of(cluster_of(run), "clients"))


def cluster_of(run: Path) -> Mapping[str, Any]:
    """Return the section `cluster:` of the archive that a run is in."""
    cluster: Mapping[str, Any] = _document(run).get("cluster") or {}
    return cluster


def _document(run: Path) -> Mapping[str, Any]:
    """Read the archive's cbt_config.yaml."""
    for directory in list(run.resolve().parents)[:2]:
        document = _yaml(directory / "cbt_config.yaml")
        if isinstance(document.get("cluster"), dict):
            return document
    return {}


def _yaml(path: Path) -> Mapping[str, Any]:
    import yaml

    try:
        data = yaml.safe_load(read_text(path))
        return data if isinstance(data, dict) and _extent(data, {}) <= _MOST_VALUES else {}
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return {}


def _extent(value: Any, extents: Dict[int, float]) -> float:
    """Return the number of values in a value, aliases followed; a long text, or key, counts as several.

    `extents` are those of lists and mappings, by id; that of one that contains itself is infinite.
    """
    if isinstance(value, (str, bytes)):
        return 1 + len(value) // _LONG
    if not isinstance(value, (dict, list, tuple, set)):
        return 1
    if id(value) not in extents:
        extents[id(value)] = math.inf
        items = value.items() if isinstance(value, dict) else (("", item) for item in value)
        extents[id(value)] = 1 + sum(_extent(item, extents) * (1 + len(str(key)) // _LONG) for key, item in items)
    return extents[id(value)]


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
        yield (
            "cluster.rgws",
            sum(len(instances or ()) or 1 for instances in rgws.values()) if isinstance(rgws, dict) else listed,
        )
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


@dataclass(frozen=True)
class RunFaults:
    """The faults of one run, and how the cluster and the load took them."""

    begun: Optional[float]  # epoch seconds: the clock of the events runs, and CBT begins the load
    events: str
    recovery: Mapping[str, Any]  # of results.recovery.milestones
    warnings: Tuple[ResultWarning, ...]
    as_planned: bool  # all were injected and undone

    def measurements(self, lines: Sequence[Measurement]) -> List[Measurement]:
        """Return the measurements of each failure and return, and the rates of `lines` in each state of the cluster."""
        measurements = [measurement for episode in self.recovery["episodes"] for measurement in of_episode(episode)]
        for line in lines:
            if line.metric in _RATES and line.series and line.start is not None:
                measurements += _in_states(line, self.recovery)
        return measurements


def faults_of(run: Path) -> Optional[RunFaults]:
    """Return the faults of a run's directory in an archive; None where it was to have none."""
    run = run.resolve()
    name = f"{run.parent.name}/{run.name}"
    journals = [json_lines(path) for path in sorted(run.parents[2].glob("faults/*/events.jsonl"))] if _deep(run) else []
    run_journals = [
        events for events in journals if any(_is(event, "beside") and event.get("run") == name for event in events)
    ]
    if not run_journals:
        return None
    recovery = milestones(read_samples(files_of(run)), [event for events in run_journals for event in events])
    begun = [event["at"] for events in run_journals for event in events if _is(event, "begun")]
    warnings = tuple(_warnings_of_journals(run_journals))
    return RunFaults(
        begun=begun[0] if begun else None,
        events=" ".join(text for events in run_journals for text in _happened(events)) or "none",
        recovery=recovery,
        warnings=(*warnings, *_late(run_journals), *(_of_episode(warning) for warning in recovery["warnings"])),
        as_planned=not warnings,
    )


def _of_episode(warning: Mapping[str, Any]) -> ResultWarning:
    return ResultWarning(warning["code"], warning["text"], warning.get("episode"))


def _deep(run: Path) -> bool:
    return len(run.parents) > 2


def _is(event: _JournalEvent, name: str) -> bool:
    return bool(event.get("event") == name)


def _happened(events: Sequence[_JournalEvent]) -> Iterator[str]:
    """Yield the faults and undos that the file asked for, at the times it named."""
    begun = next((event["at"] for event in events if _is(event, "begun")), None)
    kinds: Dict[str, _JournalEvent] = {event["label"]: event for event in events if _is(event, "fault-inject-begin")}
    for event in events:
        if begun is None or not _is(event, "event"):
            continue
        at = round(event["t"] - event["late"] - begun, 1)
        if event.get("inject"):
            fault = kinds.get(event["inject"], {})
            yield f"{at:g}s:{fault.get('kind')}*{len(fault.get('targets') or ()) or 1}"
        if event.get("undo"):
            yield f"{at:g}s:undo*{len(event['undo'])}"


def _warnings_of_journals(run_journals: Sequence[Sequence[_JournalEvent]]) -> Iterator[ResultWarning]:
    for events in run_journals:
        ended = next((event for event in events if _is(event, "ended")), None)
        if not any(_is(event, "begun") for event in events):
            why = "; ".join(ended["why"]) if ended else "it did not begin"
            yield ResultWarning("no-faults", f"the load ran without the planned faults: {why}")
        elif ended is None:
            yield ResultWarning("faults-failed", "the faults did not end: `cbt-tools undo` says what is open")
        elif ended["why"]:
            yield ResultWarning(
                "faults-failed", f"not all faults were injected and undone as planned: {'; '.join(ended['why'])}"
            )


def _late(run_journals: Sequence[Sequence[_JournalEvent]]) -> Iterator[ResultWarning]:
    for events in run_journals:
        late = max((event.get("late") or 0.0 for event in events if _is(event, "event")), default=0.0)
        if late > LATE_EVENT:
            yield ResultWarning("faults-late", f"a fault or an undo began up to {late:.1f} s after its time")


def _in_states(line: Measurement, recovery: Mapping[str, Any]) -> Iterator[Measurement]:
    """Yield the measurements of the states of a failure; a state that comes twice has its number behind its name."""
    assert line.series is not None and line.start is not None
    edges = line.start + line.step * np.arange(len(line.series) + 1)
    upto = np.concatenate(([0.0], np.cumsum(line.series) * line.step))
    seen: Dict[str, int] = {}
    for state, _, low, high in stretches(recovery, float(edges[0]), float(edges[-1])):
        seen[state] = seen.get(state, 0) + 1
        if high - low < line.step:
            continue  # it is shorter than what the program told one by one
        amount = float(np.diff(np.interp([low, high], edges, upto))[0])
        again = f" {seen[state]}" if seen[state] > 1 else ""
        requests = round(amount) if line.metric == "obj_per_s" else None
        name = f"{line.phase}{STATE}{state}{again}"
        yield Measurement(name, line.op, line.metric, amount / (high - low), n=requests)

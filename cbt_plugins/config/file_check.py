"""A whole CBT file: every error in our sections and in what they depend on, before anything runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from cbt_plugins.config import acceptable, plugins
from cbt_plugins.config.bisect import errors_of_bisect
from cbt_plugins.config.bounds import too_much
from cbt_plugins.config.campaign import CampaignSection, errors_of_arms, errors_of_campaign, section_of_campaign
from cbt_plugins.config.cluster import (
    CbtProfile,
    ClusterSection,
    CollectlProfile,
    CommonSection,
    errors_of_case,
    errors_of_transports,
    errors_of_watched,
    node_errors,
)
from cbt_plugins.config.errors import ConfigError, ErrorAt, Path, did_you_mean
from cbt_plugins.config.generator_classes import generator
from cbt_plugins.config.key_errors import FieldError, not_text, validate
from cbt_plugins.config.pull_request import errors_of_pull_request
from cbt_plugins.config.section_to_plan import KEYS_SET_BY_CBT, our_sections, section_of, understand
from cbt_plugins.config.sweep import sweep
from cbt_plugins.config.top_level import (
    errors_of_sections,
    ignored_recovery_test,
    is_ours,
    misspelt_keys,
    nothing_to_run,
)
from cbt_plugins.config.yaml_source import YamlSource, read
from cbt_plugins.inventory import ROLES, nodes_of
from cbt_plugins.plan import Plan

#: benchmarks of CBT's own, in any of its versions: near misses of ours that are none
_CBT_BENCHMARKS = frozenset(
    [
        "cephtestrados",
        "cosbench",
        "elbencho",
        "fio",
        "getput",
        "hsbench",
        "kvmrbdfio",
        "librbdfio",
        "nullbench",
        "radosbench",
        "rawfio",
        "rbdfio",
    ]
)
#: a sweep of more runs than this is a mistake, and would take long to check
MOST_RUNS = 1000
#: drivers, buckets and phases of all these runs
_MOST_PARTS = 100_000


@dataclass(frozen=True)
class PlannedRun:
    """One run that the file asks for."""

    benchmark: str
    iteration: int
    varied: Mapping[str, Any]  # key -> the element of the list that this run has
    config: Mapping[str, Any]  # the permutation as CBT makes it
    plan: Plan


@dataclass(frozen=True)
class Config:
    """A file without errors."""

    file: str
    cluster: Mapping[str, Any]
    endpoints: Mapping[str, Any]
    monitors: Tuple[str, ...]
    runs: Tuple[PlannedRun, ...]  # in the order in which CBT runs them
    common: Mapping[str, Any]  # how nodes are reached, beside the cluster's own keys
    others: Tuple[str, ...]  # benchmarks in the file that are not ours
    data: Mapping[str, Any]  # the file as CBT reads it
    campaign: Optional[CampaignSection] = None


def load_file(path: Union[str, FilePath]) -> Config:
    """Return the runs of a file; raises ConfigError with every error. A file without a section of ours has no run."""
    return load(read(FilePath(path)))


def load(source: YamlSource) -> Config:
    """Return the runs of a source; raises ConfigError with every error."""
    errors = errors_of_sections(source)
    if errors:
        raise ConfigError(errors)
    data, benchmarks = source.data, source.data["benchmarks"]
    ours = {name: config for name, config in benchmarks.items() if isinstance(name, str) and section_of(name)}
    others = {name: config for name, config in benchmarks.items() if name not in ours}
    errors += _misspelt(source, list(others))
    runs: List[PlannedRun] = []
    cluster: Mapping[str, Any] = {}
    endpoints: Mapping[str, Any] = {}
    if ours:
        errors += _duplicates(source, list(others))
        errors += [] if others else ignored_recovery_test(source)
        cluster, cluster_errors = _cluster(source, data["cluster"])
        errors += cluster_errors
        endpoints, endpoint_errors = _endpoints(source, data)
        errors += endpoint_errors
        # what a section with errors would say of its nodes is not known
        nodes = cluster or {"clients": ["client"]}
        for name in sorted(ours):
            section_runs, wrong = _section(name, ours[name], nodes, endpoints)
            runs += section_runs
            errors += [
                source.error_at(("benchmarks", name, *path), text, of_key) for path, text, of_key in wrong
            ]
    elif is_ours(source):
        errors += misspelt_keys(source, {})
    if is_ours(source):
        # one error for one cause
        errors += [e for e in nothing_to_run(source, others) if not ours or e.path[0] != "cluster"]
    profiles = data.get("monitoring_profiles")
    if ours or (isinstance(profiles, dict) and set(profiles) & set(plugins.built_in(plugins.MONITORS))):
        has_cycles = any(len(run.plan.phases) > 1 for run in runs)
        errors += [*_common(source, data.get("common")), *_monitors(source, data, has_cycles)]
        errors += [] if ours else _cluster_of_others(source, data.get("cluster"))
    if not errors:
        texts = too_much([run.plan for run in runs], cluster.get("iterations", 0))
        errors += [source.error_at(("benchmarks",), text, of_key=True) for text in texts]
    errors += [*errors_of_campaign(source), *errors_of_bisect(source), *errors_of_pull_request(source)]
    if errors or (errors := list(errors_of_arms(source, load))):
        raise ConfigError(errors)
    iterations = range(cluster.get("iterations", 0))
    return Config(
        file=source.file,
        cluster=cluster,
        endpoints=endpoints,
        # CBT runs collectl even when nobody asks for it.
        monitors=tuple(sorted({"collectl", *(data.get("monitoring_profiles", ()) if ours else ())})),
        runs=tuple(
            PlannedRun(run.benchmark, number, run.varied, {**run.config, "iteration": number}, run.plan)
            for number in iterations
            for run in runs
        ),
        common=data["common"] if isinstance(data.get("common"), dict) else {},
        data=data,
        others=tuple(map(str, others)),
        campaign=section_of_campaign(source),
    )


def _misspelt(source: YamlSource, names: Sequence[Any]) -> Iterator[ErrorAt]:
    benchmarks = plugins.names(plugins.BENCHMARKS)
    for name in names:
        hint = did_you_mean(str(name), plugins.built_in(plugins.BENCHMARKS))
        if hint and name not in _CBT_BENCHMARKS and name not in benchmarks:
            yield source.error_at(("benchmarks", name), f"no benchmark of this name{hint}", of_key=True)


def _duplicates(source: YamlSource, others: Sequence[Any]) -> List[ErrorAt]:
    of_others = {("benchmarks", name) for name in others}
    return [error for error in source.duplicates if len(error.path) < 3 or error.path[:2] not in of_others]


def _cluster(source: YamlSource, data: Mapping[str, Any]) -> Tuple[Mapping[str, Any], List[ErrorAt]]:
    valid, wrong = validate(ClusterSection, data)
    unread = [role for role in ROLES if role not in ClusterSection.model_fields]
    wrong = (*wrong, *node_errors(data, unread)) or (*errors_of_case(data), *errors_of_transports(data))
    meant: Dict[str, str] = {}
    misspelt = list(misspelt_keys(source, meant))
    required = [("cluster", key) for key in ("iterations", *meant.values())]
    errors = [source.error_at(("cluster", *path), text, of_key) for path, text, of_key in wrong]
    errors = [*misspelt, *(error for error in errors if error.path not in required or error.path[-1] in data)]
    if "iterations" not in data and "iterations" not in meant.values():
        text = "this key is required: CBT's default is 0, which runs nothing and reports success"
        errors.append(source.error_at(("cluster", "iterations"), text))
    return (data if valid and not errors else {}), errors


def _cluster_of_others(source: YamlSource, section: Any) -> Iterator[ErrorAt]:
    """Yield the errors of the cluster of a file in which only monitors are ours."""
    if isinstance(section, dict):
        wrong = [*node_errors(section)] or [*errors_of_case(section), *errors_of_transports(section)]
        yield from (source.error_at(("cluster", *path), text, of_key) for path, text, of_key in wrong)


def _endpoints(source: YamlSource, data: Mapping[str, Any]) -> Tuple[Mapping[str, Any], List[ErrorAt]]:
    endpoints = data.get("client_endpoints")
    if endpoints is None or isinstance(endpoints, dict):
        return endpoints or {}, []
    return {}, [source.error_at(("client_endpoints",), "must be a mapping: name of the endpoints -> their keys")]


def _common(source: YamlSource, common: Any) -> Iterator[ErrorAt]:
    if common is None or isinstance(common, dict):
        for path, text, of_key in validate(CommonSection, common or {})[1]:
            yield source.error_at(("common", *path), text, of_key)
    else:
        yield source.error_at(("common",), "must be a mapping (key: value)")


def _monitors(source: YamlSource, data: Mapping[str, Any], has_cycles: bool) -> Iterator[ErrorAt]:
    """Yield the errors of the profiles; `has_cycles`: a run of the file has several phases."""
    if "monitoring_profiles" not in data:
        return
    profiles = data["monitoring_profiles"]
    if not isinstance(profiles, dict):
        yield source.error_at(("monitoring_profiles",), "must be a mapping; write {} for CBT's default")
        return
    for name, profile in profiles.items():
        if not isinstance(name, str):
            yield source.error_at(("monitoring_profiles", name), "the name of a profile is text", of_key=True)
        elif not isinstance(profile, dict):
            text = f"must be a mapping, or CBT stops with a traceback; write {name}: {{}} for the defaults"
            yield source.error_at(("monitoring_profiles", name), text)
        else:
            section = section_of(name, plugins.MONITORS) or (CollectlProfile if name == "collectl" else CbtProfile)
            wrong = list(validate(section, profile)[1])
            if "nodes" in profile and ("nodes",) not in [error.path for error in wrong]:
                wrong += errors_of_watched(profile["nodes"], data["cluster"])
            for path, text, of_key in wrong:
                yield source.error_at(("monitoring_profiles", name, *path), text, of_key)
            refusal = getattr(section, "REFUSED_BESIDE_CYCLES", "")
            if has_cycles and refusal and not wrong:
                yield source.error_at(("monitoring_profiles", name), refusal, of_key=True)
            errors_of_file = getattr(section, "errors_of_file", None)
            for error in errors_of_file(profile, _osd_nodes(data)) if errors_of_file else ():
                place = ("monitoring_profiles", name, "file")
                yield error if error.line else source.error_at(place, f"{error.file}: {error.text}")


def _osd_nodes(data: Mapping[str, Any]) -> Sequence[str]:
    """Return the nodes with OSDs; [] where the file does not say them."""
    cluster = data.get("cluster")
    return nodes_of(cluster, "osds") if isinstance(cluster, dict) and not [*node_errors(cluster, ["osds"])] else []


def _section(
    name: str, section: Any, cluster: Mapping[str, Any], endpoints: Mapping[str, Any]
) -> Tuple[List[PlannedRun], List[FieldError]]:
    """Return the runs of one section (iteration 0), and every error once, however many runs share it."""
    if not isinstance(section, dict):
        return [], [FieldError((), "must be a mapping (key: value)")]
    number = math.prod(len(v) for k, v in section.items() if isinstance(v, list) and v and k != "acceptable")
    if number > MOST_RUNS:
        text = f"too many runs: the lists of this section multiply to {number}, and {MOST_RUNS} is the limit"
        return [], [FieldError((), text, of_key=True)]
    errors = list(_host_rules(name, section))
    left_out = {(key,) for key, value in section.items() if key in _REFUSED or value == [] or _is_split(key, value)}
    usable = {key: value for key, value in section.items() if isinstance(key, str) and (key,) not in left_out}
    runs, parts = [], 0
    for taken, config in sweep(usable):
        plan, config_errors = understand(name, config, cluster, endpoints, reread=True)
        for path, text, of_key in config_errors:
            if path in left_out:
                continue  # that it is missing now is no second error
            # an element of the list cannot help a key that is wrong itself
            swept = path[:1] and path[0] in taken and not (of_key and len(path) == 1)
            errors.append(
                FieldError((path[0], taken[str(path[0])], *path[1:]) if swept else path, text, of_key)
            )
        if plan:
            varied = {key: config[key] for key in taken}
            runs.append(PlannedRun(name, 0, varied, {**config, "benchmark": name, "iteration": 0}, plan))
            parts += len(plan.drivers) + len(plan.buckets) + len(plan.phases)
        if parts > _MOST_PARTS:
            text = f"the runs have more than {_MOST_PARTS} drivers, buckets and phases: split the section"
            return [], [*errors, FieldError((), text, of_key=True)]
    errors = [_of_another(name, error) for error in errors]
    errors += _without_use(name, usable, errors, runs)
    errors += _equal_runs(name, usable, errors, runs)
    if "acceptable" in section and _has_our_keys(name):  # what it means to others is theirs
        phase_names = () if errors else dict.fromkeys(phase.name for run in runs for phase in run.plan.phases)
        errors += acceptable.errors(section["acceptable"], list(phase_names))
    return runs, list(dict.fromkeys(errors))


def _of_another(name: str, error: FieldError) -> FieldError:
    """Return the error of an unknown key with the benchmarks that have such a key, where others of ours do."""
    if len(error.path) > 1 or not error.text.startswith("unknown key; known here"):
        return error
    sections = our_sections(plugins.BENCHMARKS)
    others = [owner for owner, section in sections.items() if owner != name and error.path[0] in section.model_fields]
    if not others:
        return error
    owners = f"{' and '.join(others)} {'have' if others[1:] else 'has'}"
    return error._replace(text=f"unknown key of {name}; {owners} this key")


def _has_our_keys(benchmark: str) -> bool:
    return bool(getattr(section_of(benchmark), "has_our_keys", False))


def _without_use(
    name: str, section: Mapping[str, Any], errors: Sequence[FieldError], runs: Sequence[PlannedRun]
) -> Iterator[FieldError]:
    """Yield an error for each key of the sweep that no run uses."""
    if errors or not runs or not _has_our_keys(name):
        return
    used = {phase.engine for run in runs for phase in run.plan.phases}
    for engine in plugins.built_in(plugins.GENERATORS):
        key = generator(engine).section_key
        if key in section and engine not in used:
            text = f"is for engine: {engine}, and no phase here has this engine: set it, or remove the key"
            yield FieldError((key,), text, of_key=True)


def _equal_runs(
    name: str, section: Mapping[str, Any], errors: Sequence[FieldError], runs: Sequence[PlannedRun]
) -> Iterator[FieldError]:
    """Yield the keys of a sweep that make no difference: hours of equal runs would be told as a result."""
    if errors or not _has_our_keys(name):
        return
    first: Dict[str, PlannedRun] = {}
    for run in runs:
        same = first.setdefault(repr(run.plan), run)
        keys = [key for key in run.varied if run.varied[key] != same.varied[key]]
        if keys:
            yield FieldError((keys[0],), "makes no difference here: two elements of this list give the same run")
            return


_REFUSED: Dict[str, str] = {
    "workloads": "newer CBT versions take this key for their own, in every benchmark; remove it",
    "phases": "CBT makes each element of a list here a run of its own; put it under cycle: {phases: [...]}",
    "osd_ra": "nothing here sets read-ahead; set it on the nodes (by hand, or a udev rule), and remove the key",
    **{key: "CBT sets this key itself; remove it" for key in sorted(KEYS_SET_BY_CBT)},
}


def _host_rules(name: str, section: Mapping[Any, Any]) -> Iterator[FieldError]:
    """Yield the errors that follow from CBT's own changes of a section, before anybody validates it."""
    for key, value in section.items():
        if key in _REFUSED:
            fields = getattr(section_of(name), "model_fields", ())
            own = key == "phases" and _has_our_keys(name) and "cycle" not in fields
            text = f"the phases of {name} are fixed; for your own use warp: {{cycle: {{phases: [...]}}}}"
            yield FieldError((key,), text if own else _REFUSED[key], of_key=True)
        elif value == []:
            yield FieldError((key,), "empty list: CBT would silently make no run of this section")
        elif _is_split(key, value):
            yield FieldError((key,), "CBT makes each element a run of its own; write cycle: {phases: [...]}")
        elif isinstance(value, list) and key != "acceptable":
            for index, element in enumerate(value):
                if element in value[:index]:
                    text = "is in the list twice: two equal runs would share one id and one directory"
                    yield FieldError((key, index), text)
    # CBT takes `acceptable` out before it makes the id.
    yield from _no_json((), {key: value for key, value in section.items() if key != "acceptable"})


def _is_split(key: Any, value: Any) -> bool:
    """Return whether CBT would make a run of each phase."""
    all_runs = isinstance(value, list) and all(isinstance(element, dict) and "phases" in element for element in value)
    return key == "cycle" and isinstance(value, list) and not all_runs


def _no_json(path: Path, value: Any) -> Iterator[FieldError]:
    """Yield the values that cannot go into CBT's run id, which is a hash of the section as JSON."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                yield FieldError((*path, key), not_text(key), of_key=True)
            else:
                yield from _no_json((*path, key), inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _no_json((*path, index), inner)
    elif value is not None and not isinstance(value, (str, int, float, bool)):
        kind = type(value).__name__
        yield FieldError(path, f"YAML reads this as a {kind}, of which CBT cannot make a run id; quote it")

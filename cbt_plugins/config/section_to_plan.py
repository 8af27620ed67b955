"""Which benchmark sections we know, and one permutation of one -> Plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple, Type

from cbt_plugins.config import plugins
from cbt_plugins.config.cluster import is_head_a_pod
from cbt_plugins.config.errors import ConfigError, ErrorAt
from cbt_plugins.config.events import REREAD
from cbt_plugins.config.generator_classes import generator, generators_of
from cbt_plugins.config.key_errors import FieldError, validate
from cbt_plugins.config.plan_errors import errors_of_plan
from cbt_plugins.inventory import nodes_of
from cbt_plugins.plan import CALIBRATE, Phase, Plan

#: CBT puts these into every permutation
KEYS_SET_BY_CBT = frozenset({"benchmark", "iteration"})
#: keys that CBT's base class reads in any section; no plan is made of them (of `acceptable`: see acceptable.py)
CBT_KEYS = frozenset({"acceptable", "valgrind", "log_iops", "log_bw", "log_lat"})
#: seconds: a quarter of the phase it serves, within these
_SHORTEST, _LONGEST = 5.0, 10.0


def section_of(name: str, group: str = plugins.BENCHMARKS) -> Optional[Type[Any]]:
    """Return the `Section` of a benchmark's or monitor's class, ours or another's; None where there is none.

    A section is a pydantic model of the YAML; that of a benchmark has `to_plan(clients, endpoints)`. Raises ConfigError
    for a class that cannot be imported.
    """
    if name not in plugins.references(group):
        return None
    try:
        section: Optional[Type[Any]] = getattr(plugins.load(group, name), "Section", None)
    except Exception as error:  # whatever the module of another distribution raises
        place = ("benchmarks" if group == plugins.BENCHMARKS else "monitoring_profiles", name)
        text = f"cannot import {plugins.references(group)[name]}: {type(error).__name__}: {error}"
        raise ConfigError([ErrorAt(place, text)]) from error
    return section


def our_sections(group: str) -> Dict[str, Type[Any]]:
    """Return the sections of our own benchmarks, or of our own monitors, by name."""
    return {name: plugins.load(group, name).Section for name in plugins.built_in(group)}


def understand(
    benchmark: str,
    config: Mapping[str, Any],
    cluster: Mapping[str, Any],
    endpoints: Mapping[str, Any],
    reread: bool = False,
) -> Tuple[Optional[Plan], Tuple[FieldError, ...]]:
    """Return the plan of one permutation, or None and every error, with paths relative to the section.

    `reread`: read fault files again; without it they are as this process has read them last.
    """
    section = section_of(benchmark)
    if section is None:
        return None, (FieldError((), f"no benchmark {benchmark!r} is known"),)
    own = {key: value for key, value in config.items() if key not in KEYS_SET_BY_CBT | CBT_KEYS}
    clients = list(nodes_of(cluster, "clients"))
    nodes = {"clients": clients, "osds": nodes_of(cluster, "osds"), "nodes": nodes_of(cluster)}
    context = {"endpoints": endpoints, "head_is_pod": is_head_a_pod(cluster), REREAD: reread, **nodes}
    model, errors = validate(section, own, context)
    if model is None:
        return None, errors
    plan = _with_calibration(model.to_plan(clients, endpoints))
    wrong = (*errors_of_plan(plan), *_refused(plan, model))
    return (None, wrong) if wrong else (plan, ())


def _refused(plan: Plan, section: Any) -> Iterator[FieldError]:
    """Yield the features of a plan that its generators do not have, with paths in the section."""
    cycle = getattr(section, "cycle", None)
    named = {name: (index, phase.kind) for index, (name, phase) in enumerate(cycle.named() if cycle else ())}
    for load_generator in generators_of(plan).values():
        for error in load_generator.refused(plan):
            if error.path[:1] == ("phases",):
                name, *keys = error.path[1:]
                place = ("cycle", "phases", *named[name], *keys) if name in named else ("engine",)
                error = error._replace(path=place)
            yield error


def plan_of(
    benchmark: str,
    config: Mapping[str, Any],
    cluster: Mapping[str, Any],
    endpoints: Optional[Mapping[str, Any]],
) -> Plan:
    """Return the plan of one permutation, as CBT made it; raises ConfigError with every error."""
    if not nodes_of(cluster, "clients"):
        raise ConfigError([ErrorAt(("cluster", "clients"), "must be a list of the nodes that make the load")])
    plan, errors = understand(benchmark, config, cluster, endpoints or {})
    if plan is None:
        raise ConfigError([ErrorAt(("benchmarks", benchmark, *path), text) for path, text, _ in errors])
    return plan


def _with_calibration(plan: Plan) -> Plan:
    """Put a calibration before the first hybrid phase by worker groups that the plan leaves open: one for all."""
    for position, phase in enumerate(plan.phases):
        if phase.kind == "hybrid" and phase.workers is None and generator(phase.engine).worker_groups:
            duration = min(_LONGEST, max(_SHORTEST, (phase.duration or 0.0) / 4))
            calibration = Phase(CALIBRATE, "hybrid", duration=duration, mix=phase.mix, engine=phase.engine)
            return replace(
                plan, phases=(*plan.phases[:position], calibration, *plan.phases[position:])
            )
    return plan

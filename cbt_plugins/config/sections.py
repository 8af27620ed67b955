"""Which benchmark sections we know, and one permutation of one -> Plan."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple, Type

from pydantic import BaseModel

from cbt_plugins.config.calibration import with_calibration
from cbt_plugins.config.entries import entries
from cbt_plugins.config.errors import ConfigError, Fault
from cbt_plugins.config.osdfailure import OsdFailureSection
from cbt_plugins.config.rgwtest import RgwTestSection
from cbt_plugins.config.validate import Problem, validate
from cbt_plugins.config.warp import WarpSection
from cbt_plugins.plan import Plan

#: entry points name -> Section: how another distribution's benchmark brings its keys
ENTRY_POINTS = "cbt_plugins.sections"
#: CBT puts these into every permutation
HOST_KEYS = frozenset({"benchmark", "iteration"})
#: keys that CBT's base class reads in any section; no plan is made of them (of `acceptable`: see acceptable.py)
CBT_KEYS = frozenset({"acceptable", "osd_ra", "valgrind", "log_iops", "log_bw", "log_lat"})


class Section(NamedTuple):
    """What a benchmark's YAML may say, and what it means."""

    model: Type[BaseModel]
    #: (validated section, client nodes, client_endpoints section) -> Plan
    to_plan: Callable[[Any, Sequence[str], Mapping[str, Any]], Plan]


SECTIONS: Dict[str, Section] = {
    "rgwtest": Section(RgwTestSection, RgwTestSection.to_plan),
    "warp": Section(WarpSection, WarpSection.to_plan),
    "osdfailure": Section(OsdFailureSection, OsdFailureSection.to_plan),
}


def section_of(benchmark: str) -> Optional[Section]:
    """Return the section of this name, ours or another distribution's; None when nobody brings one."""
    if benchmark in SECTIONS:
        return SECTIONS[benchmark]
    for entry in entries(ENTRY_POINTS):
        if entry.name == benchmark:
            section: Section = entry.load()
            return section
    return None


def understand(
    benchmark: str, config: Mapping[str, Any], cluster: Mapping[str, Any], endpoints: Mapping[str, Any]
) -> Tuple[Optional[Plan], Tuple[Problem, ...]]:
    """Return the plan of one permutation, or None and every problem, with paths relative to the section."""
    section = section_of(benchmark)
    if section is None:
        return None, (Problem((), f"no benchmark {benchmark!r} is known"),)
    own = {key: value for key, value in config.items() if key not in HOST_KEYS | CBT_KEYS}
    clients = cluster["clients"]
    context = {"endpoints": endpoints, "clients": clients, "osds": cluster.get("osds")}
    model, problems = validate(section.model, own, context)
    if model is None:
        return None, problems
    return with_calibration(section.to_plan(model, clients, endpoints)), ()


def plan_of(
    benchmark: str,
    config: Mapping[str, Any],
    cluster: Mapping[str, Any],
    endpoints: Optional[Mapping[str, Any]],
) -> Plan:
    """Return what one permutation, as CBT made it, will do; raises ConfigError with every fault."""
    clients = cluster.get("clients")
    if not isinstance(clients, (list, tuple)) or not clients:
        raise ConfigError([Fault(("cluster", "clients"), "must be a list of the nodes that make the load")])
    plan, problems = understand(benchmark, config, cluster, endpoints or {})
    if plan is None:
        raise ConfigError([Fault(("benchmarks", benchmark, *path), text) for path, text, _ in problems])
    return plan

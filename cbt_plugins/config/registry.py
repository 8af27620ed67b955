"""Benchmarks and monitors by the name that they have in the YAML."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any, Callable, Dict, List, Mapping

BENCHMARKS = "cbt_plugins.benchmarks"
MONITORS = "cbt_plugins.monitors"

# Ours are known without an installation, so that a plain checkout of this project works too.
_BUILT_IN: Mapping[str, Mapping[str, str]] = {
    BENCHMARKS: {
        "warp": "cbt_plugins.benchmarks.warp:Warp",
        "rgwtest": "cbt_plugins.benchmarks.rgwtest:RgwTest",
        "osdfailure": "cbt_plugins.benchmarks.osdfailure:OsdFailure",
    },
    MONITORS: {
        "faults": "cbt_plugins.monitors.faults:Faults",
        "recovery": "cbt_plugins.monitors.recovery:Recovery",
        "resources": "cbt_plugins.monitors.resources:Resources",
    },
}

Loader = Callable[[], Any]


def _import(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def loaders(group: str) -> Dict[str, Loader]:
    """name -> function that imports the class; ours win over an entry point of the same name."""
    from cbt_plugins.config.entries import entries

    table: Dict[str, Loader] = {entry.name: entry.load for entry in entries(group)}
    for name, reference in _BUILT_IN[group].items():
        table[name] = partial(_import, reference)
    return table


def names(group: str) -> List[str]:
    return sorted(loaders(group))


def built_in(group: str) -> List[str]:
    return sorted(_BUILT_IN[group])

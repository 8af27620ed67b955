"""Benchmarks and monitors by the name that they have in the YAML."""

from __future__ import annotations

import sys
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
    },
    MONITORS: {},
}

Loader = Callable[[], Any]


def _import(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def loaders(group: str) -> Dict[str, Loader]:
    """name -> function that imports the class; ours win over an entry point of the same name."""
    from importlib.metadata import entry_points

    if sys.version_info >= (3, 10):
        found = entry_points(group=group)
    else:
        found = entry_points().get(group, [])
    table: Dict[str, Loader] = {entry.name: entry.load for entry in found}
    for name, reference in _BUILT_IN[group].items():
        table[name] = partial(_import, reference)
    return table


def names(group: str) -> List[str]:
    return sorted(loaders(group))


def built_in(group: str) -> List[str]:
    return sorted(_BUILT_IN[group])

"""Plug-ins by group and name: the classes that setup.cfg lists as entry points, and those of other distributions."""

from __future__ import annotations

import configparser
import sys
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

TRANSPORTS = "cbt_plugins.transports"
BENCHMARKS = "cbt_plugins.benchmarks"
MONITORS = "cbt_plugins.monitors"
FAULTS = "cbt_plugins.faults"
GENERATORS = "cbt_plugins.generators"
IMPORTERS = "cbt_plugins.importers"

Loader = Callable[[], Any]

#: of a checkout, whose list may be newer than that of an installation; an installation has none
_SETUP = Path(__file__).resolve().parents[2] / "setup.cfg"


def references(group: str) -> Dict[str, str]:
    """Return name -> "module:Class" of all plug-ins of a group; ours win over another's of the same name."""
    return _references(group, tuple(sys.path))


@cache
def _references(group: str, path: Tuple[str, ...]) -> Dict[str, str]:
    """Return name -> "module:Class" of a group, of the distributions on this sys.path."""
    all_entries: Any = entry_points()  # Python 3.9 has no selection by keyword
    entries = all_entries.select(group=group) if hasattr(all_entries, "select") else all_entries.get(group, ())
    installed = {entry.name: entry.value for entry in entries}
    others = {name: value for name, value in installed.items() if not _is_ours(value)}
    ours = {name: value for name, value in installed.items() if _is_ours(value)}
    return {**others, **(_listed(group) or ours)}


def load(group: str, name: str) -> Any:
    """Return the class of a plug-in, imported now. Raises KeyError for a name that nobody has."""
    module, _, attribute = references(group)[name].partition(":")
    return getattr(import_module(module.strip()), attribute.strip())


def loaders(group: str) -> Dict[str, Loader]:
    """Return name -> function that imports the class."""
    return {name: lambda name=name: load(group, name) for name in references(group)}  # type: ignore[misc]


def names(group: str) -> List[str]:
    """Return the names of all plug-ins of a group."""
    return sorted(references(group))


def built_in(group: str) -> List[str]:
    """Return the names of our own plug-ins of a group."""
    return sorted(name for name, reference in references(group).items() if _is_ours(reference))


def _is_ours(reference: str) -> bool:
    return reference.startswith("cbt_plugins.")


def _listed(group: str) -> Dict[str, str]:
    """Return the entry points of setup.cfg, in its order; {} without a setup.cfg of ours."""
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.read(_SETUP, encoding="utf-8")
    if parser.get("metadata", "name", fallback="") != "cbt-plugins":
        return {}
    lines = parser.get("options.entry_points", group, fallback="").strip().splitlines()
    return {name.strip(): reference.strip() for name, _, reference in (line.partition("=") for line in lines)}

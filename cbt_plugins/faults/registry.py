"""Fault kinds by name: our own, and what other distributions add through entry points."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Dict, List, Mapping, Tuple

from cbt_plugins.config.entries import entries
from cbt_plugins.config.errors import did_you_mean
from cbt_plugins.faults.scene import Kind
from cbt_plugins.faults.step import FaultError

GROUP = "cbt_plugins.faults"

# Ours are known without an installation, so that a plain checkout of this project works too.
_BUILT_IN: Mapping[str, str] = {
    "stop": "cbt_plugins.faults.kinds.daemon:Stop",
    "crash": "cbt_plugins.faults.kinds.daemon:Crash",
    "out": "cbt_plugins.faults.kinds.osd:Out",
    "replace": "cbt_plugins.faults.kinds.osd:Replace",
    "mark": "cbt_plugins.faults.kinds.mark:Mark",
    "network": "cbt_plugins.faults.kinds.network:Network",
    "reboot": "cbt_plugins.faults.kinds.node:Reboot",
    "power": "cbt_plugins.faults.kinds.node:Power",
}


@cache
def _table() -> Dict[str, Any]:
    table: Dict[str, Any] = {entry.name: entry for entry in entries(GROUP)}
    return {**table, **_BUILT_IN}


def names() -> List[str]:
    """All kinds there are."""
    return sorted(_table())


def kind(name: str) -> Kind:
    """A fault kind. Raises FaultError for a name that nobody has, and for an extension that cannot be imported."""
    entry = _table().get(name)
    if entry is None:
        raise FaultError(f"no fault of kind {name!r}; there are {', '.join(names())}{did_you_mean(name, names())}")
    if not isinstance(entry, str):
        try:
            loaded: Kind = entry.load()()
        except Exception as error:
            raise FaultError(f"fault kind {name!r} of {entry.value}: {type(error).__name__}: {error}") from error
        return loaded
    module, _, attribute = entry.partition(":")
    made: Kind = getattr(import_module(module), attribute)()
    return made


def options(name: str, given: Mapping[str, Any]) -> Tuple[Kind, Dict[str, Any]]:
    """A kind and its options, those not given included. Raises FaultError for one that it does not have."""
    found = kind(name)
    for option in given:
        if option not in found.options:
            there = f"; it has {', '.join(found.options)}" if found.options else "; it has none"
            raise FaultError(f"fault {name} has no option {option!r}{did_you_mean(option, found.options) or there}")
    return found, {**found.options, **given}

"""Fault kinds by name: our own, and what other distributions add through entry points."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

from cbt_plugins.config import registry
from cbt_plugins.config.errors import did_you_mean
from cbt_plugins.faults.scene import Kind
from cbt_plugins.faults.step import FaultError


def names() -> List[str]:
    """All kinds there are."""
    return registry.names(registry.FAULTS)


def kind(name: str) -> Kind:
    """A fault kind. Raises FaultError for a name that nobody has, and for an extension that cannot be imported."""
    reference = registry.references(registry.FAULTS).get(name)
    if reference is None:
        raise FaultError(f"no fault of kind {name!r}; there are {', '.join(names())}{did_you_mean(name, names())}")
    try:
        made: Kind = registry.load(registry.FAULTS, name)()
    except Exception as error:
        raise FaultError(f"fault kind {name!r} of {reference}: {type(error).__name__}: {error}") from error
    return made


def options(name: str, given: Mapping[str, Any]) -> Tuple[Kind, Dict[str, Any]]:
    """A kind and its options, those not given included. Raises FaultError for one that it does not have."""
    found = kind(name)
    for option in given:
        if option not in found.options:
            there = f"; it has {', '.join(found.options)}" if found.options else "; it has none"
            raise FaultError(f"fault {name} has no option {option!r}{did_you_mean(option, found.options) or there}")
    return found, {**found.options, **given}

"""Fault kinds as the YAML sees them: the class that an entry point names says what its options and targets are."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.config import registry
from cbt_plugins.config.errors import did_you_mean
from cbt_plugins.config.validate import FieldError, validate
from cbt_plugins.plan import BLINDING_FLAGS, OSD_FLAGS, SAFETY_RULES

#: an option of this name, in seconds, is when a node recovers by itself
DEADLINE = "deadline"
#: key of the context in which durations are seconds
PLANNED = "planned"
#: a key that should be text
SWITCH = "YAML makes true and false of on, off, yes and no: quote the key"
#: names that have changed: former -> now
_RENAMED = {"steady": "clean", "daemons": "service_manager"}


def kind_class(name: str) -> Any:
    """Return a subclass of `faults.kind.Kind`. Raises ValueError for a name that is not known or cannot be imported."""
    reference, known = registry.references(registry.FAULTS).get(name), registry.names(registry.FAULTS)
    if reference is None:
        raise ValueError(f"unknown kind of fault {name!r}; known are {', '.join(known)}{did_you_mean(name, known)}")
    try:
        return registry.load(registry.FAULTS, name)
    except Exception as error:
        raise ValueError(f"fault kind {name!r} of {reference}: {type(error).__name__}: {error}") from error


def make(
    name: str, given: Mapping[Any, Any], planned: bool = False
) -> Tuple[Optional[Any], Dict[str, Any], Tuple[FieldError, ...]]:
    """Return the kind with these options, the options that are given as a plan has them, and what is wrong with them.

    The paths of errors begin with the name of an option. `planned`: the options are those of a plan. Raises ValueError.
    """
    cls = kind_class(name)
    errors = [FieldError((key,), SWITCH, of_key=True) for key in given if isinstance(key, bool)]
    known = cls.Options.model_fields
    errors += [
        FieldError((key,), f"now called {_RENAMED[key]}", of_key=True)
        for key in given
        if key in _RENAMED and key not in known and _RENAMED[key] in known
    ]
    if errors:
        return None, {}, tuple(errors)
    options, found = validate(cls.Options, dict(given), {PLANNED: planned})
    if options is None:
        return None, {}, found
    return cls(options), options.model_dump(exclude_unset=True), ()


def deadline_of(kind: str, given: Mapping[str, Any]) -> Optional[float]:
    """Return the seconds after which a fault of a plan recovers by itself; None when it does not."""
    made, _, _ = make(kind, given, planned=True)
    return getattr(made.options, DEADLINE, None) if made else None


def warnings_of(kind: str, given: Mapping[str, Any]) -> List[str]:
    """Return what the user should know before a fault of a plan is injected."""
    made, _, _ = make(kind, given, planned=True)
    return list(made.warnings()) if made else []


def known_rules(given: Sequence[str]) -> List[FieldError]:
    """Return what is no safety rule, or in the list twice."""
    return _known(given, SAFETY_RULES, "unknown safety rule")


def known_flags(given: Sequence[str]) -> List[FieldError]:
    """Return what is no flag that a run may set, or in the list twice."""
    return _known(given, OSD_FLAGS, "not a flag that a run may set")


def blinding_flags(given: Sequence[str]) -> List[str]:
    """Return the flags under which no fault is injected: the cluster would not see it."""
    # the map shows `pause` as pauserd and pausewr
    return [flag for flag in given if any(shown in (flag, f"{flag}rd") for shown in BLINDING_FLAGS)]


def _known(given: Sequence[str], known: Sequence[str], what: str) -> List[FieldError]:
    errors = []
    for index, word in enumerate(given):
        if word not in known:
            renamed = f"; now called {_RENAMED[word]}" if _RENAMED.get(word) in known else ""
            hint = renamed or did_you_mean(word, known) or f"; known are {', '.join(known)}"
            errors.append(FieldError((index,), f"{what}: {word!r}{hint}"))
        elif word in given[:index]:
            errors.append(FieldError((index,), f"{word} is in the list twice"))
    return errors

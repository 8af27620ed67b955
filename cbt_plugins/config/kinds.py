"""What the YAML may say of kinds of faults: asked of `cbt_plugins.faults`, which is loaded when a file has some."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.config.errors import did_you_mean
from cbt_plugins.config.units import parse_duration
from cbt_plugins.config.validate import FieldError

#: the dead man's switch: the only option of a kind that is a time; kinds take it in seconds
DEADLINE = "deadline"
#: a key that should be text
SWITCH = "YAML makes true and false of on, off, yes and no: quote the key"
_ENVIRONMENT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
#: what stands before a password in the commands of power controllers; what is behind it must come from the environment
_PASSWORD = re.compile(
    r"""(?:(?:^|\s)-P\s*|--?(?:password|passwd|secret|token)(?:\s+|=)|(?:password|passwd|secret|token)=
    |sshpass\s+-p\s*|(?:^|\s)(?:-u|--user)\s+[^\s:]+:|://[^\s:/@]+:)["']?(?P<word>[^\s"']+)""",
    re.IGNORECASE | re.VERBOSE,
)


def unit_of(kind: str) -> str:
    """Return "node", "osd" or "either": what the kind hits. Raises ValueError for a kind that nobody has."""
    return str(_kind(kind).unit)


def known_rules(given: Sequence[str]) -> List[FieldError]:
    """Return what is no safety rule, or here twice."""
    from cbt_plugins.faults.safety import RULES

    return _known(given, tuple(RULES), "no safety rule")


def known_flags(given: Sequence[str]) -> List[FieldError]:
    """Return what is no flag that a run may set, or here twice."""
    from cbt_plugins.faults.settings import FLAGS

    return _known(given, FLAGS, "no flag that a run may set")


def blinding_flags(given: Sequence[str]) -> List[str]:
    """Return the flags under which no fault is made: the cluster would not see it."""
    from cbt_plugins.faults.safety import BLINDING

    # the map shows `pause` as pauserd and pausewr
    return [flag for flag in given if any(shown in (flag, f"{flag}rd") for shown in BLINDING)]


def deadline_of(kind: str, given: Mapping[str, Any]) -> Optional[float]:
    """Return the seconds after which such a fault recovers by itself; None when it does not."""
    value = {**_kind(kind).options, **given}.get(DEADLINE)
    return None if value is None else float(value)


def options_of(kind: str, given: Mapping[str, Any]) -> Tuple[Dict[str, Any], List[FieldError]]:
    """Return the options as the kind takes them, and what is wrong with them; paths begin with an option's name."""
    known, made, errors = _kind(kind).options, {}, []
    for name, value in given.items():
        if isinstance(name, bool):
            errors.append(FieldError((name,), SWITCH, of_key=True))
            continue
        if name not in known:
            there = f"; it has {', '.join(known)}" if known else "; it has none"
            text = f"{kind} has no option {name!r}{did_you_mean(str(name), known) or there}"
            errors.append(FieldError((name,), text, of_key=True))
            continue
        try:
            made[name] = parse_duration(value) if name == DEADLINE else _like(known[name], value)
        except ValueError as error:
            errors.append(FieldError((name,), str(error)))
    if "secrets" in known:
        found = [word for value in made.values() if isinstance(value, str) for word in _ENVIRONMENT.findall(value)]
        named = made.get("secrets", known["secrets"])
        secrets = list(dict.fromkeys([*([named] if isinstance(named, str) else named), *found]))
        made.update({"secrets": secrets} if secrets else {})
    return made, errors


def _like(default: Any, value: Any) -> Any:
    """Return the value, which must be of the default's kind; None as a default takes any."""
    if isinstance(value, str):
        for match in _PASSWORD.finditer(value):
            # No message of this function may show the value.
            if not match["word"].startswith("$"):
                raise ValueError("a password stands here; take it from the environment: ${NAME}")
    if isinstance(default, bool):
        fits, what = isinstance(value, bool), "true or false"
    elif isinstance(default, (int, float)):
        numbers = (int, float) if isinstance(default, float) else (int,)
        fits, what = isinstance(value, numbers) and not isinstance(value, bool), "a number"
    elif isinstance(default, str):
        fits, what = isinstance(value, str), "text"
    elif isinstance(default, (tuple, list)):
        listed = isinstance(value, list) and all(isinstance(one, str) for one in value)
        fits, what = listed or isinstance(value, str), "text, or a list of text"
    else:
        return value
    if not fits:
        raise ValueError(f"must be {what}")
    return value


def missing(kind: str, given: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield what kinds of ours would find missing only when they look at the node, hours after the begin."""
    options = {**_kind(kind).options, **given}
    if kind == "power":
        for name in ("off", "on"):
            if not options[name]:
                yield FieldError((), f"power needs the option {name}: a command; {{node}} in it is the node's name")
    if kind == "network":
        from cbt_plugins.faults.kinds.network import LONGEST, SHORTEST

        if not SHORTEST <= options[DEADLINE] <= LONGEST:
            yield FieldError((DEADLINE,), "a node recovers by itself after 5s to 7d")
        if options["method"] not in ("link", "nft"):
            yield FieldError(("method",), "must be link (interfaces down) or nft (packets dropped, ssh excepted)")
        elif options["method"] == "link" and not options["interfaces"]:
            text = "needs the option interfaces: [names], which are taken down; method: nft needs none"
            yield FieldError((), f"network {text}")
    if options.get("daemons"):
        from cbt_plugins.faults.daemons import WAYS

        if options["daemons"] not in WAYS:
            yield FieldError(("daemons",), f"must be one of {', '.join(WAYS)}; without it that is found out")


def shown_secrets(given: Mapping[str, Any]) -> Optional[str]:
    """Return what is to be said of secrets that the commands of a fault would show to others; None when none is."""
    from cbt_plugins.faults.kinds import node as node_kinds

    commands = [value for name, value in given.items() if name != "secrets" and isinstance(value, str)]
    shown = node_kinds.shown_secrets(commands, given.get("secrets", ()))
    return node_kinds.SHOWN.format(", ".join(shown)) if shown else None


def consent(osds: Sequence[int]) -> str:
    """Return the words that destroying these OSDs takes."""
    from cbt_plugins.faults.kinds.daemon import names

    return f"{names(osds)} will be destroyed"


def _kind(name: str) -> Any:
    from cbt_plugins.faults import FaultError, registry

    try:
        return registry.kind(name)
    except FaultError as error:
        raise ValueError(str(error)) from None


def _known(given: Sequence[str], known: Sequence[str], what: str) -> List[FieldError]:
    errors = []
    for index, word in enumerate(given):
        if word not in known:
            hint = did_you_mean(word, known) or f"; there are {', '.join(known)}"
            errors.append(FieldError((index,), f"{what}: {word!r}{hint}"))
        elif word in given[:index]:
            errors.append(FieldError((index,), f"{word} is in the list twice"))
    return errors

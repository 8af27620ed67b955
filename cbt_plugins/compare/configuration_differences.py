"""Differences between the configurations of runs: those that make them incomparable, and all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.results.run_record import RunRecord

#: keys, or beginnings of keys, of RunRecord.config in which runs that are compared must agree
ESSENTIAL = ("benchmark", "engine", "phases", "objects.", "load.", "phase.", "pool.", "cluster.", "objective")
#: ... but for those that a comparison of clusters of two sizes is about
SCALED = ("cluster.osd_nodes", "cluster.osds", "cluster.rgws", "cluster.endpoints")

NOT_SET, NOT_KNOWN = "not set", "not known"
#: between the values of one side
_BETWEEN = " | "
#: characters of a value in a table
_SHOWN = 60
#: what a run was made by; it decides, although it is no key of its configuration
_KIND = "results of"


@dataclass(frozen=True)
class Difference:
    """One key and its values on both sides, as text; several values of one side are separated by " | "."""

    key: str
    base: str
    new: str

    @property
    def is_of_sides(self) -> bool:
        """Whether the sides have different values, not only runs of both."""
        return sorted(self.base.split(_BETWEEN)) != sorted(self.new.split(_BETWEEN))


@dataclass(frozen=True)
class Scale:
    """Sizes of the clusters of both sides: `--scale 3:5`."""

    base: int
    new: int

    def explains(self, base: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
        """Return whether one of the counts that may differ matches, or none is known."""
        counts = [(base[key], new[key]) for key in SCALED if key in base and key in new]
        return not counts or (self.base, self.new) in counts


class Incomparable(Exception):
    """Runs that cannot be compared; `differences` are the reasons."""

    def __init__(self, text: str, differences: Sequence[Difference] = ()) -> None:
        super().__init__(text)
        self.differences = tuple(differences)


def conflicts(base: RunRecord, new: RunRecord, scale: Optional[Scale] = None) -> List[Difference]:
    """Return the keys that make two runs incomparable: essential, known of both, and different.

    Raises Incomparable when `scale` is not what differs.
    """
    differences = []
    if base.kind != new.kind:
        differences.append(Difference(_KIND, base.kind, new.kind))
    for key in sorted(set(base.config) & set(new.config)):
        a, b = base.config[key], new.config[key]
        if a != b and is_essential(key) and not (scale and key in SCALED):
            differences.append(Difference(key, text(a), text(b)))
    if scale and not scale.explains(base.config, new.config):
        counts = ", ".join(
            f"{key} {text(base.config[key])}:{text(new.config[key])}"
            for key in SCALED
            if key in base.config and key in new.config
        )
        raise Incomparable(f"--scale {scale.base}:{scale.new} does not match the clusters: {counts}")
    return differences


def is_essential(key: str) -> bool:
    return any(key == name or (name.endswith(".") and key.startswith(name)) for name in ESSENTIAL)


def differing(base: Iterable[RunRecord], new: Iterable[RunRecord]) -> List[Difference]:
    """Return every key that differs between any runs of both sides, in the order of the keys."""
    sides = [[record.config for record in base], [record.config for record in new]]
    keys = sorted({key for side in sides for config in side for key in config})
    differences = []
    for key in keys:
        a, b = (list(_values(key, side)) for side in sides)
        if len({*a, *b}) > 1:
            differences.append(Difference(key, _BETWEEN.join(a), _BETWEEN.join(b)))
    return differences


def within(records: Sequence[RunRecord]) -> Dict[str, Tuple[str, ...]]:
    """Return the keys in which runs of one side differ from each other -> their values."""
    configs = [record.config for record in records]
    keys = sorted({key for config in configs for key in config})
    table = {key: tuple(_values(key, configs)) for key in keys}
    return {key: values for key, values in table.items() if len(values) > 1}


def _values(key: str, configs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the values of a key, without runs that do not know it (killed at once) unless none does."""
    values = dict.fromkeys(_value(key, config) for config in configs)
    yield from [value for value in values if value != NOT_KNOWN] or values


def _value(key: str, config: Mapping[str, Any]) -> str:
    """Return the value of an option; "not set" for an option that a run lacks although it has others of the same kind.
    """
    if key in config:
        return text(config[key])
    if is_essential(key):
        return NOT_KNOWN
    group = key.split(".", 1)[0] + "."
    return NOT_SET if any(name.startswith(group) for name in config) else NOT_KNOWN


def text(value: Any) -> str:
    """Return a value as text for people."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.10g}"
    return str(value)


def short(value: str) -> str:
    """Return as much of a value as fits into a line."""
    return value if len(value) <= _SHOWN else value[: _SHOWN - 3] + "..."

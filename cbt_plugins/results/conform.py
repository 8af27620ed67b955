"""The form of summary.json, and a check of it that needs no library."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Set

SCHEMA = Path(__file__).with_name("summary.schema.json")

_TYPES = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, (list, tuple)),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool) and v == v,
    "null": lambda v: v is None,
}


@lru_cache(maxsize=1)
def load() -> Dict[str, Any]:
    return json.loads(SCHEMA.read_text(encoding="utf-8"))


def check(data: Any) -> None:
    """Raise ValueError with the first places where `data` is not what the schema says.

    Knows the words of JSON Schema that the shipped schema uses: type, const, enum, minimum, required,
    properties, additionalProperties, items, $ref, anyOf.
    """
    found = []
    for fault in _faults(data, load(), "summary"):
        found.append(fault)
        if len(found) == 5:
            break
    if found:
        raise ValueError("not a valid summary: " + "; ".join(found))


def _faults(value: Any, schema: Mapping[str, Any], at: str) -> Iterator[str]:
    if "$ref" in schema:
        yield from _faults(value, load()["$defs"][schema["$ref"].rpartition("/")[2]], at)
    if "anyOf" in schema and all(next(_faults(value, choice, at), None) for choice in schema["anyOf"]):
        yield f"{at}: fits none of {len(schema['anyOf'])} forms"
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(_TYPES[name](value) for name in types):
        yield f"{at}: {type(value).__name__} is not {' or '.join(types)}"
        return
    if "const" in schema and value != schema["const"]:
        yield f"{at}: {value!r} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    if "minimum" in schema and isinstance(value, (int, float)) and value < schema["minimum"]:
        yield f"{at}: {value} is below {schema['minimum']}"
    if isinstance(value, dict):
        yield from _object(value, schema, at)
    elif isinstance(value, (list, tuple)) and "items" in schema and not _plainly_good(value, schema["items"]):
        for i, its in enumerate(value):
            yield from _faults(its, schema["items"], f"{at}[{i}]")


_PYTHON: Dict[str, Set[type]] = {"integer": {int}, "number": {int, float}, "null": {type(None)}}


def _plainly_good(values: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a list of numbers is seen at once to be what the schema says; most of a summary are such lists."""
    if not schema.keys() <= {"type", "minimum", "description"} or "type" not in schema:
        return False
    names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    kinds = set(map(type, values))
    if any(all(kind not in _PYTHON.get(name, ()) for name in names) for kind in kinds):
        return False
    numbers = values if kinds <= {int, float} else [v for v in values if v is not None]
    # a sum with a NaN in it is one
    return not numbers or (sum(numbers) == sum(numbers) and min(numbers) >= schema.get("minimum", -math.inf))


def _object(value: Mapping[str, Any], schema: Mapping[str, Any], at: str) -> Iterator[str]:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{at}: no {name}"
    for name, its in value.items():
        if name in properties:
            yield from _faults(its, properties[name], f"{at}.{name}")
        elif others is False:
            yield f"{at}: {name} is not in the schema"
        elif isinstance(others, dict):
            yield from _faults(its, others, f"{at}.{name}")

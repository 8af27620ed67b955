"""The form of summary.json: its name, its version, and a check of it; needed by who writes one and by who reads one."""

from __future__ import annotations

import json
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Set

FILE = "summary.json"
#: 1 (0.1.0): phases by warp and cbt-hybrid. 2 (0.2.0): the terms of docs/GLOSSARY.md
VERSION = 2

SCHEMA = Path(__file__).with_name("summary.schema.json")
_NUMBERS: Mapping[str, Set[type]] = {"integer": {int}, "number": {int, float}, "null": {type(None)}}


@lru_cache(maxsize=1)
def load() -> Dict[str, Any]:
    """Return the JSON Schema."""
    return json.loads(SCHEMA.read_text(encoding="utf-8"))


def check(data: Any) -> None:
    """Raise ValueError with the first places where `data` is not what the schema says; ImportError without jsonschema.

    Beyond JSON Schema, NaN is no number.
    """
    found = [f"{error.json_path}: {error.message[:200]}" for error in islice(_validator().iter_errors(data), 5)]
    if found:
        raise ValueError("not a valid summary: " + "; ".join(found))


@lru_cache(maxsize=1)
def _validator() -> Any:
    from jsonschema import Draft202012Validator, validators

    def items(validator: Any, schema: Mapping[str, Any], values: Any, parent: Any) -> Iterator[Any]:
        if not _all_numbers(values, schema):
            yield from standard["items"](validator, schema, values, parent)

    standard = Draft202012Validator.VALIDATORS
    types = Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "array": lambda _, it: isinstance(it, (list, tuple)),
            "number": lambda _, it: isinstance(it, (int, float)) and not isinstance(it, bool) and it == it,
        }
    )
    return validators.extend(Draft202012Validator, {"items": items}, type_checker=types)(load())


def _all_numbers(values: Any, schema: Mapping[str, Any]) -> bool:
    """Return whether a list of numbers is what the schema says, at once: most of a summary are such lists."""
    if not isinstance(values, (list, tuple)) or not schema.keys() <= {"type", "minimum", "description"}:
        return False
    names = schema.get("type", ())
    names = [names] if isinstance(names, str) else names
    kinds = set(map(type, values))
    if not all(any(kind in _NUMBERS.get(name, ()) for name in names) for kind in kinds):
        return False
    numbers = values if kinds <= {int, float} else [value for value in values if value is not None]
    # a sum with a NaN in it is one
    return not numbers or (sum(numbers) == sum(numbers) and min(numbers) >= schema.get("minimum", min(numbers)))

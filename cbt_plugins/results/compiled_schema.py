"""A quick look whether data is what a JSON Schema says: jsonschema, which says where it is not, takes 20 times as long.

The schema becomes functions once. They know the keywords of `_KEYWORDS`, `type` and those of objects.
"""

from __future__ import annotations

from math import inf, isfinite
from typing import Any, Callable, Dict, FrozenSet, Mapping, Sequence, Set

#: whether a value is what a schema says; False may also mean that jsonschema has to look
Matches = Callable[[Any], bool]

_TYPES: Mapping[str, Set[type]] = {
    "integer": {int},
    "number": {int, float},
    "null": {type(None)},
    "string": {str},
    "boolean": {bool},
    "object": {dict},
    "array": {list, tuple},
}
_NUMBERS = {int, float}
_CONSTANTS = {int, str, bool, type(None)}
_WITHOUT_MEANING = {"$schema", "$defs", "title", "description"}
_OF_OBJECTS = {"properties", "required", "additionalProperties"}
#: those that a list of numbers is looked at for as a whole
_OF_NUMBERS = {"type", "minimum"}
_DEFS = "#/$defs/"


def compile_schema(schema: Mapping[str, Any]) -> Matches:
    """Return the function that tells whether a value is what the schema says.

    NaN and infinity are no numbers; a tuple is an array.

    Raises ValueError for a keyword that is not known here.
    """
    defs: Dict[str, Matches] = {}
    for name, part in schema.get("$defs", {}).items():
        defs[_DEFS + name] = _compiled(part, defs)
    return _compiled(schema, defs)


def _compiled(schema: Any, defs: Mapping[str, Matches]) -> Matches:
    if isinstance(schema, bool):
        return lambda value: schema
    keywords = {key: of for key, of in schema.items() if key not in _WITHOUT_MEANING}
    unknown = keywords.keys() - _KEYWORDS.keys() - _OF_OBJECTS
    if unknown:
        raise ValueError(f"unknown keywords in a schema: {sorted(unknown)}")
    # the type first: the others are about values of theirs
    checks = [_KEYWORDS[key](keywords[key], defs) for key in sorted(keywords.keys() - _OF_OBJECTS, key="type".__ne__)]
    if keywords.keys() & _OF_OBJECTS:
        properties = {name: _compiled(part, defs) for name, part in keywords.get("properties", {}).items()}
        additional = _compiled(keywords.get("additionalProperties", True), defs)
        checks.append(_object(properties, frozenset(keywords.get("required", ())), additional))
    return _all_of(checks)


def _all_of(checks: Sequence[Matches]) -> Matches:
    if len(checks) == 1:
        return checks[0]
    if len(checks) == 2:
        first, second = checks
        return lambda value: first(value) and second(value)
    return lambda value: all(check(value) for check in checks)


def _object(properties: Mapping[str, Matches], required: FrozenSet[str], additional: Matches) -> Matches:
    def matches(value: Any) -> bool:
        if not isinstance(value, dict):
            return True
        for name, part in value.items():
            if not properties.get(name, additional)(part):
                return False
        return required <= value.keys()

    return matches


def _type(names: Any, _: Mapping[str, Matches]) -> Matches:
    kinds: Set[type] = set().union(*(_TYPES[name] for name in ([names] if isinstance(names, str) else names)))
    return lambda value: type(value) in kinds and (type(value) is not float or isfinite(value))


def _constants(values: Any, _: Mapping[str, Matches]) -> Matches:
    typed_values = {(type(value), value) for value in values}
    return lambda value: type(value) in _CONSTANTS and (type(value), value) in typed_values


def _any_of(schemas: Any, defs: Mapping[str, Matches]) -> Matches:
    ways = [_compiled(schema, defs) for schema in schemas]
    return lambda value: any(way(value) for way in ways)


def _items(schema: Any, defs: Mapping[str, Matches]) -> Matches:
    item_matches = _compiled(schema, defs)
    of_numbers = schema.keys() - _WITHOUT_MEANING <= _OF_NUMBERS

    def matches(value: Any) -> bool:
        if not isinstance(value, (list, tuple)):
            return True
        one_of_each = dict(zip(map(type, value), value)) if of_numbers else {}
        if not one_of_each or not one_of_each.keys() <= {*_NUMBERS, type(None)}:
            return all(map(item_matches, value))
        numbers = value if type(None) not in one_of_each else [item for item in value if item is not None]
        if numbers and (not -inf < sum(numbers) < inf or not item_matches(min(numbers))):  # a sum with a NaN is one
            return False
        return all(map(item_matches, one_of_each.values()))

    return matches


def _of_number(holds: Callable[[Any, Any], bool]) -> Callable[[Any, Mapping[str, Matches]], Matches]:
    def check_of_limit(limit: Any, _: Mapping[str, Matches]) -> Matches:
        return lambda value: type(value) not in _NUMBERS or holds(value, limit)

    return check_of_limit


#: keyword of a schema -> what makes the function that checks a value by it
_KEYWORDS: Mapping[str, Callable[[Any, Mapping[str, Matches]], Matches]] = {
    "type": _type,
    "$ref": lambda name, defs: lambda value: defs[name](value),  # a schema may be within itself
    "enum": _constants,
    "const": lambda value, defs: _constants([value], defs),
    "anyOf": _any_of,
    "items": _items,
    "minItems": lambda fewest, _: lambda value: not isinstance(value, (list, tuple)) or len(value) >= fewest,
    "minimum": _of_number(lambda value, limit: value >= limit),
    "maximum": _of_number(lambda value, limit: value <= limit),
    "exclusiveMinimum": _of_number(lambda value, limit: value > limit),
}

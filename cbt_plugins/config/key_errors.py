"""pydantic's errors in our words: each with the path in the user's data and a hint."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
)

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cbt_plugins.config.errors import Path, did_you_mean

#: pattern of a text with a unit in the JSON Schema -> the text for a number, as a file has it; `config.units` adds them
UNIT_FORMATS: Dict[str, Callable[[Any], str]] = {}
#: of a key that should be text
SWITCH = "YAML makes true and false of on, off, yes and no: quote the key"


def not_text(key: Any) -> str:
    """Return the error of a key that should be text; CBT, too, can make no run id of it."""
    return SWITCH if isinstance(key, bool) else f"the key {key!r} is not text: quote it, or add the unit"


class Strict(BaseModel):
    """A mapping that the user writes: unknown keys and nulls are errors, nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


def file_default(read: Callable[[Any], Any], value: Any, **options: Any) -> Any:
    """Return the field of a key whose default is a value as a file has it, and what `read` makes of that."""
    return Field(read(value), json_schema_extra={"default": value}, **options)


def exactly_one(names: Sequence[str]) -> Dict[str, Any]:
    """Return the JSON Schema of a mapping that has one of these keys."""
    return {"oneOf": [{"required": [name]} for name in names]}


def only_one(section: Strict, names: Tuple[str, ...]) -> str:
    """Return the one of the optional keys that is given; ValueError unless it is exactly one."""
    given = [name for name in names if getattr(section, name) is not None]
    if len(given) == 1:
        return given[0]
    if not given:
        raise ValueError(f"needs one of {', '.join(names)}")
    raise ValueError(f"{' and '.join(given)} exclude each other: keep one")


class FieldError(NamedTuple):
    """An error in a mapping of the file, before its line and column are known."""

    path: Path
    text: str
    of_key: bool = False  # the key is wrong, not its value


class FieldErrors(ValueError):
    """What a validator raises for errors below its own value: paths are relative to that value."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(error.text for error in errors))


def errors_of_words(words: Sequence[str], allowed: Sequence[str], problem: str) -> List[FieldError]:
    """Return an error for each word of a list that is not known (`problem`: "unknown flag"), or in the list twice."""
    errors = []
    for index, word in enumerate(words):
        if word not in allowed:
            hint = did_you_mean(word, allowed) or f"; known are {', '.join(allowed)}"
            errors.append(FieldError((index,), f"{problem}: {word!r}{hint}"))
        elif word in words[:index]:
            errors.append(FieldError((index,), f"{word} is in the list twice"))
    return errors


_Model = TypeVar("_Model", bound=BaseModel)


def validate(
    model: Type[_Model], data: Any, context: Optional[Mapping[str, Any]] = None
) -> Tuple[Optional[_Model], Tuple[FieldError, ...]]:
    """Return the model and no errors, or None and every error that `data` has."""
    nulls = _nulls((), data) if issubclass(model, Strict) else ()
    errors = [FieldError(path, "empty value: set it or remove the key") for path in nulls]
    empty = {error.path for error in errors}
    try:
        valid: Optional[_Model] = model.model_validate(data, context=dict(context or {}))
    except ValidationError as error:
        valid, schema = None, _schema_of(model)
        for detail in error.errors(include_url=False, include_input=True):
            errors += [error for error in _errors_of_key(detail, schema) if error.path not in empty]
    return (None if errors else valid), tuple(errors)


@lru_cache(maxsize=64)
def _schema_of(model: Type[BaseModel]) -> Mapping[str, Any]:
    """Return the schema of a model, made once: that takes longer than the check of a file."""
    return model.model_json_schema()


def _nulls(path: Path, data: Any) -> Iterator[Path]:
    """Yield the place of each null of the data, which YAML makes of `key:`; no key of ours means anything by it."""
    if data is None:
        yield path
    elif isinstance(data, (dict, list)):
        for part, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from _nulls((*path, part), value)


def _errors_of_key(detail: Any, schema: Mapping[str, Any]) -> Iterator[FieldError]:
    # Tags of a union and marks such as "[key]" are pydantic's, not the user's.
    path: Path = tuple(part for part in detail["loc"] if isinstance(part, int) or part[:1] not in ("<", "["))
    kind, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    if kind == "value_error":
        cause = context["error"]
        if isinstance(cause, FieldErrors):
            for error in cause.errors:
                yield error._replace(path=path + error.path)
        else:
            yield FieldError(path, str(cause))
    elif kind == "extra_forbidden":
        keys = _keys_at(schema, detail["loc"][:-1])
        hint = did_you_mean(str(path[-1]), keys) or _elsewhere(schema, detail["loc"])
        hint = hint or (f"; known here: {', '.join(keys)}" if keys else "")
        yield FieldError(path, f"unknown key{hint}", of_key=True)
    elif kind == "invalid_key":
        yield FieldError((*path[:-1], value), not_text(value), of_key=True)
    elif kind == "missing":
        yield FieldError(path, "this key is required")
    elif kind == "literal_error":
        choices = [_yaml(choice) for choice in context["expected"].replace(" or ", ", ").split(", ")]
        hint = did_you_mean(value, choices) if isinstance(value, str) else ""
        yield FieldError(path, f"must be {' or '.join(choices)}{hint}")
    else:
        if kind == "too_short" and context["min_length"] > 1:
            kind = "too_few"
        has = "a number with a decimal point" if kind == "int_type" and isinstance(value, float) else _kind_of(value)
        limits = _with_units(context, _nodes_at(schema, detail["loc"]))
        text = _WORDS.get(kind, "{msg}").format(msg=detail["msg"], has=has, **limits)
        text += _correction(kind, value)
        time = isinstance(value, str) and _TIME.fullmatch(value) and "duration" in _keys_at(schema, detail["loc"])
        yield FieldError(path, f"{text}; write {{duration: {value}}}" if time else text)


def _with_units(limits: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    """Return the limits of a number as a file has them, if the JSON Schema says that it is text with a unit."""
    write = next((UNIT_FORMATS[node["pattern"]] for node in nodes if node.get("pattern") in UNIT_FORMATS), None)
    names = ("gt", "ge", "lt", "le")
    return {name: write(limit) if write and name in names else limit for name, limit in limits.items()}


def _yaml(literal: str) -> str:
    return literal.lower() if literal in ("True", "False") else literal.strip("'")


def _correction(kind: str, value: Any) -> str:
    """Return the correction of a value of a wrong kind, "" where that is not clear; the text never shows the value."""
    if isinstance(value, str):
        for expected, meant in _QUOTED.items():
            if kind == expected and meant.fullmatch(value):
                return ": write it without quotes"
        if kind == "int_type" and _MULTIPLE.fullmatch(value):
            return ": write all of its digits (10k is 10000)"
    if kind == "list_type" and isinstance(value, (str, int, float)):
        return ": put it into brackets: [...]"
    if kind == "list_type" and isinstance(value, dict):
        return ": write - before each element"
    if kind in ("dict_type", "model_type") and isinstance(value, list):
        return ": remove the - before its keys"
    return ""


#: text that is a value of another kind between quotes
_QUOTED = {
    "bool_type": re.compile("true|false|yes|no|on|off", re.IGNORECASE),
    "int_type": re.compile("[0-9]{1,19}"),
    "float_type": re.compile("[0-9]{1,19}([.][0-9]{1,19})?"),
}
_MULTIPLE = re.compile("[0-9.]+ ?[kKmMgG]")
_TIME = re.compile(r"([0-9.]+(ms|[smhd]))+")
_WORDS = {
    "bool_type": "must be true or false, not {has}",
    "dict_type": "must be a mapping (key: value), not {has}",
    "finite_number": "must be a finite number",
    "float_type": "must be a number, not {has}",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_type": "must be a whole number, not {has}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list, not {has}",
    "model_type": "must be a mapping (key: value), not {has}",
    "string_type": "must be text, not {has}",
    "string_too_short": "must not be empty",
    "too_few": "must have at least {min_length} elements",
    "too_long": "must have at most {max_length} elements",
    "too_short": "must not be empty",
}


def _kind_of(value: Any) -> str:
    """Name the kind of a value and never the value: it may be a secret at a wrong place."""
    if value is None:
        return "nothing"
    kinds = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "a mapping",
    }
    return kinds.get(type(value), f"a {type(value).__name__}")


def _keys_at(schema: Mapping[str, Any], loc: Sequence[Any]) -> List[str]:
    """Return the keys that the JSON Schema knows at `loc`."""
    return [key for node in _nodes_at(schema, loc) for key in node.get("properties", {})]


def _nodes_at(schema: Mapping[str, Any], loc: Sequence[Any]) -> List[Mapping[str, Any]]:
    """Return the parts of the JSON Schema that are about `loc`."""
    nodes = [schema]
    for part in loc:
        if isinstance(part, str) and part[:1] in ("<", "["):  # a union's tag is no step in the data
            continue
        children = [_child(node, part) for node in _branches(schema, nodes)]
        nodes = [child for child in children if child] or nodes
    return list(_branches(schema, nodes))


def _elsewhere(schema: Mapping[str, Any], loc: Sequence[Any]) -> str:
    """Return the places where a key belongs: inside keys that are known here, in lists inside them, or further out."""
    *here, key = loc
    below = [(*here, name) for name in _keys_at(schema, here)]
    inside = [str(place[-1]) for place in below if key in _keys_at(schema, place)]
    if inside:
        return f"; it belongs inside {', '.join(inside[:-1])}{' or ' if inside[1:] else ''}{inside[-1]}"
    lists = dict.fromkeys((*place, inner) for place in below for inner in _keys_at(schema, place))
    names = dict.fromkeys(str(place[-1]) for place in lists if key in _keys_at(schema, (*place, 0)))
    if names:
        return f"; it belongs inside the list {' or '.join(names)}"
    for depth in range(len(here) - 1, -1, -1):
        if here[depth] == key:
            return f"; it stands inside {key} already: move its keys one level out"
        if isinstance(here[depth], str) and here[depth][:1] not in ("<", "[") and key in _keys_at(schema, here[:depth]):
            return f"; it belongs beside {here[depth]}, not inside it: indent it less"
    return ""


def _branches(schema: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for node in nodes:
        if "$ref" in node:
            yield from _branches(schema, [schema["$defs"][node["$ref"].rpartition("/")[2]]])
        yield node
        yield from _branches(schema, [*node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("allOf", ())])


def _child(node: Mapping[str, Any], part: Any) -> Optional[Mapping[str, Any]]:
    if isinstance(part, int):
        items = node.get("items")
        return items if isinstance(items, Mapping) else None
    child = node.get("properties", {}).get(part, node.get("additionalProperties"))
    return child if isinstance(child, Mapping) else None


_Profile = TypeVar("_Profile", bound=Strict)


def values_of(model: Type[_Profile], name: str, profile: Mapping[str, Any]) -> _Profile:
    """Return the values of a monitoring profile as CBT hands it over; ValueError names all that is wrong with it."""
    values, errors = validate(model, dict(profile))
    if values is None:
        texts = (": ".join([".".join(map(str, error.path)), error.text]) for error in errors)
        raise ValueError(f"monitoring_profiles: {name}: " + "; ".join(texts))
    return values

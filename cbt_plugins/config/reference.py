"""The tables of docs/CONFIG.md: every key of every section, made from the JSON Schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping

from cbt_plugins.config import schema
from cbt_plugins.config.cluster import ClusterSection
from cbt_plugins.config.fault_file import FaultFileSection
from cbt_plugins.config.monitors import PROFILES
from cbt_plugins.config.sections import CBT_KEYS, our_sections
from cbt_plugins.config.sizes import RANGE_PATTERN
from cbt_plugins.config.units import RATE_PATTERN, Duration, Percent, Size

#: the page in a checkout; an installation has none
PAGE = Path(__file__).resolve().parents[2] / "docs" / "CONFIG.md"
_BEGIN = "<!-- keys: made by `python -m cbt_plugins.config.schema --write` -->"
_END = "<!-- end of keys -->"


def refresh(page: str) -> str:
    """Return the page with its tables made anew; ValueError when it has no place for them."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} lacks the lines {_BEGIN} and {_END}")
    return f"{before}{_BEGIN}\n\n{tables()}\n{_END}{after}"


def tables() -> str:
    """Return one table per mapping, in Markdown."""
    defs = schema.build()["$defs"]
    parts = []
    tops = {
        "cluster": ClusterSection.__name__,
        **{name: section.__name__ for name, section in our_sections().items()},
        "file of faults": FaultFileSection.__name__,
        **{f"monitoring_profiles.{name}": model.__name__ for name, model in PROFILES.items()},
    }
    pending = [(f"`{name}:`", model) for name, model in tops.items()]
    titles: Dict[str, str] = {model: title for title, model in pending}
    for title, model in pending:
        for key, node in defs[model]["properties"].items():
            for inner in _refs(node):
                if inner not in titles:
                    titles[inner] = f"{title.rstrip('`:')}.{key}:`"
                    pending.append((titles[inner], inner))
    for title, model in pending:
        parts.append(f"### {title}\n\n{defs[model].get('description', '')}\n\n{_table(defs[model], titles)}")
    return "\n".join(parts)


def _table(model: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    if not model["properties"]:
        return "It has no keys.\n"
    lines = ["| key | value | default | meaning |", "| --- | --- | --- | --- |"]
    for key, node in model["properties"].items():
        if key in CBT_KEYS:
            continue
        if key in model.get("required", ()):
            default = "required"
        else:
            default = f"`{_yaml(node['default'])}`" if "default" in node else ""
        value = " or ".join(dict.fromkeys(_kinds(node, titles)))
        lines.append(f"| `{key}` | {value} | {default} | {node.get('description', '')} |")
    return "\n".join(lines) + "\n"


def _kinds(node: Mapping[str, Any], titles: Mapping[str, str]) -> Iterator[str]:
    if "$ref" in node:
        yield f"mapping, see {titles[node['$ref'].rpartition('/')[2]]}"
    elif "const" in node:
        yield f"`{_yaml(node['const'])}`"
    elif "enum" in node:
        # true and false are what YAML makes of on and off
        choices = [choice for choice in node["enum"] if isinstance(choice, str)] or node["enum"]
        yield " ".join(f"`{choice}`" for choice in choices)
    elif node.get("pattern") in _UNITS:
        yield _UNITS[node["pattern"]]
    elif "anyOf" in node or "oneOf" in node:
        parts: List[Mapping[str, Any]] = [*node.get("anyOf", ()), *node.get("oneOf", ())]
        # Every key of a section may be a list of such values; the text says so once for all.
        for part in parts:
            if part.get("items") not in parts:
                yield from _kinds(part, titles)
    elif node.get("type") == "array":
        yield f"list of {' or '.join(_kinds(node['items'], titles))}"
    elif node.get("type") == "object":
        yield "mapping"
    else:
        words = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
        yield words.get(node.get("type", ""), "anything")


def _refs(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"].rpartition("/")[2]
        for inner in node.values():
            yield from _refs(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from _refs(inner)


def _yaml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(inner)}" for key, inner in value.items()) + "}"
    return value if isinstance(value, str) else json.dumps(value)


def _pattern(kind: Any) -> str:
    return str(
        next(part for part in kind.__metadata__ if hasattr(part, "json_schema")).json_schema["pattern"]
    )


_UNITS = {
    _pattern(Size): "size",
    RANGE_PATTERN: "size or range",
    _pattern(Duration): "duration",
    _pattern(Percent): "percent",
    RATE_PATTERN: "rate",
}

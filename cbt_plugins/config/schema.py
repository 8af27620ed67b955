"""The JSON Schema of a CBT file with our sections, and docs/CONFIG-REFERENCE.md; both made from the models."""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
import textwrap
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, FrozenSet, Iterator, List, Mapping, Tuple, Type

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from cbt_plugins.config import plugins
from cbt_plugins.config.bisect import BisectSection
from cbt_plugins.config.campaign import CampaignSection
from cbt_plugins.config.cluster import ClusterSection
from cbt_plugins.config.events import FaultFileSection
from cbt_plugins.config.fault import kind_class
from cbt_plugins.config.key_errors import UNIT_FORMATS
from cbt_plugins.config.pull_request import PullRequestSection
from cbt_plugins.config.section_to_plan import CBT_KEYS, our_sections
from cbt_plugins.config.units import (
    LINK_PATTERN,
    RANGE_PATTERN,
    RATE_PATTERN,
    Duration,
    Percent,
    Size,
)
from cbt_plugins.plan import S3, CbtLoad, Work

#: the shipped schema
FILE = Path(__file__).with_name("cbt-plugins.schema.json")

#: how an object's own keys are told from schema keywords: below these, names are the user's
_NAMED = frozenset({"properties", "$defs"})


def build() -> Dict[str, Any]:
    """Return the schema, Draft 2020-12; it is coarser than `load_file` (no sums, no order of phases).

    A fault file has the definition FaultFileSection.
    """
    sections, profiles = our_sections(plugins.BENCHMARKS), our_sections(plugins.MONITORS)
    ours = (ClusterSection, FaultFileSection, CampaignSection, BisectSection, PullRequestSection)
    models: List[Type[BaseModel]] = [*sections.values(), *ours, *profiles.values()]
    _, top = models_json_schema([(model, "validation") for model in models])
    defs = _tidy({"$defs": top["$defs"]})["$defs"]
    for section in sections.values():
        _open_for_cbt(defs[section.__name__])
    _with_kinds(defs)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "CBT file with benchmarks of cbt-plugins",
        "type": "object",
        "required": ["cluster", "benchmarks"],
        "properties": {
            "cluster": {"$ref": f"#/$defs/{ClusterSection.__name__}"},
            "client_endpoints": {"type": "object"},
            "campaign": {"$ref": f"#/$defs/{CampaignSection.__name__}"},
            "bisect": {"$ref": f"#/$defs/{BisectSection.__name__}"},
            "pr": {"$ref": f"#/$defs/{PullRequestSection.__name__}"},
            "monitoring_profiles": {
                "type": "object",
                "properties": {name: {"$ref": f"#/$defs/{model.__name__}"} for name, model in profiles.items()},
                "additionalProperties": {"type": "object"},
            },
            "benchmarks": {
                "type": "object",
                "minProperties": 1,
                "properties": {
                    name: {"$ref": f"#/$defs/{section.__name__}"} for name, section in sections.items()
                },
            },
        },
        "$defs": dict(sorted(defs.items())),
    }


def text() -> str:
    """Return the schema as the file has it."""
    return json.dumps(build(), indent=1) + "\n"


def _with_kinds(defs: Dict[str, Any]) -> None:
    """Add the options of our fault kinds, and have each fault take those of its kind."""
    conditions = []
    for kind in plugins.built_in(plugins.FAULTS):
        defs[_options(kind)] = _tidy(kind_class(kind).Options.model_json_schema())
        takes = {"properties": {"options": {"$ref": f"#/$defs/{_options(kind)}"}}}
        conditions.append({"if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]}, "then": takes})
    for model in defs.values():
        if {"kind", "accept"} <= set(model.get("properties", ())):
            model["allOf"] = conditions


def _options(kind: str) -> str:
    return f"{kind.capitalize()}Options"


def _open_for_cbt(section: Dict[str, Any]) -> None:
    """Let each key be a list too (CBT runs each element), and add the keys that CBT reads itself."""
    for key, node in section["properties"].items():
        about = {name: node.pop(name) for name in ("description", "default") if name in node}
        section["properties"][key] = {**about, "anyOf": [node, {"type": "array", "minItems": 1, "items": node}]}
    for key in sorted(CBT_KEYS):
        section["properties"][key] = {"description": "CBT's own key; ignored here."}
    section["properties"]["acceptable"] = {
        "description": "For CBT's compare.py: [phase/][operation/]metric -> statement.",
        "type": "object",
        "additionalProperties": {"type": "string"},
    }


def _tidy(node: Any, named: bool = False) -> Any:
    """Drop made-up titles, and the null that pydantic allows for an optional key and `validate` does not."""
    if isinstance(node, list):
        return [_tidy(inner) for inner in node]
    if not isinstance(node, dict):
        return node
    if named:
        return {key: _tidy(inner) for key, inner in node.items()}
    kept = {
        key: inner if key in ("default", "examples") else _tidy(inner, named=key in _NAMED)
        for key, inner in node.items()
        if key != "title" and not (key == "default" and inner is None)
    }
    if {"type": "null"} in kept.get("anyOf", ()):
        choices = [choice for choice in kept.pop("anyOf") if choice != {"type": "null"}]
        kept = {**(choices[0] if len(choices) == 1 else {"anyOf": choices}), **kept}
    if kept.get("pattern") in UNIT_FORMATS and isinstance(kept.get("default"), (int, float)):
        kept["default"] = UNIT_FORMATS[kept["pattern"]](kept["default"])  # as a file says it
    return kept


#: the page in a checkout; an installation has none
PAGE = Path(__file__).resolve().parents[2] / "docs" / "CONFIG-REFERENCE.md"
_ANY_KIND = "`options:` of every kind that has options"
_INTRODUCTION = """\
<!-- made by `python -m cbt_plugins.config.schema --write` -->
# Every key of the YAML

The ideas and examples are in [CONFIG](CONFIG.md). Bold keys are required. The column *value* is empty where the default
shows the kind of value. A description that begins with `cbt-load.` or `warp.` is of a key for this engine only;
`reef.` or `classic.`: for this shape of `osdfailure:` only. Every key directly below a section of `benchmarks:` may be
a list of such values, which is a sweep.

CBT's own keys `valgrind`, `log_iops`, `log_bw` and `log_lat` are ignored; `acceptable` is for
[compare.py](CBT.md#comparepy). The keys `phases`, `workloads`, `benchmark` and `iteration` directly below a section are
refused, because CBT gives them a meaning of its own. `osd_ra` is refused: set read-ahead on the nodes.
"""


def reference() -> str:
    """Return the reference page."""
    return f"{_INTRODUCTION}\n{tables()}"


def tables() -> str:
    """Return one table per mapping, in Markdown; a row that an earlier table has is named and not repeated."""
    defs = build()["$defs"]
    # few keys first: a longer section names the rows that it shares with a shorter one
    sections = sorted(our_sections(plugins.BENCHMARKS).items(), key=lambda item: len(item[1].model_fields))
    benchmarks = {f"`{name}:`": section.__name__ for name, section in sections}
    title_of_kind = {kind: f"`options:` of `kind: {kind}`" for kind in plugins.built_in(plugins.FAULTS)}
    kinds = {title: _options(kind) for kind, title in title_of_kind.items()}
    abouts = {title: inspect.getdoc(kind_class(kind)) or "" for kind, title in title_of_kind.items()}
    others = {"`cluster:`": ClusterSection.__name__, "`fault file:`": FaultFileSection.__name__}
    others["`campaign:`"] = CampaignSection.__name__
    others["`bisect:`"] = BisectSection.__name__
    others["`pr:`"] = PullRequestSection.__name__
    for name, profile in our_sections(plugins.MONITORS).items():
        others[f"`monitoring_profiles.{name}:`"] = profile.__name__
    tables = [
        *_family("every benchmark", "", benchmarks, defs),
        *((title, defs[model].get("description", ""), defs[model]) for title, model in others.items()),
        *((title, abouts.get(title, ""), model) for title, _, model in _family(_ANY_KIND, "", kinds, defs)),
    ]
    small = _small(defs)
    titles = dict.fromkeys(small, "mapping")
    for title, _, model in tables:
        prefix = "" if title == "every benchmark" else f"{title.strip('`:')}."
        for key, node in model["properties"].items():
            for inner in _refs(node):
                if inner in titles:
                    continue
                if not defs[inner].get("properties"):
                    titles[inner] = "`{}`"
                else:
                    titles[inner] = f"`{prefix}{key}:`"
                    tables.append((titles[inner], "", defs[inner]))  # the key's own row says what it is
    seen: Dict[str, str] = {}
    parts = [(title, about, _rows(_with_small(model, defs, small), titles)) for title, about, model in tables]
    heads = (f"## {title}\n" + (f"\n{about}\n" if about else "") for title, about, _ in parts)
    return "\n".join(head + _table(title, rows, seen) for head, (title, _, rows) in zip(heads, parts))


def _small(defs: Mapping[str, Any]) -> FrozenSet[str]:
    """Return the models of one key's few keys, which have their rows in the table of that key."""
    keys = (node for model in defs.values() for node in model.get("properties", {}).values())
    used = Counter(inner for node in keys for inner in set(_refs(node)))
    return frozenset(
        name for name, model in defs.items()
        if used[name] == 1 and 1 <= len(model.get("properties", {})) <= 3 and not any(_refs(model["properties"]))
    )  # fmt: skip


def _with_small(model: Mapping[str, Any], defs: Mapping[str, Any], small: FrozenSet[str]) -> Mapping[str, Any]:
    """Return the model with the keys of its small models behind theirs."""
    properties, required = {}, list(model.get("required", ()))
    for key, node in model["properties"].items():
        properties[key] = node
        for inner in (name for name in dict.fromkeys(_refs(node)) if name in small):
            properties.update({f"{key}.{name}": small_node for name, small_node in defs[inner]["properties"].items()})
            required += [f"{key}.{name}" for name in defs[inner].get("required", ())]
    return {**model, "properties": properties, "required": required}


def _family(
    name: str, about: str, members: Mapping[str, str], defs: Mapping[str, Any]
) -> Iterator[Tuple[str, str, Mapping[str, Any]]]:
    """Yield (title, description, model) of what all members that have keys share, then of each of them the rest."""
    models = {title: defs[model] for title, model in members.items() if defs[model].get("properties")}
    first = next(iter(models.values()))
    shared = {
        key: node
        for key, node in first["properties"].items()
        if all(model["properties"].get(key) == node for model in models.values())
    }
    yield name, about, {"properties": shared, "required": first.get("required", ())}
    for title, model in models.items():
        own_properties = {key: node for key, node in model["properties"].items() if key not in shared}
        if own_properties:
            yield title, model.get("description", ""), {**model, "properties": own_properties}


def _table(title: str, rows: Mapping[str, str], seen: Dict[str, str]) -> str:
    """Return the rows that no table in `seen` (title by row) has, and where the others stand; add them to `seen`."""
    new: Dict[str, List[str]] = {}
    old: Dict[str, List[str]] = {}
    for key, cells in rows.items():
        place = seen.setdefault(f"{key} {cells}", title)
        group = new.setdefault(cells, []) if place == title else old.setdefault(place, [])
        group.append(key)
    lines = [f"| {', '.join(keys)} | {cells} |" for cells, keys in new.items()]
    if lines:
        lines[:0] = ["", "| key | value | default | meaning |", "| --- | --- | --- | --- |"]
    for place, keys in old.items():
        anchor = re.sub(r"[^\w -]", "", place.lower()).replace(" ", "-")
        text = f"As in [{place}](#{anchor}): {', '.join(keys)}."
        lines += ["", *textwrap.wrap(text, _LINE, break_long_words=False, break_on_hyphens=False)]
    return "".join(f"{line}\n" for line in lines)


def _rows(model: Mapping[str, Any], titles: Mapping[str, str]) -> Dict[str, str]:
    """Return the cells of value, default and meaning by key; one that is required is bold."""
    rows = {}
    for key, node in model["properties"].items():
        if key in CBT_KEYS:
            continue
        default = f"`{_yaml(node['default'])}`" if "default" in node else ""
        value = ", ".join(dict.fromkeys(_kinds(node, titles)))
        if default.strip("`") and value in _PLAIN:
            value = ""  # the default shows it
        name = f"**`{key}`**" if key in model.get("required", ()) else f"`{key}`"
        rows[name] = f"{value} | {default} | {node.get('description', '')}"
    return rows


def _kinds(node: Mapping[str, Any], titles: Mapping[str, str]) -> Iterator[str]:
    if "$ref" in node:
        yield titles[node["$ref"].rpartition("/")[2]]
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
        items = " or ".join(_kinds(node["items"], titles))
        yield "list" if items == "text" else f"list of {items}"
    elif node.get("type") == "object":
        yield "mapping"
    else:
        words = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}
        types = node.get("type", "")
        yield from (words.get(name, "anything") for name in (types if isinstance(types, list) else [types]))


#: characters of a line of the page outside tables
_LINE = 120
#: kinds of values that a default shows as well as their name
_PLAIN = ("boolean", "duration", "integer", "list", "mapping", "percent", "size", "text")


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
    RANGE_PATTERN: "size, range",
    _pattern(Duration): "duration",
    _pattern(Percent): "percent",
    RATE_PATTERN: "rate",
    LINK_PATTERN: "speed of a link",
}


#: where cbt-load itself, run without a plan, has its defaults; of a checkout
COMPANION = Path(__file__).resolve().parents[2] / "tools" / "companion" / "internal" / "spec" / "defaults.go"


def go_defaults() -> str:
    """Return the defaults of `cbt_load:`, and those of `s3:` and of a phase that cbt-load has too, in Go."""
    of_requests = {key: getattr(S3, key) for key in ("region", "host_select", "lookup", "verify_tls", "payload")}
    defaults = {**asdict(CbtLoad()), "grace": CbtLoad.grace, **of_requests, "arrivals": Work.arrivals}
    values = {f"default{key.title().replace('_', '')}": value for key, value in defaults.items()}
    width = max(map(len, values))
    lines = (f"\t{name:{width}} = {json.dumps(value)}\n" for name, value in values.items())
    head = "// Code generated by python -m cbt_plugins.config.schema --write from plan.py. DO NOT EDIT."
    return f"{head}\n\npackage spec\n\nconst (\n{''.join(lines)})\n"


def main() -> int:
    """Print the schema, or write all that is made of the models: also docs/CONFIG-REFERENCE.md, in a checkout."""
    parser = argparse.ArgumentParser(prog="python -m cbt_plugins.config.schema", description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="write the schema, docs/CONFIG-REFERENCE.md and cbt-load's defaults"
    )
    if not parser.parse_args().write:
        sys.stdout.write(text())
        return 0
    FILE.write_text(text(), encoding="utf-8")
    if PAGE.parent.is_dir():
        PAGE.write_text(reference(), encoding="utf-8")
        COMPANION.write_text(go_defaults(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

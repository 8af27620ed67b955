"""The JSON Schema of a CBT file with our sections, made from the models, for editors and other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Type

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from cbt_plugins.config.cluster import ClusterSection
from cbt_plugins.config.fault_file import FaultFileSection
from cbt_plugins.config.monitors import PROFILES
from cbt_plugins.config.sections import CBT_KEYS, our_sections

#: the shipped schema
FILE = Path(__file__).with_name("cbt-plugins.schema.json")

#: how an object's own keys are told from schema keywords: below these, names are the user's
_NAMED = frozenset({"properties", "$defs"})


def build() -> Dict[str, Any]:
    """Return the schema, Draft 2020-12; it is coarser than `check_file` (no sums, no order of phases).

    A file of faults has the definition FaultFileSection.
    """
    sections = our_sections()
    models: List[Type[BaseModel]] = [*sections.values(), ClusterSection, FaultFileSection, *PROFILES.values()]
    _, top = models_json_schema([(model, "validation") for model in models])
    defs = _tidy({"$defs": top["$defs"]})["$defs"]
    for section in sections.values():
        _open_for_cbt(defs[section.__name__])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "CBT file with benchmarks of cbt-plugins",
        "type": "object",
        "required": ["cluster", "benchmarks"],
        "properties": {
            "cluster": {"$ref": f"#/$defs/{ClusterSection.__name__}"},
            "client_endpoints": {"type": "object"},
            "monitoring_profiles": {
                "type": "object",
                "properties": {name: {"$ref": f"#/$defs/{model.__name__}"} for name, model in PROFILES.items()},
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


def _open_for_cbt(section: Dict[str, Any]) -> None:
    """Let each key be a list too (CBT runs each element), and add the keys that CBT reads itself."""
    for key, one in section["properties"].items():
        about = {name: one.pop(name) for name in ("description", "default") if name in one}
        section["properties"][key] = {**about, "anyOf": [one, {"type": "array", "minItems": 1, "items": one}]}
    for key in sorted(CBT_KEYS):
        section["properties"][key] = {"description": "CBT's own key; without meaning here."}
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
    return kept

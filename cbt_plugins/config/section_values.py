"""Kinds of values in the sections of benchmarks and of generators: engines, workers, and scaled numbers."""

from __future__ import annotations

from typing import Annotated, Any, Optional

from pydantic import BeforeValidator, Field, WithJsonSchema

from cbt_plugins.config import plugins
from cbt_plugins.config.errors import did_you_mean


def _generator(name: Any) -> Any:
    """Return the name of a load generator that is installed."""
    generators = list(plugins.references(plugins.GENERATORS))
    if name not in generators:
        raise ValueError(
            f"must be {' or '.join(generators)}{did_you_mean(name, generators) if isinstance(name, str) else ''}"
        )
    return name


#: the name of a load generator: warp, cbt-load, or another's
Engine = Annotated[
    str,
    BeforeValidator(_generator),
    # ours by name, for the editor's list; another distribution's may be installed where the file is used
    WithJsonSchema({"anyOf": [{"enum": plugins.built_in(plugins.GENERATORS)}, {"type": "string", "minLength": 1}]}),
]

ENGINE = "What makes the load of fill and hybrid phases."

#: more drivers, buckets or workers per driver than this are a typing error
MANY = 10_000
Workers = Annotated[
    int, Field(ge=1, le=MANY, description="Requests in flight per driver (closed loop).")
]


def scaled_duration(seconds: Optional[float], scale: float) -> Optional[float]:
    """Return the scaled duration, at least 1 s unless less was asked for."""
    return None if seconds is None else max(round(seconds * scale, 6), min(seconds, 1.0))


def scaled_objects(number: Optional[int], scale: float) -> Optional[int]:
    """Return the scaled number of objects, at least 1."""
    return None if number is None else max(round(number * scale), 1)

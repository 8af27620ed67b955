"""JSON: plain values, for other programs."""

from __future__ import annotations

import json
import math
from typing import Any

from cbt_plugins.formatting.formats.format import Format


class Json(Format):
    """Plain values."""

    name, purpose = "json", "for programs"

    def text(self, content: Any, again: bool = False) -> str:
        return json.dumps(_finite(content), indent=1, default=str) + "\n"

    def safe(self, text: str) -> str:
        return text.replace("\x7f", "\\u007f")  # the only sign of ASCII that a terminal would get escaped


def _finite(value: Any) -> Any:
    """Return a value as JSON can have it: null for what is no finite number, text for the keys of a mapping."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value

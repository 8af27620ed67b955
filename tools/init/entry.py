"""One line of the file."""

from __future__ import annotations

from typing import Any, NamedTuple


class Entry(NamedTuple):
    """A key of the file, its value, and the comment behind it."""

    key: str
    value: Any
    comment: str = ""

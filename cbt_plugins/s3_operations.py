"""The operations of S3 loads, in the order of tables: how sentences and plots show them, and what they do with data.

docs/EXTENDING.md lists the other files that a new operation needs ("Add an operation of cbt-load").
"""

from __future__ import annotations

from typing import Mapping, NamedTuple


class Operation(NamedTuple):
    """One operation."""

    noun: str  # in sentences: "reads are 5 % slower"
    color: str  # in plots over time
    moves_data: bool  # False: a bandwidth would be a made-up number
    makes_objects: bool = False


#: by the name that requests have in rows, tables and summaries
OPERATIONS: Mapping[str, Operation] = {
    "GET": Operation("reads", "#2667c9", moves_data=True),
    "PUT": Operation("writes", "#d9730d", moves_data=True, makes_objects=True),
    "MULTIPART": Operation("multipart writes", "#6b7280", moves_data=True, makes_objects=True),
    "STAT": Operation("stats", "#16867a", moves_data=False),
    "DELETE": Operation("deletes", "#b8326f", moves_data=False),
    "LIST": Operation("lists", "#7a4fc4", moves_data=False),
}
#: S3's limits for the parts of a multipart upload, bytes
SMALLEST_PART, LARGEST_PART = 5 << 20, 5 << 30
#: operations that make objects
WRITES = tuple(name for name, operation in OPERATIONS.items() if operation.makes_objects)

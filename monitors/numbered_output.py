"""A part of agents: the lines that they write to standard output. Standard library only, Python 3.6."""

# mypy: disallow-untyped-defs=False

import itertools
import json
import os
import time

#: of lines, so that a reader sees which are doubled or lost
NUMBERS = itertools.count()
_written = 0  # bytes


def write_line(record):
    """Write a record."""
    global _written
    record["i"] = next(NUMBERS)
    # one write: a kill leaves whole lines
    _written += os.write(1, json.dumps(record, separators=(",", ":")).encode() + b"\n")


def output_size():
    """Return the bytes of standard output: of a file its size, of a pipe what this process has written."""
    return max(_written, os.fstat(1).st_size)


def write_limit(text):
    """Write what is not watched, and why."""
    write_line({"t": round(time.time(), 3), "limit": text})

"""A part of agents: the lines that they write to standard output. Standard library only, Python 3.6."""

# mypy: disallow-untyped-defs=False

import itertools
import json
import os
import time

#: of lines, so that a reader sees which are doubled or lost
NUMBERS = itertools.count()


def write_line(record):
    """Write a record."""
    record["i"] = next(NUMBERS)
    # one write: a kill leaves whole lines
    os.write(1, json.dumps(record, separators=(",", ":")).encode() + b"\n")


def write_limit(text):
    """Write what is not watched, and why."""
    write_line({"t": round(time.time(), 3), "limit": text})

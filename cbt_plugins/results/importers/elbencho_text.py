"""elbencho's text for people (--resfile, and its standard output), as rows of its table.

By its source from 1.4 to 3.1: a head with the command line, then for each phase lines "TYPE : FIRST LAST", and "---" at
the end of the phase. Times are whole ms, and whole seconds from one hour on; latencies have three digits or less.
"""

from __future__ import annotations

import re
import shlex
from typing import Dict, Iterator, List, Mapping, Optional, Tuple

#: begins every table
HEAD = "OPERATION   RESULT TYPE"
#: begins a file of --resfile
DATE = "ISO DATE: "
#: column of --hostsfile: the number of hosts is not known
HOSTS_FILE = "hosts file"
_COMMAND = "COMMAND LINE: "
_LABEL = "LABEL: "
_END = "---"
_LINE = re.compile(r"^(\S*)\s+(\S.*?)\s*:\s+(.*)$")
_ELAPSED = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")
_LATENCY = re.compile(r"(\w+)=(\d+(?:\.(\d+))?)(us|ms|s)\b")
_MICROSECONDS = {"us": 1.0, "ms": 1e3, "s": 1e6}
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50, "E": 60}
#: option -> column of the table
_SIZES = {"-s": "file size", "--size": "file size", "-b": "block size", "--block": "block size"}
_NUMBERS = {"-t": "threads", "--threads": "threads", "--iodepth": "IO depth"}
#: width of the last digit of the latencies of a row, us; its times are whole seconds
WIDTH, WHOLE_SECONDS = "lat us width", "whole seconds"

Row = Mapping[str, Optional[str]]


def rows_of(text: str) -> Tuple[List[Row], bool]:
    """Return a row for each phase, and whether the last one has no end."""
    about: Dict[str, Optional[str]] = {}
    rows: List[Row] = []
    row: Optional[Dict[str, Optional[str]]] = None
    for line in text.splitlines():
        if line.startswith(DATE):
            about, row = {"ISO date": line[len(DATE) :].strip()}, None
        elif line.startswith(_LABEL):
            about["label"] = line[len(_LABEL) :].strip()
        elif line.startswith(_COMMAND):
            about.update(_options(line[len(_COMMAND) :]))
        elif line.startswith(_END) and row is not None:
            rows.append(row)
            row = None
        else:
            match = _LINE.match(line)
            if match and match[1]:
                row = {**about, "operation": match[1]}
            if match and row is not None:
                row.update(_columns(match[2], match[3]))
    return (rows, False) if row is None else ([*rows, row], True)


def _options(command: str) -> Iterator[Tuple[str, str]]:
    """Yield columns for the options of a command line."""
    try:
        words = shlex.split(command)
    except ValueError:
        return
    pairs = [word.partition("=")[::2] if "=" in word else (word, after) for word, after in zip(words, [*words[1:], ""])]
    for option, value in pairs:
        if option in _SIZES:
            match = re.fullmatch(r"(\d+)([KMGTPE]?)(?:i?B?)", value, re.IGNORECASE)
            if match:
                yield _SIZES[option], str(int(match[1]) << _UNITS[match[2].upper()])
        elif option in _NUMBERS and value.isdigit():
            yield _NUMBERS[option], value
        elif option == "--hostsfile":
            yield HOSTS_FILE, value
        elif option == "--hosts":
            yield "hosts", str(len(list(filter(None, value.split(",")))))


def _columns(kind: str, text: str) -> Iterator[Tuple[str, str]]:
    """Yield the columns that a line of a phase holds."""
    if kind.endswith("latency"):
        entry = "IO" if kind.startswith("IO") else "Ent"
        prefix = "rwmix read " if " rd" in kind or " read" in kind else ""
        for which, number, decimals, unit in _LATENCY.findall(text):
            if which in ("avg", "max"):
                yield f"{prefix}{entry} lat us [{which}]", str(float(number) * _MICROSECONDS[unit])
                if which == "avg":
                    yield WIDTH, str(_MICROSECONDS[unit] / 10 ** len(decimals))
        return
    values = text.split()
    if len(values) != 2:
        return
    if kind == "Elapsed time":
        yield "time ms [first]", str(_milliseconds(values[0]))
        yield "time ms [last]", str(_milliseconds(values[1]))
        if "h" in values[1]:
            yield WHOLE_SECONDS, "1"
    elif kind in ("IOPS", "IOPS write"):
        yield "IOPS [last]", values[1]
    elif kind == "IOPS read":
        yield "rwmix read IOPS [last]", values[1]
    elif kind in ("Total MiB", "MiB write"):
        yield "MiB [last]", values[1]
    elif kind == "MiB read":
        yield "rwmix read MiB [last]", values[1]
    elif re.fullmatch(r"(Files|Objects|Entries|Dirs|Buckets) (total|write)", kind):
        yield "entries [last]", values[1]
    elif re.fullmatch(r"(Files|Objects|Entries) read", kind):
        yield "rwmix read entries [last]", values[1]


def _milliseconds(text: str) -> int:
    match = _ELAPSED.fullmatch(text)
    if not match:
        return 0
    hours, minutes, seconds, milliseconds = (float(part or 0) for part in match.groups())
    return round(((hours * 60 + minutes) * 60 + seconds) * 1000 + milliseconds)

"""Convert a workload of another program to a YAML file for this project."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Callable, List, Mapping, Tuple

from cbt_plugins.config.converters import cosbench, elbencho
from cbt_plugins.config.converters.conversion import ConversionError
from cbt_plugins.config.errors import ConfigError
from cbt_plugins.exit_status import OK

from .command import CommandError, explain, warn
from .format_option import write_new

#: program -> function that returns the text of a YAML file, and the parts that could not be converted
_PROGRAMS: Mapping[str, Callable[[Path], Tuple[str, List[str]]]] = {
    "cosbench": cosbench.convert,
    "elbencho": elbencho.convert,
}
_RESULTS = "results of other programs are read by `cbt-tools report FILE` and `compare`"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    explain(parser, [f"cbt-tools import {name} -o my.yaml" for name in ("cosbench workload.xml", "elbencho cbt.yaml")])
    parser.description = f"{parser.description or ''}\n\nIt does not read results: {_RESULTS}."
    parser.add_argument("program", type=_program, choices=tuple(_PROGRAMS), help="the program of the workload")
    parser.add_argument("file", type=Path, help="the workload: XML of COSBench, or a CBT file with `elbencho:`")
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="-", help="the new file (default: -, standard output)"
    )


def _program(name: str) -> str:
    if name not in _PROGRAMS:
        raise argparse.ArgumentTypeError(f"{name}: only workloads of {', '.join(_PROGRAMS)}; {_RESULTS}")
    return name


def run(args: argparse.Namespace) -> int:
    """Print the file, and on stderr the parts that could not be converted; return the exit status."""
    try:
        text, notes = _PROGRAMS[args.program](args.file)
        if args.output == "-":
            sys.stdout.write(text)
        else:
            write_new(Path(args.output), text)
    except (ConversionError, ConfigError) as e:
        raise CommandError(str(e)) from None
    except OSError as e:
        raise CommandError(f"{e.filename}: {e.strerror}") from None
    for note in notes:
        warn(f"not converted: {note}")
    return OK

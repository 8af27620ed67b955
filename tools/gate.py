"""Check a comparison against limits, with an exit status for pipelines."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from . import compare
from .command import USAGE, CommandError

_EPILOG = """
LIMIT is [[PHASE.]OPERATION.]METRIC=10% (it may become worse by 10 %), METRIC<=50 or METRIC>=0.999 (of the new value).
Exit status: 0 ok; 1 regression; 2 wrong use, or runs that cannot be compared; 3 inconclusive; 4 unusable data.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    compare.add_sides(parser)
    parser.add_argument(
        "--limit", action="append", default=[], metavar="LIMIT", help="a limit; repeatable, the last match counts"
    )
    parser.add_argument("--limits", type=Path, metavar="FILE", help="a YAML file, limits: {GET.p99_ms: 10%%, ...}")
    parser.add_argument("--alpha", metavar="P", help="false alarm rate of the gate (default: 0.05)")
    parser.add_argument(
        "--format", choices=("text", "markdown", "json"), default="text", help="of what is printed (default: text)"
    )
    parser.set_defaults(margin="5%", confidence=None)


def run(args: argparse.Namespace) -> int:
    """Check the limits and print the result; returns the exit status that the help lists."""
    from cbt_plugins.compare import output
    from cbt_plugins.compare.gate import GateLimits, blocks, data, gate, of_file, of_texts
    from cbt_plugins.compare.sides import sides
    from cbt_plugins.config.errors import ConfigError

    try:
        with compare.errors():
            limits = GateLimits((*(of_file(args.limits) if args.limits else ()), *of_texts(args.limit)))
            if not limits.limits:
                raise CommandError("no limits: give --limit GET.p99_ms=10%, or --limits FILE")
            base, *contenders = sides(compare.paths(args))
            gated = gate(base, contenders, limits, compare.rules(args))
    except ConfigError as e:  # each line begins with file:line:column
        print(e, file=sys.stderr)
        return USAGE
    if args.format == "json":
        print(json.dumps(data(gated), indent=1, ensure_ascii=False))
    else:
        print((output.markdown if args.format == "markdown" else output.text)(blocks(gated)), end="")
    return gated.outcome.value

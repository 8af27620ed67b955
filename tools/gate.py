"""`cbt-tools gate BASE NEW --limit GET.p99_ms=10%`: an exit status that a pipeline can act on."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from . import compare

OK, REGRESSION, USAGE, CANNOT_TELL, UNUSABLE = 0, 1, 2, 3, 4
_STATUS = """
a limit is [[PHASE.]OPERATION.]METRIC=10% (it may become worse by so much), <=50 or >=0.999 (of the new value)
exit status: 0 ok; 1 regression; 2 wrong use, or runs that cannot be compared; 3 cannot tell; 4 data unusable
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _STATUS
    compare.add_sides(parser)
    parser.add_argument("--limit", action="append", default=[], metavar="LIMIT", help="may come again; the last counts")
    parser.add_argument("--limits", type=Path, metavar="FILE", help="YAML: limits: {GET.p99_ms: 10%%, ...}")
    parser.add_argument("--alpha", metavar="P", help="chance of a false alarm of the whole gate (0.05)")
    parser.add_argument("--format", choices=("text", "markdown", "json"), default="text")
    parser.set_defaults(margin="5%", confidence=None)


def run(args: argparse.Namespace) -> int:
    """The status is that of _STATUS."""
    try:
        from cbt_plugins.compare import layout
        from cbt_plugins.compare.differences import Incomparable
        from cbt_plugins.compare.gate import blocks, data, gate
        from cbt_plugins.compare.limits import Limits, of_file, of_texts
        from cbt_plugins.compare.sides import sides
        from cbt_plugins.config.errors import ConfigError
        from cbt_plugins.results.source import Unreadable
    except ImportError as e:
        return compare.missing("gate", e)
    try:
        limits = Limits((*(of_file(args.limits) if args.limits else ()), *of_texts(args.limit)))
        if not limits.limits:
            raise ValueError("no limit: give --limit GET.p99_ms=10%, or --limits FILE")
        base, *contenders = sides(compare.paths(args))
        gated = gate(base, contenders, limits, compare.rules(args))
    except Incomparable as e:
        return compare.refuse("gate", e)
    except Unreadable as e:
        return compare.complain("gate", str(e), UNUSABLE)
    except ConfigError as e:  # each line begins with file:line:column
        print(e, file=sys.stderr)
        return USAGE
    except ValueError as e:
        return compare.complain("gate", str(e), USAGE)
    if args.format == "json":
        print(json.dumps(data(gated), indent=1, ensure_ascii=False))
    else:
        print((layout.markdown if args.format == "markdown" else layout.text)(blocks(gated)), end="")
    return gated.outcome.value

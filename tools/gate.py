"""Check a comparison against limits, with an exit status for pipelines."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from cbt_plugins.exit_status import FAILED, INCONCLUSIVE, UNUSABLE
from cbt_plugins.metrics import ALPHA

from . import compare
from .command import USAGE_OF_COMPARISON, CommandError, explain
from .format_option import CSV, HTML, JSON, MD, TEXT, add_formats, print_results

if TYPE_CHECKING:
    from cbt_plugins.compare.gate import Gated


def add_arguments(parser: argparse.ArgumentParser) -> None:
    examples = (
        "cbt-tools gate quincy reef --limit GET.p99_ms=10%",
        "cbt-tools gate quincy reef --limits limits.yaml --limit 'success_rate>=0.999' -o gate.md",
    )
    explain(parser, examples, {FAILED: "a regression", INCONCLUSIVE: "", UNUSABLE: "", **USAGE_OF_COMPARISON})
    compare.add_sides(parser)
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="LIMIT",
        help="[[PHASE.]OPERATION.]METRIC=10%% (the metric may become worse by 10 %%), or METRIC<=50, METRIC>=0.999 "
        "(limits of the new value); repeatable; the last limit that matches a metric counts",
    )
    parser.add_argument("--limits", type=Path, metavar="FILE", help="a YAML file with limits: {GET.p99_ms: 10%%, ...}")
    parser.add_argument(
        "--alpha",
        metavar="P",
        help="false alarm rate of all limits of changes together; a limit of a value has half of it for itself "
        f"(default: {ALPHA:g})",
    )
    add_formats(parser, TEXT, JSON, CSV, MD, HTML)
    parser.set_defaults(margin=None, confidence=None)


def run(args: argparse.Namespace) -> int:
    """Check the limits and print the result; return the exit status that the help lists."""
    from cbt_plugins.compare.gate import GateLimits, gate, of_file, of_texts
    from cbt_plugins.compare.gate_output import blocks, data, table
    from cbt_plugins.compare.sides import are_same
    from cbt_plugins.config.errors import ConfigError
    from cbt_plugins.formatting import several
    from cbt_plugins.results.run_record import counts_requests

    try:
        with compare.errors():
            limits = GateLimits((*(of_file(args.limits) if args.limits else ()), *of_texts(args.limit)))
            if not limits.limits:
                raise CommandError("no limits: give --limit GET.p99_ms=10%, or --limits FILE")
            takes = compare.numbers(args, limits.takes, counts_requests)
            base, *contenders = compare.read_sides(compare.paths(args), takes)
            if any(are_same(base.runs, side.runs) for side in contenders):
                raise CommandError(f"both sides are the same runs ({base.name}): there is nothing to check")
            gated = gate(base, contenders, limits, compare.rules(args, takes))
    except ConfigError as e:  # each line begins with file:line:column
        raise CommandError(f"{several(len(e.errors), 'error')}; nothing was compared\n{e}") from None
    forms = {
        TEXT: lambda: blocks(gated),
        JSON: lambda: data(gated),
        CSV: lambda: table(gated),
        HTML: lambda: _page(gated),
    }
    print_results(args, forms)
    return gated.outcome.value


def _page(gated: Gated) -> str:
    from cbt_plugins.report.text_page import gate_page

    return gate_page(gated)

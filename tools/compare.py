"""Compare archives: differences in configuration and results, and whether they may be chance."""

from __future__ import annotations

import argparse
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Collection, Iterator, List, Sequence, Tuple

from cbt_plugins.config.units import format_percent
from cbt_plugins.exit_status import OK, UNUSABLE
from cbt_plugins.metrics import ALPHA, MARGIN, METRICS

from .command import USAGE_OF_COMPARISON, CommandError, explain, help_text, say, status_of
from .format_option import CSV, HTML, JSON, MD, TEXT, add_formats, add_renamed, format_of, print_results

if TYPE_CHECKING:
    from cbt_plugins.compare.configuration_differences import Scale
    from cbt_plugins.compare.sides import Side
    from cbt_plugins.compare.table import Choice, Compared, Rules
    from cbt_plugins.formatting.blocks import Block
    from cbt_plugins.results.run_record import Key, Takes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    examples = (
        "cbt-tools compare quincy reef",
        "cbt-tools compare --base quincy1 quincy2 --new reef1 reef2 -o page.html",
        "cbt-tools compare quincy reef --op GET --metric '*_ms' --format csv",
    )
    explain(parser, examples, {UNUSABLE: "", **USAGE_OF_COMPARISON})
    add_sides(parser)
    add_rules(parser)
    add_choice(parser)
    parser.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="[PHASE.]OPERATION.METRIC",
        help="key rows, judged first (default: total.obj_per_s, total.p99_ms, total.bad_s, cluster.recovery_s); a "
        "pattern; repeatable",
    )
    parser.add_argument(
        "--releases", action="store_true", help="table of releases side by side: read and write, recovery, CPU"
    )
    add_formats(parser, TEXT, JSON, CSV, MD, HTML)
    add_renamed(parser, {"--html": "--format html -o FILE"})


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose rows."""
    for name, text in (
        ("--phase", "only these phases; a shell pattern; '*' includes the states of a failure"),
        ("--op", "only these operations, such as GET, PUT or total; a shell pattern"),
        ("--metric", "only these metrics, such as obj_per_s, mib_per_s or p99_ms; a shell pattern"),
    ):
        parser.add_argument(name, action="append", default=[], metavar="PATTERN", help=f"{text}; repeatable")


def add_sides(parser: argparse.ArgumentParser) -> None:
    """Add the archives: one path for each side, or several."""
    parser.add_argument(
        "archives",
        nargs="*",
        type=Path,
        metavar="ARCHIVE",
        help="the base, then one or more sides to compare with it: archives, run directories, results of "
        "other programs",
    )
    parser.add_argument("--base", nargs="+", type=Path, metavar="PATH", help="archives that together are the base")
    parser.add_argument(
        "--new",
        nargs="+",
        type=Path,
        metavar="PATH",
        action="append",
        help="archives that together are a side to compare with the base; repeatable",
    )
    parser.add_argument("--pairs", action="store_true", help="pair the n-th runs of both sides")
    parser.add_argument(
        "--scatter",
        metavar="[METRIC=]PERCENT",
        action="append",
        default=[],
        help="known run-to-run scatter of rates, or of METRIC, for sides with one or two runs; repeatable",
    )
    parser.add_argument(
        "--history",
        nargs="+",
        type=Path,
        metavar="PATH",
        default=[],
        help="archives of repeated runs, from which the run-to-run scatter is taken",
    )
    parser.add_argument("--scale", metavar="N:M", help="compare a cluster of N nodes with one of M nodes")


def add_rules(parser: argparse.ArgumentParser) -> None:
    """Add the options of the statistics."""
    parser.add_argument(
        "--margin",
        metavar="PERCENT",
        help=help_text(
            f"changes within this margin are equivalent (default: {format_percent(MARGIN)}; "
            f"of success rates {format_percent(METRICS['success_rate'].margin)})"
        ),
    )
    parser.add_argument("--alpha", metavar="P", help=f"false alarm rate of the table (default: {ALPHA:g})")
    parser.add_argument(
        "--confidence",
        metavar="PERCENT",
        help=help_text(f"confidence of intervals: 1 - alpha (default: {format_percent(1 - ALPHA)})"),
    )


def run(args: argparse.Namespace) -> int:
    """Compare the archives and print the result; returns the exit status."""
    from cbt_plugins.compare import output, releases_table, scorecard

    if args.releases and (args.phase or args.op or args.metric):
        raise CommandError("--releases has rows of its own: remove --phase, --op and --metric")
    with errors():
        compared = compare(args, releases_table.CHOICE if args.releases else choice(args))
        drawn = releases_table if args.releases else output
        forms = {
            TEXT: lambda: [
                *_sentences(compared),
                *scorecard.blocks(scorecard.of(compared)),
                *drawn.blocks(compared),
            ],
            JSON: lambda: output.data(compared),
            CSV: lambda: drawn.table(compared),
            HTML: lambda: _page(compared),
        }
        print_results(args, forms)
    return OK if compared.usable else UNUSABLE


@contextmanager
def errors() -> Iterator[None]:
    """Turn errors of a comparison into errors of a verb."""
    from cbt_plugins.compare.configuration_differences import Incomparable

    try:
        yield
    except Incomparable as e:
        lines = [
            f"  {difference.key}: {difference.base} in the base, {difference.new} in the other side"
            for difference in e.differences
        ]
        raise CommandError("\n".join([str(e), *lines])) from e
    except ValueError as e:
        raise CommandError(str(e)) from e
    except OSError as e:
        raise CommandError(f"{e.filename}: {e.strerror}", status_of(e)) from e


def choice(args: argparse.Namespace) -> Choice:
    """Return the rows that the options choose. Raises CommandError for an unknown metric."""
    from fnmatch import fnmatchcase

    from cbt_plugins.compare.table import Choice
    from cbt_plugins.metrics import METRICS

    for pattern in args.metric:
        if not any(fnmatchcase(name, pattern) for name in METRICS):
            raise CommandError(f"--metric {pattern}: unknown metric; the metrics are {', '.join(METRICS)}")
    return Choice(tuple(args.phase), tuple(args.op), tuple(args.metric), keys=tuple(getattr(args, "key", ())))


def no_row_matches(keys: Collection[Key]) -> CommandError:
    """Return the error for a choice that takes no row of runs with these keys."""
    from cbt_plugins.compare.sides import phases_and_operations

    return CommandError(f"nothing to compare: no row matches; {phases_and_operations(keys)}")


def compare(args: argparse.Namespace, wanted: Choice) -> Compared:
    """Read the sides and compare them. Raises Unreadable, Incomparable, ValueError, CommandError."""
    from cbt_plugins.compare import scorecard
    from cbt_plugins.compare.table import Choice, compare

    choices = [wanted]
    if format_of(args) == HTML:
        from cbt_plugins.report.comparison import CHOICES

        choices += CHOICES
    takes = numbers(args, scorecard.takes, *(choice.takes for choice in choices))
    base, *contenders = read_sides(paths(args), takes)
    compared = compare(base, contenders, wanted, rules(args, takes))
    if not compared.rows and not any(section.missing for section in compared.sections):
        raise no_row_matches([key for run in base.runs for key in run.keys])
    for pattern in getattr(args, "key", ()):
        # else other rows than those that were meant would share the chance of a false verdict
        choice_of_key = Choice(keys=(pattern,))
        if not any(choice_of_key.is_key(key, section) for section in compared.sections for key in section.all_keys):
            raise CommandError(f"--key {pattern}: no row matches; write [PHASE.]OPERATION.METRIC, such as total.p99_ms")
    return compared


def numbers(args: argparse.Namespace, *needed: Takes) -> Takes:
    """Return which numbers to keep of the runs: those that any of `needed` takes, and those of --scale."""
    from cbt_plugins.compare import scaling_gains

    every = (*needed, scaling_gains.takes) if args.scale else needed
    return lambda key: any(takes(key) for takes in every)


def read_sides(given: Sequence[Sequence[Path]], takes: Takes) -> List[Side]:
    """Read these numbers of the runs of each side, and warn of unreadable runs. Raises Unreadable, ValueError."""
    from cbt_plugins.compare.sides import sides

    all_sides = sides(given, takes)
    for text in dict.fromkeys(text for side in all_sides for text in side.unreadable):
        say("Error", text, UNUSABLE)
    return all_sides


def paths(args: argparse.Namespace) -> List[Sequence[Path]]:
    """Return the paths of each side, the base first. Raises CommandError."""
    if args.base or args.new:
        if args.archives or not args.base or not args.new:
            raise CommandError("give either BASE NEW..., or --base PATH... --new PATH...")
        return [args.base, *args.new]
    if len(args.archives) == 1:
        raise _one_side(args.archives[0])
    if not args.archives:
        raise CommandError("need two archives at least: BASE NEW...")
    return [[path] for path in args.archives]


def _one_side(path: Path) -> CommandError:
    """Return the error for a single path, with advice. Raises Unreadable if the path has no run."""
    from cbt_plugins.results.archive import find_runs
    from cbt_plugins.results.result_file import NoRun

    try:
        runs = find_runs(path)
    except NoRun:
        runs = []
    hint = f", or two of its {len(runs)} runs, such as {runs[0]} {runs[1]}" if len(runs) > 1 else ""
    return CommandError(f"{path} is only one side: give another archive to compare it with{hint}")


def rules(args: argparse.Namespace, takes: Takes) -> Rules:
    """Return the rules of a comparison of these numbers. Raises CommandError for no share, and Unreadable."""
    from cbt_plugins.compare.sides import former_runs
    from cbt_plugins.compare.table import Rules

    alpha = parse_share("--alpha", args.alpha) if args.alpha else None
    confidence = parse_share("--confidence", args.confidence) if args.confidence else None
    if alpha and confidence and abs(1 - alpha - confidence) > 1e-9:
        raise CommandError(f"--alpha {args.alpha} contradicts --confidence {args.confidence}: give one of them")
    alpha = alpha or round(1 - (confidence or 0.95), 12)
    return Rules(
        margin=parse_share("--margin", args.margin) if args.margin else None,
        alpha=alpha,
        paired=args.pairs,
        scatter=dict(map(_scatter, args.scatter)),
        scale=_scale(args.scale) if args.scale else None,
        history=tuple(former_runs(args.history, takes)),
    )


def _scatter(text: str) -> Tuple[str, float]:
    from cbt_plugins.metrics import METRICS

    metric, equals, value = text.rpartition("=")
    if equals and metric not in METRICS:
        raise CommandError(f"--scatter {text}: unknown metric {metric}; the metrics are {', '.join(METRICS)}")
    return metric, parse_share("--scatter", value)


def parse_share(name: str, text: str) -> float:
    """Return the share of "5%" or "0.05". Raises CommandError."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise CommandError(f"{name} {text}: give a share between 0 and 1, or a percentage such as 5%")
    return value


def _scale(text: str) -> Scale:
    from cbt_plugins.compare.configuration_differences import Scale

    base, colon, new = text.partition(":")
    if not (colon and base.isdigit() and new.isdigit() and 0 < int(base) < int(new)):
        raise CommandError(f"--scale {text}: give the nodes of both clusters, the smaller one first, such as 3:5")
    return Scale(int(base), int(new))


def _sentences(compared: Compared) -> List[Block]:
    """Return the sentences that the page begins with."""
    from cbt_plugins.formatting.blocks import Words
    from cbt_plugins.report.sentence import first, of_comparison

    return [Words(tuple(f"{sentence.text} {sentence.more}".rstrip() for sentence in first(of_comparison(compared))))]


def _page(compared: Compared) -> str:
    from cbt_plugins.report.comparison import page

    return page(compared)

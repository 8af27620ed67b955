"""`cbt-tools compare BASE NEW...`: what differs between archives, what changed, and what chance may have done."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, List, Sequence

if TYPE_CHECKING:
    from cbt_plugins.compare.choice import Choice
    from cbt_plugins.compare.differences import Incomparable, Scale
    from cbt_plugins.compare.table import Compared, Rules

OK, USAGE, UNUSABLE = 0, 2, 4
FORMATS = ("text", "markdown", "csv", "json")
_INSTALL = "pip install 'cbt-plugins[report]'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_sides(parser)
    add_rules(parser)
    add_choice(parser)
    parser.add_argument("--releases", action="store_true", help="releases side by side: read and write, recovery, CPU")
    parser.add_argument("--format", choices=FORMATS, default="text")
    parser.add_argument("--html", type=Path, metavar="FILE", help="a page with charts too")


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Which rows, by patterns of the shell."""
    for name, text in (
        ("--phase", "only these phases ('*' has the states of a failure too)"),
        ("--op", "only these operations: GET, PUT, total ..."),
        ("--metric", "only these metrics: obj_per_s, mib_per_s, p99_ms ... or '*'"),
    ):
        parser.add_argument(name, action="append", default=[], metavar="PATTERN", help=text)


def add_sides(parser: argparse.ArgumentParser) -> None:
    """What is compared: one path each, or several for each side."""
    parser.add_argument(
        "archives", nargs="*", type=Path, metavar="BASE NEW", help="archives, run directories, results; BASE first"
    )
    parser.add_argument("--base", nargs="+", type=Path, metavar="PATH", help="several archives of the base")
    parser.add_argument(
        "--new", nargs="+", type=Path, metavar="PATH", action="append", help="several of another; may come again"
    )
    parser.add_argument("--pairs", action="store_true", help="the n-th runs of both sides were made in turn")
    parser.add_argument(
        "--scatter", metavar="PERCENT", help="from run to run, where you know it: goes into intervals of single runs"
    )
    parser.add_argument("--scale", metavar="N:M", help="the clusters differ in size: so many nodes, and so many")


def add_rules(parser: argparse.ArgumentParser) -> None:
    """How it is judged."""
    parser.add_argument("--margin", default="5%", metavar="PERCENT", help="a change within this counts as none (5%%)")
    parser.add_argument("--alpha", metavar="P", help="false alarms of the whole table (0.05)")
    parser.add_argument("--confidence", metavar="PERCENT", help="of the intervals: 1 - alpha, in another way (95%%)")


def run(args: argparse.Namespace) -> int:
    """0: compared; 2: wrong use, or runs that cannot be compared; 4: a run is not usable, or cannot be read."""
    try:
        from cbt_plugins.compare.differences import Incomparable
        from cbt_plugins.compare.releases import CHOICE
        from cbt_plugins.results.source import Unreadable
    except ImportError as e:
        return missing("compare", e)
    try:
        if args.releases and (args.phase or args.op or args.metric):
            raise ValueError("--releases has rows of its own: no --phase, --op, --metric with it")
        compared = compare(args, CHOICE if args.releases else choice(args))
        print(_rendered(compared, args), end="", flush=True)
        if args.html:
            return _page(compared, args.html)
    except Incomparable as e:
        return refuse("compare", e)
    except Unreadable as e:
        return complain("compare", str(e), UNUSABLE)
    except ValueError as e:
        return complain("compare", str(e), USAGE)
    except OSError as e:
        return complain("compare", f"{e.filename}: {e.strerror}", USAGE)
    return OK if compared.usable else UNUSABLE


def choice(args: argparse.Namespace) -> Choice:
    """The rows that were asked for. Raises ValueError for a metric that there is not."""
    from fnmatch import fnmatchcase

    from cbt_plugins.compare.choice import Choice
    from cbt_plugins.metrics import METRICS

    for pattern in args.metric:
        if not any(fnmatchcase(name, pattern) for name in METRICS):
            raise ValueError(f"--metric {pattern}: there is {', '.join(METRICS)}")
    return Choice(tuple(args.phase), tuple(args.op), tuple(args.metric))


def compare(args: argparse.Namespace, wanted: Choice) -> Compared:
    """Read the sides and compare them. Raises Unreadable, Incomparable, ValueError."""
    from cbt_plugins.compare.sides import sides
    from cbt_plugins.compare.table import compare

    base, *contenders = sides(paths(args))
    made = compare(base, contenders, wanted, rules(args))
    if not made.rows and not any(section.missing for section in made.sections):
        phases = dict.fromkeys(its.phase for run in base.runs for its in run.measurements)
        raise ValueError(f"nothing to compare: no phase, operation and metric is as asked; phases: {', '.join(phases)}")
    return made


def paths(args: argparse.Namespace) -> List[Sequence[Path]]:
    """The paths of each side, the base first. Raises ValueError."""
    if args.base or args.new:
        if args.archives or not args.base or not args.new:
            raise ValueError("either BASE NEW..., or --base PATH... --new PATH...")
        return [args.base, *args.new]
    if len(args.archives) < 2:
        raise ValueError("two archives at least: BASE NEW...")
    return [[path] for path in args.archives]


def rules(args: argparse.Namespace) -> Rules:
    """Raises ValueError for what is no share."""
    from cbt_plugins.compare.table import Rules

    alpha = share("--alpha", args.alpha) if args.alpha else None
    confidence = share("--confidence", args.confidence) if args.confidence else None
    if alpha and confidence and abs(1 - alpha - confidence) > 1e-9:
        raise ValueError(f"--alpha {args.alpha} and --confidence {args.confidence} are not the same; give one of them")
    alpha = alpha or round(1 - (confidence or 0.95), 12)
    return Rules(
        margin=share("--margin", args.margin),
        alpha=alpha,
        paired=args.pairs,
        scatter=share("--scatter", args.scatter) if args.scatter else 0.0,
        scale=_scale(args.scale) if args.scale else None,
    )


def share(name: str, text: str) -> float:
    """ "5%" or "0.05" -> 0.05."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise ValueError(f"{name} {text}: a share between 0 and 1, or a percentage such as 5%")
    return value


def _scale(text: str) -> Scale:
    from cbt_plugins.compare.differences import Scale

    base, colon, new = text.partition(":")
    if not (colon and base.isdigit() and new.isdigit() and 0 < int(base) < int(new)):
        raise ValueError(f"--scale {text}: two numbers of nodes, the base's the smaller, such as 3:5")
    return Scale(int(base), int(new))


def _rendered(compared: Compared, args: argparse.Namespace) -> str:
    from cbt_plugins.compare import export, layout, releases, wording

    if args.format == "csv":
        return releases.to_csv(compared) if args.releases else export.to_csv(compared)
    if args.format == "json":
        return export.to_json(compared)
    found = releases.blocks(compared) if args.releases else wording.blocks(compared)
    return layout.markdown(found) if args.format == "markdown" else layout.text(found)


def _page(compared: Compared, path: Path) -> int:
    try:
        page = importlib.import_module("cbt_plugins.report.comparison")
    except ImportError as e:
        return complain("compare", f"no {path}: it needs the Python package {e.name} ({_INSTALL})", USAGE)
    page.write(compared, path)
    return OK if compared.usable else UNUSABLE


def refuse(verb: str, error: Incomparable) -> int:
    """Say which keys stand in the way, with both values."""
    lines = [f"   {its.key}: {its.base}, and {its.new}" for its in error.differences]
    print("\n".join([f"cbt-tools {verb}: {error}", *lines]), file=sys.stderr)
    return USAGE


def missing(verb: str, error: ImportError) -> int:
    """A library that only analysis needs. Raises what is no missing library."""
    if (error.name or "").split(".")[0] not in ("numpy", "scipy"):
        raise error
    return complain(verb, f"it needs the Python package {error.name} ({_INSTALL})", USAGE)


def complain(verb: str, text: str, status: int) -> int:
    print(f"cbt-tools {verb}: {text}", file=sys.stderr)
    return status

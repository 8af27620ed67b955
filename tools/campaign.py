"""Run a cycle on several arms in turns, until the better arm is decided."""

from __future__ import annotations

import argparse
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Iterator

from cbt_plugins.exit_status import FAILED, INCONCLUSIVE, INTERRUPTED, OK, STATUSES, UNUSABLE

from .command import UNUSABLE_HISTORY, USAGE_OF_COMPARISON, CommandError, explain, say
from .format_option import CSV, HTML, JSON, MD, TEXT, add_formats, print_results

if TYPE_CHECKING:
    from cbt_plugins.campaigns.evaluation import Evaluation

_STATUSES = {
    FAILED: "a trial failed",
    OK: f"{STATUSES[OK]}: decided",
    INCONCLUSIVE: "not decided (yet)",
    INTERRUPTED: "interrupted; run it again to resume",
    **USAGE_OF_COMPARISON,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs of a campaign."""
    examples = ("cbt-tools campaign plan my.yaml", "cbt-tools campaign run my.yaml FOLDER")
    explain(parser, (*examples, "cbt-tools campaign status FOLDER"), {**_STATUSES, **UNUSABLE_HISTORY})
    verbs = parser.add_subparsers(dest="campaign_verb", required=True, metavar="plan|run|status")
    plan = verbs.add_parser("plan", help="show blocks, hours, bytes, order and commands; change nothing")
    explain(plan, ("cbt-tools campaign plan my.yaml --history old-archives/*",), UNUSABLE_HISTORY)
    plan.add_argument("file", type=Path, metavar="FILE", help="CBT file with `campaign:`")
    plan.add_argument(
        "--history", nargs="+", type=Path, default=[], metavar="PATH",
        help="archives of repeated runs, from which the run-to-run scatter is taken",
    )
    add_formats(plan, TEXT, JSON, MD)
    run = verbs.add_parser("run", help="run or resume the campaign, until the result is decided")
    explain(run, ("cbt-tools campaign run my.yaml FOLDER",), _STATUSES)
    run.add_argument("file", type=Path, metavar="FILE", help="CBT file with `campaign:`")
    run.add_argument("folder", type=Path, metavar="FOLDER", help="folder for state and archives of the campaign")
    status = verbs.add_parser("status", help="show the decision so far, and how many blocks are still needed")
    forms = ("FOLDER", "my.yaml FOLDER", "my.yaml FOLDER -o page.html")
    explain(status, [f"cbt-tools campaign status {words}" for words in forms], _STATUSES)
    status.add_argument("file", type=Path, metavar="FILE", nargs="?", help="CBT file with `campaign:`, as of `run`")
    status.add_argument("folder", type=Path, metavar="FOLDER", help="the folder of `campaign run`")
    add_formats(status, TEXT, JSON, CSV, MD, HTML)


def run(args: argparse.Namespace) -> int:
    """Run a verb of a campaign; return the exit status."""
    with _errors():
        return {"plan": _plan, "run": _run, "status": _status}[args.campaign_verb](args)


@contextmanager
def _errors() -> Iterator[None]:
    from cbt_plugins.campaigns.schedule import CampaignError
    from cbt_plugins.config.errors import ConfigError

    try:
        yield
    except ConfigError as e:  # each line begins with file:line:column
        number = len(e.errors)
        raise CommandError(f"{number} error{'' if number == 1 else 's'}; nothing was run\n{e}") from None
    except CampaignError as e:
        raise CommandError(str(e)) from e
    except OSError as e:
        raise CommandError(f"{e.filename}: {e.strerror}", FAILED) from e


def _plan(args: argparse.Namespace) -> int:
    from cbt_plugins.campaigns.evaluation import expected
    from cbt_plugins.campaigns.output import plan_blocks, plan_data
    from cbt_plugins.campaigns.schedule import schedule_of
    from cbt_plugins.compare.former_runs import plan_warnings
    from cbt_plugins.compare.sides import former_runs
    from cbt_plugins.config.file_check import load_file

    schedule = schedule_of(load_file(args.file), Path("FOLDER"))
    history = former_runs(args.history)
    expectations = expected(history, schedule)
    warnings = list(plan_warnings(history, expectations))
    forms = {
        TEXT: lambda: plan_blocks(schedule, expectations, warnings),
        JSON: lambda: plan_data(schedule, warnings),
    }
    print_results(args, forms)
    return OK if all(run.usable for run in history) else UNUSABLE


def _run(args: argparse.Namespace) -> int:
    from cbt_plugins.campaigns.loop import CampaignRun, TrialFailed
    from cbt_plugins.campaigns.schedule import schedule_of
    from cbt_plugins.config.file_check import load_file

    schedule = schedule_of(load_file(args.file), args.folder)
    try:
        state = CampaignRun(schedule, lambda text: print(text, flush=True)).run()
    except TrialFailed as e:
        return say("Error", str(e), FAILED)
    print(f"page: {args.folder / 'campaign.html'}")
    return _exit_status(state)


def _status(args: argparse.Namespace) -> int:
    from cbt_plugins.campaigns.evaluation import evaluate
    from cbt_plugins.campaigns.output import blocks, data, page, table
    from cbt_plugins.campaigns.schedule import schedule_in
    from cbt_plugins.config.file_check import load_file

    state = evaluate(schedule_in(args.folder, load_file(args.file) if args.file else None))
    forms = {
        TEXT: lambda: blocks(state),
        JSON: lambda: data(state),
        CSV: lambda: table(state),
        HTML: lambda: page(state),
    }
    print_results(args, forms)
    return _exit_status(state)


def _exit_status(state: Evaluation) -> int:
    """Return the status that `run` ends with in this state."""
    if state.decided:
        return OK
    return FAILED if any(trial.reason for _, trial in state.trials) else INCONCLUSIVE

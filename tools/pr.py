"""Measure whether a pull request makes a cluster slower."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, List

from cbt_plugins.exit_status import CANNOT, FAILED, INCONCLUSIVE, INTERRUPTED, OK, UNUSABLE
from cbt_plugins.formatting.blocks import Block, Words
from cbt_plugins.formatting.screen import printable

from .command import UNUSABLE_HISTORY, CommandError, explain
from .format_option import JSON, MD, TEXT, add_formats, print_results, remove_earlier

if TYPE_CHECKING:
    from cbt_plugins.pull_requests.comment import PullRequestReport
    from cbt_plugins.pull_requests.session import Request


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    examples = (
        "cbt-tools pr origin/main pull/1234 --config pr.yaml --within 8h",
        "cbt-tools pr 18.2.7 20.2.4 --config pr.yaml --within 2h -o comment.md",
    )
    statuses = {
        OK: "no regression beyond the limit",
        FAILED: "a regression",
        INCONCLUSIVE: "inconclusive",
        UNUSABLE: f"{UNUSABLE_HISTORY[UNUSABLE]}; without --plan nothing was run",
        CANNOT: "a side could not be built, deployed or measured; or this program failed",
        INTERRUPTED: "interrupted: run the same command again to resume",
    }
    explain(parser, examples, statuses)
    sides = "a commit, a branch or pull/NUMBER of `repo:`; without `repo:` a release or an image for `deploy:`"
    parser.add_argument("base", metavar="BASE", help=sides)
    change = "the side with the change, named in the same way; of two commits, the base side is the merge base"
    parser.add_argument("head", metavar="HEAD", help=change)
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="a CBT file with `pr:` (docs/PR.md)")
    parser.add_argument(
        "--within", default="8h", metavar="TIME", help="time for everything, including builds (default: %(default)s)"
    )
    parser.add_argument(
        "-a", "--archive", type=Path, metavar="FOLDER", help="folder for all files (default: pr-HASH in this folder)"
    )
    parser.add_argument(
        "--plan", action="store_true", help="show which regressions can be detected in this time; use no cluster"
    )
    parser.add_argument(
        "--history", nargs="+", type=Path, default=[], metavar="PATH",
        help="archives of repeated runs, which show the run-to-run scatter",
    )
    add_formats(parser, TEXT, JSON, MD)


def run(args: argparse.Namespace) -> int:
    """Build, deploy and measure both sides in turns; return the exit status that the help lists."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    from cbt_plugins.bisect.commit_history import GitError
    from cbt_plugins.campaigns.schedule import CampaignError
    from cbt_plugins.compare.former_runs import unused_runs
    from cbt_plugins.compare.sides import former_runs
    from cbt_plugins.config.errors import ConfigError
    from cbt_plugins.formatting import several
    from cbt_plugins.journal import write_json, write_whole
    from cbt_plugins.pull_requests.comment import PullRequestReport
    from cbt_plugins.pull_requests.session import COMMENT, DATA, PullRequestRun

    try:
        request = _request(args)
        folder = args.archive or Path(f"pr-{request.mark}")
        history = former_runs(args.history)
        unused = unused_runs(history)
        if unused and not args.plan:
            raise CommandError(f"{unused}; nothing was run", UNUSABLE)
        pull_request = PullRequestRun(request, folder, _tell, history)
        for side in request.sides:
            _tell(f"{side.arm}: {side}")
        if args.plan:
            plan = pull_request.plan()
            print_results(args, {TEXT: lambda: [Words(tuple(plan))], JSON: lambda: {"plan": plan}})
            return UNUSABLE if unused else OK
        remove_earlier(args)
        answer = pull_request.run()
    except ConfigError as e:
        raise CommandError(f"{several(len(e.errors), 'error')}; nothing was run\n{e}") from None
    except (GitError, CampaignError) as e:
        raise CommandError(str(e)) from None
    except OSError as e:
        raise CommandError(f"{e}; run the same command again to resume", CANNOT) from None
    report = PullRequestReport(request, answer)
    write_whole(folder / COMMENT, report.comment())
    write_json(folder / DATA, report.data())
    print_results(args, {TEXT: lambda: _blocks(report), JSON: report.data, MD: report.comment})
    return answer.outcome.value


def _blocks(report: PullRequestReport) -> List[Block]:
    from cbt_plugins.campaigns.output import blocks

    answer = report.answer
    return [
        Words((f"{answer.outcome.word} (exit status {answer.outcome.value}): {answer.why}",)),
        *(blocks(answer.state) if answer.state else ()),
    ]


def _request(args: argparse.Namespace) -> Request:
    from cbt_plugins.config.file_check import load
    from cbt_plugins.config.pull_request import KEY, PullRequestSection
    from cbt_plugins.config.units import parse_duration
    from cbt_plugins.config.yaml_source import read
    from cbt_plugins.pull_requests.revisions import check_side_name, revisions
    from cbt_plugins.pull_requests.session import Request

    try:
        names = [check_side_name(name) for name in (args.base, args.head)]
    except ValueError as e:
        raise CommandError(str(e)) from None
    try:
        within = parse_duration(args.within)
    except ValueError as e:
        raise CommandError(f"--within: {e}") from None
    source = read(args.config)
    config = load(source)
    if KEY not in source.data:
        raise CommandError(f"{args.config}: has no section `{KEY}:` (docs/PR.md)")
    section = PullRequestSection.model_validate(source.data[KEY])
    return Request(args.config, section, config.data, revisions(section.folder_of(args.config), *names), within)


def _tell(text: str) -> None:
    logging.getLogger(__name__).info("%s", printable(text))

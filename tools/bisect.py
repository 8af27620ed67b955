"""Find the commit that made a metric worse."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Iterator

from cbt_plugins.exit_status import ABORT, FAILED, INCONCLUSIVE, INTERRUPTED, OK, STATUSES

from .command import CommandError, explain, is_optional, missing, say
from .format_option import JSON, MD, TEXT, add_formats, print_results

if TYPE_CHECKING:
    from cbt_plugins.bisect.session import BisectSession

#: exit statuses for `git bisect run`, beside ABORT: the commit is good, is bad, cannot be tested
GOOD, BAD, SKIP = 0, 1, 125


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    examples = tuple(f"cbt-tools bisect {verb} my.yaml" for verb in ("run", "status", "step"))
    statuses = {
        OK: f"{STATUSES[OK]}: the commit is found",
        FAILED: "good and bad do not differ, or something failed",
        INCONCLUSIVE: "not decided: the budget is used up, or too many commits cannot be measured; "
        "of `status`, also while it searches",
        INTERRUPTED: "interrupted: run the same command again to resume",
    }
    explain(parser, examples, statuses)
    step = "measure HEAD here for `git bisect run`, with status 0 good, 1 bad, 125 skip, 128 error"
    text = f"run: search; step: {step}; status: show the results so far, also during a search"
    parser.add_argument("what", choices=("run", "step", "status"), help=text)
    parser.add_argument("file", type=Path, metavar="CONFIG", help="a CBT file with `bisect:` (docs/BISECT.md)")
    parser.add_argument("-a", "--archive", type=Path, help="folder of the search (default: CONFIG with .bisect)")
    add_formats(parser, TEXT, JSON, MD)


def run(args: argparse.Namespace) -> int:
    """Search, measure one commit, or show the results; return the exit status that the help lists."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    if args.what == "step":
        return _step(args)
    try:
        with _session(args) as session:
            return _search(args, session)
    except KeyboardInterrupt:
        return INTERRUPTED


@contextlib.contextmanager
def _session(args: argparse.Namespace) -> Iterator[BisectSession]:
    from cbt_plugins.bisect.commit_history import GitError
    from cbt_plugins.bisect.session import JOURNAL, BisectError, BisectSession, Use
    from cbt_plugins.config.bisect import KEY, BisectSection
    from cbt_plugins.config.errors import ConfigError
    from cbt_plugins.config.file_check import load
    from cbt_plugins.config.yaml_source import read
    from cbt_plugins.formatting import several
    from cbt_plugins.journal import JournalError

    try:
        source = read(args.file)
        config = load(source)
        if KEY not in source.data:
            raise CommandError(f"{args.file}: has no section `{KEY}:` (docs/BISECT.md)")
        runs = len(config.runs) if not config.others else 1
        if runs != 1:
            raise CommandError(
                f"{args.file}: has {runs} runs, but a bisect needs one: set iterations: 1, and no "
                f"lists of values"
            )
        archive = args.archive or args.file.with_suffix(".bisect")
        if args.what == "status" and not (archive / JOURNAL).is_file():
            raise CommandError(f"{archive}: no such archive: nothing was measured yet")
        section = BisectSection.model_validate(source.data[KEY])
        session = BisectSession(args.file, section, source.data, archive, Use(args.what))
    except ConfigError as e:
        raise CommandError(f"{several(len(e.errors), 'error')}; nothing was run\n{e}") from None
    except (GitError, BisectError, JournalError, OSError) as e:
        raise CommandError(str(e)) from None
    try:
        yield session
    except (GitError, BisectError, OSError) as e:
        raise CommandError(f"{e}; run the same command again to resume the search", FAILED) from None
    finally:
        session.close()


def _search(args: argparse.Namespace, session: BisectSession) -> int:
    from cbt_plugins.bisect import loop, output

    now = loop.state(session) if args.what == "status" else loop.run(session)
    files = output.write(session, now) if session.blocks else []
    print_results(args, {TEXT: lambda: output.blocks(session, now), JSON: lambda: loop.data(session, now)})
    if files:
        say("Page", str(files[-1]), OK)
    if session.failure:  # of the last `run`: only `status` comes here then
        return FAILED
    return {loop.CULPRIT_FOUND: OK, loop.NONE: FAILED}.get(now.outcome, INCONCLUSIVE)


def _step(args: argparse.Namespace) -> int:
    """Return the status of HEAD for `git bisect run`; ABORT for whatever is no measurement of HEAD."""
    try:
        with _session(args) as session:
            return _measured(session)
    except CommandError as e:
        return say("Error", str(e), ABORT)
    except KeyboardInterrupt:
        return ABORT
    except Exception as e:  # git would take the statuses of Python and of other errors for a bad commit
        if isinstance(e, ImportError) and is_optional(e):
            return say("Error", missing(e), ABORT)
        traceback.print_exc()
        return ABORT


def _measured(session: BisectSession) -> int:
    from cbt_plugins.bisect import commit_history, loop

    sha = commit_history.resolve(Path.cwd(), "HEAD")
    differ, why = loop.differ(session)
    if not differ:
        return say("Error", why, ABORT)
    if sha in (session.good.sha, session.bad.sha):
        return GOOD if sha == session.good.sha else BAD
    good = loop.step(session, sha)
    return SKIP if good is None else GOOD if good else BAD

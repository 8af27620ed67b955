"""Common parts of the verbs of `cbt-tools`: the parser, exit statuses, errors and warnings on stderr."""

from __future__ import annotations

import argparse
import difflib
import errno
import logging
import os
import sys
import textwrap
import traceback
from pathlib import Path
from typing import Callable, Iterable, Iterator, List, Mapping, NoReturn, Sequence, Tuple, TypeVar

from cbt_plugins.exit_status import CANNOT, INTERRUPTED, OK, STATUSES, UNREAD, UNUSABLE, USAGE
from cbt_plugins.formatting.screen import (
    RED,
    YELLOW,
    NoOutput,
    NoReader,
    discard,
    lost_output,
    painted,
    paper_of,
    printable,
    write_coloured,
)
from cbt_plugins.programs import NoHome
from cbt_plugins.results.result_file import NOT_ALLOWED, NotThere, Unreadable

_Read = TypeVar("_Read")

#: exit status 2 of a verb that compares runs
USAGE_OF_COMPARISON = {USAGE: f"{STATUSES[USAGE]}; or runs that cannot be compared"}
#: exit status 4 of a verb that makes a plan
UNUSABLE_HISTORY = {UNUSABLE: "a run of --history is incomplete, unusable or unreadable"}
#: optional Python package -> the extra of cbt-plugins that installs it
_EXTRAS = {
    **dict.fromkeys(("numpy", "scipy", "jinja2", "markupsafe", "jsonschema"), "report"),
    "duckdb": "sql",
    "matplotlib": "plots",
}


#: errors of a path that the command line names: wrong use. Others, such as that of a full disk, are not
_OF_PATHS = (
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO),
    *(errno.EACCES, errno.EPERM, errno.EROFS),
)


class CommandError(Exception):
    """End of a verb: one message for the user, and the exit status."""

    def __init__(self, text: str, status: int = USAGE) -> None:
        super().__init__(text)
        self.status = status


def status_of(error: OSError) -> int:
    """Return the exit status for a file that cannot be opened, or cannot be written."""
    return USAGE if error.errno in _OF_PATHS else CANNOT


class Parser(argparse.ArgumentParser):
    """A parser whose errors look like those of the verbs."""

    def error(self, message: str) -> NoReturn:
        unknown = message.partition("unrecognized arguments: ")[2].partition("=")[0].split()
        verbs = [
            verb for action in self._actions if isinstance(action.choices, dict) for verb in action.choices.values()
        ]
        (verbs[0] if unknown and len(verbs) == 1 else self).print_usage(sys.stderr)
        near = difflib.get_close_matches(unknown[0], self.options(), 1) if unknown else ()
        say("Error", message + (f": did you mean {near[0]}?" if near else ""), USAGE)
        self.exit(USAGE)

    def options(self) -> Iterator[str]:
        """Yield the options that the help shows, also the options of the verbs."""
        for action in self._actions:
            if isinstance(action.choices, dict):
                for parser in action.choices.values():
                    yield from parser.options()
            elif action.help != argparse.SUPPRESS:
                yield from action.option_strings


def help_text(text: str) -> str:
    """Return a text as argparse takes it: a % would begin the name of a value."""
    return text.replace("%", "%%")


def explain(parser: argparse.ArgumentParser, examples: Sequence[str], statuses: Mapping[int, str] = {}) -> None:
    """Add examples and exit statuses to a help: 0, 2 and `statuses`; "" stands for the text in STATUSES."""
    lines = ["example:" if len(examples) == 1 else "examples:", *(f"  {line}" for line in examples), "", "exit status:"]
    for status, text in sorted({OK: "", USAGE: "", **statuses}.items()):
        entry = f"{status:<5} {text or STATUSES[status]}"
        lines += textwrap.wrap(entry, 78, initial_indent="  ", subsequent_indent=" " * 8)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(lines)


def call(work: Callable[[], int]) -> int:
    """Run a verb, print its error on stderr, and return the exit status."""
    logging.lastResort = LogPrinter(logging.WARNING)
    try:
        return _ended(work)
    except NoReader:  # as in `cbt-tools plan FILE | head`
        discard(sys.stdout)
        discard(sys.stderr)
        return UNREAD


def _ended(work: Callable[[], int]) -> int:
    try:
        status = _called(work)
        loss = lost_output()
    except NoOutput as e:
        status, loss = OK, str(e)
    except Exception:  # Python would exit with 1, which may mean a regression, or a changed file
        traceback.print_exc()
        return say("Error", "this is an error of cbt-plugins: please report it with the lines above", CANNOT)
    return say("Error", loss, status or CANNOT) if loss else status


def _called(work: Callable[[], int]) -> int:
    try:
        return int(work())
    except SystemExit:  # of the parser
        loss = lost_output()
        if loss:
            raise NoOutput(loss) from None
        raise
    except CommandError as e:
        return say("Error", str(e), e.status)
    except Unreadable as e:
        return say("Error", str(e), USAGE if isinstance(e, NotThere) else UNUSABLE)
    except NoHome as e:
        return say("Error", str(e), USAGE)
    except PermissionError as e:
        return say("Error", f"{e.filename}: {NOT_ALLOWED}", UNUSABLE)
    except OSError as e:
        if e.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return say("Error", f"cannot write {e.filename or 'a file'}: {e.strerror}", CANNOT)
    except ImportError as e:
        if not is_optional(e):
            raise
        return say("Error", missing(e), USAGE)
    except KeyboardInterrupt:
        return INTERRUPTED


def read_each(
    archives: Sequence[Path], read: Callable[[Path], _Read]
) -> Tuple[List[Tuple[Path, _Read]], int]:
    """Return each readable archive with what `read` returns of it, and the exit status; print the other errors.

    Raises NotThere.
    """
    results: List[Tuple[Path, _Read]] = []
    status = OK
    for archive in archives:
        try:
            results.append((archive, read(archive)))
        except NotThere:
            raise
        except Unreadable as e:
            status = say("Error", str(e), UNUSABLE)
    return results, status


def refuse_twice(paths: Iterable[Path]) -> None:
    """Raise CommandError for a path that comes twice, perhaps by another name: its numbers would count twice."""
    seen = set()
    for path in paths:
        place = os.path.realpath(path)
        if place in seen:
            raise CommandError(f"{path} is given twice")
        seen.add(place)


def is_optional(error: ImportError) -> bool:
    """Tell whether an error is a missing package that one of the extras installs."""
    return (error.name or "").partition(".")[0] in _EXTRAS


def missing(error: ImportError) -> str:
    """Return a message: which optional package is missing, and how to install it."""
    name = (error.name or "").partition(".")[0]
    return f"missing Python package {name}: pip install 'cbt-plugins[{_EXTRAS[name]}]'"


def warn(text: str) -> None:
    """Print a warning; the verb continues."""
    say("Warning", text, OK)


class LogPrinter(logging.Handler):
    """Prints what the readers of archives log as `warn` and `say` print it, in verbs without a log of their own."""

    def emit(self, record: logging.LogRecord) -> None:
        say("Error" if record.levelno >= logging.ERROR else "Warning", record.getMessage(), OK)


def say(kind: str, text: str, status: int) -> int:
    """Print a line on stderr; returns `status`."""
    colour = {"Error": RED, "Warning": YELLOW}.get(kind, "") if paper_of(sys.stderr).colours else ""
    write_coloured(sys.stderr, f"{painted(f'{kind}:', colour)} {printable(text)}\n")
    return status

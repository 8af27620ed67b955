"""What all verbs of `cbt-tools` share: the parser, errors and warnings on stderr, and the exit status.

0: done. 1: the run failed. 2: wrong use, also a path that does not exist. 4: a run is incomplete or unreadable. A verb
that has more of them says so in its help.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Callable, NoReturn

from cbt_plugins.results.source import NotThere, Unreadable

OK, FAILED, USAGE, UNUSABLE = 0, 1, 2, 4
#: optional Python package -> the extra of cbt-plugins that installs it
_EXTRAS = {
    **dict.fromkeys(("numpy", "scipy", "jinja2", "markupsafe", "jsonschema"), "report"),
    "duckdb": "sql",
    "matplotlib": "plots",
}


class CommandError(Exception):
    """The end of a verb: one message for the user, and the exit status."""

    def __init__(self, text: str, status: int = USAGE) -> None:
        super().__init__(text)
        self.status = status


class Parser(argparse.ArgumentParser):
    """A parser whose errors look like those of the verbs."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"Error: {message}\n")


def call(verb: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    """Run a verb and return its exit status; what ends it with an error is said on stderr."""
    try:
        status = int(verb(args))
        sys.stdout.flush()
        return status
    except CommandError as e:
        return say("Error", str(e), e.status)
    except BrokenPipeError:  # as in `cbt-tools plan FILE | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Unreadable as e:
        return say("Error", str(e), USAGE if isinstance(e, NotThere) else UNUSABLE)
    except ImportError as e:
        if not is_optional(e):
            raise
        return say("Error", missing(e), USAGE)
    except KeyboardInterrupt:
        return 130


def is_optional(error: ImportError) -> bool:
    """Return whether a package is missing that one of the extras installs."""
    return (error.name or "").partition(".")[0] in _EXTRAS


def missing(error: ImportError) -> str:
    """Return which optional package is missing, and how to install it."""
    name = (error.name or "").partition(".")[0]
    return f"missing Python package {name}: pip install 'cbt-plugins[{_EXTRAS[name]}]'"


def warn(text: str) -> None:
    """Print a warning; the verb continues."""
    say("Warning", text, OK)


def say(kind: str, text: str, status: int) -> int:
    """Print a line on stderr; returns `status`."""
    print(f"{kind}: {text}", file=sys.stderr)
    return status

# PYTHON_ARGCOMPLETE_OK
"""Entry point of `cbt-tools VERB`: the table of verbs, `--version` and shell completion."""

from __future__ import annotations

import ast
import difflib
import gc
import importlib
import os
import sys
from pathlib import Path
from typing import Optional, Sequence

from cbt_plugins import __version__
from cbt_plugins.exit_status import ABORT, STATUSES
from cbt_plugins.formatting.screen import printable_output

from .command import CommandError, Parser, call, explain

#: each verb is a module of this package with `add_arguments` and `run`; its docstring's first line is the verb's help
VERBS = (
    *("build", "lab", "init", "kubernetes", "import", "plan", "size", "inject", "undo", "snapshot"),
    *("report", "watch", "sql", "export", "flame", "verify", "compare", "gate", "history", "campaign", "bisect", "pr"),
)
#: verbs that are keywords of Python, which cannot name a module
_MODULES = {"import": "import_"}
#: verbs that change something: they continue when the reader of their output has ended, or it cannot be written
_ENDURING = ("build", "lab", "inject", "undo", "campaign", "bisect", "pr")

#: objects between two garbage collections: the reply of a cluster of 10,000 OSDs has fewer, and a collection takes
#: longer than parsing the reply
_CONTAINERS = 200_000


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run one verb and return its exit status; only that verb's module is imported."""
    gc.set_threshold(_CONTAINERS)
    completing = "_ARGCOMPLETE" in os.environ
    argv = list(sys.argv[1:] if argv is None else argv)
    typed = os.environ.get("COMP_LINE", "").split()[1:] if completing else argv
    if typed[:1] == ["help"]:
        argv = typed = [*typed[1:2], "--help"]
    verb = typed[0] if typed else ""
    if completing:
        import argcomplete

        argcomplete.autocomplete(parser_of(verb))
    with printable_output(endures=verb in _ENDURING):
        return call(lambda: _run(verb, argv))


def _run(verb: str, argv: Sequence[str]) -> int:
    if verb and not verb.startswith("-") and verb not in VERBS:
        near = difflib.get_close_matches(verb, VERBS, 1)
        hint = f"did you mean {near[0]}?" if near else f"the verbs are {', '.join(VERBS)}"
        raise CommandError(f"unknown verb {verb}: {hint}")
    parser = parser_of(verb)
    if not argv:
        parser.print_help(sys.stderr)
        raise CommandError("missing VERB")
    try:
        args = parser.parse_args(argv)
    except SystemExit as e:
        raise SystemExit(ABORT if e.code and verb == "bisect" and "step" in argv else e.code) from None
    return int(args.run(args))


def parser_of(chosen: str) -> Parser:
    """Return the parser with all verbs; only the chosen verb has its arguments."""
    parser = Parser(prog="cbt-tools", description="Prepare, run and evaluate benchmarks of cbt-plugins.")
    explain(parser, ("cbt-tools compare --help", "cbt-tools plan my.yaml", "cbt-tools report archive"), STATUSES)
    parser.add_argument("-V", "--version", action="version", version=f"cbt-tools {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name in VERBS:
        if chosen in VERBS and name != chosen:
            continue
        text = _help(name)
        verb = verbs.add_parser(name, help=text, description=f"{text}.", add_help=name == chosen)
        if name == chosen:
            module = importlib.import_module(f".{_MODULES.get(name, name)}", __package__)
            module.add_arguments(verb)
            verb.set_defaults(run=module.run)
    return parser


def _help(module: str) -> str:
    """Return the first line of a module's docstring, without importing the module."""
    path = Path(__file__).parent / _MODULES.get(module, module)
    source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0].rstrip(".")


if __name__ == "__main__":
    sys.exit(main())

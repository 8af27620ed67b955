# PYTHON_ARGCOMPLETE_OK
"""Entry point of `cbt-tools VERB`: the table of verbs, `--version` and shell completion."""

from __future__ import annotations

import ast
import difflib
import importlib
import os
import sys
from pathlib import Path
from typing import Optional, Sequence

from cbt_plugins import __version__
from cbt_plugins.formatting import printable_output

from .command import USAGE, Parser, call, say

#: each verb is a module of this package with `add_arguments` and `run`; its docstring's first line is the verb's help
VERBS = (
    *("build", "lab", "plan", "size", "inject", "undo"),
    *("report", "sql", "export", "compare", "gate", "history"),
)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run one verb and return its exit status; only that verb's module is imported."""
    completing = "_ARGCOMPLETE" in os.environ
    argv = list(sys.argv[1:] if argv is None else argv)
    typed = os.environ.get("COMP_LINE", "").split()[1:] if completing else argv
    verb = typed[0] if typed else ""
    if verb and not verb.startswith("-") and verb not in VERBS and not completing:
        near = difflib.get_close_matches(verb, VERBS, 1)
        hint = f"did you mean {near[0]}?" if near else f"the verbs are {', '.join(VERBS)}"
        return say("Error", f"unknown verb {verb}: {hint}", USAGE)
    parser = _parser(verb)
    if completing:
        import argcomplete

        argcomplete.autocomplete(parser)
    with printable_output():
        args = parser.parse_args(argv)
        return call(args.run, args)


def _parser(chosen: str) -> Parser:
    """The parser with all verbs, of which only the chosen one has its arguments."""
    parser = Parser(prog="cbt-tools", description="Prepare, run and evaluate benchmarks of cbt-plugins.")
    parser.add_argument("--version", action="version", version=f"cbt-tools {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name in VERBS:
        if chosen in VERBS and name != chosen:
            continue
        text = _help(name)
        verb = verbs.add_parser(name, help=text, description=f"{text}.", add_help=name == chosen)
        if name == chosen:
            module = importlib.import_module(f".{name}", __package__)
            module.add_arguments(verb)
            verb.set_defaults(run=module.run)
    return parser


def _help(module: str) -> str:
    """The first line of a module's docstring, without importing the module."""
    path = Path(__file__).parent / module
    source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0].rstrip(".")


if __name__ == "__main__":
    sys.exit(main())

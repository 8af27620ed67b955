"""Forms of results, the same in all verbs: `--format text|json|csv|md`, and `-o FILE`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NoReturn, Optional, Sequence, Type

from cbt_plugins.formatting.data import Csv, Html, Json
from cbt_plugins.formatting.markdown import Markdown
from cbt_plugins.formatting.output_format import Form
from cbt_plugins.formatting.screen import PLAIN, paper_of, write_coloured
from cbt_plugins.formatting.terminal import Terminal

from .command import CommandError

#: the forms of several verbs: name -> purpose
FORMS: Dict[str, Type[Form]] = {form.name: form for form in (Terminal, Json, Csv, Markdown, Html)}
TEXT, JSON, CSV, MD, HTML = FORMS
#: suffix of a file -> form, for suffixes that are not the name of their form
_SUFFIXES = {"prom": "prometheus", **{suffix: form.name for form in FORMS.values() for suffix in form.suffixes}}


def add_forms(parser: argparse.ArgumentParser, *forms: str, text: str = "") -> None:
    """Add `-o`, and `--format` with these forms; the first one is the default."""
    form = parser.add_argument("--format", type=_form(forms), metavar="|".join(forms), help=text or _text(forms))
    form.completer = lambda **_: forms  # type: ignore[attr-defined]  # for argcomplete
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="file to write; its suffix chooses the format; - is standard output"
    )
    parser.set_defaults(forms=forms)


def _text(forms: Sequence[str]) -> str:
    purposes = (FORMS[form].purpose if form in FORMS else form for form in forms)
    return f"{', '.join(purposes)} (default: {forms[0]})"


def _form(forms: Sequence[str]) -> Callable[[str], str]:
    def form(text: str) -> str:
        if text in forms:
            return text
        suggestion = _SUFFIXES.get(text)
        hint = f"use {suggestion}" if suggestion in forms else f"the formats are {', '.join(forms)}"
        raise argparse.ArgumentTypeError(f"no such format: {text!r}: {hint}")

    return form


def add_renamed(parser: argparse.ArgumentParser, names: Mapping[str, str]) -> None:
    """Refuse options of earlier versions, and name the new option."""

    class Renamed(argparse.Action):
        def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> NoReturn:
            parser.error(f"{self.option_strings[0]} was replaced: use {names[self.option_strings[0]]}")

    for name in names:
        parser.add_argument(name, nargs="?", action=Renamed, help=argparse.SUPPRESS)


def form_of(args: argparse.Namespace) -> str:
    """Return the form of --format, else of the suffix of -o, else the first form of the verb."""
    if args.format is None and is_file(args):
        suffix = Path(args.output).suffix[1:]
        form = _SUFFIXES.get(suffix, suffix)
        if form in args.forms:
            return form
        if form in FORMS:
            raise CommandError(f"-o {args.output}: no such format: {form}: the formats are {', '.join(args.forms)}")
    return args.format or args.forms[0]


def is_file(args: argparse.Namespace) -> bool:
    """Tell whether the results go into a file."""
    return args.output not in (None, "-")


def columns_of(args: argparse.Namespace) -> Optional[int]:
    """Return the width for tables; None for a file or without a terminal."""
    return None if is_file(args) else paper_of(sys.stdout).columns


class Printer:
    """Output of a verb in the chosen form. A file is written at the end, in one step."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.form = form_of(args)
        self._file = Path(args.output) if is_file(args) else None
        self._writer = FORMS.get(self.form, Form)(PLAIN if self._file else paper_of(sys.stdout))
        self._texts: List[str] = []
        self._again = False

    def __enter__(self) -> Printer:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], *_: object) -> None:
        if kind is None and self._file:
            _write(self._file, "".join(self._texts))

    def show(self, output: Any) -> None:
        """Print a text, blocks, data for JSON, or lines of cells for CSV."""
        if isinstance(output, str):
            self._write(self._writer.safe(output))
            return
        text = self._writer.text(output, self._again)
        self._again = True
        if self._writer.coloured:
            write_coloured(sys.stdout, text)
        else:
            self._write(self._writer.safe(text))

    def _write(self, text: str) -> None:
        if self._file:
            self._texts.append(text)
        else:
            print(text, end="", flush=True)


def put(args: argparse.Namespace, forms: Mapping[str, Callable[[], Any]]) -> None:
    """Print the results in the chosen form.

    `forms`: form -> function that returns a text; or blocks for `text` and `md` (by default the blocks of `text`);
    data for `json`; lines of cells for `csv`, the first line with the names of the columns.
    """
    with Printer(args) as printer:
        printer.show(forms[printer.form if printer.form in forms else TEXT]())


def _write(path: Path, text: str) -> None:
    """Write a file in one step, or write to a device or a pipe such as /dev/null. Raises CommandError."""
    from cbt_plugins.journal import write_whole

    try:
        if path.exists() and (path.is_symlink() or not path.is_file()):
            path.write_bytes(text.encode("utf-8", "backslashreplace"))
        elif not path.parent.is_dir():
            raise CommandError(f"cannot write {path}: no such directory: {path.parent}")
        else:
            write_whole(path, text)
    except OSError as e:
        raise CommandError(f"cannot write {path}: {e.strerror or e}") from e

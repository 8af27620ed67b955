"""The forms of results, the same in all verbs: `--format text|json|csv|md`, and `-o FILE` for where they go."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterable, List, Mapping, NoReturn, Optional, Sequence, Type

from cbt_plugins.formatting import Paper, csv_cell, markdown, paper_of, printable, write_coloured
from cbt_plugins.formatting import text as as_text

from .command import CommandError

if TYPE_CHECKING:
    from cbt_plugins.formatting import Block

TEXT, JSON, CSV, MD, HTML = "text", "json", "csv", "md", "html"
#: end of a file's name -> the form, where it is the name of no form
_SUFFIXES = {"txt": TEXT, "markdown": MD, "htm": HTML, "prom": "prometheus"}
_TEXTS = {TEXT: "for people", JSON: "for programs", CSV: "a table", MD: "Markdown", HTML: "a page"}


def add_forms(parser: argparse.ArgumentParser, *forms: str, text: str = "") -> None:
    """Add `--format` with these forms, of which the first is the default, and `-o`."""
    form = parser.add_argument("--format", type=_form(forms), metavar="|".join(forms), help=text or _text(forms))
    form.completer = lambda **_: forms  # type: ignore[attr-defined]  # for argcomplete
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write into this file; its suffix gives the format; - is standard output"
    )
    parser.set_defaults(forms=forms)


def _text(forms: Sequence[str]) -> str:
    return f"{', '.join(_TEXTS.get(form, form) for form in forms)} (default: {forms[0]})"


def _form(forms: Sequence[str]) -> Callable[[str], str]:
    def form(text: str) -> str:
        if text in forms:
            return text
        suggestion = _SUFFIXES.get(text)
        hint = f"use {suggestion}" if suggestion in forms else f"there is {', '.join(forms)}"
        raise argparse.ArgumentTypeError(f"no format {text!r} here: {hint}")

    return form


def add_renamed(parser: argparse.ArgumentParser, names: Mapping[str, str]) -> None:
    """Refuse options of earlier versions with what replaces them."""

    class Renamed(argparse.Action):
        def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> NoReturn:
            parser.error(f"{self.option_strings[0]} was replaced: use {names[self.option_strings[0]]}")

    for name in names:
        parser.add_argument(name, nargs="?", action=Renamed, help=argparse.SUPPRESS)


def form_of(args: argparse.Namespace) -> str:
    """Return the form that was asked for: by --format, else by the file's name, else the verb's first."""
    if args.format is None and is_file(args):
        suffix = Path(args.output).suffix[1:]
        form = _SUFFIXES.get(suffix, suffix)
        if form in args.forms:
            return form
        if form in _TEXTS:
            raise CommandError(f"-o {args.output}: no format {form} here: there is {', '.join(args.forms)}")
    return args.format or args.forms[0]


def is_file(args: argparse.Namespace) -> bool:
    """Return whether the results go into a file."""
    return args.output not in (None, "-")


def columns_of(args: argparse.Namespace) -> Optional[int]:
    """Return how wide tables may be: None in a file, or where no terminal is."""
    return None if is_file(args) else paper_of(sys.stdout).columns


class Printer:
    """Where the results of a verb go, in the form that was asked for. A file is written at the end, as a whole."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.form = form_of(args)
        self._file = Path(args.output) if is_file(args) else None
        self._paper = Paper() if self._file else paper_of(sys.stdout)
        self._texts: List[str] = []
        self._again = False

    def __enter__(self) -> Printer:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], *_: object) -> None:
        if kind is None and self._file:
            _write(self._file, "".join(self._texts))

    def show(self, output: Any) -> None:
        """Print a text, or what becomes one: blocks, data for JSON, lines of cells for CSV."""
        if self.form == JSON:
            text = output if isinstance(output, str) else json.dumps(_finite(output), indent=1, default=str) + "\n"
            self._text(text.replace("\x7f", "\\u007f"))  # the only sign of ASCII that a terminal would get escaped
        elif isinstance(output, str):
            self._text(output)
        elif self.form == CSV:
            self._table(output)
        else:
            self._blocks(output)

    def _text(self, text: str) -> None:
        if self._file:
            self._texts.append(printable(text) if self.form in (TEXT, MD) else text)
        else:
            print(text, end="", flush=True)

    def _blocks(self, blocks: Sequence[Block]) -> None:
        text = markdown(blocks) if self.form == MD else as_text(blocks, self._paper)
        text = "\n" + text if self._again else text
        self._again = True
        if self._paper.colours and self.form == TEXT:
            write_coloured(sys.stdout, text)
        else:
            self._text(text)

    def _table(self, lines: Iterable[Sequence[Any]]) -> None:
        """The first line names the columns, and is printed once."""
        out = io.StringIO()
        rows = islice(lines, int(self._again), None)
        csv.writer(out, lineterminator="\n").writerows(map(csv_cell, row) for row in rows)
        self._text(out.getvalue())
        self._again = True


def _finite(value: Any) -> Any:
    """Return a value as JSON can have it: null for what is no finite number, text for the keys of a mapping."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def put(args: argparse.Namespace, forms: Mapping[str, Callable[[], Any]]) -> None:
    """Print the results in the form that was asked for.

    `forms`: form -> what makes it: a text; or blocks for `text` and `md`, which has those of `text`; data for `json`;
    lines of cells, the first with the names of the columns, for `csv`.
    """
    with Printer(args) as printer:
        printer.show(forms[printer.form if printer.form in forms else TEXT]())


def _write(path: Path, text: str) -> None:
    """Write a file as a whole; what is no regular file (/dev/null, a pipe) is written to. Raises CommandError."""
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

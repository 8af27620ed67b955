"""Options for the format of results, the same in all verbs: `--format text|json|csv|md`, and `-o FILE`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Callable, List, Mapping, NoReturn, Optional, Sequence, Type

from cbt_plugins.formatting.formats import FORMATS
from cbt_plugins.formatting.formats.format import Format
from cbt_plugins.formatting.screen import PLAIN, escape_unencodable, paper_of, write_coloured

from .command import CommandError, status_of

#: the formats whose content a verb makes; all others take the content of one of these
TEXT, JSON, CSV, MD, HTML = "text", "json", "csv", "md", "html"
#: of the verbs that write a file which people edit
FILE_EXISTS = "the file exists: name a new file (-o), or move this file away"
#: suffix of a file -> format, for suffixes that are not the name of their format
_SUFFIXES = {"prom": "prometheus", **{suffix: name for name, of_name in FORMATS.items() for suffix in of_name.suffixes}}
#: suffixes of formats that no verb has; another one, such as that of compare-18.2.7 or out.log, says no format
_OTHER_FORMATS = frozenset(
    (
        *("pdf", "ps", "doc", "docx", "odt", "rtf", "tex", "xls", "xlsx", "ods", "tsv", "parquet", "duckdb", "sqlite"),
        *("xml", "yaml", "yml", "jsonl", "png", "svg", "jpg", "jpeg", "gif", "webp", "gz", "xz", "zst", "bz2", "zip"),
    )
)


def add_formats(parser: argparse.ArgumentParser, *names: str, text: str = "") -> None:
    """Add `-o`, and `--format` with these formats and those that are like them; the first one is the default."""
    names = (*names, *(name for name, of_name in FORMATS.items() if of_name.like in names and name not in names))
    option = parser.add_argument(
        "--format", type=_known_format(names), metavar="|".join(names), help=text or _text(names)
    )
    option.completer = lambda **_: names  # type: ignore[attr-defined]  # for argcomplete
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="file to write; its suffix chooses the format; - is standard output"
    )
    parser.set_defaults(formats=names)


def _text(names: Sequence[str]) -> str:
    purposes = (FORMATS[name].purpose if name in FORMATS else name for name in names)
    return f"{', '.join(purposes)} (default: {names[0]})"


def _known_format(names: Sequence[str]) -> Callable[[str], str]:
    def check_format(text: str) -> str:
        if text in names:
            return text
        suggestion = _SUFFIXES.get(text)
        hint = f"use {suggestion}" if suggestion in names else f"the formats are {', '.join(names)}"
        raise argparse.ArgumentTypeError(f"no such format: {text!r}: {hint}")

    return check_format


def add_renamed(parser: argparse.ArgumentParser, names: Mapping[str, str]) -> None:
    """Refuse options of earlier versions, and name the new option."""

    class Renamed(argparse.Action):
        def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> NoReturn:
            parser.error(f"{self.option_strings[0]} was replaced: use {names[self.option_strings[0]]}")

    for name in names:
        parser.add_argument(name, nargs="?", action=Renamed, help=argparse.SUPPRESS)


def format_of(args: argparse.Namespace) -> str:
    """Return the format of --format, else of the suffix of -o, else the first format of the verb. Raises CommandError.
    """
    if args.format is None and is_file(args):
        suffix = Path(args.output).suffix[1:].lower()
        name = _SUFFIXES.get(suffix, suffix)
        if name in args.formats:
            return name
        if name in FORMATS:
            raise CommandError(f"-o {args.output}: no such format: {name}: the formats are {', '.join(args.formats)}")
        if suffix in _OTHER_FORMATS:
            suffixes = ((name, *(s for s, of in _SUFFIXES.items() if of == name)) for name in args.formats)
            names = ", ".join(f".{suffix}" for of_format in suffixes for suffix in of_format)
            raise CommandError(f"-o {args.output}: no format has the suffix .{suffix}: use {names}, or --format")
    return args.format or args.formats[0]


def is_file(args: argparse.Namespace) -> bool:
    """Tell whether the results go into a file."""
    return args.output not in (None, "-")


def table_width(args: argparse.Namespace) -> Optional[int]:
    """Return the width for tables; None for a file or without a terminal."""
    return None if is_file(args) else paper_of(sys.stdout).columns


class Printer:
    """Output of a verb in the chosen format, which takes the `content` of a format. A file is written in one step."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.format = format_of(args)
        self._file = Path(args.output) if is_file(args) else None
        chosen = FORMATS.get(self.format, Format)
        self.content = chosen.like or self.format
        self._writer = chosen(PLAIN if self._file else paper_of(sys.stdout))
        if self.content == HTML and not self._file:
            escape_unencodable(sys.stdout, "utf-8")  # as the page says, whatever the terminal has
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


def print_results(args: argparse.Namespace, contents: Mapping[str, Callable[[], Any]]) -> None:
    """Print the results in the chosen format.

    `contents`: format -> function that returns a text; or blocks for `text` and `md` (by default the blocks of `text`);
    data for `json`; lines of cells for `csv`, the first line with the names of the columns.
    """
    with Printer(args) as printer:
        printer.show(contents[printer.content if printer.content in contents else TEXT]())


def remove_earlier(args: argparse.Namespace) -> None:
    """Remove the file of -o, which an earlier command wrote: nobody shall take it for the result of this one.

    Raises CommandError, before the work, for a name that `format_of` refuses.
    """
    format_of(args)
    if is_file(args) and is_replaced(Path(args.output)):
        Path(args.output).unlink(missing_ok=True)


def is_replaced(path: Path) -> bool:
    """Tell whether a new file takes the place of a path: no device, pipe or link, such as /dev/null."""
    return not path.exists() or (path.is_file() and not path.is_symlink())


def _write(path: Path, text: str) -> None:
    """Write a file in one step, or write to a device or a pipe such as /dev/null. Raises CommandError."""
    from cbt_plugins.journal import write_whole

    try:
        if not is_replaced(path):
            path.write_bytes(text.encode("utf-8", "backslashreplace"))
        elif not path.parent.is_dir():
            raise CommandError(f"cannot write {path}: no such directory: {path.parent}")
        else:
            write_whole(path, text)
    except OSError as e:
        raise CommandError(f"cannot write {path}: {e.strerror or e}", status_of(e)) from e


def write_new(path: Path, text: str) -> None:
    """Write a new file, in full or not at all: a file of that name may have been edited. Raises CommandError."""
    try:
        with open(path, "x", encoding="utf-8") as file:
            try:
                file.write(text)
                file.flush()
            except OSError:
                path.unlink()
                raise
    except FileExistsError:
        raise CommandError(f"{path}: {FILE_EXISTS}") from None
    except OSError as e:
        raise CommandError(f"cannot write {path}: {e.strerror or e}", status_of(e)) from None

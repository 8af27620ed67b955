"""What a format of output is: the class that each format subclasses, with its name for `--format`."""

from __future__ import annotations

from typing import Any, ClassVar, Sequence, Tuple

from cbt_plugins.formatting.blocks import Block, BlockFormat
from cbt_plugins.formatting.screen import PLAIN, Paper, printable


class Format:
    """A format of output; this one takes texts, which stay as they are."""

    name: ClassVar[str] = ""
    #: ends of the names of its files, beside its name
    suffixes: ClassVar[Tuple[str, ...]] = ()
    #: of the help
    purpose: ClassVar[str] = ""
    #: the name of a format: each verb that has that one has this one too, and gives it the same content
    like: ClassVar[str] = ""

    def __init__(self, paper: Paper = PLAIN) -> None:
        self._paper = paper

    @property
    def coloured(self) -> bool:
        """Whether its texts have colours of `painted`."""
        return False

    def text(self, content: Any, again: bool = False) -> str:
        """Return the text of results, which ends with a line end; `again`: some of them have been printed."""
        return str(content)

    def safe(self, text: str) -> str:
        """Return a text of this format as it may be written to a terminal or to a file."""
        return text


class TextFormat(Format, BlockFormat[str]):
    """A format of blocks in lines of text, which people read in a terminal."""

    def text(self, content: Sequence[Block], again: bool = False) -> str:
        """Return blocks as text, an empty line between them: no trailing blanks."""
        parts = filter(None, (list(block.parts(self)) for block in content))
        texts = ["\n".join(line.rstrip() for line in lines) for lines in parts]
        return "\n" * again + "\n\n".join(texts) + "\n"

    def safe(self, text: str) -> str:
        return printable(text)

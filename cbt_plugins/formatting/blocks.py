"""What all formats of output are made of: headings, words, lists and tables, which know nothing of any format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, Iterator, Sequence, Tuple, TypeVar, Union

Part = TypeVar("Part")


class BlockFormat(ABC, Generic[Part]):
    """A format that blocks are written in: for each kind of block its parts, such as lines of text."""

    @abstractmethod
    def heading(self, heading: Heading) -> Iterator[Part]: ...

    @abstractmethod
    def words(self, words: Words) -> Iterator[Part]: ...

    @abstractmethod
    def notes(self, notes: Notes) -> Iterator[Part]: ...

    @abstractmethod
    def table(self, grid: TableGrid) -> Iterator[Part]: ...

    @abstractmethod
    def titled(self, titled: TitledBlocks) -> Iterator[Part]: ...


class Block(ABC):
    """A piece of output; a block without content has no parts in any format."""

    @abstractmethod
    def parts(self, format_: BlockFormat[Part]) -> Iterator[Part]:
        """Return the parts of the block in a format."""


@dataclass(frozen=True)
class Heading(Block):
    """A heading of what follows."""

    text: str

    def parts(self, format_: BlockFormat[Part]) -> Iterator[Part]:
        return format_.heading(self)


@dataclass(frozen=True)
class Words(Block):
    """Single lines; in Markdown several of them are a list."""

    lines: Tuple[str, ...]

    def parts(self, format_: BlockFormat[Part]) -> Iterator[Part]:
        return format_.words(self)


@dataclass(frozen=True)
class Notes(Block):
    """A titled list; left out when it has no items."""

    title: str
    items: Tuple[str, ...]
    colours: Tuple[str, ...] = ()  # of the first word of each item

    def parts(self, format_: BlockFormat[Part]) -> Iterator[Part]:
        return format_.notes(self) if self.items else iter(())


@dataclass(frozen=True)
class TableGrid(Block):
    """A table; left out when it has no rows. `left`: as for `left_columns`. Without a head it has rows only."""

    head: Tuple[str, ...]
    rows: Tuple[Tuple[str, ...], ...]
    left: Union[int, Sequence[bool]] = 1
    title: str = ""
    ruled: bool = False  # with a line below the head

    def parts(self, format_: BlockFormat[Part]) -> Iterator[Part]:
        return format_.table(self) if self.rows else iter(())

    @property
    def sides(self) -> Sequence[bool]:
        """Whether the cells of each column begin at the left."""
        return left_columns(self.left, len(self.rows[0]))


@dataclass(frozen=True)
class TitledBlocks(Block):
    """A title and the blocks below it: in text they are indented, with no empty lines between them."""

    title: str
    blocks: Tuple[Block, ...]

    def parts(self, format_: BlockFormat[Part]) -> Iterator[Part]:
        return format_.titled(self)


def left_columns(left: Union[int, Sequence[bool]], number: int) -> Sequence[bool]:
    """Return for each of `number` columns whether its cells begin at the left: so many of the first, or as listed."""
    return [i < left for i in range(number)] if isinstance(left, int) else left

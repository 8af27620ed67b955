"""How a pool keeps data: copies and erasure codes are one thing, k parts and m spare ones."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TEXT = re.compile(r"(?:[eE][cC] ?)?([0-9]{1,3})(?: ?\+ ?([0-9]{1,3})| copies)?")


@dataclass(frozen=True)
class Redundancy:
    """An object is cut into `k` parts, and `m` more are made so that any k of all are enough; copies have k = 1."""

    k: int
    m: int

    def __post_init__(self) -> None:
        if self.k < 1 or self.m < 0:
            raise ValueError(f"a pool has 1 or more data parts and 0 or more spare ones, not {self.k}+{self.m}")

    @property
    def size(self) -> int:
        """Members of a PG: copies, or data and coding chunks."""
        return self.k + self.m

    @property
    def usable(self) -> float:
        """Share of the raw space that holds data (0..1): 1/3 of 3 copies, 4/6 of EC 4+2."""
        return self.k / self.size

    def __str__(self) -> str:
        return f"EC {self.k}+{self.m}" if self.k > 1 else f"{self.size} cop{'y' if self.size == 1 else 'ies'}"

    @classmethod
    def parse(cls, text: str) -> Redundancy:
        """Return what "3" (copies) or "4+2" (erasure code) means; ValueError says what to write instead."""
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is no pool; write 3 for three copies, or 4+2 for an erasure code")
        first, coding = match.groups()
        if coding is None:
            return copies(int(first))
        if int(first) < 2:
            raise ValueError(f"{text.strip()}: an erasure code has 2 data chunks or more; write {1 + int(coding)}")
        return cls(int(first), int(coding))


def copies(number: int) -> Redundancy:
    """A replicated pool of this size."""
    return Redundancy(1, number - 1)

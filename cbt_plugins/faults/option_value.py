"""Whether an option has the value that it was given: Ceph writes 1 as true, 4M as 4194304, 0.5 as 0.500000."""

from __future__ import annotations

import re
from math import isclose
from typing import List, Optional

_NUMBER = r"[+-]?\d+(?:\.\d*)?(?:e[+-]?\d+)?"
_SIZE = rf"({_NUMBER})([KMGTPE])(i?)B?"
_TRUTH = {"true": True, "false": False}


def agrees(shown: str, given: str) -> bool:
    """Whether `ceph config dump` may show an option so that was given so. What cannot be compared agrees."""
    shown, given = shown.strip(), given.strip()
    low = shown.lower()
    if low == given.lower():
        return True
    if low in _TRUTH:
        return _truth(given) in (None, _TRUTH[low])
    if re.fullmatch(_NUMBER, low):
        # it is shown with six digits
        could = _numbers(given)
        return not could or any(isclose(float(low), number, rel_tol=1e-5, abs_tol=1e-6) for number in could)
    return not (_is_word(shown) and _is_word(given))


def _truth(given: str) -> Optional[bool]:
    if re.fullmatch(_NUMBER, given.lower()):
        return bool(float(given))
    return _TRUTH.get(given.lower())


def _numbers(given: str) -> List[float]:
    """What it may mean: K is 1000 or 1024, by the option's type."""
    if re.fullmatch(_NUMBER, given.lower()):
        return [float(given)]
    size = re.fullmatch(_SIZE, given)
    if size is None:
        return []
    bases = (1024,) if size[3] else (1024, 1000)
    return [float(size[1]) * base ** ("KMGTPE".index(size[2]) + 1) for base in bases]


def _is_word(text: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z][A-Za-z_-]*", text))

"""Equal numbers of a summary as one object: a run of three days has millions of them."""

from __future__ import annotations

from functools import lru_cache

#: return an equal number that was seen before, as far as one is remembered; rounded numbers come in few forms
shared = lru_cache(maxsize=1 << 16, typed=True)(lambda number: number)

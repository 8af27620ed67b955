"""A question that is asked again after an error that may pass, such as a lost connection."""

from __future__ import annotations

import logging
import time
from typing import Callable, Tuple, Type, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

#: how often is asked where a connection may be lost, and seconds in between
TRIES, TRY_AGAIN = 3, 5.0


def insist(question: Callable[[], T], passing: Type[Exception], clear: Tuple[Type[Exception], ...] = ()) -> T:
    """Ask, and again after an error that may pass; those that are `clear` are raised at once, and the last one."""
    for _ in range(TRIES - 1):
        try:
            return question()
        except clear:
            raise
        except passing as error:
            log.warning("%s; trying again", error)
            time.sleep(TRY_AGAIN)
    return question()

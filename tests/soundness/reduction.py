"""Delta debugging: the smallest case that still fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def reduced(
    case: T, smaller: Callable[[T], Iterable[T]], fails: Callable[[T], bool], *, most: int = 100, seconds: float = 120.0
) -> T:
    """The smallest case reached by steps after each of which it still fails.

    Args:
        smaller: simplifications of a case, the best first.
        fails: whether a case fails in the same way.
        most: number of cases tried at most.
        seconds: time after which no more are tried.
    """
    end, left = time.monotonic() + seconds, most
    while True:
        for candidate in smaller(case):
            if left <= 0 or time.monotonic() > end:
                return case
            left -= 1
            if fails(candidate):
                case = candidate
                break
        else:
            return case

"""Delta debugging: the smallest case that still fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def reduced(
    case: T, smaller: Callable[[T], Iterable[T]], fails: Callable[[T], bool], *, most: int = 100, seconds: float = 120.0
) -> T:
    """The smallest case reached by steps that each still fail.

    Args:
        smaller: cases with less in them than one, the best first.
        fails: whether a case fails in the same way.
        most: cases tried at most.
        seconds: after which no more are tried.
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

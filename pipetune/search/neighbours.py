"""Windows as they would have been if no other process had used the cores.

Other processes take more from a plan that keeps all cores busy than from one that leaves some of them idle, so that
beside them a parallel plan seems to gain less than it does. Measured on the photos example on two cores, windows of
1.2 s, the ratio of a parallel map to the pipeline as written (and the deviation of the log ratio of a pair): quiet 1.31
(0.09, 13 pairs); beside a process that takes a core for half of the time 1.16 (0.13, 24 pairs), and by
`undisturbed` 1.31 (0.08); beside two of them 1.13 (0.21, 23 pairs), and by `undisturbed` 1.29 (0.07).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

from pipetune.core.results import Window

_UNUSED = 0.05
"""Share of the cores that a plan leaves unused, or that others use at most, in a window that shows what it can use. By
judgement: the services of an idle machine used 0 to 3 %."""


def undisturbed(*arms: Sequence[Window], usable: Sequence[float | None] = ()) -> list[list[Window]]:
    """Returns the windows of plans to be compared, each as short as if no other process had used the cores.

    A plan can use as many cores as it did in the window in which it used most. Where others left it fewer, the window
    took longer in proportion. What a window shows of its plan's speed takes no part in this. A window of which the load
    is unknown stays as it is, and so does one beside which enough cores were left. All stay as they are if of some plan
    it is not known how many cores it can use: it would be compared with less than it is worth.

    Args:
        arms: the windows of each plan, all in the same unit.
        usable: the cores that each plan can use, as far as earlier windows show that; by default of none.
    """
    known = [
        max((cores for cores in (usable_cores(windows), earlier) if cores is not None), default=None)
        for windows, earlier in zip_longest(arms, usable)
    ]
    if None in known:
        return [list(windows) for windows in arms]
    return [
        [_shortened(window, cores) for window in windows]
        for windows, cores in zip(arms, known, strict=True)
        if cores is not None
    ]


def usable_cores(windows: Sequence[Window]) -> float | None:
    """Returns the cores that a plan can use; None if others left it too few of them in every window."""
    return max(map(_used, windows)) if any(map(_shows_use, windows)) else None


def _used(window: Window) -> float:
    return window.cpu_seconds / window.wall_seconds


def _left(window: Window) -> float | None:
    """The cores that others left; None if unknown. The counters are coarse: it had what it used."""
    if window.others_seconds is None or window.cores is None:
        return None
    return max(window.cores - window.others_seconds / window.wall_seconds, _used(window))


def _shows_use(window: Window) -> bool:
    left = _left(window)
    if left is None or window.cores is None:
        return False
    unused = _UNUSED * window.cores
    return left >= window.cores - unused or left >= _used(window) + unused


def _shortened(window: Window, usable: float) -> Window:
    left = _left(window)
    if left is None or left >= usable:
        return window
    share = left / usable
    waited = None if window.wait_seconds is None else share * window.wait_seconds
    return replace(window, wall_seconds=share * window.wall_seconds, wait_seconds=waited)

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

from pipetune.core.results import Window


def undisturbed(windows: Sequence[Window]) -> list[Window]:
    """Returns windows of one plan, in the same unit, each as short as if no other process had used the cores.

    The plan can use as many cores as it did in the window in which it used most. Where others left it fewer, the window
    took longer in proportion. What a window shows of its plan's speed takes no part in this. A window of which the load
    is unknown stays as it is, and so does one beside which enough cores were left.
    """
    most = max((window.cpu_seconds / window.wall_seconds for window in windows), default=0.0)
    return [_undisturbed(window, most) for window in windows]


def _undisturbed(window: Window, cores_used: float) -> Window:
    if window.others_seconds is None or window.cores is None or cores_used <= 0.0:
        return window
    left = max(window.cores - window.others_seconds / window.wall_seconds, window.cpu_seconds / window.wall_seconds)
    share = min(1.0, left / cores_used)
    waited = None if window.wait_seconds is None else share * window.wait_seconds
    return replace(window, wall_seconds=share * window.wall_seconds, wait_seconds=waited)

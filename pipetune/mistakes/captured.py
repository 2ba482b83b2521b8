"""Checks for what parameter-server workers need from the script's process, although they build their own datasets.

Source: the "Parameter server training" guide of TensorFlow: the whole dataset is created inside the function that is
passed to the coordinator. The effect of objects from outside of it was observed with TensorFlow 2.21 and workers in
separate processes: steps on a dataset fail; everything else, Python included, is requested from the chief's process.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.handover import COORDINATOR, Captured, CapturedKind
from pipetune.core.profile import Finding
from pipetune.mistakes.use import Use, runs_python, said

_INSIDE = "Make the whole dataset inside the function, from file names, numbers or arrays: they are sent with it."
_FUNCTION = "The function that every worker calls for its dataset"


def from_outside(use: Use) -> Iterator[Finding]:
    """Reports objects that the function that builds each worker's dataset uses but does not create."""
    for captured in use.captured:
        message, hint = _told(captured)
        yield Finding(f"captured-{captured.kind}", message, hint, captured.file or None, captured.line or None)


def _told(captured: Captured) -> tuple[str, str]:
    named = f"{captured.name}, " if captured.name else ""
    match captured.kind:
        case CapturedKind.DATASET:
            return (
                f"{_FUNCTION} uses {named}a dataset made outside of it: TensorFlow can send none to another process, "
                "and steps on such a worker fail.",
                _INSIDE,
            )
        case CapturedKind.ITERATOR:
            return (
                f"{_FUNCTION} uses {named}an iterator made outside of it: it stays in the chief's process, the workers "
                "share what it gives, and one that comes back does not get it again.",
                _INSIDE,
            )
        case CapturedKind.STATE:
            return (
                f"{_FUNCTION} uses {named or 'a variable, a table or an iterator, '}made outside of it: it is in the "
                "chief's process alone, and a worker asks for it there, over the network, each time.",
                "Make it inside strategy.scope(), where parameter servers hold variables and every worker a table.",
            )


def python_on_the_chief(use: Use) -> Iterator[Finding]:
    """Reports Python code that all workers wait for: TensorFlow runs it where the function was traced."""
    if use.handover is None or use.handover.how != COORDINATOR:
        return
    workers = use.handover.workers
    who = f"{workers} workers wait" if workers > 1 else "the worker waits"
    for node in filter(runs_python, use.pipeline):
        yield said(
            "python-on-the-chief",
            node,
            f"{node.title} runs Python, which stays in the chief's process: {who} for it there, for every element and "
            "over the network.",
            "Say it in TensorFlow operations, or write the results to files and read those.",
        )

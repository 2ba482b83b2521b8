"""What Python code of a pipeline can give at most: one call at a time, whatever the parallel calls."""

from __future__ import annotations

from pipetune.core.pipeline import Node
from pipetune.core.profile import OperatorProfile
from pipetune.rules.base import RuleContext
from pipetune.rules.legality import described, runs_python
from pipetune.rules.pricing import as_time

_MOST_WAITING = 0.5
"""Share of its time that Python code may wait and still count as working: while it waits others have the lock."""

WHAT_HELPS = (
    "What can help: the same in TensorFlow's ops (tf.io.read_file, tf.io.decode_*, tf.image), or several processes "
    "(a tf.data service, multiprocessing that writes TFRecords once)."
)


def works_in_python(node: Node, context: RuleContext) -> bool:
    """Whether the operator is measured to run Python that works more than it waits. Not measured apart is no."""
    measured = _measured(node, context)
    if measured is None or measured.waiting_seconds is None or not measured.wall_seconds or not runs_python(node):
        return False
    return measured.waiting_seconds <= _MOST_WAITING * measured.wall_seconds


def ceiling(node: Node, context: RuleContext) -> str:
    """The most its Python code gives and what that is beside a training step, in sentences; what can help."""
    return " ".join([f"{described(node)} runs Python, whose calls take turns at the interpreter's lock.",
                     *_figures(node, context), WHAT_HELPS])  # fmt: skip


def _figures(node: Node, context: RuleContext) -> list[str]:
    measured = _measured(node, context)
    if measured is None or not measured.wall_seconds:
        return []
    seconds = measured.wall_seconds
    said = [f"It gives {1 / seconds:,.0f} elements/s at most ({as_time(seconds)} each{_waiting(measured)})."]
    step = context.profile.consumer.bound_seconds if context.profile is not None else None
    if measured.visits is not None and step:
        share = measured.visits * seconds / step
        many = f"{share:.0%} of" if share < 2 else f"{share:,.1f} times"
        said.append(f"For one training step that is {as_time(measured.visits * seconds)}, {many} what the model needs.")
    return said


def _waiting(measured: OperatorProfile) -> str:
    if not measured.waiting_seconds or not measured.wall_seconds:
        return ""
    share = measured.waiting_seconds / measured.wall_seconds
    return f", {share:.0%} of it waiting" if share >= 0.05 else ""


def _measured(node: Node, context: RuleContext) -> OperatorProfile | None:
    return context.profile.operator(node.id) if context.profile is not None else None

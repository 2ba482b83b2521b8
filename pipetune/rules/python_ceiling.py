"""Upper bound on the throughput of Python code in a pipeline: one call at a time, whatever the parallel calls."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.pipeline import Node
from pipetune.core.profile import Finding, OperatorProfile
from pipetune.rules.base import RuleContext
from pipetune.rules.legality import described, runs_python
from pipetune.rules.pricing import as_time

_MOST_WAITING = 0.5
"""Maximum blocked share of time of Python code that counts as working: while blocked, others can hold the GIL."""

_SHARE_OF_INPUT = 0.1
"""Minimum share of the input's time for a generator to be worth rewriting: the same as for Keras layers in maps."""

WHAT_HELPS = (
    "What can help: the same in TensorFlow's ops (tf.io.read_file, tf.io.decode_*, tf.image), or several processes "
    "(a tf.data service, multiprocessing that writes TFRecords once)."
)


INSTEAD = (
    "A generator that goes through lists and loads each entry is a source and a map: "
    "`tf.data.Dataset.from_tensor_slices((paths, labels)).map(load, num_parallel_calls=tf.data.AUTOTUNE)`, where "
    "`load(path, label)` uses TensorFlow's ops (tf.io.read_file, tf.io.decode_jpeg, tf.image). Where it needs Python: "
    "several processes (a tf.data service), or write its elements to TFRecords once and read those."
)


def slow_generators(context: RuleContext) -> Iterator[Finding]:
    """Yields advice on generators that take a large share of the input's time. It makes no edit.

    The behavior of a Python generator cannot be proven, so pipetune never rewrites one.
    """
    seconds = context.profile.input_wall_seconds if context.profile is not None else None
    for node in context.pipeline:
        measured = _measured(node, context)
        if node.op != "from_generator" or measured is None or not measured.wall_seconds or not measured.visits:
            continue
        if not seconds or measured.wall_seconds * measured.visits < _SHARE_OF_INPUT * seconds:
            continue
        place = node.location
        yield Finding(
            code="python-generator",
            message=_ceiling(node, context),
            hint=INSTEAD,
            file=place.file if place is not None else None,
            line=place.line if place is not None else None,
        )


def works_in_python(node: Node, context: RuleContext) -> bool:
    """Whether the operator runs Python measured to work more than it waits; False if waiting was not measured."""
    measured = _measured(node, context)
    if measured is None or measured.waiting_seconds is None or not measured.wall_seconds or not runs_python(node):
        return False
    return measured.waiting_seconds <= _MOST_WAITING * measured.wall_seconds


def ceiling(node: Node, context: RuleContext) -> str:
    """Describes the maximum throughput of the Python code, compares it with a training step, and says what can help."""
    return f"{_ceiling(node, context)} {WHAT_HELPS}"


def _ceiling(node: Node, context: RuleContext) -> str:
    return " ".join([f"{described(node)} runs Python, whose calls take turns at the interpreter's lock.",
                     *_figures(node, context)])  # fmt: skip


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

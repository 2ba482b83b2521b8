"""`numpy-function`: Python code gets NumPy arrays, not eager tensors."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import NoProposal, ReplaceFunction, Rewrite, Safety
from pipetune.core.functions import FunctionVariant
from pipetune.core.pipeline import Node
from pipetune.rewrites.pricing import small_saving
from pipetune.rewrites.rule import Rule, RuleContext, at_each, describe_operator, errors_are_ignored

NAME = "numpy-function"

MIN_SAVED_SHARE = 0.05
"""Minimum saving, as a share of the function's cost: a smaller one does not stand out from the error of its measurement
and does not justify the helper that the patch adds."""


@at_each("map")
def propose(node: Node, context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields the rewrite with `tf.numpy_function` of a map that calls `tf.py_function`, or why there is none."""
    arrays = node.function.arrays if node.function is not None else None
    if arrays is None:
        return
    why = arrays.why_not
    if not why and errors_are_ignored(node, context):
        why = "ignore_errors downstream drops elements with a result of another kind of number than declared"
    if why:
        yield NoProposal(NAME, node.id, f"{describe_operator(node)} calls tf.py_function: {why}.")
    elif saved := small_saving(context, node, FunctionVariant.ARRAYS, least=MIN_SAVED_SHARE):
        yield NoProposal(NAME, node.id, f"tf.numpy_function in place of tf.py_function saves {saved}.")
    else:
        yield _rewrite(node, arrays.digest)


def _rewrite(node: Node, digest: str) -> Rewrite:
    return Rewrite(
        rule=NAME,
        node=node.id,
        safety=Safety.EXACT,
        edits=(ReplaceFunction(node.id, FunctionVariant.ARRAYS, digest),),
        summary=(
            f"Call the Python code of {describe_operator(node)} with NumPy arrays, by tf.numpy_function: "
            "tf.py_function makes an eager tensor of every value it passes and gets back."
        ),
        group=f"{NAME}@{node.id}",
        notes=(
            "The Python code is called as often, in the same order, with the same values. A result of another kind of "
            "number than declared is converted, where tf.py_function might raise an error.",
        ),
    )


RULE = Rule(
    name=NAME,
    summary="Calls Python code with NumPy arrays, by tf.numpy_function, not with eager tensors, by tf.py_function.",
    legality=(
        "The Python code is a function or a lambda of the script's own that does nothing with its parameters but to "
        "call .numpy() on them, and that names nothing of TensorFlow or Keras. tf.py_function is called directly in "
        "the map's function, not in a loop, a branch or a tf.function. Never upstream of ignore_errors. Nothing is "
        "proposed if the measured saving is less than a twentieth of the function's cost."
    ),
    safety=(
        "EXACT: the same calls with the same values, in the same order. A copy of each array is passed, as .numpy() "
        "makes one."
    ),
    propose=propose,
)

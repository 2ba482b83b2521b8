"""`where-to-cond`: computes only the array that a function selects."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import NoProposal, ReplaceFunction, Rewrite, Safety
from pipetune.core.functions import FunctionVariant
from pipetune.core.pipeline import Node
from pipetune.rewrites.pricing import small_saving
from pipetune.rewrites.rule import (
    Rule,
    RuleContext,
    at_each,
    describe_external_dependency,
    describe_operator,
    draws_random_numbers,
)

NAME = "where-to-cond"

MIN_SAVED_SHARE = 0.05
"""Minimum saving, as a share of the function's cost: the code stays as long as it was, but a smaller saving does not
stand out from the differences between two measurements of the same function."""


@at_each("map")
def propose(node: Node, context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields the rewrite with branches of a map that selects large arrays, or why there is none."""
    branching = node.function.branching if node.function is not None else None
    if branching is None:
        return
    outside = describe_external_dependency(node)
    if why := branching.why_not or (f"its function {outside}" if outside else ""):
        yield NoProposal(NAME, node.id, f"{describe_operator(node)} computes both sides of tf.where: {why}.")
    elif saved := small_saving(context, node, FunctionVariant.BRANCHING, least=MIN_SAVED_SHARE):
        yield NoProposal(NAME, node.id, f"tf.cond instead of tf.where saves {saved}: too little to be certain of.")
    else:
        yield _rewrite(node, branching.digest)


def _rewrite(node: Node, digest: str) -> Rewrite:
    drawn = ("The function draws the same random numbers in the same order as before.",)
    return Rewrite(
        rule=NAME,
        node=node.id,
        safety=Safety.STATISTICAL if draws_random_numbers(node) else Safety.EXACT,
        edits=(ReplaceFunction(node.id, FunctionVariant.BRANCHING, digest),),
        summary=f"Compute only the array that {describe_operator(node)} selects: tf.cond instead of tf.where.",
        group=f"{NAME}@{node.id}",
        notes=drawn if draws_random_numbers(node) else (),
    )


RULE = Rule(
    name=NAME,
    summary="Replaces tf.where by tf.cond where one condition selects between two large arrays.",
    legality=(
        "The condition is a scalar, and the graph shows that both arrays have the same shape for every element: "
        "tf.where broadcasts, tf.cond does not. What only one array needs is computed in its branch, apart from "
        "random draws and from ops that may raise an error for some elements: these run as before. All calls of "
        "tf.where in one statement change together, or none. Never for functions with state or Python, nor inside "
        "of tf.function, loops and branches of TensorFlow. Nothing is proposed if the measured saving is less than "
        "a twentieth of the function's cost."
    ),
    safety=(
        "EXACT: every value and every rejected element stays the same, because ops that may reject an element do not "
        "move into a branch. STATISTICAL where the function draws random numbers: no draw moves, and the comparison "
        "finds every draw the same, but a change of a function that draws is never called EXACT."
    ),
    propose=propose,
    order=0,  # map-fusion then calls the function that computes less
)

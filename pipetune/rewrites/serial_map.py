"""`serial-map`: short map functions run in one thread where TensorFlow would run them in parallel by itself."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import NoProposal, Rewrite, Safety, SetOption
from pipetune.core.graph_passes import OPTION
from pipetune.rewrites.legality import describe_operator
from pipetune.rewrites.parallel_map import tensorflow_parallelizes
from pipetune.rewrites.pricing import format_seconds
from pipetune.rewrites.rule import Rule, RuleContext

NAME = "serial-map"

_LONGEST_SECONDS = 30e-6
"""CPU seconds of a call up to which handing it to another thread may cost more than running it.

Measured on two cores: the function of 3.4 us that `sample_from_datasets` maps costs 73 us of CPU time per element in
TensorFlow's own parallel map, 14 us in a serial one.
"""


def propose(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields the option that turns TensorFlow's own parallel maps off, or which function is too long for that."""
    output = context.pipeline.output
    automatic = [node for node in context.pipeline if node.op == "map" and tensorflow_parallelizes(node, context)]
    for node in automatic:
        measured = context.measured(node.id)
        seconds = measured.cpu_seconds if measured is not None else None
        if seconds is None:
            return
        if seconds > _LONGEST_SECONDS:
            suits = f"which suits calls of {format_seconds(seconds)}"
            yield NoProposal(NAME, output.id, f"TensorFlow runs {describe_operator(node)} in parallel, {suits}.")
            return
    if not automatic:
        return
    names = ", ".join(describe_operator(node) for node in automatic)
    yield Rewrite(
        rule=NAME,
        node=output.id,
        safety=Safety.EXACT,
        edits=(SetOption(f"{OPTION}map_parallelization", False),),
        summary=f"Run {names} in one thread: TensorFlow hands each of these short calls to another thread by itself.",
        group=f"{NAME}@{output.id}",
    )


RULE = Rule(
    name=NAME,
    summary="Turns off TensorFlow's own parallel maps where functions are short.",
    legality=(
        "Only where TensorFlow's default optimizations run a map without num_parallel_calls in parallel, and only if "
        f"every such function takes {format_seconds(_LONGEST_SECONDS)} of CPU time at most. Maps that TensorFlow's "
        "functions make count, too: sample_from_datasets has one, called once for each element."
    ),
    safety="EXACT: the same calls on the same elements in the same order.",
    propose=propose,
)

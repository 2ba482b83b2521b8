"""`serial-map`: short map functions run in one thread, where TensorFlow or the script runs them in parallel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipetune.core.edits import NoProposal, Rewrite, Safety, SetArgument, SetOption
from pipetune.core.operators import OPTION
from pipetune.core.pipeline import Node
from pipetune.rewrites.legality import describe_operator, is_stateless, tensorflow_parallelizes
from pipetune.rewrites.pricing import format_seconds
from pipetune.rewrites.rule import Rule, RuleContext

NAME = "serial-map"

_OPTION = f"{OPTION}map_parallelization"

_LONGEST_SECONDS = 30e-6
"""CPU seconds of a call up to which handing it to another thread may cost more than running it.

Measured on two cores: the function of 3.4 us that `sample_from_datasets` maps costs 73 us of CPU time per element in
TensorFlow's own parallel map, 14 us in a serial one.
"""


def propose(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields the option that turns TensorFlow's own parallel maps off, with and without maps that the script runs so.

    Yields the reason instead where one of TensorFlow's own parallel maps has a function that is too long for that.
    """
    automatic = [node for node in context.pipeline if node.op == "map" and tensorflow_parallelizes(node, context)]
    for node in automatic:
        seconds = _cpu_seconds(node, context)
        if seconds is None:
            return
        if seconds > _LONGEST_SECONDS:
            suits = f"which suits calls of {format_seconds(seconds)}"
            why = f"TensorFlow runs {describe_operator(node)} in parallel, {suits}."
            yield NoProposal(NAME, context.pipeline.output.id, why)
            return
    explicit = [node for node in context.pipeline if _is_short_in_parallel(node, context)]
    if automatic:
        yield _rewrite(context, automatic, ())
    if explicit:
        yield _rewrite(context, automatic, explicit)


def _is_short_in_parallel(node: Node, context: RuleContext) -> bool:
    """Whether the script asks for parallel calls of a short function, and for nothing but its order."""
    if node.op != "map" or node.argument("num_parallel_calls") in (None, 1) or not is_stateless(node):
        return False
    seconds = _cpu_seconds(node, context)
    return node.argument("deterministic") is None and seconds is not None and seconds <= _LONGEST_SECONDS


def _cpu_seconds(node: Node, context: RuleContext) -> float | None:
    measured = context.measured(node.id)
    return measured.cpu_seconds if measured is not None else None


def _rewrite(context: RuleContext, automatic: Sequence[Node], explicit: Sequence[Node]) -> Rewrite:
    output = context.pipeline.output
    names = ", ".join(describe_operator(node) for node in (*automatic, *explicit))
    by_itself = "" if explicit else ", by itself"
    return Rewrite(
        rule=NAME,
        node=output.id,
        safety=Safety.EXACT,
        edits=(*(SetArgument(node.id, "num_parallel_calls", None) for node in explicit), SetOption(_OPTION, False)),
        summary=f"Run {names} in one thread: TensorFlow hands each of these short calls to another thread{by_itself}.",
        group=f"{NAME}@{output.id}",
    )


RULE = Rule(
    name=NAME,
    summary="Runs short map functions in one thread, where TensorFlow or the script runs them in parallel.",
    legality=(
        "Only where TensorFlow's default optimizations run a map without num_parallel_calls in parallel, and only if "
        f"every such function takes {format_seconds(_LONGEST_SECONDS)} of CPU time at most. Maps that TensorFlow's "
        "functions make count, too: sample_from_datasets has one, called once for each element. A map with "
        "num_parallel_calls loses it in a second proposal if its function is as short and stateless, and the map does "
        "not set deterministic."
    ),
    safety="EXACT: the same calls on the same elements in the same order.",
    propose=propose,
)

"""Splits a function in two and moves its second part after the batch; shared by `split-map` and `late-cast`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pipetune.core.amounts import whole
from pipetune.core.edits import Move, Rewrite, Safety, Silence, SplitFunction
from pipetune.core.functions import Cut, CutKind
from pipetune.core.parts import costs_of_cut
from pipetune.core.pipeline import AUTOTUNE, Node
from pipetune.rules.base import RuleContext
from pipetune.rules.batching import HANDS_THROUGH, batch_first_group, numeric_notes, plain_batches
from pipetune.rules.legality import described, draws, reaches_outside, short_batch_overtakes
from pipetune.rules.moving import way_up
from pipetune.rules.pricing import as_size, buffer_bytes, bytes_per_element, element_count, held_by_shuffle

LEAST_SAVED = 0.10
"""Minimum saving, as a share of the input's CPU time: two functions in place of one are new code, and whether a saving
of a few percent is accepted would change from run to run."""

LEAST_SPARED_BYTES = 16 * 2**20
"""Memory saving that justifies the rewrite as well."""

_PASSED = HANDS_THROUGH | {"cache"}


@dataclass(frozen=True)
class Late:
    """A map whose function ends in ops that could run after the batch, and the expected gain."""

    node: Node
    batch: Node
    passed: tuple[Node, ...]  # operators in between, the nearest to the batch first
    cut: Cut
    less: float  # bytes per element by which the batch's input shrinks
    saved_share: float  # of the CPU time of the whole input
    spared: float  # bytes by which the buffers of `passed` shrink


def cut_of(node: Node, kind: CutKind) -> Cut | None:
    """Returns how the function of an operator is cut there; None if it was not probed."""
    cuts = node.function.cuts if node.function is not None else None
    return next((cut for cut in cuts or () if cut.kind is kind), None)


def late_parts(
    context: RuleContext, *, rule: str, concerns: Callable[[Cut, float], bool]
) -> Iterator[Late | Silence]:
    """Yields, for every map whose function could be cut so that its end runs after the batch, the cut or why not.

    Args:
        rule: name of the proposing rule.
        concerns: whether this rule handles a cut, given the cut and the bytes of a whole output element.
    """
    for batch in plain_batches(context.pipeline):
        passed: list[Node] = []
        for above in way_up(context.pipeline, batch):
            if above.op == "map":
                yield from _asked(above, batch, tuple(passed), context, rule=rule, concerns=concerns)
                break
            if above.op not in _PASSED:
                break
            passed.append(above)


def _asked(
    node: Node,
    batch: Node,
    passed: tuple[Node, ...],
    context: RuleContext,
    *,
    rule: str,
    concerns: Callable[[Cut, float], bool],
) -> Iterator[Late | Silence]:
    cut, now = cut_of(node, CutKind.BEFORE_EACH_NUMBER), bytes_per_element(context, node.id)
    if cut is None or (not cut.why_not and (now is None or cut.element_bytes is None)):
        return
    if not concerns(cut, now or 0.0):
        return
    why = _obstacle(node, passed, context) or cut.why_not
    if why:
        yield Silence(rule, node.id, f"The function of {described(node)} stays one: {why}.")
        return
    less = (now or 0.0) - (cut.element_bytes or 0.0)
    anew = any(one.op == "cache" for one in passed)  # later epochs would then compute what the cache saves now
    saved = 0.0 if anew else _saved_share(node, context)
    spared = sum(less * _held(one, context) for one in passed)
    if (saved is None or saved < LEAST_SAVED) and spared < LEAST_SPARED_BYTES:
        gains = "what it would save was not measured" if saved is None else f"it would save {_percent(saved)}"
        gains = "it would run in every epoch, no longer above the cache" if anew else gains
        yield Silence(
            rule, node.id, f"The end of {described(node)} stays above the batch: {gains}, too little for new code."
        )
        return
    yield Late(node, batch, passed, cut, less, saved or 0.0, spared)


def _obstacle(node: Node, passed: tuple[Node, ...], context: RuleContext) -> str:
    """Returns why the end of a function must not run after the batch; "" if it may."""
    if node.function is None:
        return "nothing is known about it"
    outside = reaches_outside(node)
    if outside:
        return f"it {outside}"
    if draws(node):
        return "it draws random numbers"
    if any(other.op == "ignore_errors" for other in context.pipeline.downstream(node.id)):
        return "ignore_errors below drops the element that it refuses, and would drop a whole batch"
    if any(one.op == "cache" and one.argument("filename") for one in passed):
        return "a cache in a file below holds what it gives whole, and may hold that from an earlier run"
    return ""


def _saved_share(node: Node, context: RuleContext) -> float | None:
    """Returns the saved share of the input's CPU time; None if it was not measured."""
    costs = costs_of_cut(context.profile, node.id, CutKind.BEFORE_EACH_NUMBER)
    measured = context.profile.operator(node.id) if context.profile is not None else None
    if costs is None or costs.saved_seconds is None or measured is None or measured.visits is None:
        return None
    input_seconds = input_cpu_seconds(context)
    return measured.visits * costs.saved_seconds / input_seconds if input_seconds else None


def input_cpu_seconds(context: RuleContext) -> float | None:
    """Returns the CPU seconds of the whole input per output element; None if not measured."""
    if context.profile is None:
        return None
    if context.profile.input_cpu_seconds:
        return context.profile.input_cpu_seconds
    return sum((one.cpu_seconds or 0.0) * (one.visits or 0.0) for one in context.profile.operators) or None


def _held(node: Node, context: RuleContext) -> float:
    """Returns how many elements an operator buffers."""
    if node.op == "shuffle":
        return float(held_by_shuffle(context, node))
    if node.op == "cache":
        return float(max(0, element_count(context, node.id) or 0))
    if node.op != "prefetch":
        return 0.0
    size = bytes_per_element(context, node.id)
    return buffer_bytes(context, node.id, whole(node.argument("buffer_size"), AUTOTUNE)) / size if size else 0.0


def behind_batch(late: Late, context: RuleContext, *, rule: str) -> Rewrite:
    """Returns the rewrite that splits the function and moves its second part after the batch."""
    node, batch, cut = late.node, late.batch, late.cut
    reorders = short_batch_overtakes(batch, (node,), context)
    notes = [f"Measured on a few elements, {_percent(late.saved_share)} is saved."] if late.saved_share > 0 else []
    if late.spared > 0:
        holding = " and ".join(described(one) for one in late.passed if _held(one, context))
        notes.append(f"{holding} then hold {as_size(late.spared)} less.")
    if any(one.op == "cache" for one in late.passed):
        notes.append("The end is then computed in every epoch: what the cache holds no longer includes it.")
    notes += numeric_notes(cut.inexact, zero_signs=cut.zero_signs)
    what = "as small as it is before its end makes it larger" if late.less > 0 else "before its end"
    return Rewrite(
        rule=rule,
        node=node.id,
        safety=Safety.APPROXIMATE if cut.inexact else Safety.REORDERS if reorders else Safety.EXACT,
        edits=(SplitFunction(node.id, cut), Move(node.id, batch.id)),
        summary=(
            f"Cut the function of {described(node)} in two, batch what it has {what}, and call the end once per "
            f"batch of {batch.argument('batch_size')}."
        ),
        group=batch_first_group(batch),
        notes=tuple(notes),
        predicted_bytes=-late.spared,
    )


def _percent(share: float) -> str:
    return f"{share:.0%} of the input's processor time" if share > 0 else "none of the input's processor time"

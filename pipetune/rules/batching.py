"""Moves maps after the batch that they feed; shared by `vectorize-map`, `parse-batches` and the gather rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pipetune.core.edits import Edit, Move, ReplaceFunction, Rewrite, Safety, Silence, SplitFunction
from pipetune.core.functions import FunctionForm, OnBatches
from pipetune.core.pipeline import Node, Pipeline
from pipetune.rules.base import RuleContext
from pipetune.rules.legality import described, draws, reaches_outside, short_batch_overtakes
from pipetune.rules.moving import way_up
from pipetune.rules.pricing import bytes_per_element, held_by_shuffle

HANDS_THROUGH = frozenset({"shuffle", "prefetch", "take", "skip", "shard", "repeat"})
"""Operators that never modify an element: a function may be applied before or after them."""


@dataclass(frozen=True)
class MapAbove:
    """A map upstream of a batch, with only pass-through operators (`HANDS_THROUGH`) and other such maps in between."""

    node: Node
    why_not: str = ""  # why it has to stay upstream of the batch; "" if it may move


def maps_above(batch: Node, context: RuleContext) -> Iterator[MapAbove]:
    """Yields the maps that could run after `batch`, nearest first, and finally one that cannot, with the reason."""
    for above in way_up(context.pipeline, batch):
        if above.op == "map":
            why = _obstacle(above, context)
            yield MapAbove(above, why)
            if why:
                return
        elif above.op not in HANDS_THROUGH:
            return


def _obstacle(node: Node, context: RuleContext) -> str:
    """Returns why the function of a map must be called on single elements; "" if it may be called on batches."""
    if node.function is None:
        return "nothing is known about its function"
    outside = reaches_outside(node)
    if outside:
        return f"its function {outside}"
    if draws(node):
        return "its function draws random numbers: once per element, and would draw them once per batch"
    if any(other.op == "ignore_errors" for other in context.pipeline.downstream(node.id)):
        return "ignore_errors below drops the element that the function refuses, and would drop a whole batch"
    if node.function.can_raise:
        return "its function checks values, and would refuse a whole batch for one element"
    if node.function.on_batches is None:
        return "it is not known what its function does on batches"
    return node.function.on_batches.why_not


_PARSERS = frozenset({"DecodeBase64", "DecodeCSV", "DecodePaddedRaw", "DecodeRaw", "StringToNumber"})
_PARSER_KINDS = ("Parse", "String", "Regex", "StaticRegex", "Substr", "Unicode")


def parses(node: Node) -> bool:
    """Whether the function of a map parses text or serialized values."""
    known = node.function.operations if node.function is not None else ()
    return any(kind in _PARSERS or kind.startswith(_PARSER_KINDS) for kind in known)


def plain_batches(pipeline: Pipeline) -> Iterator[Node]:
    """Yields the `batch` operators with one input and a known batch size above 1."""
    for node in pipeline:
        size = node.argument("batch_size")
        if node.op == "batch" and len(node.inputs) == 1 and isinstance(size, int) and size > 1:
            yield node


def batch_first(
    context: RuleContext, *, rule: str, summary: str, concerns: Callable[[Node], bool]
) -> Iterator[Rewrite | Silence]:
    """Yields, for every batch and every run of upstream maps that may run after it, the rewrite that moves them.

    Args:
        rule: name of the proposing rule.
        summary: format string with the fields `{maps}` and `{size}`.
        concerns: whether this rule handles a run, given its most upstream map or the map that has to stay.
    """
    for batch in plain_batches(context.pipeline):
        moved: list[Node] = []
        for found in maps_above(batch, context):
            if found.why_not:
                if concerns(found.node):
                    why = f"{described(found.node)} stays above the batch: {found.why_not}."
                    yield Silence(rule, found.node.id, why)
                break
            moved.append(found.node)
            if concerns(found.node):
                yield _rewrite(batch, tuple(moved), context, rule=rule, summary=summary)


@dataclass(frozen=True)
class Behind:
    """The move of maps after a batch: the edits, the safety class, and the notes for the user."""

    edits: tuple[Edit, ...]
    safety: Safety
    notes: tuple[str, ...]


def behind(batch: Node, moved: tuple[Node, ...], context: RuleContext) -> Behind:
    """Moves the maps `moved`, nearest first, after `batch`; they keep their order and are called once per batch."""
    edits: list[Edit] = []
    inexact: set[str] = set()
    for node in moved:
        known = _known(node)
        inexact |= set(known.inexact)
        form = ReplaceFunction(node.id, known.form, known.digest)
        if known.cut is None:
            edits += [Move(node.id, batch.id), form]
            continue
        split = SplitFunction(node.id, known.cut)
        first = ReplaceFunction(split.head, FunctionForm.ON_BATCHES, known.cut.head)
        edits += [split, Move(node.id, batch.id), form, Move(split.head, batch.id), first]
    reorders = short_batch_overtakes(batch, moved, context)
    safety = Safety.APPROXIMATE if inexact else Safety.REORDERS if reorders else Safety.EXACT
    notes = list(numeric_notes(inexact, zero_signs=any(_known(node).zero_signs for node in moved)))
    if any(_known(node).form is FunctionForm.VECTORIZED for node in moved):
        notes.append("tf.vectorized_map turns the function into one that works on a batch; it traces more slowly.")
    if any(_known(node).cut is not None for node in moved):
        notes.append("What parses is called on batches as it is, and the rest is a function of its own.")
    return Behind(tuple(edits), safety, tuple(notes))


_DENORMAL_IS_ZERO = frozenset({"Log", "Pow", "Xlogy"})
"""Ops whose vector code takes a denormal for zero, which is more than rounding: log gives -inf for -104."""


def numeric_notes(inexact: Iterable[str], *, zero_signs: bool) -> Iterator[str]:
    """Yields the notes for the user on values that change when they are computed in batches.

    Args:
        inexact: as in `OnBatches`.
        zero_signs: as in `OnBatches`.
    """
    if inexact:
        yield (
            f"The last bits of what {', '.join(sorted(inexact))} give depend on how many rows there are; numbers near "
            "the limits of their type may overflow in one case and not in the other."
        )
        if flushed := sorted(_DENORMAL_IS_ZERO.intersection(inexact)):
            yield f"In a batch {', '.join(flushed)} may treat a denormal (below 1.2e-38 in float32) as zero."
    elif zero_signs:
        yield "A zero may have the other sign in a batch, and a denormal may become zero; nothing else differs."


def batch_first_group(batch: Node) -> str:
    """Returns the group of all rewrites that move maps after `batch`, whichever rule proposes them."""
    return f"batch-first@{batch.id}"


def _rewrite(batch: Node, moved: tuple[Node, ...], context: RuleContext, *, rule: str, summary: str) -> Rewrite:
    made = behind(batch, moved, context)
    maps = ", ".join(described(node) for node in reversed(moved))
    return Rewrite(
        rule=rule,
        node=moved[-1].id,
        safety=made.safety,
        edits=made.edits,
        summary=summary.format(maps=maps, size=batch.argument("batch_size")),
        group=batch_first_group(batch),
        notes=made.notes,
        predicted_bytes=_more_bytes(batch, moved[-1], context),
    )


def _more_bytes(batch: Node, top: Node, context: RuleContext) -> float:
    """Returns the bytes added in shuffle buffers after the most upstream moved map: they then hold its input."""
    now = bytes_per_element(context, top.inputs[0])
    more = 0.0
    for node in way_up(context.pipeline, batch):
        if node.id == top.id:
            break
        before = bytes_per_element(context, node.inputs[0])
        if node.op == "shuffle" and now is not None and before is not None:
            more += held_by_shuffle(context, node) * (now - before)
    return more


def _known(node: Node) -> OnBatches:
    assert node.function is not None and node.function.on_batches is not None
    return node.function.on_batches

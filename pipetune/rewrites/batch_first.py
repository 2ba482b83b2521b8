"""`vectorize-map`, `parse-batches` and `map-fusion`: one call of a function per batch, or one for several maps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile

from pipetune.core.edits import Consent, Edit, Move, NoProposal, Remove, ReplaceFunction, Rewrite, Safety, SplitFunction
from pipetune.core.functions import BatchedCall, FunctionVariant
from pipetune.core.pipeline import Node, Pipeline, consecutive_maps
from pipetune.rewrites.pricing import bytes_per_element, shuffle_buffer_elements
from pipetune.rewrites.rule import (
    PASS_THROUGH_OPERATORS,
    Rule,
    RuleContext,
    describe_external_dependency,
    describe_operator,
    draws_random_numbers,
    errors_are_ignored,
    keeps_order,
    requests_parallelism,
    short_batch_may_overtake,
    upstream_chain,
)


@dataclass(frozen=True)
class UpstreamMap:
    """A map upstream of a batch, with only `PASS_THROUGH_OPERATORS` and other such maps in between."""

    node: Node
    why_not: str = ""  # why it has to stay upstream of the batch; "" if it may move


def upstream_maps(batch: Node, context: RuleContext) -> Iterator[UpstreamMap]:
    """Yields the maps that could run after `batch`, nearest first, and finally one that cannot, with the reason."""
    for above in upstream_chain(context.pipeline, batch):
        if above.op == "map":
            why = _obstacle(above, context)
            yield UpstreamMap(above, why)
            if why:
                return
        elif above.op not in PASS_THROUGH_OPERATORS:
            return


def _obstacle(node: Node, context: RuleContext) -> str:
    """Returns why the function of a map must be called on single elements; "" if it may be called on batches."""
    if node.function is None:
        return "nothing is known about its function"
    if outside := describe_external_dependency(node):
        return f"its function {outside}"
    if errors_are_ignored(node, context):
        return (
            "ignore_errors downstream drops the element on which the function fails, and would then drop a whole batch"
        )
    if node.function.can_raise:
        return "its function validates values, and would reject a whole batch because of one element"
    known = node.function.on_batches
    if known is not None and known.why_not:
        return known.why_not
    vectorized = known is not None and known.form is FunctionVariant.VECTORIZED
    if draws_random_numbers(node) and not (vectorized and node.function.only_draws):
        return "its function draws random numbers once per element, and would draw them only once per batch"
    return "it is unknown how its function behaves on batches" if known is None else ""


_PARSERS = frozenset({"DecodeBase64", "DecodeCSV", "DecodePaddedRaw", "DecodeRaw", "StringToNumber"})
_PARSER_KINDS = ("Parse", "String", "Regex", "StaticRegex", "Substr", "Unicode")


def is_parser(node: Node) -> bool:
    """Whether the function of a map parses text or serialized values."""
    known = node.function.operations if node.function is not None else ()
    return any(kind in _PARSERS or kind.startswith(_PARSER_KINDS) for kind in known)


def plain_batches(pipeline: Pipeline) -> Iterator[Node]:
    """Yields the `batch` operators with one input and a known batch size above 1."""
    for node in pipeline:
        size = node.argument("batch_size")
        if node.op == "batch" and len(node.inputs) == 1 and isinstance(size, int) and size > 1:
            yield node


def propose_batch_first(
    context: RuleContext, *, rule: str, summary: str, is_responsible: Callable[[Node], bool]
) -> Iterator[Rewrite | NoProposal]:
    """Yields, for every batch and every run of upstream maps that may run after it, the rewrite that moves them.

    Args:
        rule: name of the proposing rule.
        summary: format string with the fields `{maps}` and `{size}`.
        is_responsible: whether this rule handles a run, given its most upstream map or the map that has to stay.
    """
    for batch in plain_batches(context.pipeline):
        moved: list[Node] = []
        for found in upstream_maps(batch, context):
            if found.why_not:
                if is_responsible(found.node):
                    why = f"{describe_operator(found.node)} stays before the batch: {found.why_not}."
                    yield NoProposal(rule, found.node.id, why)
                break
            moved.append(found.node)
            if is_responsible(found.node):
                yield _rewrite(batch, tuple(moved), context, rule=rule, summary=summary)


def move_after_batch(rewrite: Rewrite, batch: Node, maps: tuple[Node, ...], context: RuleContext) -> Rewrite:
    """Returns a rewrite that first moves `maps`, nearest first, after `batch`, and then does what `rewrite` does.

    The maps keep their order, and each is called once per batch. The rewrite asks for consent to other draws, or to
    another order, where its class asks for consent to something else only.
    """
    edits: list[Edit] = []
    calls = [_on_batches(node) for node in maps]
    for node, known in zip(maps, calls, strict=True):
        form = ReplaceFunction(node.id, known.form, known.digest)
        if known.cut is None:
            edits += [Move(node.id, batch.id), form]
            continue
        split = SplitFunction(node.id, known.cut)
        first = ReplaceFunction(split.head, known.cut.head_on_batches, known.cut.head)
        edits += [split, Move(node.id, batch.id), form, Move(split.head, batch.id), first]
    inexact = {name for known in calls for name in known.inexact}
    drawing = any(map(draws_random_numbers, maps))
    overtakes = short_batch_may_overtake(batch, maps, context) or _epochs_may_mix(batch, maps, context)
    reorders = rewrite.safety is Safety.REORDERS or overtakes
    own = Safety.REORDERS if reorders else Safety.STATISTICAL if drawing else Safety.EXACT
    safety = max(rewrite.safety, Safety.APPROXIMATE if inexact else own)
    hidden = {Consent.REORDER: reorders and safety > Safety.REORDERS}
    hidden[Consent.STATISTICAL] = drawing and safety > Safety.STATISTICAL
    notes = []
    if any(known.cut is not None for known in calls):
        notes.append("The parsing part is called on whole batches, and the rest becomes a function of its own.")
    if any(known.form is FunctionVariant.VECTORIZED for known in calls):
        notes.append("tf.vectorized_map converts the function to one that works on a batch; tracing takes longer.")
    if drawing:
        notes.append("Each row of a batch has random draws of its own, but other ones than before.")
    notes += _numeric_notes(inexact, zero_signs=any(known.zero_signs for known in calls))
    return replace(
        rewrite,
        safety=safety,
        edits=(*edits, *rewrite.edits),
        needs=frozenset(consent for consent, needed in hidden.items() if needed),
        notes=(*rewrite.notes, *notes),
    )


def _epochs_may_mix(batch: Node, maps: tuple[Node, ...], context: RuleContext) -> bool:
    """Whether batches of two epochs begin to overtake each other: one of the maps, nearest first, passes a repeat.

    Where an operator behind the repeat need not keep the order already, they do so as written.
    """
    unordered = next((node.id for node in reversed(maps) if not keeps_order(node, context)), None)
    passed = takewhile(lambda node: node.id != unordered, upstream_chain(context.pipeline, batch))
    repeat = next((node for node in passed if node.op == "repeat"), None)
    below = context.pipeline.downstream(repeat.id) if unordered is not None and repeat is not None else ()
    already = (not keeps_order(node, context) for node in below if requests_parallelism(node))
    return bool(below) and not any(already)


_DENORMAL_IS_ZERO = frozenset({"Log", "Pow", "Xlogy"})
"""Ops whose vector code treats a denormal as zero, which is more than rounding: log gives -inf instead of -104."""


def _numeric_notes(inexact: Collection[str], *, zero_signs: bool) -> Iterator[str]:
    """Yields the notes for the user on values that change in batches; the arguments are those of `BatchedCall`."""
    if inexact:
        if flushed := sorted(_DENORMAL_IS_ZERO.intersection(inexact)):
            yield f"In a batch {', '.join(flushed)} may treat a denormal (below 1.2e-38 in float32) as zero."
        yield (
            f"The last bits of the results of {', '.join(sorted(inexact))} depend on the number of rows; numbers near "
            "the limits of their type may overflow in one case and not in the other."
        )
    elif zero_signs:
        yield "In a batch, a zero may have the opposite sign and a denormal may become zero; nothing else differs."


def batch_first_group(batch: Node) -> str:
    """Returns the group of all rewrites that move maps after `batch`, whichever rule proposes them."""
    return f"batch-first@{batch.id}"


def _rewrite(batch: Node, moved: tuple[Node, ...], context: RuleContext, *, rule: str, summary: str) -> Rewrite:
    maps = ", ".join(describe_operator(node) for node in reversed(moved))
    rewrite = Rewrite(
        rule=rule,
        node=moved[-1].id,
        safety=Safety.EXACT,
        edits=(),
        summary=summary.format(maps=maps, size=batch.argument("batch_size")),
        group=batch_first_group(batch),
        predicted_bytes=added_buffer_bytes(batch, moved[-1], context),
    )
    return move_after_batch(rewrite, batch, moved, context)


def added_buffer_bytes(batch: Node, top: Node, context: RuleContext) -> float:
    """Returns the bytes added in shuffle buffers after the most upstream moved map: they then hold its input."""
    now = bytes_per_element(context, top.inputs[0])
    more = 0.0
    for node in upstream_chain(context.pipeline, batch):
        if node.id == top.id:
            break
        before = bytes_per_element(context, node.inputs[0])
        if node.op == "shuffle" and now is not None and before is not None:
            more += shuffle_buffer_elements(context, node) * (now - before)
    return more


def _on_batches(node: Node) -> BatchedCall:
    assert node.function is not None and node.function.on_batches is not None
    return node.function.on_batches


VECTORIZE_MAP = "vectorize-map"

VECTORIZE_MAP_RULE = Rule(
    name=VECTORIZE_MAP,
    summary="Batches first and calls the map's function once per batch, if that gives the same rows.",
    legality=(
        "The function is traced on batches and must correspond, op by op, to the function of single elements with one "
        "additional axis for each op, including axes, slices, shapes, attributes and constants. If that cannot be "
        "shown, it is called through tf.vectorized_map, provided that TensorFlow converts all of its ops correctly, "
        "which was tested for each op, and without a loop. Of a tf.cond, each row takes its own side, if both sides "
        "return one static shape and their ops work for no rows, which was tested, too. Never for a function with "
        "state, Python, other control flow or validation of values; never with a cast of floats that may not fit in a "
        "small integer, because batches are cast differently; never if a component of the map's input has no fixed "
        "shape. A function that draws random numbers is called through tf.vectorized_map, where tf.random.uniform, "
        "normal and truncated_normal draw for each row, if nothing else in it draws. The batch must be a plain one, "
        "and only operators that pass elements through unchanged may be in between (shuffle, repeat, take, skip, "
        "shard, prefetch). Values are compared on real elements before the rewrite enters a plan."
    ),
    safety=(
        "EXACT if every op gives the same bits on batches, except for the sign of a zero after relu, minimum, "
        "maximum and clipping, which is noted. STATISTICAL if the function draws random numbers. APPROXIMATE for ops "
        "whose last bits depend on the number of rows per call (exp, log, pow, sums of floats). REORDERS if the map "
        "ran unordered and the last batch may be short, or a repeat is in between."
    ),
    propose=partial(
        propose_batch_first,
        rule=VECTORIZE_MAP,
        summary="Batch first, then call {maps} once per batch of {size}, not once per element.",
        is_responsible=lambda node: not is_parser(node),
    ),
)


PARSE_BATCHES = "parse-batches"

PARSE_BATCHES_RULE = Rule(
    name=PARSE_BATCHES,
    summary="Parses a batch at a time: serialized examples, CSV, raw bytes, text.",
    legality=(
        "As in vectorize-map, but only for functions that parse (tf.io.parse_single_example, tf.io.decode_csv, "
        "tf.io.decode_raw, string ops), including their other ops. A function with sparse or ragged features "
        "is called on batches with tf.io.parse_example instead of tf.io.parse_single_example; the same "
        "function must not process these features further. If tf.vectorized_map has no converter for a parsing "
        "op (tf.io.decode_raw), the function is split after it: the first part is called on batches as it is, or with "
        "tf.io.parse_example, the rest through tf.vectorized_map. The data that tf.io.decode_raw decodes must have a "
        "fixed length, which is inferred from how the function uses it. Sequence examples are left as they are."
    ),
    safety=(
        "EXACT: parsing a batch gives the same values, shapes and sparse shapes. Other ops of the function may "
        "make it APPROXIMATE, and a short last batch after an unordered map REORDERS, as in vectorize-map."
    ),
    propose=partial(
        propose_batch_first,
        rule=PARSE_BATCHES,
        summary="Batch first, then call {maps} once per batch of {size}: it parses {size} at a time.",
        is_responsible=is_parser,
    ),
)


MAP_FUSION = "map-fusion"


def propose_map_fusion(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields, for every run of consecutive maps, the rewrite as one map, or why it is not proposed."""
    runs = [*consecutive_maps(context.pipeline), *consecutive_maps(context.pipeline, drawing=True)]
    above = [(run[-1].id, tuple(node.id for node in run[:-1])) for run in runs]
    for run, (_, first) in zip(runs, above, strict=True):
        lowest = run[-1]
        known = lowest.function.fused if lowest.function is not None else None
        if known is not None and known.first != first and (lowest.id, known.first) in above:
            continue  # of two runs that end there, the other one was examined last
        unknown = "it is unknown what their functions would compute as one"
        why = known.why_not if known is not None and known.first == first else unknown
        if known is None or why:
            yield NoProposal(MAP_FUSION, lowest.id, f"{_names(run)} remain {len(run)} maps: {why}.")
        else:
            yield _fusion_rewrite(run, known.digest, context)


def _fusion_rewrite(run: tuple[Node, ...], digest: str, context: RuleContext) -> Rewrite:
    lowest, first = run[-1], tuple(node.id for node in run[:-1])
    calls = lowest.argument("num_parallel_calls")
    notes = []
    if isinstance(calls, int) and calls > 0:
        notes.append(f"Each map had {calls} parallel calls of its own; the merged map has {calls} in total.")
    if drawing := any(map(draws_random_numbers, run)):
        notes.append("The functions make the same random draws in the same order, but an element gets other numbers.")
    return Rewrite(
        rule=MAP_FUSION,
        node=lowest.id,
        safety=Safety.STATISTICAL if drawing else Safety.EXACT,
        edits=(
            ReplaceFunction(lowest.id, FunctionVariant.FUSED, digest, first),
            *(Remove(name) for name in reversed(first)),
        ),
        summary=(
            f"Call the functions of {_names(run)} in one map: an element is passed on once instead of {len(run)} times."
        ),
        group=f"{MAP_FUSION}@{lowest.id}",
        notes=tuple(notes),
    )


def _names(run: tuple[Node, ...]) -> str:
    return " and ".join(describe_operator(node) for node in run)


MAP_FUSION_RULE = Rule(
    name=MAP_FUSION,
    summary="Merges consecutive maps into one.",
    legality=(
        "Only maps with nothing in between and no other consumer, with the same parallel calls and the same "
        "order, whose functions depend on their element and on random draws alone: no Python, variables, mutable "
        "tables or side effects. Maps in front of the first random one are merged by themselves, so that a cache can "
        "follow them. The functions are traced together as one, which must be shown to compute the same as the "
        "separate functions, with the same draws in the same order."
    ),
    safety=(
        "EXACT: the same calls on the same elements. STATISTICAL where a function draws random numbers: the draws are "
        "of the same distributions, but an element gets other numbers."
    ),
    propose=propose_map_fusion,
)

"""`gather-batches` and `gather-windows`: pass row indices, and gather the rows or windows of a whole batch at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

from pipetune.core.edits import ROW_INDEX_BYTES, NoProposal, Remove, ReplaceSource, Rewrite
from pipetune.core.pipeline import Node
from pipetune.rewrites.batch_first import UpstreamMap, batch_first_group, move_after_batch, plain_batches, upstream_maps
from pipetune.rewrites.pricing import bytes_per_element, shuffle_buffer_elements
from pipetune.rewrites.rule import (
    ROW_INDEX_OPERATORS,
    Rule,
    RuleContext,
    describe_operator,
    is_order_required,
    overtaking_safety,
    upstream_chain,
)

_WINDOWS = ("flat_map", "window")


@dataclass(frozen=True)
class _BatchPath:
    """The operators from arrays in memory to a batch."""

    source: Node
    window_operators: tuple[Node, ...]  # the operators that build windows of the rows, nearest to the batch first
    operators_between: tuple[Node, ...]  # the operators between these and the batch, nearest first
    maps: tuple[UpstreamMap, ...]

    @property
    def yields_windows(self) -> bool:
        """Whether the batch receives windows of the rows, whichever operator builds them."""
        return bool(self.window_operators) or (self.source.gathering is not None and self.source.gathering.singly)


def propose_gather(context: RuleContext, *, rule: str, windows: bool, summary: str) -> Iterator[Rewrite | NoProposal]:
    """Yields, for every batch fed by arrays in memory, the rewrite that passes indices instead of rows or windows.

    Args:
        rule: name of the proposing rule.
        windows: whether to handle windows of rows (True) or single rows (False).
        summary: format string with the fields `{size}`, of the batch, and `{after}`, the functions then called on it.
    """
    for batch in plain_batches(context.pipeline):
        path = _find_path(batch, context)
        join = _join_of_series(batch, context) if windows else None
        if join is not None:
            why = "only those of one series are gathered, and it joins those of several in front of the batch"
            yield NoProposal(rule, join.id, f"{describe_operator(join)} gets windows one by one: {why}.")
        if path is None or path.yields_windows is not windows:
            continue
        if why_not := _obstacle(path):
            produces = f"{_describe_source(path.source)} produces {'windows' if windows else 'rows'}"
            yield NoProposal(rule, path.source.id, f"{produces} one by one: {why_not}.")
        else:
            yield _rewrite(path, batch, context, rule=rule, summary=summary)


def _join_of_series(batch: Node, context: RuleContext) -> Node | None:
    """Returns the operator in front of a batch that joins several datasets, if one has windows of arrays in memory."""
    pipeline = context.pipeline
    last = (batch, *upstream_chain(pipeline, batch))[-1]
    join = pipeline[last.inputs[0]]
    kinds = {(node.op, *(one.op for one in upstream_chain(pipeline, node))) for node in pipeline.upstream(join.id)}
    windows = any(kind[:2] == _WINDOWS for kind in kinds)
    return join if join.op in ("choose", "concatenate") and windows else None


def _find_path(batch: Node, context: RuleContext) -> _BatchPath | None:
    above = tuple(takewhile(lambda node: node.gathering is None, upstream_chain(context.pipeline, batch)))
    source = context.pipeline[(above[-1] if above else batch).inputs[0]]
    if source.gathering is None or source.cardinality < 1 or len(context.pipeline.consumers(source.id)) != 1:
        return None
    made = above[-2:] if tuple(node.op for node in above[-2:]) == _WINDOWS else ()
    between = above[: len(above) - len(made)]
    if not all(node.op in ROW_INDEX_OPERATORS or node.op == "map" for node in between):
        return None
    maps = tuple(found for found in upstream_maps(batch, context) if found.node in between)
    return _BatchPath(source, made, between, maps)


def _obstacle(path: _BatchPath) -> str:
    """Returns why the rows cannot be gathered after the batch, as the end of a sentence; "" if they can."""
    assert path.source.gathering is not None
    if path.source.gathering.why_not:
        return path.source.gathering.why_not
    if path.window_operators and path.source.gathering.windows is None:
        return f"{describe_operator(path.window_operators[0])} does not just batch each window whole"
    stays = next((found for found in path.maps if found.why_not), None)
    if stays is not None:
        return f"{describe_operator(stays.node)} needs them, and stays before the batch ({stays.why_not})"
    if len(path.maps) < sum(node.op == "map" for node in path.operators_between):
        return "a cache, options or assert_cardinality is between a map and the batch"
    if any(node.op == "cache" and node.argument("filename") for node in path.operators_between):
        return "a file cache stores them"
    return ""


def _rewrite(path: _BatchPath, batch: Node, context: RuleContext, *, rule: str, summary: str) -> Rewrite:
    assert path.source.gathering is not None
    maps = tuple(found.node for found in path.maps)
    # The gathering map after the batch is new: batches may begin to overtake each other there.
    overtaking = overtaking_safety(batch, order_required=is_order_required(context))
    after = f", then call {', '.join(describe_operator(node) for node in reversed(maps))} on the batch" if maps else ""
    known = path.source.gathering
    rewrite = Rewrite(
        rule=rule,
        node=path.source.id,
        safety=overtaking,
        edits=(
            *(Remove(node.id) for node in path.window_operators),
            ReplaceSource(path.source.id, batch.id, known.digest, known.windows),
        ),
        summary=summary.format(size=batch.argument("batch_size"), after=after),
        group=batch_first_group(batch),
        notes=(_CARDINALITY,) if path.window_operators else (),
        predicted_bytes=_added_buffer_bytes(path, context),
    )
    return move_after_batch(rewrite, batch, maps, context)


_CARDINALITY = "TensorFlow then knows the number of windows (`cardinality`), which it does not know after flat_map."


def _describe_source(source: Node) -> str:
    """Returns the name of the operator, or of the library call that creates it internally."""
    place = source.location
    hidden = place is not None and place.method not in ("", source.op)
    return f"{place.method} ({place})" if place is not None and hidden else describe_operator(source)


def _added_buffer_bytes(path: _BatchPath, context: RuleContext) -> float:
    """Returns the bytes added in shuffle buffers, negative where indices replace windows or the output of a map.

    Unmodified rows take no memory in a buffer: TensorFlow passes on views of the arrays if they are aligned.
    """
    more = 0.0
    for place, node in enumerate(path.operators_between):
        now = bytes_per_element(context, node.inputs[0])
        made = path.yields_windows or any(above.op == "map" for above in path.operators_between[place + 1 :])
        if node.op == "shuffle" and made and now is not None:
            more += shuffle_buffer_elements(context, node) * (ROW_INDEX_BYTES - now)
    return more


GATHER_BATCHES = "gather-batches"

GATHER_BATCHES_RULE = Rule(
    name=GATHER_BATCHES,
    summary="Shuffles and batches row indices of in-memory arrays, and gathers the rows of a batch at once.",
    legality=(
        "Only for from_tensor_slices over dense arrays without another consumer, upstream of a plain batch. In "
        "between are allowed operators that pass elements through unchanged (shuffle, repeat, take, skip, "
        "shard, prefetch, a cache in memory, options) and maps that vectorize-map could move after the batch: "
        "they are moved as well. A shuffle keeps its seeds, so the order stays the same. The arrays are passed "
        "to the function as tensors, never as constants in its graph."
    ),
    safety=(
        "EXACT: the same rows in the same order. If maps are moved after the batch, as in vectorize-map: "
        "APPROXIMATE if last bits depend on the number of rows. If the script sets `deterministic=False`, "
        "batches may overtake each other: STATISTICAL, or REORDERS if the last batch may be short."
    ),
    propose=partial(
        propose_gather,
        rule=GATHER_BATCHES,
        windows=False,
        summary="Pass row indices, and gather the rows of each batch of {size} at once{after}.",
    ),
)


GATHER_WINDOWS = "gather-windows"

GATHER_WINDOWS_RULE = Rule(
    name=GATHER_WINDOWS,
    summary="Replaces windows that are built one by one from in-memory arrays by one gather per batch.",
    legality=(
        "Only for window(...) directly after from_tensor_slices over dense arrays, directly followed by a "
        "flat_map whose function batches each window whole and does nothing else, if incomplete windows at the "
        "end are dropped; or for windows as built by keras.utils.timeseries_dataset_from_array (its operators, "
        "and functions that compute the same), with or without targets, in any order. Between them and the "
        "batch, the same operators are allowed as in gather-batches: maps move after the batch, through "
        "tf.vectorized_map if no static shape gives the length of a window."
    ),
    safety=(
        "EXACT: the same windows in the same order, with the same static shapes; the cardinality, which is "
        "unknown after a flat_map, is then known, and the rewrite says so. If maps are moved after the batch, "
        "as in vectorize-map: APPROXIMATE if last bits depend on the number of rows; `deterministic=False` as "
        "in gather-batches."
    ),
    propose=partial(
        propose_gather,
        rule=GATHER_WINDOWS,
        windows=True,
        summary="Pass the start indices of the windows, and gather the windows of each batch of {size} at once{after}.",
    ),
)

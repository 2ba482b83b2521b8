"""`gather-batches`: shuffle and batch the numbers of the rows, then take the rows of a whole batch at once."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.editing import ROW_NUMBER_BYTES
from pipetune.core.edits import ReplaceSource, Rewrite, Silence
from pipetune.core.pipeline import Node
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.batching import HANDS_THROUGH, MapAbove, batch_first_group, behind, maps_above
from pipetune.rules.legality import described
from pipetune.rules.moving import way_up
from pipetune.rules.pricing import bytes_per_element, held_by_shuffle

NAME = "gather-batches"


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    for batch in context.pipeline:
        size = batch.argument("batch_size")
        if batch.op != "batch" or len(batch.inputs) != 1 or not isinstance(size, int) or size < 2:
            continue
        way = tuple(way_up(context.pipeline, batch))
        source = _source_above(way[-1] if way else batch, context)
        if source is None or not all(node.op in HANDS_NUMBERS_ON or node.op == "map" for node in way):
            continue
        maps = tuple(maps_above(batch, context))
        why_not = _obstacle(source, maps, way)
        if why_not:
            yield Silence(NAME, source.id, f"{described(source)} puts out rows one by one: {why_not}.")
        else:
            yield _rewrite(source, batch, tuple(found.node for found in maps), context)


HANDS_NUMBERS_ON = HANDS_THROUGH | {"cache", "with_options", "assert_cardinality"}
"""Operators that do the same with the numbers of rows as with the rows; a cache must be one in memory."""


def _source_above(node: Node, context: RuleContext) -> Node | None:
    """The arrays in memory that `node` reads, and nobody else."""
    source = context.pipeline[node.inputs[0]]
    if source.op != "from_tensor_slices" or source.gathering is None or source.cardinality < 1:
        return None
    return source if len(context.pipeline.consumers(source.id)) == 1 else None


def _obstacle(source: Node, maps: tuple[MapAbove, ...], way: tuple[Node, ...]) -> str:
    """Why the rows cannot be gathered behind the batch, as the end of a sentence; empty where they can."""
    assert source.gathering is not None
    if source.gathering.why_not:
        return source.gathering.why_not
    stays = next((found for found in maps if found.why_not), None)
    if stays is not None:
        return f"{described(stays.node)} needs them, and stays above the batch ({stays.why_not})"
    if len(maps) < sum(node.op == "map" for node in way):
        return "a cache, options or a check of the number of elements stands between a map and the batch"
    if any(node.op == "cache" and node.argument("filename") for node in way):
        return "a cache in a file holds them"
    return ""


def _rewrite(source: Node, batch: Node, maps: tuple[Node, ...], context: RuleContext) -> Rewrite:
    assert source.gathering is not None
    moved = behind(batch, maps, context)
    after = f", then call {', '.join(described(node) for node in reversed(maps))} on the batch" if maps else ""
    return Rewrite(
        rule=NAME,
        node=source.id,
        safety=moved.safety,
        edits=(*moved.edits, ReplaceSource(source.id, batch.id, source.gathering.digest)),
        summary=(
            f"Hand on the numbers of the rows, and gather the rows of each batch of {batch.argument('batch_size')} "
            f"at once{after}."
        ),
        group=batch_first_group(batch),
        notes=moved.notes,
        predicted_bytes=_more_bytes(batch, context),
    )


def _more_bytes(batch: Node, context: RuleContext) -> float:
    """What shuffle buffers below a map hold more: numbers, not what the map made of the rows.

    Rows as they are take no memory in a buffer: TensorFlow hands on views of the arrays where they are aligned.
    """
    more = 0.0
    for node in way_up(context.pipeline, batch):
        now = bytes_per_element(context, node.inputs[0])
        made = any(above.op == "map" for above in context.pipeline.upstream(node.id))
        if node.op == "shuffle" and made and now is not None:
            more += held_by_shuffle(context, node) * (ROW_NUMBER_BYTES - now)
    return more


RULE = Rule(
    name=NAME,
    summary="Shuffles and batches row numbers of arrays in memory, and gathers the rows of a batch at once.",
    legality=(
        "Only for from_tensor_slices over dense arrays that nobody else reads, above a plain batch. Between the two "
        "may stand operators that hand elements through whole (shuffle, repeat, take, skip, shard, prefetch, a cache "
        "in memory, options) and maps that vectorize-map could put behind the batch: they are put there too. A "
        "shuffle keeps its seeds, so the order is the one it was. The arrays are handed to the function as tensors, "
        "never as constants in its graph."
    ),
    safety=(
        "EXACT: the same rows in the same order. With maps put behind the batch as vectorize-map says: APPROXIMATE "
        "where last bits depend on the number of rows, REORDERS where a map ran unordered."
    ),
    propose=propose,
)

"""Gathers rows of arrays in memory a batch at a time; shared by `gather-batches` and `gather-windows`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from pipetune.core.editing import ROW_NUMBER_BYTES
from pipetune.core.edits import Edit, Remove, ReplaceSource, Rewrite, Silence
from pipetune.core.pipeline import Node
from pipetune.rules.base import RuleContext
from pipetune.rules.batching import HANDS_THROUGH, MapAbove, batch_first_group, behind, maps_above, plain_batches
from pipetune.rules.legality import class_of_overtaking, described, order_asked_for
from pipetune.rules.moving import way_up
from pipetune.rules.pricing import bytes_per_element, held_by_shuffle

HANDS_NUMBERS_ON = HANDS_THROUGH | {"cache", "with_options", "assert_cardinality"}
"""Operators that treat row indices the same way as rows; a cache must be in memory."""

_WINDOWS = ("flat_map", "window")


@dataclass(frozen=True)
class _Way:
    """The operators from arrays in memory to a batch."""

    source: Node
    windows: tuple[Node, ...]  # the operators that build windows of the rows, nearest to the batch first
    between: tuple[Node, ...]  # the operators between these and the batch, nearest first
    maps: tuple[MapAbove, ...]

    @property
    def of_windows(self) -> bool:
        """Whether the batch receives windows of the rows, whichever operator builds them."""
        return bool(self.windows) or (self.source.gathering is not None and self.source.gathering.singly)


def gather_at_once(context: RuleContext, *, rule: str, windows: bool, summary: str) -> Iterator[Rewrite | Silence]:
    """Yields, for every batch fed by arrays in memory, the rewrite that passes indices instead of rows or windows.

    Args:
        rule: name of the proposing rule.
        windows: whether to handle windows of rows (True) or single rows (False).
        summary: format string with the fields `{size}`, of the batch, and `{after}`, the functions then called on it.
    """
    for batch in plain_batches(context.pipeline):
        way = _way(batch, context)
        if way is None or way.of_windows is not windows:
            continue
        why_not = _obstacle(way)
        if why_not:
            kind = "windows" if windows else "rows"
            yield Silence(rule, way.source.id, f"{_named(way.source)} puts out {kind} one by one: {why_not}.")
        else:
            yield _rewrite(way, batch, context, rule=rule, summary=summary)


def _way(batch: Node, context: RuleContext) -> _Way | None:
    above = tuple(way_up(context.pipeline, batch))
    above = tuple(takewhile(lambda node: node.gathering is None, above))
    source = context.pipeline[(above[-1] if above else batch).inputs[0]]
    if source.gathering is None or source.cardinality < 1:
        return None
    if len(context.pipeline.consumers(source.id)) != 1:
        return None
    made = above[-2:] if tuple(node.op for node in above[-2:]) == _WINDOWS else ()
    between = above[: len(above) - len(made)]
    if not all(node.op in HANDS_NUMBERS_ON or node.op == "map" for node in between):
        return None
    maps = tuple(found for found in maps_above(batch, context) if found.node in between)
    return _Way(source, made, between, maps)


def _obstacle(way: _Way) -> str:
    """Returns why the rows cannot be gathered after the batch, as the end of a sentence; "" if they can."""
    assert way.source.gathering is not None
    if way.source.gathering.why_not:
        return way.source.gathering.why_not
    if way.windows and way.source.gathering.windows is None:
        return f"{described(way.windows[0])} does not batch each window whole, and nothing else"
    stays = next((found for found in way.maps if found.why_not), None)
    if stays is not None:
        return f"{described(stays.node)} needs them, and stays above the batch ({stays.why_not})"
    if len(way.maps) < sum(node.op == "map" for node in way.between):
        return "a cache, options or a check of the number of elements stands between a map and the batch"
    if any(node.op == "cache" and node.argument("filename") for node in way.between):
        return "a cache in a file holds them"
    return ""


def _rewrite(way: _Way, batch: Node, context: RuleContext, *, rule: str, summary: str) -> Rewrite:
    assert way.source.gathering is not None
    maps = tuple(found.node for found in way.maps)
    moved = behind(batch, maps, context)
    after = f", then call {', '.join(described(node) for node in reversed(maps))} on the batch" if maps else ""
    removed: tuple[Edit, ...] = tuple(Remove(node.id) for node in way.windows)
    known = way.source.gathering
    return Rewrite(
        rule=rule,
        node=way.source.id,
        # The gathering map after the batch is new: batches may begin to overtake each other there.
        safety=max(moved.safety, class_of_overtaking(batch, in_order=order_asked_for(context))),
        edits=(*moved.edits, *removed, ReplaceSource(way.source.id, batch.id, known.digest, known.windows)),
        summary=summary.format(size=batch.argument("batch_size"), after=after),
        group=batch_first_group(batch),
        notes=(*moved.notes, *_what_is_known(way)),
        predicted_bytes=_more_bytes(way, context),
    )


def _what_is_known(way: _Way) -> tuple[str, ...]:
    if not way.windows:
        return ()
    return ("TensorFlow then knows how many windows there are (`cardinality`), which it does not with flat_map.",)


def _named(source: Node) -> str:
    """Returns the name of the operator, or of the library call that creates it internally."""
    place = source.location
    hidden = place is not None and place.method not in ("", source.op)
    return f"{place.method} ({place})" if place is not None and hidden else described(source)


def _more_bytes(way: _Way, context: RuleContext) -> float:
    """Returns the bytes added in shuffle buffers, negative where indices replace windows or the output of a map.

    Unmodified rows take no memory in a buffer: TensorFlow passes on views of the arrays if they are aligned.
    """
    more = 0.0
    for place, node in enumerate(way.between):
        now = bytes_per_element(context, node.inputs[0])
        made = way.of_windows or any(above.op == "map" for above in way.between[place + 1 :])
        if node.op == "shuffle" and made and now is not None:
            more += held_by_shuffle(context, node) * (ROW_NUMBER_BYTES - now)
    return more

"""Rows of arrays in memory gathered a batch at a time: what `gather-batches` and `gather-windows` share."""

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
"""Operators that do the same with the numbers of rows as with the rows; a cache must be one in memory."""

_WINDOWS = ("flat_map", "window")


@dataclass(frozen=True)
class _Way:
    """From arrays in memory to a batch."""

    source: Node
    windows: tuple[Node, ...]  # what makes windows of the rows, nearest to the batch first
    between: tuple[Node, ...]  # what stands between that and the batch, nearest first
    maps: tuple[MapAbove, ...]

    @property
    def of_windows(self) -> bool:
        """Whether what reaches the batch are windows of the rows, whoever makes them."""
        return bool(self.windows) or (self.source.gathering is not None and self.source.gathering.singly)


def gather_at_once(context: RuleContext, *, rule: str, windows: bool, summary: str) -> Iterator[Rewrite | Silence]:
    """For every batch fed by arrays in memory: numbers handed on in place of rows, or of windows of them.

    Args:
        windows: whether windows are made of the rows.
        summary: with `{size}`, of the batch, and `{after}`, what is done to the batch, to be filled in.
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
    """Why the rows cannot be gathered behind the batch, as the end of a sentence; empty where they can."""
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
        # The gathering map behind the batch is one that the script does not have.
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
    """The operator, or the call of a library that makes it out of sight."""
    place = source.location
    hidden = place is not None and place.method not in ("", source.op)
    return f"{place.method} ({place})" if place is not None and hidden else described(source)


def _more_bytes(way: _Way, context: RuleContext) -> float:
    """What shuffle buffers hold more that hold windows now, or what a map made of the rows: numbers.

    Rows as they are take no memory in a buffer: TensorFlow hands on views of the arrays where they are aligned.
    """
    more = 0.0
    for place, node in enumerate(way.between):
        now = bytes_per_element(context, node.inputs[0])
        made = way.of_windows or any(above.op == "map" for above in way.between[place + 1 :])
        if node.op == "shuffle" and made and now is not None:
            more += held_by_shuffle(context, node) * (ROW_NUMBER_BYTES - now)
    return more

"""Operators of a stand-alone module whose elements carry their index: `(index, element)` all the way."""

from __future__ import annotations

from pipetune.core.distribution import Definition, SourceText
from pipetune.core.pipeline import Node
from pipetune.distributed.emit.steps import Steps
from pipetune.model.sharding import READERS

_SLICES = "tf.data.Dataset.from_tensor_slices("
_WRAPPERS = {
    "map": "keeping_index",
    "filter": "without_index",
    "take_while": "without_index",
    "interleave": "numbering_rows",
    "flat_map": "numbering_rows",
}

WRAPPERS = (
    Definition(
        "keeping_index",
        '''def keeping_index(function, *, several=False):
    """`function` for elements behind their index; `several`: it takes their parts as arguments."""

    def kept(index, element):
        made = function(*element) if several else function(element)
        return index, tuple(made) if isinstance(made, list) else made

    return kept''',
    ),
    Definition(
        "without_index",
        '''def without_index(function, *, several=False):
    """`function` for elements behind their index, which it does not see."""
    return lambda index, element: function(*element) if several else function(element)''',
    ),
    Definition(
        "numbering_rows",
        '''def numbering_rows(function, *, several=False):
    """`function`, which makes a dataset of an element: its rows are numbered behind the index of the element."""

    def rows(index, element):
        made = function(*element) if several else function(element)
        return made.enumerate().map(lambda row, one: (index * 2**32 + row, one))

    return rows''',
    ),
)
"""What the operators below are written with."""


class IndexedSteps(Steps):
    """Writes operators for `(index, element)`. Indices are given at the source, as early as can be.

    They are given without `enumerate`: a tf.data service hands out each source by itself, and a counter is a source.
    """

    def names(self, files: str) -> str:
        return f"tf.data.Dataset.from_tensor_slices((tf.range(len({files}), dtype=tf.int64), {files}))"

    def row_numbers(self) -> str:
        return f"{super().row_numbers()}.map(lambda number: (number, number))"

    def data(self, node: Node, source: SourceText) -> str:
        if source.expression.startswith(_SLICES):
            arrays = source.expression.removeprefix(_SLICES)[:-1]
            return f"{_SLICES}(tf.range({source.count}, dtype=tf.int64), {arrays}))"
        if source.expression.startswith("tf.data.Dataset.range("):
            start, step = node.argument("start") or 0, node.argument("step") or 1
            place = "tf.cast(number, tf.int64)"
            place = place if not start else f"({place} - {start})"
            return f"{source.expression}.map(lambda number: ({place if step == 1 else f'{place} // {step}'}, number))"
        return f"{source.expression}.enumerate()"

    def function(self, node: Node) -> str:
        text = super().function(node)
        wrapper = _WRAPPERS.get(node.op)
        if wrapper is None:
            return text
        known = self.parts.functions.get(node.id)
        return f"{wrapper}({text}{', several=True' if known is not None and known.unpacks_tuple else ''})"

    def expression(self, node: Node, above: list[str]) -> str:
        extra = self.extra(node)
        if node.op == "zip":
            parts = [f"part_{number}" for number in range(len(above))]
            element = extra["datasets"].format(*(f"{part}[1]" for part in parts))
            return f"tf.data.Dataset.zip(({', '.join(above)},)).map(lambda {', '.join(parts)}: (part_0[0], {element}))"
        if node.op == "concatenate":
            later = "lambda index, element: (index + 2**61, element)"
            return f"{above[0]}.concatenate({above[1]}.map({later}))"
        if node.op in READERS:
            return _read(node, above[0], extra)
        return super().expression(node, above)

    def extra(self, node: Node) -> dict[str, str]:
        found = super().extra(node)
        if node.op == "padded_batch":
            for name, own in (("padded_shapes", "[]"), ("padding_values", "None")):
                if name in found:
                    found[name] = f"({own}, {found[name]})"
        return found


def _read(node: Node, above: str, extra: dict[str, str]) -> str:
    """A reader of the names in `above`, as an operator that makes a dataset of each."""
    parallel = extra.pop("num_parallel_reads", None)
    keywords = "".join(f", {name}={text}" for name, text in extra.items())
    function = f"numbering_rows(lambda name: tf.data.{node.op}(name{keywords}))"
    if parallel is None:
        return f"{above}.flat_map({function})"
    cycle = "" if parallel == "tf.data.AUTOTUNE" else f", cycle_length={parallel}"
    return f"{above}.interleave({function}{cycle}, num_parallel_calls={parallel})"

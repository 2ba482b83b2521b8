"""The form of a stand-alone module whose elements carry their index, so that predictions can be put back into order.

The guide "Distributed Input" has it that the order of what several workers give is not kept: an index that travels
with each element restores it. It is given at the source, where all workers still see the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pipetune.core.distribution import Definition, SourceText, StandaloneParts
from pipetune.core.edits import Edit, Remove, SetArgument, apply_edits
from pipetune.core.errors import CannotExpress
from pipetune.core.operators import DIVIDED_DOWNSTREAM, FLATTENING, READERS, CountEffect, operator_facts
from pipetune.core.pipeline import INFINITE, Node, Pipeline
from pipetune.distributed.emit.module import function_of
from pipetune.distributed.emit.sharding import BATCHES, Sharding, clause, place, sharding, undivided
from pipetune.distributed.emit.statements import Body, OperatorWriter, Wording

_TAKES_APART = FLATTENING | READERS
_CUTS_OFF = frozenset({"take", "take_while", "zip"})
_LOSES = {
    "unbatch": "makes several elements of one, which would share its number",
    "unique": "compares elements, which all differ once they are numbered",
    "window": "makes datasets of elements, and their numbers would part from them",
}
_BY_POSITION = DIVIDED_DOWNSTREAM - _LOSES.keys()

_PARAGRAPH = (
    "indexed_dataset_fn gives one pass over the same data, each element behind its index: its place in the source, for "
    "files 2**32 times the number of the file plus that of its record. in_order puts what was predicted for the "
    "batches of all workers back into that order."
)


@dataclass(frozen=True)
class IndexedForm:
    """The functions to write beside `dataset_fn`, or why there are none."""

    lines: tuple[str, ...] = ()  # the statements of the function that makes the dataset
    definitions: tuple[Definition, ...] = ()  # what they call, and `in_order`
    why_not: str = ""

    def functions(self, signature: str, *, docstring: str) -> tuple[Definition, ...]:
        """What the form is made of, the function called `signature` among it; () where there is none."""
        if not self.lines:
            return ()
        *called, in_order = self.definitions
        return (*called, function_of(signature, docstring=docstring, body=self.lines), in_order)

    @property
    def paragraphs(self) -> tuple[str, ...]:
        """A paragraph for the docstring of the module."""
        return (_PARAGRAPH,) if self.lines else ()

    @property
    def notes(self) -> tuple[str, ...]:
        note = f"it has no form with indices, by which predictions could be put in order: {self.why_not}"
        return (note,) if self.why_not else ()


def indexed_form(
    parts: StandaloneParts,
    wording: Wording,
    *,
    why_not: str = "",
    keeps_repeats: bool = False,
    closing: tuple[str, ...] = (),
) -> IndexedForm:
    """The indexed form of `parts`.

    Args:
        wording: of the kind, which says whether the data is divided.
        why_not: why there is to be none.
        keeps_repeats: its workers are not to run out of data, and what comes twice is taken once.
        closing: statements in front of the last prefetch, as `Wording.closing`.
    """
    if why_not:
        return IndexedForm(why_not=why_not)
    try:
        edits = _edits(parts.pipeline, keeps_repeats=keeps_repeats)
        single = replace(parts, pipeline=apply_edits(parts.pipeline, edits))
        where = sharding(single.pipeline, single.sources) if wording.size else undivided(single.pipeline)
        _check(single, where, keeps_repeats=keeps_repeats)
        body = Body(single, where, replace(wording, closing=closing, mixes_files=False), writer=IndexedOperatorWriter)
        text = "\n".join(body.lines)
        wrappers = (wrapper for wrapper in _WRAPPERS if f"{wrapper.name}(" in text)
        definitions = (*wrappers, _in_order(batched=bool(where.batches)))
        ours = {"indexed_dataset_fn", "indexed_pipeline", *(one.name for one in definitions)}
        if taken := sorted(ours & {one.name for one in parts.definitions}):
            raise CannotExpress(f"The script calls something else {taken[0]}.")
    except CannotExpress as error:
        return IndexedForm(why_not=clause(error))
    return IndexedForm(tuple(body.lines), definitions)


def _edits(pipeline: Pipeline, *, keeps_repeats: bool) -> Iterator[Edit]:
    """What one pass that keeps every row leaves out: repeats, caches, and the dropping of a last batch."""
    for node in pipeline:
        counted = any(below.op in _BY_POSITION for below in pipeline.downstream(node.id))
        if node.op == "cache" or (node.op == "repeat" and not keeps_repeats and not counted):
            yield Remove(node.id)
        elif node.op in BATCHES and node.argument("drop_remainder"):
            yield SetArgument(node.id, "drop_remainder", False)


def _check(parts: StandaloneParts, where: Sharding, *, keeps_repeats: bool) -> None:
    """Refuses a pipeline with an operator that makes other elements of them."""
    pipeline = parts.pipeline
    if not keeps_repeats and _endless(parts):
        raise CannotExpress("The data never ends.")
    for node in pipeline:
        here = place(node, short=True)
        if node.op in BATCHES and node.id not in where.batches:
            raise CannotExpress(f"{here} makes one element of several, which are taken apart or counted behind it.")
        if node.op in _LOSES:
            raise CannotExpress(f"{here} {_LOSES[node.op]}.")
        if node.op not in _TAKES_APART:
            continue
        above = next((other for other in pipeline.upstream(node.id) if other.op in _TAKES_APART), None)
        if above is not None:
            raise CannotExpress(
                f"{here} takes apart what {place(above, short=True)} did already, and an index has room for two "
                "numbers."
            )
        drawn = node.function is not None and not node.function.stateless
        if drawn or any(kind.startswith(("Shuffle", "Repeat", "Random")) for kind in node.inner):
            raise CannotExpress(f"The rows that {here} makes of an element may be others each time.")


def _endless(parts: StandaloneParts) -> bool:
    """Whether something goes on for ever that nothing below cuts off."""
    pipeline = parts.pipeline
    going_on = [name for name, source in parts.sources.items() if source.count == INFINITE]
    going_on += [node.id for node in pipeline if node.op == "repeat" and node.argument("count") in (None, INFINITE)]
    return any(all(below.op not in _CUTS_OFF for below in pipeline.downstream(name)) for name in going_on)


def _in_order(*, batched: bool) -> Definition:
    """The function that puts predictions back into order; without batches what a model makes of an element is a row."""
    joined = "concatenate" if batched else "stack"
    return Definition(
        "in_order",
        f'''def in_order(predictions, indices):
    """Predictions of all workers, in the order of the source.

    predictions: what was predicted for each {"batch" if batched else "element"}, of any worker and in any order.
    indices: what stood in front of each of them. What came twice is taken once; rows that fill a batch have no index.
    """
    import numpy as np

    found, rows = np.unique(np.concatenate([np.ravel(one) for one in indices]), return_index=True)
    rows = rows[found >= 0]
    return tf.nest.map_structure(lambda *parts: np.{joined}(parts)[rows], *predictions)''',
    )


# -- operators for elements `(index, element)`

_SLICES = "tf.data.Dataset.from_tensor_slices("

_WRAPPERS = (
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


class IndexedOperatorWriter(OperatorWriter):
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
            index = f"(tf.cast(number, tf.int64) - {start})" if start else "tf.cast(number, tf.int64)"
            return f"{source.expression}.map(lambda number: ({index if step == 1 else f'{index} // {step}'}, number))"
        return f"{source.expression}.enumerate()"

    def function(self, node: Node) -> str:
        text = super().function(node)
        facts = operator_facts(node.op)
        kept = "keeping_index" if facts.count is CountEffect.ONE_TO_ONE else "numbering_rows"
        wrapper = "without_index" if facts.same_elements else kept
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

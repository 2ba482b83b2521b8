"""Where a pipeline may be divided among workers so that each element still comes once per epoch.

Dividing early saves reading; it is legal only where what stands below gives the same elements for the whole
as for the parts together. By file before reading when there are files enough, else by element behind the
reading, which then has to run alike on every worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pipetune.core.distribution import SourceText
from pipetune.core.errors import CannotExpress
from pipetune.core.operators import (
    DIVIDED_DOWNSTREAM,
    DIVIDED_UPSTREAM,
    READERS,
    CountEffect,
    OrderEffect,
    operator_facts,
)
from pipetune.core.pipeline import INFINITE, Node, Pipeline

MOST_WORKERS = 4
"""The form is made, and checked, for up to this many workers."""

BATCHES = frozenset({"batch", "padded_batch"})

_IN_ORDER = {op for op in DIVIDED_UPSTREAM if operator_facts(op).order is OrderEffect.KEEPS}
_SAME_COUNT = {op for op in _IN_ORDER if operator_facts(op).count is CountEffect.ONE_TO_ONE}
_EXPANDING = READERS | {op for op in DIVIDED_UPSTREAM if operator_facts(op).count is CountEffect.UNKNOWN}
_SCALED = frozenset({"take", "skip"})
_CHOOSING = frozenset({"ignore_errors", "unbatch", "unique"})  # by the values of elements, without a function
BELOW_BATCH = (DIVIDED_UPSTREAM - BATCHES - _EXPANDING) | _SCALED | {"zip", "concatenate"}
"""Operators that treat the batches a replica gets as they treat its elements."""


@dataclass(frozen=True)
class Sharding:
    """Where a pipeline is divided, and what follows from it."""

    batches: tuple[str, ...]  # the nodes that make the batches a replica gets
    below_batch: frozenset[str]  # nodes that count in batches
    after: tuple[str, ...] = ()  # the nodes whose elements are divided
    by: str = ""  # "file", "element", or "" where every worker reads everything
    shared: frozenset[str] = frozenset()  # nodes that run on every worker alike, above the division
    any_part: bool = False  # any division there is right, not only by every n-th element

    def counts_in_batches(self, name: str) -> bool:
        """Whether a node makes whole batches, or counts in them."""
        return name in self.batches or name in self.below_batch


def undivided(pipeline: Pipeline) -> Sharding:
    """What there is to know of `pipeline` where every worker reads everything.

    Raises:
        CannotExpress: its batches cannot be made smaller; the message says why.
    """
    below, _ = below_batch(pipeline)
    batches = tuple(_batches(pipeline, pipeline.output.id))
    return Sharding(batches, frozenset(below) if batches else frozenset())


def sharding(pipeline: Pipeline, sources: Mapping[str, SourceText], *, most_workers: int = MOST_WORKERS) -> Sharding:
    """Where to divide `pipeline` (with file names as sources of their own, see `module.prepared`).

    Args:
        most_workers: so many files there have to be to divide by file.

    Raises:
        CannotExpress: no place is known where dividing it is right; the message says why.
    """
    whole = undivided(pipeline)
    search = _Search(pipeline, sources, whole, most_workers)
    search.loose(pipeline.output.id)
    after = tuple(dict.fromkeys(search.found))
    shared = {node.id for name in after for node in pipeline.upstream(name)} | set(after)
    by = "file" if all(name in sources and sources[name].yields_file_names for name in after) else "element"
    drawn: set[str] = set()  # nodes whose elements have other values on each worker
    for node in (node for node in pipeline if node.id in shared):
        # What runs above the division must yield the same elements in the same order on every worker.
        steady = node.function is None or node.function.stateless
        chooses = node.op in _CHOOSING or (node.function is not None and node.op not in {"map", "from_generator"})
        below = not drawn.isdisjoint(node.inputs)
        if chooses and not steady:
            raise CannotExpress(
                f"The function of {node.title} draws random numbers or keeps state, and it would have to choose "
                "the same elements on every worker: there are too few files to divide before it."
            )
        if chooses and below:
            raise CannotExpress(
                f"{node.title} stands behind a map that draws random numbers or keeps state, and it would have to "
                "choose the same elements on every worker: the data cannot be divided before it."
            )
        if below or not steady:
            drawn.add(node.id)
    return replace(whole, after=after, by=by, shared=frozenset(shared), any_part=not search.by_position)


@dataclass
class _Search:
    """Walks up from the output for as long as dividing above is the same as dividing below."""

    pipeline: Pipeline
    sources: Mapping[str, SourceText]
    whole: Sharding  # the pipeline undivided
    most_workers: int
    found: list[str] = field(default_factory=list)
    by_position: bool = False

    def loose(self, name: str) -> None:
        """Any division that gives each element to one worker is right at `name`."""
        node = self.pipeline[name]
        if not node.inputs:
            self.found.append(name)
        elif name in self.whole.below_batch and node.op in _SCALED:
            self.strict(node.inputs[0])
        elif node.op == "concatenate" and self._apart(node):
            for above in node.inputs:
                self.loose(above)
        elif node.op in _EXPANDING and not self._enough(node.inputs[0]):
            self._here(node)
        elif node.op in DIVIDED_DOWNSTREAM or self._drops_rows(node):
            self.strict(name)
        elif node.op in DIVIDED_UPSTREAM:
            self.loose(node.inputs[0])
        else:
            raise CannotExpress(f"The operator {node.title} has no known distributed form.")

    def strict(self, name: str) -> None:
        """Worker i of n has to get the elements number i, i + n, i + 2n, ... of `name`."""
        self.by_position = True
        node = self.pipeline[name]
        batch_level = self.whole.counts_in_batches(name)
        if not node.inputs:
            self.found.append(name)
        elif node.op == "zip" and self._apart(node):
            for above in node.inputs:
                self.strict(above)
        elif node.op in _SAME_COUNT or (batch_level and node.op in {*BATCHES, *_SCALED, "repeat"}):
            self.strict(node.inputs[0])
        else:
            self._here(node)

    def _here(self, node: Node) -> None:
        if self.whole.counts_in_batches(node.id):
            raise CannotExpress(f"A {node.title} of whole batches cannot be divided among workers.")
        self.found.append(node.id)

    def _apart(self, node: Node) -> bool:
        """Whether the inputs of a join have nothing in common: then each can be divided by itself."""
        parts = [{name, *(above.id for above in self.pipeline.upstream(name))} for name in node.inputs]
        return len(set().union(*parts)) == sum(len(part) for part in parts)

    def _drops_rows(self, node: Node) -> bool:
        return node.op in BATCHES and node.id not in self.whole.batches and bool(node.argument("drop_remainder"))

    def _enough(self, name: str) -> bool:
        """Whether every one of the most workers can get an element of `name`."""
        node = self.pipeline[name]
        if name in self.sources:
            return self.sources[name].count == INFINITE or self.sources[name].count >= self.most_workers
        if len(node.inputs) == 1 and node.op in {"shuffle", "repeat", *_SAME_COUNT}:
            return self._enough(node.inputs[0])
        return node.cardinality >= self.most_workers


def _batches(pipeline: Pipeline, name: str) -> list[str]:
    """The batch operators that make what a replica gets, or none."""
    node = pipeline[name]
    if node.op in BATCHES:
        return [name]
    if node.op not in BELOW_BATCH:
        inner = [above.id for above in pipeline.upstream(name) if above.op in BATCHES]
        if inner and node.op not in _EXPANDING:
            raise CannotExpress(f"{node.title} behind batch counts or joins batches of another size.")
        return []
    found = [_batches(pipeline, above) for above in node.inputs]
    if any(found) and node.op == "filter":
        raise CannotExpress(f"{node.title} behind batch chooses whole batches, and may do so by their size.")
    if any(found) and not all(found):
        raise CannotExpress(f"{node.title} joins batches with single elements.")
    joined = [batch for part in found for batch in part]
    sizes = {pipeline[batch].argument("batch_size") for batch in joined}
    if len(sizes) > 1:
        raise CannotExpress(f"{node.title} joins batches of different sizes.")
    return list(dict.fromkeys(joined))


def below_batch(pipeline: Pipeline) -> tuple[list[str], list[str]]:
    """The nodes from the output up to the last batches, and these batches; the most downstream first."""
    below: list[str] = []
    batches: list[str] = []
    todo = [pipeline.output.id]
    while todo:
        node = pipeline[todo.pop()]
        if node.op in BATCHES:
            batches.append(node.id)
        elif node.op in BELOW_BATCH:
            below.append(node.id)
            todo += node.inputs
    return below, batches

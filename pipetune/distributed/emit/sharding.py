"""Where a pipeline may be divided among workers so that each element still comes once per epoch, and what it must not
hold if it runs in another process than the script's.

Dividing early saves reading; it is legal only where what stands below gives the same elements for the whole
as for the parts together. By file before reading when there are files enough, else by element behind the
reading, which then has to run alike on every worker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipetune.core.distribution import SourceText, StandaloneParts
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
from pipetune.core.storage import tfds_reads

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


_REMOTE = re.compile(r"[a-z][a-z0-9+.-]*://")
_SAME_END = frozenset({"map", "prefetch", "with_options", "cache", "filter", "shuffle", "batch", "padded_batch",
                       "ignore_errors", "unbatch", "interleave", "flat_map", "skip", "window"})  # fmt: skip


def place(node: Node, *, short: bool = False) -> str:
    """An operator and where it stands: "map at /home/me/train.py:12", or in short without the folder."""
    if node.location is None:
        return node.title
    where = f"{Path(node.location.file).name}:{node.location.line}" if short else str(node.location)
    return f"{node.location.method if not node.inputs else node.title} at {where}"


def clause(error: CannotExpress) -> str:
    """The message of an error in the form of a clause: lowercase, without a full stop."""
    return error.message[0].lower() + error.message[1:].rstrip(".")


def refuse_all(*looks: Callable[[], None]) -> None:
    """Looks at all of them, and refuses for every reason there is.

    Raises:
        CannotExpress: at least one was refused.
    """
    found: list[CannotExpress] = []
    for look in looks:
        try:
            look()
        except CannotExpress as error:
            found.append(error)
    if found:
        hints = dict.fromkeys(error.hint for error in found if error.hint)
        raise CannotExpress(" ".join(error.message for error in found), hint=" ".join(hints))


def refuse_python(pipeline: Pipeline, *, why: str) -> None:
    """Refuses functions that run in the script's own Python; `why` is the end of the sentence, after the operators.

    Raises:
        CannotExpress: there are such functions; the message names each and its line.
    """
    found = [place(node) for node in pipeline if node.runs_python]
    if found:
        raise CannotExpress(
            f"{' and '.join(found)} {'runs' if len(found) == 1 else 'run'} Python code, {why}.",
            hint="Say it in TensorFlow operations, or do it once and write the results to files.",
        )


def local_files(parts: StandaloneParts) -> tuple[str, ...]:
    """The sources that name files on a local disk, each with its line, for the notes of a module."""
    found = []
    for name, source in parts.sources.items():
        names = (source.pattern, *source.names[:1]) if source.yields_file_names else ()
        if any(one and not _REMOTE.match(one) for one in names):
            found.append(place(parts.pipeline[name.removesuffix(".files")], short=True))
    return tuple(dict.fromkeys(found))


def shared_storage(parts: StandaloneParts, who: str) -> Iterator[str]:
    """A note on local files, which `who` lists and the workers open."""
    files = local_files(parts)
    if files:
        yield (
            f"the {who} lists the files ({' and '.join(files)}), and the workers open them by the same names: "
            "they have to be on storage that all of them reach"
        )


def is_endless(pipeline: Pipeline) -> bool:
    """Whether the pipeline is known never to end."""
    node = pipeline.output
    while node.inputs:
        if node.op == "repeat" and node.argument("count") in (None, INFINITE):
            return True
        if node.op not in _SAME_END or node.cardinality == INFINITE:
            break
        node = pipeline[node.inputs[0]]
    return node.cardinality == INFINITE


_OWN_FILES = "it then reads files of its own."
_TFDS_HINT = f"Call it on each worker with read_config=tfds.ReadConfig(input_context=input_context): {_OWN_FILES}"
_TFDS_HINTS = {
    "horovod": (
        "Call it on each rank with read_config=tfds.ReadConfig(input_context=tf.distribute.InputContext(hvd.size(), "
        f"hvd.rank())): {_OWN_FILES}"
    ),
    "parameter-server": (
        "Call it in the function given to create_per_worker_dataset, with shuffle_files=True: every worker reads "
        "everything, in an order of its own."
    ),
    "service": (
        "Give the script's own dataset to the service: dataset.apply(tf.data.experimental.service.distribute(...))."
    ),
}


def refuse_tfds(pipeline: Pipeline, kind: str) -> None:
    """Refuses a pipeline whose data TensorFlow Datasets reads: its own call divides the files, no module of ours.

    Raises:
        CannotExpress: with how that is said in the script, for this kind of workers.
    """
    for reading in tfds_reads(pipeline):
        message = f"{reading.call} ({reading.location}) reads the data, which a module would have to read without it."
        if reading.shard is not None:
            message += " It is given an input_context already."
        raise CannotExpress(message, hint=_TFDS_HINTS.get(kind, _TFDS_HINT))

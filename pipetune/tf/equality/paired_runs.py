"""Runs two pipelines on one recorded source with the same pins, within one time limit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipetune.core.edits import Safety
from pipetune.core.errors import CannotReplay
from pipetune.tf import private
from pipetune.tf.equality import elements, recorded, sample, sharing
from pipetune.tf.equality.elements import Drawn
from pipetune.tf.equality.generated import Region
from pipetune.tf.equality.pinning import Pinned, Pins, pinned
from pipetune.tf.equality.sharing import Side
from pipetune.tf.pipelines import gathering, live

REPLAYS = True  # datasets built in calls from this module are pipetune's own, not the user's

_FILES = 4  # source elements taken where each one becomes many downstream (file names)
_COPIES = 48  # source elements in the randomness check, at least
MAX_RECORDED_BYTES = 256e6
_MOST_ROUNDS = 1000
_MOST_GRAPH_BYTES = 16e6  # limit for rows stored as constants in a graph, which is copied for each run


class CannotCompare(Exception):
    """A pipeline cannot be run in a comparable way; the message says why."""


@dataclass(frozen=True)
class Limits:
    """Limits of one comparison."""

    elements: int  # source elements, at least
    seconds: float
    seed: int


@dataclass(frozen=True)
class Graph:
    """One pipeline on the recorded source, serialized."""

    content: bytes
    spec: Any


class PairedRuns:
    """The recorded source of two pipelines, their serialized graphs on it, and the time budget."""

    def __init__(
        self, sides: tuple[Side, Side], datasets: tuple[Any, Any], safety: Safety, limits: Limits, folder: str
    ) -> None:
        self.sides = sides
        self.datasets = datasets
        self.safety = safety
        self.whole_epochs = safety >= Safety.REORDERS  # then only a whole epoch has the same elements on both sides
        self.notes: list[str] = []
        shared = sharing.frontier(*sides)
        drawn = {*shared, *sharing.cuts(*sides, shared, 0)}
        self.needed = max(
            sample.elements_needed(sides[0].live, side.pipeline, drawn, least=limits.elements) for side in sides
        )
        self.count = sample.with_partial_batch(sides[0].pipeline, self.needed, whole=self.whole_epochs)
        self.zeros_alike = False  # whether -0.0 and denormals are treated as 0.0
        self.files = _FILES
        self.recordings: dict[str, recorded.Recording] = {}
        self._start, self._seconds, self._seed = time.monotonic(), limits.seconds, limits.seed
        self._folder = folder
        self._runs = 0
        self._turn = recorded.Turn()
        self._built: dict[tuple[bool, bool, int, int], tuple[Graph, Graph]] = {}
        self._exact = False  # whether exactly `count` elements are served, whatever that leaves for the last batch

    @property
    def batched(self) -> bool:
        """Whether an element of the output is a batch of rows."""
        return sample.is_batched(self.sides[0].pipeline)

    @property
    def sample(self) -> int:
        """Source elements in an epoch."""
        sizes = [self.files if self._few(name) else len(one) for name, one in self.recordings.items()]
        return max(1, min([self.count, *sizes]))

    @property
    def rounds(self) -> int:
        """How often an infinite repeat repeats a small source to fill a sample."""
        expands = [sharing.expands_below(self.sides[0].pipeline, name) for name in self.recordings]
        if not expands or any(expands):
            return 1
        return max(1, min(_MOST_ROUNDS, self.count // self.sample))

    @property
    def copies(self) -> int:
        """Number of identical source elements from which distinct outputs are counted."""
        sizes = sample.batch_sizes(self.sides[0].pipeline)
        return max([_COPIES, *(size + size // 4 for size in sizes if size <= 8 * _COPIES)])

    def record(self, *, until: float) -> None:
        """Records the elements that the pipelines share.

        Args:
            until: share of the time limit at which recording ends.
        """
        original = self.sides[0]
        for name, passes in sharing.frontier(*self.sides).items():
            recording = self._record(original.live.datasets[name], name, passes=passes, until=until)
            self.recordings[name] = recording
            title = original.pipeline[name].title
            amount = f"{len(recording)} elements: {recording.places}"
            self.notes.append(f"The data is drawn once at {title} ({amount}).")
            if len(recording.passes) > 1:
                self.notes.append("The source gives something else each time it is read.")
            if recording.error:
                self.notes.append(f"It raises {recording.error} after that.")

    def _record(self, dataset: Any, name: str, *, passes: int, until: float) -> recorded.Recording:
        count = 3 * _FILES if self._few(name) else self.count
        spec = dataset.element_spec
        if self.sides[0].pipeline[name].op == "from_tensor_slices" and _is_dense(spec):
            row_bytes = live.element_bytes(tf.nest.flatten(spec)) or 0
            if count * row_bytes <= _MOST_GRAPH_BYTES:
                return recorded.record_rows(gathering.arrays_of(dataset), spec, count=count)
        return recorded.record(
            dataset, count=count, deadline=self.at(until), max_bytes=MAX_RECORDED_BYTES, passes=passes
        )

    def hidden_error(self, *, until: float) -> str:
        """Why an element that raises would do so elsewhere in the data, or not in every epoch; empty if none is found.

        That happens if only one side caches the element, or drops or shuffles it before it is computed. The sample may
        lack it, so the inputs of such caches and selections are read themselves.

        Args:
            until: share of the time limit at which reading ends.
        """
        source, other = self.sides[0].live, self.sides[1].pipeline
        added = [node for node in other if node.op == "cache" and node.id not in source.pipeline]
        cached = {name: source.datasets.get(name, source.dataset) for node in added for name in node.inputs}
        source_raises = added and any(recording.error for recording in self.recordings.values())
        if source_raises or any(_raises(dataset, deadline=self.at(until)) for dataset in cached.values()):
            return "an element raises in every epoch, and a cache would hide it"
        chosen = [source.datasets[name] for name in sharing.chosen_earlier(*self.sides)]
        if any(_raises(dataset, deadline=self.at(until)) for dataset in chosen):
            return "an element raises that would be computed later or not at all"
        return ""

    def graphs(self, *, copies: bool = False) -> tuple[Graph, Graph]:
        """Both pipelines on the recorded source or, with `copies`, on many copies of its first element.

        Raises:
            CannotCompare: one of them cannot be serialized.
        """
        key = (copies, self._exact, self.count, self.files)
        if key not in self._built:
            one, other = self._build(copies=copies)
            self._built[key] = (_serialise(one), _serialise(other))
        return self._built[key]

    def pin(self, graph: Graph, pins: Pins) -> Pinned:
        """Pins the randomness of a serialized pipeline and resets its recorded source to the first pass.

        Raises:
            CannotPin: something random cannot be fixed.
        """
        self._runs += 1
        self._turn.reset()
        return pinned(graph.content, graph.spec, pins, folder=f"{self._folder}/{self._runs}")

    def draw(
        self,
        graph: Graph,
        pins: Pins,
        *,
        count: int,
        until: float,
        observe: Callable[[Any], None] | None = None,
    ) -> Drawn:
        """Draws elements of one pipeline; single rows where only the rows of an epoch must be the same (REORDERS).

        Args:
            count: most elements to draw.
            until: share of the time limit at which drawing ends.
            observe: called with each element; batches are then left whole.

        Raises:
            CannotPin: something random cannot be fixed.
            Unreadable: an element contains something that cannot be compared.
        """
        dataset = self.pin(graph, pins).dataset
        rows = self.safety == Safety.REORDERS and self.batched and observe is None
        if rows:
            dataset = dataset.unbatch()
        keep = MAX_RECORDED_BYTES if self.safety == Safety.APPROXIMATE and observe is None else 0.0
        return elements.draw(
            dataset,
            count=count,
            deadline=self.at(until),
            keep_bytes=keep,
            observe=observe,
            zeros_alike=self.zeros_alike,
        )

    def drawn_share(self, *runs: Drawn) -> float:
        """The share of the sample that every run yielded before the time ended, always above zero.

        An underestimate where elements are dropped on the way; the next sample is then smaller than it could be.
        """
        if all(run.complete for run in runs):
            return 1.0
        rows = math.prod(size for size in sample.batch_sizes(self.sides[0].pipeline) if size > 0)
        drawn = min(len(run.hashes) for run in runs) * rows
        return min(1.0, max(1, drawn) / (self.count * self.rounds))

    def shuffle_limits(self, buffers: set[int]) -> dict[int, int]:
        """Smaller sizes for the shuffle buffers that would hold the whole sample."""
        known: dict[int, int] = {}
        for side in self.sides:
            pipeline = side.pipeline
            expanding = [node.id for node in pipeline if sharing.expands_below(pipeline, node.id)]
            found = sample.shuffle_limits(pipeline, files=self.sample, count=self.count, expands=expanding)
            for size, limit in found.items():
                known[size] = min(limit, known.get(size, limit))
        limits = {size: known.get(size, max(2, self.count // 3)) for size in buffers}
        return {size: limit for size, limit in sorted(limits.items()) if limit < size}

    def shrink(self, factor: float) -> None:
        """Reduces the sample to this fraction from now on."""
        self.files = max(1, round(self.files * factor))
        count = max(2, round(self.count * factor))
        self.count = sample.with_partial_batch(self.sides[0].pipeline, count, whole=self.whole_epochs)

    @property
    def batch_size(self) -> int:
        """Size of the first batch; 1 if there is none."""
        return next(iter(sample.batch_sizes(self.sides[0].pipeline)), 1)

    def last_batches(self) -> dict[int, int]:
        """Numbers of rows to test in a last batch -> how many elements of the sample leave that many."""
        starts = [name for name in self.recordings if not self._few(name)]
        if len(starts) != 1:
            return {}
        rests = (1, 2, *((3,) if self.recordings[starts[0]].invented else ()), self.batch_size - 1)
        available = len(self.recordings[starts[0]])
        return sample.counts_ending_in(self.sides[0].pipeline, starts[0], rests, available=available)

    @property
    def shortage(self) -> str:
        """Why the sample is too short to show what the pipelines yield; empty if it is long enough."""
        for name, recording in self.recordings.items():
            wanted = sample.at_least(self.sides[0].live, self.sides[0].pipeline, name)
            if len(recording) < wanted and not recording.complete:
                of = f"{len(recording):,} elements of {self.sides[0].pipeline[name].title}"
                return f"the sample holds {of}, and two windows of them take {wanted:,}"
        return ""

    def within(self, region: Region) -> PairedRuns:
        """Paired runs of only the region in which the pipelines differ; `give` has to provide the elements."""
        folder = f"{self._folder}/region"
        limits = Limits(1, self._seconds, self._seed)
        inner = PairedRuns(region.sides, self.datasets, self.safety, limits, folder)
        inner._start = self._start
        return inner

    def give(self, name: str, recording: recorded.Recording) -> None:
        """Uses these elements in place of the output of an operator that both pipelines have."""
        self.recordings = {name: recording}
        self._built.clear()

    @contextmanager
    def elements(self, count: int) -> Iterator[None]:
        """Context manager: while open, the sample has exactly `count` elements."""
        before = self.count, self._exact
        self.count, self._exact = count, True
        try:
            yield
        finally:
            self.count, self._exact = before

    def at(self, share: float) -> float:
        """The time (`time.monotonic`) at which this share of the time limit is used up."""
        return self._start + share * self._seconds

    @property
    def elapsed(self) -> float:
        """The share of the time limit that is used up."""
        return (time.monotonic() - self._start) / self._seconds

    def _build(self, *, copies: bool) -> tuple[Any, Any]:
        given = {name: recorded.serve(one, self._turn, **self._part(name, one, copies=copies))
                 for name, one in self.recordings.items()}  # fmt: skip
        if copies:
            given |= self._given_further_down()
        cut = self.copies if copies else self.count
        cuts = {} if self.whole_epochs else sharing.cuts(*self.sides, self.recordings, cut)
        numbers, rows = self._numbered_rows(copies=copies)
        try:
            return self.sides[0].build(given, cuts), self.sides[1].build({**given, **numbers}, cuts, rows)
        except CannotReplay as error:
            if copies:
                raise CannotCompare(f"a step cannot be rebuilt on another source: {error.message}") from error
            self.recordings.clear()
            self.notes.append("A step cannot be rebuilt: the pipelines are compared from their start.")
            return self.datasets

    def _part(self, name: str, recording: recorded.Recording, *, copies: bool) -> dict[str, int]:
        """Keyword arguments of `recorded.serve` that select which recorded elements are served."""
        few = self._few(name)
        if copies:
            return {"copies_of_first": self.files if few else self.copies}
        if few:
            return {"spread": self.files}
        count = min(len(recording), self.count)
        if self._exact:
            return {"count": count}
        return {"count": sample.with_partial_batch(self.sides[0].pipeline, count, whole=self.whole_epochs)}

    def _given_further_down(self) -> Mapping[str, Any]:
        """Copies of one element as far downstream as no random number is drawn: rows then differ only by draws."""
        given = {}
        for name in sharing.expanded_without_draws(*self.sides):
            first = recorded.record(
                self.sides[0].live.datasets[name].take(1), count=1, deadline=self.at(1.2), max_bytes=1
            )
            if len(first):
                given[name] = recorded.serve(first, self._turn, copies_of_first=self.copies)
        return given

    def _numbered_rows(self, *, copies: bool) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """For arrays whose rows the candidate gathers by index: datasets of the indices, and of only the rows served.

        The rows are gathered from the arrays as the candidate gathers them, so that both ways are compared.
        """
        numbers, rows = {}, {}
        for name, windows in sharing.numbered(*self.sides).items():
            if name in self.recordings:
                part = self._part(name, self.recordings[name], copies=copies)
                positions = recorded.positions_served(self.recordings[name], **part)
                rows[name] = self._rows_of(name, positions)
                starts = windows.starts(len(positions)) if windows is not None else range(len(positions))
                numbers[name] = tf.data.Dataset.range(starts.start, starts.stop, starts.step)
        return numbers, rows

    def _rows_of(self, name: str, positions: list[int]) -> Any:
        """A dataset of only these rows, to gather from."""
        recording = self.recordings[name]
        if not recording.invented:
            return gathering.part_of(self.sides[0].live.datasets[name], positions)
        return tf.data.Dataset.from_tensor_slices(
            tf.nest.map_structure(lambda rows: tf.gather(rows, positions), recording.rows)
        )

    def _few(self, name: str) -> bool:
        """Whether few elements must do, because what each becomes cannot be cut downstream."""
        if self.whole_epochs and sharing.expands_below(self.sides[0].pipeline, name):
            return True
        return any(sharing.expands_behind_cache(side.pipeline, name) for side in self.sides)


def _raises(dataset: Any, *, deadline: float) -> bool:
    """Whether reading the dataset raises an exception before the deadline."""
    try:
        for _ in dataset:
            if time.monotonic() > deadline:
                return False
    except Exception:  # a function of the user may raise anything
        return True
    return False


def _is_dense(spec: Any) -> bool:
    return all(isinstance(part, tf.TensorSpec) and part.shape.is_fully_defined() for part in tf.nest.flatten(spec))


def _serialise(dataset: Any) -> Graph:
    try:
        return Graph(private.serialized_graph(dataset), dataset.element_spec)
    except Exception as error:  # TensorFlow raises many kinds; nothing but its serializer runs here
        reason = str(error).strip().splitlines() or [""]
        raise CannotCompare(f"the pipeline cannot be serialised: {reason[0]}"[:300]) from error

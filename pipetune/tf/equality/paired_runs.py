"""Runs two pipelines on one recorded source with the same pins, within one time limit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipetune.core.edits import Safety
from pipetune.core.errors import CannotReplay
from pipetune.core.padding import BUCKETS
from pipetune.tf import private
from pipetune.tf.equality import elements, recorded, sharing
from pipetune.tf.equality.elements import Drawn
from pipetune.tf.equality.pinning import Pinned, Pins, pinned
from pipetune.tf.equality.sharing import Side
from pipetune.tf.pipelines import gathering

REPLAYS = True  # datasets made below this module are pipetune's, not the user's

_FILES = 4  # source elements taken where each becomes many further down
_COPIES = 48  # source elements in the check of randomness
MAX_RECORDED_BYTES = 256e6
_MOST_ROUNDS = 1000


class CannotCompare(Exception):
    """A pipeline cannot be run in a way that can be compared; the message says why."""


@dataclass(frozen=True)
class Limits:
    """How much is compared."""

    elements: int  # source elements, at least
    seconds: float
    seed: int


@dataclass(frozen=True)
class Graph:
    """One pipeline on the recorded source, serialised."""

    content: bytes
    spec: Any


class PairedRuns:
    """The recorded source of two pipelines, their serialised forms on it, and the time left."""

    def __init__(
        self, sides: tuple[Side, Side], datasets: tuple[Any, Any], safety: Safety, limits: Limits, folder: str
    ) -> None:
        self.sides = sides
        self.datasets = datasets
        self.safety = safety
        self.whole_epochs = safety >= Safety.REORDERS  # only these have the same elements on both sides
        self.notes: list[str] = []
        wanted = max(sharing.elements_wanted(side.pipeline, limits.elements) for side in sides)
        self.count = sharing.with_partial_batch(sides[0].pipeline, wanted, whole=self.whole_epochs)
        self.files = _FILES
        self.recordings: dict[str, recorded.Recording] = {}
        self._start, self._seconds = time.monotonic(), limits.seconds
        self._folder = folder
        self._runs = 0
        self._turn = recorded.Turn()
        self._built: dict[tuple[bool, int, int], tuple[Graph, Graph]] = {}
        self._padded_otherwise = any(node.op == BUCKETS for side in sides for node in side.pipeline)
        if self._padded_otherwise:
            self.notes.append("Rows are compared without the padding behind them: their batches have other lengths.")

    @property
    def batched(self) -> bool:
        """Whether an element of the output is a batch of rows."""
        return sharing.is_batched(self.sides[0].pipeline)

    @property
    def sample(self) -> int:
        """Source elements in an epoch."""
        sizes = [self.files if self._few(name) else len(one) for name, one in self.recordings.items()]
        return max(1, min([self.count, *sizes]))

    @property
    def rounds(self) -> int:
        """How often a small source is repeated by a repeat without end to make a sample."""
        expands = [sharing.expands_below(self.sides[0].pipeline, name) for name in self.recordings]
        if not expands or any(expands):
            return 1
        return max(1, min(_MOST_ROUNDS, self.count // self.sample))

    @property
    def copies(self) -> int:
        """Source elements, all the same, from which distinct outputs are counted."""
        sizes = sharing.batch_sizes(self.sides[0].pipeline)
        return max([_COPIES, *(size + size // 4 for size in sizes if size <= 8 * _COPIES)])

    def record(self, *, until: float) -> None:
        """Records what the pipelines share, until this share of the time limit is used."""
        original = self.sides[0]
        for name, passes in sharing.frontier(*self.sides).items():
            recording = recorded.record(
                original.live.datasets[name],
                count=3 * _FILES if self._few(name) else self.count,
                deadline=self.at(until),
                max_bytes=MAX_RECORDED_BYTES,
                passes=passes,
            )
            self.recordings[name] = recording
            title = original.pipeline[name].title
            amount = f"{len(recording)} elements: {recording.places}"
            self.notes.append(f"The data is drawn once at {title} ({amount}).")
            if len(recording.passes) > 1:
                self.notes.append("The source gives something else each time it is read.")
            if recording.error:
                self.notes.append(f"It raises {recording.error} after that.")

    def graphs(self, *, copies: bool = False) -> tuple[Graph, Graph]:
        """Both pipelines on the recorded source, or on `copies` of its first element.

        Raises:
            CannotCompare: one of them cannot be serialised.
        """
        key = (copies, self.count, self.files)
        if key not in self._built:
            one, other = self._build(copies=copies)
            self._built[key] = (_serialise(one), _serialise(other))
        return self._built[key]

    def pin(self, graph: Graph, pins: Pins) -> Pinned:
        """A serialised pipeline with its randomness fixed, its source at the start.

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
        """Elements of one pipeline; rows where only the rows of an epoch are the same on both sides.

        Raises:
            CannotPin: something random cannot be fixed.
            Unreadable: an element holds something that cannot be compared.
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
            trimmed=rows and self._padded_otherwise,
        )

    def drawn_share(self, *runs: Drawn) -> float:
        """The share of the sample that came out of each run before the time ended, above zero.

        Too small where elements are dropped on the way, which makes the next sample smaller than it could be.
        """
        if all(run.complete for run in runs):
            return 1.0
        rows = math.prod(size for size in sharing.batch_sizes(self.sides[0].pipeline) if size > 0)
        drawn = min(len(run.hashes) for run in runs) * rows
        return min(1.0, max(1, drawn) / (self.count * self.rounds))

    def shuffle_limits(self, buffers: set[int]) -> dict[int, int]:
        """Smaller sizes for the shuffle buffers that would hold the whole sample."""
        known: dict[int, int] = {}
        for side in self.sides:
            found = sharing.shuffle_limits(side.pipeline, files=self.sample, count=self.count)
            for size, limit in found.items():
                known[size] = min(limit, known.get(size, limit))
        limits = {size: known.get(size, max(2, self.count // 3)) for size in buffers}
        return {size: limit for size, limit in sorted(limits.items()) if limit < size}

    def shrink(self, factor: float) -> None:
        """Takes only this part of the sample from now on."""
        self.files = max(1, round(self.files * factor))
        count = max(2, round(self.count * factor))
        self.count = sharing.with_partial_batch(self.sides[0].pipeline, count, whole=self.whole_epochs)

    def at(self, share: float) -> float:
        """The moment at which this share of the time limit is used."""
        return self._start + share * self._seconds

    @property
    def elapsed(self) -> float:
        """The share of the time limit that is used."""
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
        """Which of the recorded elements are served: arguments of `recorded.serve`."""
        few = self._few(name)
        if copies:
            return {"copies_of_first": self.files if few else self.copies}
        if few:
            return {"spread": self.files}
        count = min(len(recording), self.count)
        return {"count": sharing.with_partial_batch(self.sides[0].pipeline, count, whole=self.whole_epochs)}

    def _given_further_down(self) -> Mapping[str, Any]:
        """One element many times, as far down as no random number was drawn: all rows alike but for draws."""
        given = {}
        for name in sharing.expanded_without_draws(*self.sides):
            first = recorded.record(
                self.sides[0].live.datasets[name].take(1), count=1, deadline=self.at(1.2), max_bytes=1
            )
            if len(first):
                given[name] = recorded.serve(first, self._turn, copies_of_first=self.copies)
        return given

    def _numbered_rows(self, *, copies: bool) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """For arrays whose rows the candidate takes by number: the numbers, and arrays of just the rows served.

        The rows are taken from the arrays as the candidate takes them, so that both ways are compared.
        """
        numbers, rows = {}, {}
        for name, windows in sharing.numbered(*self.sides).items():
            if name in self.recordings:
                part = self._part(name, self.recordings[name], copies=copies)
                positions = recorded.positions_served(self.recordings[name], **part)
                rows[name] = gathering.part_of(self.sides[0].live.datasets[name], positions)
                starts = windows.starts(len(positions)) if windows is not None else range(len(positions))
                numbers[name] = tf.data.Dataset.range(starts.start, starts.stop, starts.step)
        return numbers, rows

    def _few(self, name: str) -> bool:
        """Whether few elements must do, for want of a place below to cut what each becomes."""
        if self.whole_epochs and sharing.expands_below(self.sides[0].pipeline, name):
            return True
        return any(sharing.expands_behind_cache(side.pipeline, name) for side in self.sides)


def _serialise(dataset: Any) -> Graph:
    try:
        return Graph(private.serialized_graph(dataset), dataset.element_spec)
    except Exception as error:  # TensorFlow raises many kinds; nothing but its serialiser runs here
        reason = str(error).strip().splitlines() or [""]
        raise CannotCompare(f"the pipeline cannot be serialised: {reason[0]}"[:300]) from error

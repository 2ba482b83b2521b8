"""Runs two pipelines on one recorded source with the same pins, within one time limit."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.edits import Edit, Insert, Remove, Safety, apply_edits
from pipetune.core.errors import CannotReplay
from pipetune.core.operators import CountEffect, operator_facts
from pipetune.core.pipeline import Pipeline
from pipetune.equality import elements, sample, sharing
from pipetune.equality.elements import EPOCHS, DrawnElements
from pipetune.equality.pinning import PinnedDataset, PinningOptions, pin_dataset
from pipetune.equality.sharing import ChangedRegion, ComparedPipeline
from pipetune.pipelines import call_sites, gathering, live
from pipetune.pipelines.replay import replay

_EXPANDING_ELEMENTS = 4  # source elements taken if each one becomes many downstream (file names)
_MIN_COPIES = 48  # source elements in the randomness check, at least
_MAX_COPIES = 20_000  # of a part of an element, by judgement
MAX_RECORDED_BYTES = 256e6  # of recorded or kept elements, by judgement: more takes memory from the script
_MAX_REPEATS = 1000  # of a small source, by judgement: each repetition restarts the pipeline upstream of the repeat
_PASSING_ON = frozenset({"cache", "prefetch", "repeat", "shuffle", "with_options"})  # batches, whatever their sizes
_MAX_GRAPH_BYTES = 16e6  # limit for rows stored as constants in a graph, which is copied for each run


class CannotCompare(Exception):
    """A pipeline cannot be run in a comparable way; the message says why."""


@dataclass(frozen=True)
class ComparisonLimits:
    """Limits of one comparison."""

    elements: int  # source elements, at least
    seconds: float  # approximate time limit
    seed: int = 0  # of the pinned random draws
    filtered: Mapping[str, float] = field(default_factory=dict)  # id of a filter -> elements in per element out


@dataclass(frozen=True)
class SerializedPipeline:
    """One pipeline on the recorded source, serialized."""

    content: bytes
    spec: Any
    passes: sharing.PassCounter  # of its recorded source


class PairedRuns:
    """The recorded source of two pipelines, their serialized graphs on it, and the time budget.

    What takes long ends at `until_share`, a share of the time limit.
    """

    def __init__(
        self,
        sides: tuple[ComparedPipeline, ComparedPipeline],
        datasets: tuple[Any, Any],
        safety: Safety,
        limits: ComparisonLimits,
        folder: str,
    ) -> None:
        self.sides = sides
        self.datasets = datasets
        self.safety = safety
        self.whole_epochs = safety >= Safety.REORDERS  # then only a whole epoch has the same elements on both sides
        self.notes: list[str] = []
        shared = sharing.frontier(*sides)
        drawn = {*shared, *sharing.cut_points(*sides, shared)}
        # Where batches keep their remainder, the few elements that filters pass on are compared in these.
        batches = [node for node in sides[0].pipeline if node.op in sample.BATCHING]
        self._drops_remainders = any(node.argument("drop_remainder") for node in batches)
        filtered = limits.filtered if self._drops_remainders else {}
        self.needed, self._least = (
            max(
                sample.elements_needed(
                    sides[0].live,
                    side.pipeline,
                    drawn,
                    minimum=minimum,
                    full_batches=full_batches,
                    filtered=filtered,
                )
                for side in sides
            )
            for minimum, full_batches in ((limits.elements, 2), (2, 1))
        )
        self.count = self._with_last_batch(self.needed)
        self.normalize_zeros = False  # whether -0.0 and denormals are treated as 0.0
        self.expanding_elements = _EXPANDING_ELEMENTS
        self.copied = 0  # position of the recorded element of which copies are served
        self.recordings: dict[str, sharing.RecordedElements] = {}
        self.seed = limits.seed
        self._start, self._seconds = time.monotonic(), limits.seconds
        self._folder = folder
        self._runs = itertools.count(1)
        self._built: dict[tuple[int, bool, int, int], tuple[SerializedPipeline, SerializedPipeline]] = {}
        # What Python draws by `random` and `np.random` is fixed where the same functions are called in the same order.
        one, other = (_python_calls(side.pipeline) for side in sides)
        self._same_python_calls = bool(one) and one == other
        self._exact_count = False  # whether `count` elements are served, regardless of the size of the last batch

    @property
    def batched(self) -> bool:
        """Whether an element of the output is a batch of rows."""
        kinds = [node.op for node in self.sides[0].pipeline if node.op in (*sample.BATCHING, "to_ragged", "unbatch")]
        return bool(kinds) and kinds[-1] != "unbatch"

    @property
    def sample_size(self) -> int:
        """Source elements in an epoch."""
        sizes = [
            self.expanding_elements if self._needs_few_elements(name) else len(one)
            for name, one in self.recordings.items()
        ]
        return max(1, min([self.count, *sizes]))

    @property
    def serves_all(self) -> bool:
        """Whether the sample is all of the data."""
        whole = bool(self.recordings) and not self._cut_points
        return whole and all(
            one.complete and len(one) <= self.sample_size and self._with_last_batch(len(one)) == len(one)
            for one in self.recordings.values()
        )

    @property
    def _cut_points(self) -> list[str]:
        """Ids of the operators after which the data is cut.

        Where whole epochs must have the same elements in any order, only what a single element becomes, such as the
        records of one file, may be cut: its first ones are the same in every epoch.
        """
        points = sharing.cut_points(*self.sides, self.recordings)
        if not self.whole_epochs:
            return points
        if len(self.recordings) != 1:
            return []
        ((name, recording),) = self.recordings.items()
        if min(len(recording), self.sample_size) > 1:
            return []
        in_order = sharing.shared_operators(*self.sides).intersection(sharing.expanded_without_draws(*self.sides))
        first = sharing.expanding_downstream(self.sides[0].pipeline, name)[:1]
        return [node.id for node in first if node.id in points and node.id in in_order]

    @property
    def infinite_repeat_count(self) -> int:
        """Repetitions of an infinite repeat, so that a small source fills the sample."""
        pipeline = self.sides[0].pipeline
        if not self.recordings or any(sharing.expanding_downstream(pipeline, name) for name in self.recordings):
            return 1
        return max(1, min(_MAX_REPEATS, self.count // self.sample_size))

    @property
    def copy_count(self) -> int:
        """Number of identical source elements from which distinct outputs are counted.

        An endless repeat that `take` ends repeats them `EPOCHS` times within each of as many epochs.
        """
        pipeline = self.sides[0].pipeline
        endless = {node.id for node in pipeline if node.op == "repeat" and node.argument("count") in (None, -1)}
        drawing = [node.id for node in pipeline if node.function is not None and node.function.random]
        ways = [{one.id for one in (*pipeline.upstream(name), *pipeline.downstream(name))} for name in drawing]
        repeated = bool(ways) and all(endless & way for way in ways)
        least = _MIN_COPIES // EPOCHS if repeated and int(self.datasets[0].cardinality()) >= 0 else _MIN_COPIES
        dropping = sample.batch_sizes(node for node in pipeline if node.argument("drop_remainder"))
        small = [size for size in sample.batch_sizes(pipeline) if size <= 8 * _MIN_COPIES]
        return max([least, *(size + size // 4 for size in (*small, *dropping))])

    def record(self, *, until_share: float) -> None:
        """Records the elements that the pipelines share.

        Raises:
            CannotCompare: a source whose elements overtake each other cannot be serialized.
            CannotPin: nor be read in order.
        """
        original, shared = self.sides[0], sharing.frontier(*self.sides)
        for left, (name, passes) in zip(range(len(shared), 0, -1), shared.items(), strict=True):
            dataset = original.live.datasets[name]
            works = (*original.pipeline.upstream(name), original.pipeline[name])
            if any(node.argument("deterministic") is False for node in works):  # read as it is compared: in order
                endless = PinningOptions(infinite_repeat_count=_MAX_REPEATS)
                dataset = self.pin(_serialize(dataset, sharing.PassCounter()), endless).dataset
            until = self.elapsed + (until_share - self.elapsed) / left  # one long dataset leaves time for the others
            recording = self._record(dataset, name, passes=passes, until_share=until)
            self.recordings[name] = recording
            title = original.pipeline[name].title
            amount = f"{len(recording)} elements: {recording.covered_part}"
            self.notes.append(f"The data is read once, at {title} ({amount}).")
            if len(recording.passes) > 1:
                self.notes.append("The source yields different data each time it is read.")
            if recording.error:
                self.notes.append(f"After that it raises {recording.error}.")

    def _record(self, dataset: Any, name: str, *, passes: int, until_share: float) -> sharing.RecordedElements:
        count = 3 * _EXPANDING_ELEMENTS if self._needs_few_elements(name) else self.count
        spec = dataset.element_spec
        dense = all(map(sharing.is_dense, tf.nest.flatten(spec)))
        if self.sides[0].pipeline[name].op == "from_tensor_slices" and dense:
            row_bytes = live.element_bytes(tf.nest.flatten(spec)) or 0
            if count * row_bytes <= _MAX_GRAPH_BYTES:
                return sharing.record_rows(gathering.source_arrays(dataset), spec, count=count)
        recording = sharing.record(
            dataset, count=count, deadline=self.time_at(until_share), max_bytes=MAX_RECORDED_BYTES, passes=passes
        )
        return sharing.stacked(recording)

    def hidden_error(self, *, until_share: float) -> str:
        """Returns why an error would be raised at another position, or not in every epoch; "" if none is found.

        That happens if only one side caches the element, or drops or shuffles it before it is computed. The sample may
        not contain it, so the inputs of such caches and selections are read directly.
        """
        source, other = self.sides[0].live, self.sides[1].pipeline
        added = [node for node in other if node.op == "cache" and node.id not in source.pipeline]
        cached = {name: source.datasets.get(name, source.dataset) for node in added for name in node.inputs}
        source_raises = added and any(recording.error for recording in self.recordings.values())
        if source_raises or any(_raises(dataset, deadline=self.time_at(until_share)) for dataset in cached.values()):
            return "an element raises an error in every epoch, and a cache would hide it"
        chosen = [source.datasets[name] for name in sharing.inputs_selected_earlier(*self.sides)]
        if any(_raises(dataset, deadline=self.time_at(until_share)) for dataset in chosen):
            return "an element that raises an error would be computed later or not at all"
        return ""

    def graphs(self, *, copies: bool = False) -> tuple[SerializedPipeline, SerializedPipeline]:
        """Returns both pipelines on the recorded source or, with `copies`, on many copies of the element `copied`.

        Raises:
            CannotCompare: one of them cannot be serialized.
        """
        key = (self.copied if copies else -1, self._exact_count, self.count, self.expanding_elements)
        if key not in self._built:
            passes = sharing.PassCounter(), sharing.PassCounter()
            one, other = self._build(passes, copies=copies)
            self._built[key] = (_serialize(one, passes[0]), _serialize(other, passes[1]))
        return self._built[key]

    def pin(self, graph: SerializedPipeline, pins: PinningOptions) -> PinnedDataset:
        """Returns a serialized pipeline with pinned randomness; its recorded source starts with the first pass.

        Raises:
            CannotPin: something random cannot be fixed.
        """
        graph.passes.clear()
        return pin_dataset(graph.content, graph.spec, pins, folder=f"{self._folder}/{next(self._runs)}")

    def draw_both(
        self,
        graphs: tuple[SerializedPipeline, SerializedPipeline],
        pins: PinningOptions,
        *,
        count: int,
        until_share: float,
    ) -> tuple[DrawnElements, DrawnElements]:
        """Returns elements of both pipelines, of the second as many as can be compared with those of the first.

        Both run at once, one on each of two cores, unless a state that a function changes may be theirs in common.

        Args:
            count: number of elements to draw from each, at most.

        Raises:
            CannotPin: something random cannot be fixed.
            IncomparableElement: an element contains something that cannot be compared.
        """
        if any(_may_share_state(side.pipeline) for side in self.sides):
            middle = (self.elapsed + until_share) / 2
            first = self.draw(graphs[0], pins, count=count, until_share=middle)
            until_share = max(until_share, self.elapsed + 0.1)
            return first, self.draw(graphs[1], pins, count=first.comparable, until_share=until_share)
        with ThreadPoolExecutor(max_workers=1) as executor:
            draw = call_sites.running_workflow()(self.draw)  # on that thread
            beside = executor.submit(draw, graphs[0], pins, count=count, until_share=until_share)
            second = self.draw(graphs[1], pins, count=count, until_share=until_share)
            first = beside.result()
        return first, second.limited(first.comparable)

    def draw(
        self,
        graph: SerializedPipeline,
        pins: PinningOptions,
        *,
        count: int,
        until_share: float,
        observe: Callable[[Any], None] | None = None,
    ) -> DrawnElements:
        """Returns elements of one pipeline; single rows if only the rows of an epoch must be the same (REORDERS).

        Args:
            count: number of elements to draw, at most.
            observe: called with each element; batches are then not split.

        Raises:
            CannotPin: something random cannot be fixed.
            IncomparableElement: an element contains something that cannot be compared.
        """
        dataset = self.pin(graph, pins).dataset
        if self._draws_rows and observe is None:
            dataset = dataset.unbatch()
        keep = MAX_RECORDED_BYTES if self.safety == Safety.APPROXIMATE and observe is None else 0.0
        with elements.seeded_python(self.seed) if self._same_python_calls else nullcontext():
            return elements.draw_elements(
                dataset,
                count=count,
                deadline=self.time_at(until_share),
                max_kept_bytes=keep,
                on_element=observe,
                normalize_zeros=self.normalize_zeros,
            )

    @property
    def _draws_rows(self) -> bool:
        return self.safety == Safety.REORDERS and self.batched

    def drawn_share(self, *runs: DrawnElements) -> float:
        """Returns the share of the sample that every run yielded before the time ended, always above zero.

        It is underestimated if operators drop elements; the next sample is then smaller than it could be.
        """
        if all(run.complete for run in runs):
            return 1.0
        rows = 1 if self._draws_rows else math.prod(sample.batch_sizes(self.sides[0].pipeline))
        drawn = min(len(run.hashes) for run in runs) * rows
        return min(1.0, max(1, drawn) / (self.count * self.infinite_repeat_count))

    def shuffle_limits(self, buffers: set[int]) -> dict[int, int]:
        """Returns a smaller size for each size in `buffers` that would hold the whole sample: a third of it, or 2."""
        known: dict[int, int] = {}
        for pipeline, node in ((side.pipeline, node) for side in self.sides for node in side.pipeline):
            if node.op == "shuffle":
                rows = math.prod(sample.batch_sizes(pipeline.upstream(node.id)))
                data = self.sample_size if sharing.expanding_downstream(pipeline, node.id) else self.count // rows
                size = sample.positive_argument(node, "buffer_size")
                known[size] = min(known.get(size, size), max(2, data // 3))
        limits = {size: known.get(size, max(2, self.count // 3)) for size in buffers}
        return {size: limit for size, limit in sorted(limits.items()) if limit < size}

    def shrink(self, factor: float) -> float:
        """Reduces the sample to this fraction, but keeps a full batch and a partial one; returns the fraction."""
        before = self.expanding_elements + self.count
        self.expanding_elements = max(1, round(self.expanding_elements * factor))
        self.count = min(self.count, self._with_last_batch(max(self._least, round(self.count * factor))))
        return (self.expanding_elements + self.count) / before

    @property
    def batch_size(self) -> int:
        """Size of the first batch; 1 if there is none."""
        return next(iter(sample.batch_sizes(self.sides[0].pipeline)), 1)

    @property
    def keeps_remainders(self) -> bool:
        """Whether rows that `drop_remainder` drops are compared, too: in another order, these are others.

        Not where something behind the batches may need full ones, or where another number of epochs is in a batch.
        """
        behind = [
            [below.op for below in side.pipeline.downstream(node.id)]
            for side in self.sides
            for node in side.pipeline
            if node.op in sample.BATCHING and node.argument("drop_remainder")
        ]
        repeats = {ops.count("repeat") for ops in behind}
        return self.safety == Safety.REORDERS and len(repeats) == 1 and _PASSING_ON.issuperset(itertools.chain(*behind))

    @property
    def dropped_rows(self) -> int:
        """How many rows `drop_remainder` drops in an epoch, at most: others in another order; 0 if none are dropped."""
        if self.keeps_remainders:
            return 0
        pipeline, served = self.sides[0].pipeline, self.sample_size
        sizes = sample.batch_sizes(node for node in pipeline if node.argument("drop_remainder"))
        counted = len(self.recordings) == 1 and len(sizes) == len(sample.batch_sizes(pipeline)) == 1
        for name in self.recordings if counted else ():
            between = itertools.takewhile(lambda node: node.op not in sample.BATCHING, pipeline.downstream(name))
            kinds = {node.op for node in between if operator_facts(node.op).count is not CountEffect.ONE_TO_ONE}
            rest = (served if self._exact_count else self._with_last_batch(served)) % sizes[0]
            if not kinds or (kinds == {"repeat"} and not rest):
                return rest
        return sum(size - 1 for size in sizes)

    def last_batches(self) -> dict[int, int]:
        """Returns, for each number of rows to test in a last batch, how many elements of the sample lead to it."""
        starts = [name for name in self.recordings if not self._needs_few_elements(name)]
        if len(starts) != 1:
            return {}
        rests = (1, 2, *((3,) if self.recordings[starts[0]].generated else ()), self.batch_size - 1)
        available = len(self.recordings[starts[0]])
        return sample.counts_for_last_batch(self.sides[0].pipeline, starts[0], rests, available=available)

    @property
    def out_of_time(self) -> bool:
        """Whether fewer elements than wanted were recorded, because the time was over."""
        return any(recording.out_of_time for recording in self.recordings.values())

    @property
    def shortage(self) -> str:
        """Why the sample is too short to show what the pipelines yield; empty if it is long enough."""
        for name, recording in self.recordings.items():
            needed = sample.elements_for_two_windows(self.sides[0].live, self.sides[0].pipeline, name)
            if len(recording) < needed and not recording.complete:
                of = f"{len(recording):,} elements of {self.sides[0].pipeline[name].title}"
                return f"the sample has {of}, but two windows need {needed:,}"
        return ""

    def for_region(self, region: ChangedRegion) -> PairedRuns:
        """Returns paired runs of only the region in which the pipelines differ; provide elements by `use_elements`."""
        folder = f"{self._folder}/region"
        limits = ComparisonLimits(1, self._seconds, self.seed)
        inner = PairedRuns(region.sides, self.datasets, self.safety, limits, folder)
        inner._start = self._start
        return inner

    def use_elements(self, name: str, recording: sharing.RecordedElements) -> None:
        """Uses these elements in place of the output of an operator that both pipelines have."""
        self.recordings = {name: recording}
        self._built.clear()

    @contextmanager
    def exact_sample(self, count: int) -> Iterator[None]:
        """Context manager: while open, the sample has exactly `count` elements."""
        before = self.count, self._exact_count
        self.count, self._exact_count = count, True
        try:
            yield
        finally:
            self.count, self._exact_count = before

    def time_at(self, share: float) -> float:
        """Returns the time (`time.monotonic`) at which this share of the time limit is used up."""
        return self._start + share * self._seconds

    @property
    def elapsed(self) -> float:
        """The share of the time limit that is used up."""
        return (time.monotonic() - self._start) / self._seconds

    def _build(self, passes: Sequence[sharing.PassCounter], *, copies: bool) -> tuple[Any, Any]:
        sources = [(name, one, self._selection(name, one, copies=copies)) for name, one in self.recordings.items()]
        if copies:
            sizes = sample.batch_sizes(self.sides[0].pipeline)
            parts = math.prod(sizes) if self._drops_remainders else 1  # all words in a batch of blocks of them
            count = max(self.copy_count, min(parts + parts // 4, _MAX_COPIES))
            sources += [(name, one, sharing.copies_of(0, count)) for name, one in self._recorded_downstream(count)]
        given, given_other = (
            {name: sharing.serve(one, counter, chosen) for name, one, chosen in sources} for counter in passes
        )
        cut = self.copy_count if copies else self.count
        cuts = {name: cut * sharing.draws_per_element(self.sides[0].pipeline, name) for name in self._cut_points}
        numbers, rows = self._gathered_rows(copies=copies)
        one, other = ({node.id for node in side.pipeline if node.op == "assert_cardinality"} for side in self.sides)
        try:
            original = _built(self.sides[0], given, cuts, one & other)
            return original, _built(self.sides[1], {**given_other, **numbers}, cuts, one & other, rows)
        except CannotReplay as error:
            if copies:
                raise CannotCompare(f"an operator cannot be rebuilt on another source: {error.message}") from error
            self.recordings.clear()
            self.notes.append(
                "An operator cannot be rebuilt, so the pipelines are compared as a whole, from their sources."
            )
            return self.datasets

    def _selection(self, name: str, recording: sharing.RecordedElements, *, copies: bool) -> sharing.Selection:
        """Returns which of the recorded elements are served."""
        few = self._needs_few_elements(name)
        if copies:
            return sharing.copies_of(self.copied, self.expanding_elements if few else self.copy_count)
        if few:
            return sharing.evenly_spaced(self.expanding_elements)
        count = min(len(recording), self.count)
        count = count if self._exact_count else self._with_last_batch(count)
        # Of the data, from start to end: a sample may be longer than what is served, or have become too long.
        return sharing.first_elements(count) if recording.generated else sharing.evenly_spaced(count)

    def _with_last_batch(self, count: int) -> int:
        """Returns the largest number of elements up to `count` whose last batch is as the comparison needs it."""
        return sample.count_with_partial_batch(self.sides[0].pipeline, count, full=self.whole_epochs)

    def _recorded_downstream(self, count: int) -> Iterator[tuple[str, sharing.RecordedElements]]:
        """Yields one element, to be copied, of each operator upstream of all draws: only these tell copies apart."""
        for name in sharing.expanded_without_draws(*self.sides):
            first = sharing.record(
                self.sides[0].live.datasets[name].take(1), count=1, deadline=self.time_at(1.2), max_bytes=1
            )
            if len(first):
                small = count * elements.element_bytes(first.passes[0][0]) <= _MAX_GRAPH_BYTES
                yield name, sharing.stacked(first) if small else first

    def _gathered_rows(self, *, copies: bool) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Returns datasets of the indices, and of the served rows, for arrays whose rows the candidate gathers.

        The candidate gathers its rows from these arrays, so gathering and reading in order are compared.
        """
        numbers, rows = {}, {}
        for name, windows in sharing.gathered_arrays(*self.sides).items():
            if name in self.recordings:
                recording = self.recordings[name]
                chosen = self._selection(name, recording, copies=copies)
                positions = [recording.positions[index] for index in chosen(len(recording.positions))]
                rows[name] = self._rows_of(name, positions)
                starts = windows.window_starts(len(positions)) if windows is not None else range(len(positions))
                numbers[name] = tf.data.Dataset.range(starts.start, starts.stop, starts.step)
        return numbers, rows

    def _rows_of(self, name: str, positions: list[int]) -> Any:
        """Returns a dataset of only these rows, to gather from."""
        recording = self.recordings[name]
        if not recording.generated:
            return gathering.rows_at(self.sides[0].live.datasets[name], positions)
        return tf.data.Dataset.from_tensor_slices(
            tf.nest.map_structure(lambda rows: tf.gather(rows, positions), recording.rows)
        )

    def _needs_few_elements(self, name: str) -> bool:
        """Whether few elements must suffice, because each one expands and the result cannot be cut downstream."""
        if self.whole_epochs and sharing.expanding_downstream(self.sides[0].pipeline, name):
            return True
        return any(
            sharing.is_cached_upstream(side.pipeline, node.id)
            for side in self.sides
            for node in sharing.expanding_downstream(side.pipeline, name)
        )


def _built(
    side: ComparedPipeline,
    replacements: Mapping[str, Any],
    cuts: Mapping[str, int],
    asserted: Set[str],
    rows: Mapping[str, Any] | None = None,
) -> Any:
    """Returns the dataset of a side, with recorded elements in place of some operators and `take` after others.

    Args:
        replacements: operator id -> dataset to use in its place.
        cuts: operator id -> number of elements to take after it.
        asserted: ids of the cardinality assertions that both sides have; on a sample they would raise, and are removed.
        rows: source id -> dataset of arrays to gather rows from, in place of that source.

    Raises:
        CannotReplay: an operator downstream of a change cannot be rebuilt.
    """
    edits: list[Edit] = [
        Insert(after=name, op="take", id=f"cut@{name}", arguments={"count": count})
        for name, count in cuts.items()
        if name not in replacements
    ]
    if replacements or cuts:
        edits += [Remove(name) for name in asserted - replacements.keys() - cuts.keys()]
    source = replace(side.live, datasets={**side.live.datasets, **(rows or {})})
    return replay(source, apply_edits(side.pipeline, edits), replacements=replacements)


def _raises(dataset: Any, *, deadline: float) -> bool:
    """Whether reading the dataset raises an exception before the deadline."""
    try:
        for _ in dataset:
            if time.monotonic() > deadline:
                return False
    except Exception:  # a function of the user may raise anything
        return True
    return False


def _may_share_state(pipeline: Pipeline) -> bool:
    """Whether two runs of a pipeline may influence each other: it runs Python, or changes variables or tables."""
    return any(
        node.op in ("from_generator", "opaque")
        or (node.function is not None and (node.function.python or node.function.may_change_state))
        for node in pipeline
    )


def _python_calls(pipeline: Pipeline) -> list[tuple[object, ...]]:
    """Returns the operators whose functions run Python, in order, with what decides the order of their calls."""
    return [
        (node.id, node.op, node.argument("num_parallel_calls"), node.argument("deterministic"))
        for node in pipeline
        if node.function is not None and node.function.python
    ]


def _serialize(dataset: Any, passes: sharing.PassCounter) -> SerializedPipeline:
    try:
        return SerializedPipeline(tensorflow_private.serialized_graph(dataset), dataset.element_spec, passes)
    except Exception as error:  # TensorFlow raises many kinds; nothing but its serializer runs here
        reason = str(error).strip().splitlines() or [""]
        raise CannotCompare(f"the pipeline cannot be serialized: {reason[0]}"[:300]) from error

"""Bytes that a pipeline holds while it runs and what an edit adds; the share of padding in its batches."""

from __future__ import annotations

import bisect
import itertools
import math
import statistics
from collections.abc import Iterable, Sequence

from scipy import special

from pipetune.core import element_counts
from pipetune.core.element_counts import integer_or
from pipetune.core.measurement import Interval
from pipetune.core.pipeline import AUTOTUNE, INFINITE, Node, Pipeline
from pipetune.core.profile import MemoryGrowth, Profile
from pipetune.model.segments import parallel_calls

AUTOTUNE_PREFETCH_ELEMENTS = 8
"""Assumed final size of an autotuned prefetch buffer: it doubles as long as the consumer finds it empty."""

READER_BYTES = 256 * 1024
"""The buffer of one open file reader (TFRecordDataset's default)."""

DEFAULT_CYCLE_LENGTH = 16
"""Most readers of an interleave whose cycle length is AUTOTUNE."""


def buffered_bytes(pipeline: Pipeline, node: Node, profile: Profile, *, cores: float = 1.0) -> float:
    """Returns the most bytes that operator `node` buffers, in addition to the element it works on.

    A prefetch and a shuffle hold their buffer (a shuffle at most all elements), parallel calls the results in flight,
    a reader of several files its open readers with what they read ahead, an in-memory cache everything.

    Args:
        pipeline: the pipeline that contains `node`.
        node: the operator.
        profile: measurements of the original pipeline.
        cores: cores available to the process, which AUTOTUNE may use.
    """
    out = element_counts.element_bytes(pipeline, profile, node.id) or 0.0
    match node.op:
        case "prefetch":
            size = integer_or(node.argument("buffer_size"), AUTOTUNE)
            return (AUTOTUNE_PREFETCH_ELEMENTS if size == AUTOTUNE else size) * out
        case "shuffle":
            count = _elements(pipeline, node, profile)
            size = integer_or(node.argument("buffer_size"), 0)
            return (min(size, count) if count is not None else size) * out
        case "cache":
            if node.argument("filename"):
                return 0.0
            return (_elements(pipeline, node, profile) or 0) * out
        case "flat_map":
            return READER_BYTES
        case "interleave" | "parallel_interleave":
            cycle = integer_or(node.argument("cycle_length"), AUTOTUNE)
            ahead = parallel_calls(node, cores) > 0 or node.op == "parallel_interleave"
            files = _elements(pipeline, pipeline[node.inputs[0]], profile)
            count, block = _elements(pipeline, node, profile), integer_or(node.argument("block_length"), 1)
            return _bytes_of_readers(cycle, out, ahead=ahead, files=files, count=count, block=block)
        case _ if (reads := node.argument("num_parallel_reads")) is not None:
            files = integer_or(node.argument("files"), 0) or None
            return _bytes_of_readers(
                integer_or(reads, AUTOTUNE), out, files=files, count=_elements(pipeline, node, profile)
            )
        case "map":
            return parallel_calls(node, cores) * out
        case "batch" | "padded_batch" | "ragged_batch":
            return (1 + parallel_calls(node, cores)) * out
        case _:
            return 0.0


def _bytes_of_readers(
    cycle: int, out: float, *, files: int | None, count: int | None, block: int = 1, ahead: bool = True
) -> float:
    """Returns the most bytes that readers of several files buffer.

    With parallel calls twice as many as the cycle are opened in advance, and each buffers two blocks besides the
    element it works on (TensorFlow's parallel_interleave_dataset_op.cc).
    """
    readers = (DEFAULT_CYCLE_LENGTH if cycle <= 0 else cycle) * (3 if ahead else 1)
    readers = readers if files is None else min(readers, files)
    held = readers * (2 * max(1, block) + 1) if ahead else 0
    return readers * READER_BYTES + (held if count is None else min(held, count)) * out


def by_operator(pipeline: Pipeline, profile: Profile, *, cores: float = 1.0) -> dict[str, float]:
    """Returns the buffered bytes of every operator, by node id."""
    return {node.id: buffered_bytes(pipeline, node, profile, cores=cores) for node in pipeline}


def predicted_peak_bytes(pipeline: Pipeline, profile: Profile, *, cores: float = 1.0) -> float:
    """Returns the predicted peak memory of the pipeline: bytes above the level before the first element.

    In-memory sources are part of the process already and do not count.
    """
    return sum(by_operator(pipeline, profile, cores=cores).values())


def expected_peak_bytes(original: Pipeline, edited: Pipeline, profile: Profile, *, cores: float = 1.0) -> float:
    """Returns the expected peak bytes of `edited`: the measured peak of `original` plus what the edits add.

    The measured peak includes memory that no buffer explains: scratch memory of kernels, memory that the allocator
    retains for each thread. Without a measured peak it is the buffers alone; it is never less than the buffers.

    Args:
        original: the pipeline that was measured.
        edited: the same with edits applied.
        profile: measurements of `original`.
        cores: cores available to the process, which AUTOTUNE may use.
    """
    buffers = predicted_peak_bytes(edited, profile, cores=cores)
    if profile.peak_rss_mib is None:
        return buffers
    added = added_bytes(original, edited, profile, cores=cores)
    return max(buffers, profile.peak_rss_mib * 2**20 + added)


def added_bytes(original: Pipeline, edited: Pipeline, profile: Profile, *, cores: float = 1.0) -> float:
    """Returns the predicted peak bytes that `edited` needs in addition to `original`; negative if it needs less.

    Args: as for `expected_peak_bytes`.
    """
    before = predicted_peak_bytes(original, profile, cores=cores)
    return predicted_peak_bytes(edited, profile, cores=cores) - before


def _elements(pipeline: Pipeline, node: Node, profile: Profile) -> int | None:
    """The most elements that pass through `node` in an epoch; None if unknown or infinite."""
    count = element_counts.max_elements(pipeline, profile, node.id)
    return None if count == INFINITE else count


FEWEST_READINGS = 9
"""By judgement: 9 readings give 8 slopes, two in each third that is compared; fewer make the interval too wide."""

SIGNIFICANT_BYTES = 8 * 2**20
"""Less total growth than this cannot be distinguished from memory that an allocator retains."""

_STEADY_SHARE = 0.5  # steady: in the last third, growth is at least this share of that in the first third
_ERROR = 0.01  # two-sided: many pipelines are watched


def growth(readings: Sequence[tuple[int, float]], *, epoch_elements: int | None = None) -> MemoryGrowth | None:
    """Returns the slope of the resident size over elements taken; None for fewer than `FEWEST_READINGS` readings.

    Args:
        readings: (elements taken so far, resident bytes), in the order taken, with increasing elements.
        epoch_elements: elements of the output in an epoch; None if unknown.
    """
    pairs = itertools.pairwise(readings)
    steps = [(size - before) / (end - start) for (start, before), (end, size) in pairs if end > start]
    if len(steps) < FEWEST_READINGS - 1:
        return None
    mean = statistics.fmean(steps)
    error = statistics.stdev(steps) / math.sqrt(len(steps))
    reach = float(special.stdtrit(len(steps) - 1, 1 - _ERROR / 2)) * error
    grown = readings[-1][1] - readings[0][1]
    third = len(steps) // 3
    first, last = statistics.fmean(steps[:third]), statistics.fmean(steps[-third:])
    method = f"t on steps, {100 * (1 - _ERROR):.4g} %"
    return MemoryGrowth(
        bytes_per_element=Interval(mean, mean - reach, mean + reach, len(steps), method),
        elements=readings[-1][0] - readings[0][0],
        grown_bytes=grown,
        steady=mean - reach > 0 and grown >= SIGNIFICANT_BYTES and last >= _STEADY_SHARE * first > 0,
        epoch_elements=epoch_elements,
    )


Shapes = Sequence[tuple[int, ...]]
"""The shapes of those components of one element whose size varies."""

MOST_BUCKETS = 8  # by judgement: more leave more incomplete batches; fewer leave more padding
BATCHES_PER_BUCKET = 10
"""Fewest batches of a bucket in an epoch: its last batch is not full, and few batches vary little in their order."""

_SHARE_TOLERANCE = 0.02  # share of padding; below this difference, fewer buckets are as good


def padded_share(elements: Sequence[Shapes], item_bytes: Sequence[int], batches: Iterable[Sequence[int]]) -> float:
    """Returns the share of padding in the bytes of these batches; each element of a batch is padded to the largest.

    Args:
        elements: the shapes of each element.
        item_bytes: bytes of one value of each component.
        batches: the positions of the elements of each batch.
    """
    filled = padded = 0
    for batch in batches:
        for component, size in enumerate(item_bytes):
            shapes = [elements[position][component] for position in batch]
            widest = [max(dimension) for dimension in zip(*shapes, strict=True)]
            filled += size * sum(math.prod(shape) for shape in shapes)
            padded += size * len(batch) * math.prod(widest)
    return 1 - filled / padded if padded else 0.0


def sequential_batches(count: int, batch_size: int) -> list[range]:
    """Returns the full batches of `count` elements in their order."""
    return [range(start, start + batch_size) for start in range(0, count - batch_size + 1, batch_size)]


def bucketed_batches(lengths: Sequence[int], boundaries: Sequence[int], batch_size: int) -> list[list[int]]:
    """Returns the full batches that `bucket_by_sequence_length` makes of elements with these lengths.

    Bucket 0 is below the first boundary; an element as long as a boundary is in the bucket that begins there.
    """
    waiting: list[list[int]] = [[] for _ in range(len(boundaries) + 1)]
    batches = []
    for position, length in enumerate(lengths):
        bucket = bisect.bisect_right(boundaries, length)
        waiting[bucket].append(position)
        if len(waiting[bucket]) == batch_size:
            batches.append(waiting[bucket])
            waiting[bucket] = []
    return batches


def quantile_boundaries(lengths: Sequence[int], buckets: int) -> tuple[int, ...]:
    """Returns the boundaries of `buckets` buckets of about equally many elements; fewer if many lengths are equal."""
    ordered = sorted(lengths)
    cuts = {ordered[len(ordered) * number // buckets] for number in range(1, buckets)}
    return tuple(sorted(cut for cut in cuts if cut > ordered[0]))


def best_buckets(
    elements: Sequence[Shapes], lengths: Sequence[int], item_bytes: Sequence[int], *, batch_size: int, bucket_limit: int
) -> tuple[tuple[int, ...], float]:
    """Returns the boundaries of the fewest buckets about as good as `bucket_limit` of them, and the padding share.

    There are no boundaries if no bucket of the sample fills a batch, or all lengths are equal.

    Args:
        elements: the shapes of each element of the sample.
        lengths: the length of each element.
        item_bytes: bytes of one value of each component.
        batch_size: elements in a batch.
        bucket_limit: highest number of buckets.
    """
    found: list[tuple[tuple[int, ...], float]] = []
    for buckets in range(2, bucket_limit + 1):
        boundaries = quantile_boundaries(lengths, buckets)
        batches = bucketed_batches(lengths, boundaries, batch_size)
        if boundaries and batches:
            found.append((boundaries, padded_share(elements, item_bytes, batches)))
    if not found:
        return (), 0.0
    least = min(share for _, share in found)
    return next(one for one in found if one[1] <= least + _SHARE_TOLERANCE)


def max_buckets(elements_per_epoch: int, batch_size: int) -> int:
    """Returns the most buckets that get enough batches in an epoch; a negative epoch size means infinite or unknown."""
    if elements_per_epoch < 0:
        return MOST_BUCKETS
    return min(MOST_BUCKETS, elements_per_epoch // (batch_size * BATCHES_PER_BUCKET))

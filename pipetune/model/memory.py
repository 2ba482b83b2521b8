"""Bytes a pipeline holds while it runs, operator by operator, and what an edit adds."""

from __future__ import annotations

from pipetune.core import amounts
from pipetune.core.amounts import whole
from pipetune.core.operators import facts
from pipetune.core.pipeline import AUTOTUNE, INFINITE, Node, Pipeline
from pipetune.core.profile import Profile

AUTOTUNE_PREFETCH_ELEMENTS = 8
"""Assumed final size of an autotuned prefetch buffer: it doubles as long as the consumer finds it empty."""

READER_BYTES = 256 * 1024
"""The buffer of one open file reader (TFRecordDataset's default)."""

DEFAULT_CYCLE_LENGTH = 16
"""Most readers of an interleave whose cycle length is AUTOTUNE."""


def element_bytes(pipeline: Pipeline, node_id: str, profile: Profile) -> float:
    """Bytes of one output element of `node_id`; 0 if unknown."""
    return amounts.element_bytes(pipeline, profile, node_id) or 0.0


def buffered_bytes(pipeline: Pipeline, node: Node, profile: Profile, *, cores: float = 1.0) -> float:
    """The most bytes that operator `node` buffers, in addition to the element it works on.

    A prefetch and a shuffle hold their buffer (a shuffle at most all elements), parallel calls the results in flight,
    an interleave its open readers, an in-memory cache everything.
    """
    out = element_bytes(pipeline, node.id, profile)
    match node.op:
        case "prefetch":
            size = whole(node.argument("buffer_size"), AUTOTUNE)
            return (AUTOTUNE_PREFETCH_ELEMENTS if size == AUTOTUNE else size) * out
        case "shuffle":
            count = _elements(pipeline, node, profile)
            size = whole(node.argument("buffer_size"), 0)
            return (min(size, count) if count is not None else size) * out
        case "cache":
            if node.argument("filename"):
                return 0.0
            count = _elements(pipeline, node, profile)
            return 0.0 if count is None else count * out
        case "interleave" | "flat_map":
            calls = _calls(node, cores)
            cycle = whole(node.argument("cycle_length"), AUTOTUNE) if node.op == "interleave" else 1
            readers = DEFAULT_CYCLE_LENGTH if cycle <= 0 else cycle
            return readers * READER_BYTES + (2 * readers * out if calls else 0.0)
        case "map":
            return _calls(node, cores) * out
        case "batch" | "padded_batch" | "ragged_batch":
            return (1 + _calls(node, cores)) * out
        case _:
            return 0.0


def by_operator(pipeline: Pipeline, profile: Profile, *, cores: float = 1.0) -> dict[str, float]:
    """Buffered bytes of every operator, by node id."""
    return {node.id: buffered_bytes(pipeline, node, profile, cores=cores) for node in pipeline}


def predicted_peak_bytes(pipeline: Pipeline, profile: Profile, *, cores: float = 1.0) -> float:
    """Predicted peak memory of the pipeline, in bytes above the level of the process before the first element.

    In-memory sources are part of the process already and do not count.
    """
    return sum(by_operator(pipeline, profile, cores=cores).values())


def expected_peak_bytes(
    original: Pipeline, edited: Pipeline, profile: Profile, *, cores: float = 1.0
) -> float:
    """Expected peak memory of `edited` in bytes: the measured peak of `original` plus what the edits add.

    The measured peak includes memory that no buffer explains: scratch memory of kernels, memory that the allocator
    retains for each thread. Without a measured peak it is the buffers alone; it is never less than the buffers.
    """
    buffers = predicted_peak_bytes(edited, profile, cores=cores)
    if profile.peak_rss_mib is None:
        return buffers
    added = added_bytes(original, edited, profile, cores=cores)
    return max(buffers, profile.peak_rss_mib * 2**20 + added)


def added_bytes(original: Pipeline, edited: Pipeline, profile: Profile, *, cores: float = 1.0) -> float:
    """Predicted peak bytes that `edited` needs in addition to `original`; negative if it needs less."""
    before = predicted_peak_bytes(original, profile, cores=cores)
    return predicted_peak_bytes(edited, profile, cores=cores) - before


def _calls(node: Node, cores: float) -> float:
    """Parallel calls in flight; 0 for a serial operator."""
    value = node.argument(facts(node.op).parallel_argument or "num_parallel_calls")
    if value is None:
        return 0.0
    return max(1.0, cores) if value == AUTOTUNE or not isinstance(value, int) else float(value)


def _elements(pipeline: Pipeline, node: Node, profile: Profile) -> int | None:
    """The most elements that pass through `node` in an epoch; None if unknown or infinite."""
    count = amounts.elements_at_most(pipeline, profile, node.id)
    return None if count == INFINITE else count

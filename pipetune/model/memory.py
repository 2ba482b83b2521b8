"""Bytes a pipeline holds while it runs, operator by operator, and what an edit adds."""

from __future__ import annotations

from pipetune.core import amounts
from pipetune.core.amounts import whole
from pipetune.core.operators import facts
from pipetune.core.pipeline import AUTOTUNE, INFINITE, Node, Pipeline
from pipetune.core.profile import Profile

AUTOTUNE_PREFETCH_ELEMENTS = 8
"""What an autotuned prefetch is taken to grow to: it doubles from its start while the consumer finds it
empty.
"""

READER_BYTES = 256 * 1024
"""The buffer of one open file reader (TFRecordDataset's default)."""

DEFAULT_CYCLE_LENGTH = 16
"""Readers of an interleave whose cycle length is AUTOTUNE, at most."""


def element_bytes(pipeline: Pipeline, node_id: str, profile: Profile) -> float:
    """Bytes of one element that `node_id` puts out; 0 where nothing is known."""
    return amounts.element_bytes(pipeline, profile, node_id) or 0.0


def buffered_bytes(pipeline: Pipeline, node: Node, profile: Profile, *, cores: float = 1.0) -> float:
    """Bytes operator `node` holds at most, on top of the element it works on.

    A prefetch and a shuffle hold their buffer (a shuffle no more elements than there are), parallel calls the
    results in flight, an interleave its open readers, a cache everything.
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
    """Bytes the pipeline holds at its peak, above the process's level before its first element.

    In-memory sources are in the process already and do not count.
    """
    return sum(by_operator(pipeline, profile, cores=cores).values())


def expected_peak_bytes(
    original: Pipeline, edited: Pipeline, profile: Profile, *, cores: float = 1.0
) -> float:
    """Bytes `edited` is expected to hold at its peak: what `original` was measured at, and what the edits add.

    The measured peak has in it what no buffer explains: scratch memory of kernels, what the allocator keeps for each
    thread. Without it the buffers alone are expected; never less than they hold.
    """
    buffers = predicted_peak_bytes(edited, profile, cores=cores)
    if profile.peak_rss_mib is None:
        return buffers
    added = added_bytes(original, edited, profile, cores=cores)
    return max(buffers, profile.peak_rss_mib * 2**20 + added)


def added_bytes(original: Pipeline, edited: Pipeline, profile: Profile, *, cores: float = 1.0) -> float:
    """Peak bytes `edited` needs above `original`; negative where it needs less."""
    before = predicted_peak_bytes(original, profile, cores=cores)
    return predicted_peak_bytes(edited, profile, cores=cores) - before


def _calls(node: Node, cores: float) -> float:
    """Parallel calls in flight; 0 for a serial operator."""
    value = node.argument(facts(node.op).parallel_argument or "num_parallel_calls")
    if value is None:
        return 0.0
    return max(1.0, cores) if value == AUTOTUNE or not isinstance(value, int) else float(value)


def _elements(pipeline: Pipeline, node: Node, profile: Profile) -> int | None:
    """Elements that pass `node` in an epoch, at most; None where unknown or infinite."""
    count = amounts.elements_at_most(pipeline, profile, node.id)
    return None if count == INFINITE else count

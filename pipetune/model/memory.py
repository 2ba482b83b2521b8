"""Bytes a pipeline holds while it runs, operator by operator, and what an edit adds."""

from __future__ import annotations

from collections.abc import Mapping

from pipetune.core.editing import ROW_NUMBER_BYTES
from pipetune.core.operators import facts
from pipetune.core.pipeline import AUTOTUNE, Node, Pipeline
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
    """Bytes of one element that `node_id` puts out: measured, else static, else those of what it hands on.

    0 where nothing is known.
    """
    node = pipeline[node_id]
    if node_id in pipeline.numbered:
        return ROW_NUMBER_BYTES * (_whole(node, "batch_size", 1) if facts(node.op).batches else 1)
    measured = profile.operator(node_id)
    if measured is not None and measured.bytes_out is not None:
        return measured.bytes_out
    if node.element_bytes is not None:
        return node.element_bytes
    if node_id == pipeline.output.id and profile.element_bytes is not None:
        return profile.element_bytes
    if node.inputs and facts(node.op).same_elements:
        return element_bytes(pipeline, node.inputs[0], profile)
    return 0.0


def buffered_bytes(pipeline: Pipeline, node: Node, profile: Profile, *, cores: float = 1.0) -> float:
    """Bytes operator `node` holds at most, on top of the element it works on.

    A prefetch and a shuffle hold their buffer (a shuffle no more elements than there are), parallel calls the
    results in flight, an interleave its open readers, a cache everything.
    """
    out = element_bytes(pipeline, node.id, profile)
    match node.op:
        case "prefetch":
            size = _whole(node, "buffer_size", AUTOTUNE)
            return (AUTOTUNE_PREFETCH_ELEMENTS if size == AUTOTUNE else size) * out
        case "shuffle":
            count = _elements_above(pipeline, node, profile)
            size = _whole(node, "buffer_size", 0)
            return (min(size, count) if count is not None else size) * out
        case "cache":
            if node.argument("filename"):
                return 0.0
            count = _elements_above(pipeline, node, profile)
            return 0.0 if count is None else count * out
        case "interleave" | "flat_map":
            calls = _calls(node, cores)
            cycle = _whole(node, "cycle_length", AUTOTUNE) if node.op == "interleave" else 1
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


def _whole(node: Node, name: str, default: int) -> int:
    value = node.argument(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _calls(node: Node, cores: float) -> float:
    """Parallel calls in flight; 0 for a serial operator."""
    value = node.argument(facts(node.op).parallel_argument or "num_parallel_calls")
    if value is None:
        return 0.0
    return max(1.0, cores) if value == AUTOTUNE or not isinstance(value, int) else float(value)


def _elements_above(pipeline: Pipeline, node: Node, profile: Profile) -> int | None:
    """Elements that arrive at `node` in an epoch; None where unknown or infinite."""
    counted: Mapping[str, int] = profile.cardinality or {}
    names = [node.id]
    while (
        pipeline[names[-1]].inputs
        and facts(pipeline[names[-1]].op).same_elements
        and (pipeline[names[-1]].op in ("prefetch", "cache", "shuffle", "with_options"))
    ):
        names.append(pipeline[names[-1]].inputs[0])
    for name in names:
        count = counted.get(name, pipeline[name].cardinality)
        if count >= 0:
            return count
    return None

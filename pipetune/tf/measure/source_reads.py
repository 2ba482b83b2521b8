"""Runs a pipeline's own source, without anything downstream of it, with several readers at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from pipetune.core.pipeline import Node
from pipetune.core.profile import OperatorProfile
from pipetune.core.storage import Reader, Sweep
from pipetune.tf import private
from pipetune.tf.measure import windows
from pipetune.tf.measure.sweep import LEVELS, Rates, sweep
from pipetune.tf.pipelines import live

REPLAYS = True  # datasets built in calls from this module are pipetune's, not the user's

_READERS = ("TFRecord", "TextLine", "FixedLength", "CSV", "Snapshot")  # prefixes of kernel names: V2 may follow
SLOW_SECONDS = 0.002
"""Seconds per element above which a source waits for something: its sweep needs more time and can gain more."""

_LONGEST_WARM_UP = 1.5  # seconds
_FEWEST_ELEMENTS = 8  # per window, with one reader
_COUNTED_SECONDS = 0.01  # elements that arrive in this time are counted together, inside TensorFlow


def source_of(source: live.LivePipeline) -> Node | None:
    """Returns the operator that reads, if its number of readers can be changed; None if there is none.

    That is the first interleave or flat_map that opens readers, or a TFRecordDataset.
    """
    return next((node for node in source.pipeline if node.op == "TFRecordDataset" or opens_readers(node)), None)


def opens_readers(node: Node) -> bool:
    """Whether the function of this interleave or flat_map opens something that reads: files or a generator."""
    if node.op not in ("interleave", "flat_map") or not node.inner:
        return False
    function = node.function
    inside = function is not None and (function.reads_files or function.python)
    return inside or any(kind.startswith(_READERS) for kind in node.inner)


def sweep_source(
    source: live.LivePipeline,
    node: Node,
    costs: OperatorProfile | None,
    *,
    limit_seconds: float,
    seed: int = 0,
    before: Callable[[], None] | None = None,
) -> Sweep | None:
    """Measures the rate of `node` (see `source_of`) with 1 to 32 readers, but no more than there are files.

    The function that opens a reader is the one already traced; it is not called again. None if the source raised.

    Args:
        source: the live pipeline.
        node: the operator that reads.
        costs: profile of `node`: its bytes per element, and its time, by which elements are counted together.
        limit_seconds, seed, before: as in `sweep`.
    """
    files = readers(source, node)
    levels = [level for level in LEVELS if files is None or level < files]
    if files is not None and files <= LEVELS[-1]:
        levels.append(files)
    size = (costs.bytes_out if costs else None) or 0.0
    each = (costs.wall_seconds if costs else None) or 0.0
    at_once = max(1, int(_COUNTED_SECONDS / each)) if each else 1

    def window(parallel: int, seconds: float) -> Rates:
        seconds = max(seconds, _FEWEST_ELEMENTS * each)
        dataset = with_readers(source, node, parallel)
        # A source that waits delivers in bursts until all readers are open and out of phase.
        warm_up = (4 * parallel, _LONGEST_WARM_UP) if each > SLOW_SECONDS else (2 * parallel, seconds)
        rate = _elements_per_second(dataset, seconds, at_once=at_once, warm_up=warm_up)
        return Rates(bytes=rate * size, elements=rate)

    try:
        return sweep(
            Reader.SOURCE,
            window,
            levels=levels,
            limit_seconds=limit_seconds,
            most_rounds=2 if each > SLOW_SECONDS else 4,
            seed=seed,
            before=before,
            node=node.id,
        )
    except (tf.errors.OpError, ValueError, TypeError, StopIteration):
        return None


def readers(source: live.LivePipeline, node: Node) -> int | None:
    """Returns the most readers that can run at once, which is the number of files; None if unknown."""
    if node.op == "TFRecordDataset":
        count = int(source.datasets[node.id]._filenames.cardinality())
    else:
        count = source.pipeline[node.inputs[0]].cardinality
    return count if count >= 1 else None


def with_readers(source: live.LivePipeline, node: Node, parallel: int) -> Any:
    """An endless dataset of the elements of `node`, with `parallel` readers open and reading at once."""
    original = source.datasets[node.id]
    if node.op == "TFRecordDataset":
        return type(original)(
            original._filenames.repeat(), original._compression_type, num_parallel_reads=parallel
        )
    with private.reusing_traced_functions():
        return source.datasets[node.inputs[0]].repeat().interleave(
            original._map_func, cycle_length=parallel, num_parallel_calls=parallel, deterministic=False
        )


def _elements_per_second(dataset: Any, seconds: float, *, at_once: int, warm_up: tuple[int, float]) -> float:
    """Elements per second after the first elements, which arrive while the readers are being opened.

    `warm_up`: the number of these first elements, and the most seconds to wait for them.
    """
    first, longest = warm_up
    counted = windows.undisturbed(dataset.map(lambda *_: tf.constant(1, tf.int64)).batch(at_once))
    iterator: Any = iter(counted)
    try:
        taken, started = 0, time.perf_counter()
        while taken == 0 or (taken < first and time.perf_counter() < started + longest):
            taken += int(next(iterator).shape[0])
        taken, started = 0, time.perf_counter()
        while taken == 0 or time.perf_counter() < started + seconds:
            taken += int(next(iterator).shape[0])
        return taken / (time.perf_counter() - started)
    finally:
        del iterator
        windows.settle()

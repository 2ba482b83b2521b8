"""Predicts how many elements per second a pipeline can deliver, and what bounds it."""

from __future__ import annotations

import enum
from collections import defaultdict
from dataclasses import dataclass

from pipetune.core.functions import GRAPH_EDITS
from pipetune.core.machine import IDEAL
from pipetune.core.operators import operator_facts
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.profile import OperatorProfile, Profile
from pipetune.core.results import Prediction
from pipetune.model.segments import (
    RUNTIME,
    Segment,
    operator_cost,
    remaining_cost_share,
    split_into_segments,
    upstream_of_cache,
    visits,
)


def no_prediction_reason(pipeline: Pipeline, profile: Profile) -> str:
    """Returns why the rate of this pipeline cannot be predicted, as the end of a sentence; empty if it can.

    Operators upstream of a cache do not count: they do not run in the epochs after the first.
    """
    still = upstream_of_cache(pipeline) | pipeline.row_index_operators
    for node in pipeline:
        if node.id not in still and (
            reason := _reason(node, operator_cost(node, pipeline, profile)) or _remote_storage_reason(node, profile)
        ):
            return reason
    return ""


def _remote_storage_reason(node: Node, profile: Profile) -> str:
    schemes = profile.files.remote if profile.files is not None else ()
    if not schemes or node.inputs:
        return ""
    return f"files come from remote storage ({schemes[0]}://), whose speed changes from one moment to the next"


def _reason(node: Node, measured: OperatorProfile | None) -> str:
    if node.op == "opaque":
        return f"pipetune does not know the operator {node.title}"
    function = node.function
    if node.runs_python:
        return f"{node.title} runs Python code, which takes turns with the training loop"
    if function is None:
        return ""
    if function.called_on_batches:
        known = measured is not None and measured.on_batch_seconds is not None
        return "" if known else f"the cost of {node.title} on batches was not measured"
    known = measured is not None and measured.cpu_seconds is not None
    if function.form in GRAPH_EDITS:
        known = known and remaining_cost_share(node, measured) is not None
        return "" if known else f"the cost of {node.title} {function.form} was not measured"
    return "" if known else f"the cost of {node.title} was not measured"


class Bound(enum.StrEnum):
    """What keeps the rate from being higher."""

    SEGMENT = "segment"  # operators that run in one thread
    PARALLEL = "parallel"  # a parallel operator with all its threads busy
    CORES = "cores"  # all available cores are busy
    STORAGE = "storage"  # bytes read per second
    CONSUMER = "consumer"  # the thread that takes the elements, in Python


@dataclass(frozen=True)
class ThroughputPrediction:
    """The rate a pipeline can reach, and what bounds it."""

    rate: float  # elements of the output per second
    bound: Bound
    nodes: tuple[str, ...]  # operators that bind; all with a cost if the cores bind
    bottleneck: str | None  # the costliest of them; if the cores bind, of the costliest call
    segments: tuple[Segment, ...]
    cpu_seconds: float  # per element of the output, all operators
    cores_rate: float  # the rate if all available cores were busy with it

    @property
    def seconds(self) -> float:
        """Seconds per element of the output."""
        return 1 / self.rate


def predict(
    pipeline: Pipeline, profile: Profile, cores: float, *, storage_bytes_per_second: float | None = None
) -> ThroughputPrediction:
    """Returns the predicted rate and bound of `pipeline` after the first epoch, for a consumer that never delays it.

    Args:
        pipeline: the original pipeline, or one with edits applied.
        profile: costs of the original pipeline at parallelism 1, and the machine's overheads if they were measured;
            operators that an edit inserted are assumed to cost next to nothing.
        cores: cores available to the process.
        storage_bytes_per_second: storage bandwidth; None for the measured one, or no bound if none was measured.
    """
    if storage_bytes_per_second is None and profile.files is not None:
        storage_bytes_per_second = profile.files.storage_bytes_per_second
    overheads = profile.overheads or IDEAL
    segments = split_into_segments(pipeline, profile, cores, overheads=overheads)
    work = [part for segment in segments for part in segment.work]
    cpu_seconds = sum(part.cpu_seconds for part in work)
    bounds: list[tuple[float, Bound, tuple[str, ...]]] = [
        (_contended_rate(segment.rate, cpu_seconds, cores, overheads.crowded_speed), _kind(segment), segment.nodes)
        for segment in segments
    ]
    named = tuple(dict.fromkeys(part.node for part in work if part.node != RUNTIME))
    speed = overheads.crowded_speed if cores > 1 else 1.0
    cores_rate = cores * speed / cpu_seconds if cpu_seconds > 0 else float("inf")
    if cpu_seconds > 0:
        bounds.append((cores_rate, Bound.CORES, named))
    running = {part.node for part in work}
    readers = tuple(node.id for node in pipeline if node.id in running and reads_files(node))
    read_bytes = _bytes_read(pipeline, profile, readers)
    if storage_bytes_per_second is not None and read_bytes > 0:
        bounds.append((storage_bytes_per_second / read_bytes, Bound.STORAGE, readers))
    if not bounds:  # everything is upstream of a cache that is itself the output
        return ThroughputPrediction(float("inf"), Bound.CORES, (), None, segments, 0.0, float("inf"))
    rate, bound, nodes = min(bounds, key=lambda entry: entry[0])
    costs = {part.node: part.cpu_seconds if bound is Bound.CORES else part.seconds for part in work}
    calls = {name: (pipeline[name].location or name, pipeline[name].op) for name in nodes}
    of_call = defaultdict[object, float](float)  # one call may make an operator of each of several datasets
    for name, call in calls.items() if bound is Bound.CORES else ():
        of_call[call] += costs.get(name, 0.0)
    bottleneck = max(nodes, key=lambda name: (of_call[calls[name]], costs.get(name, 0.0)), default=None)
    return ThroughputPrediction(rate, bound, nodes, bottleneck, segments, cpu_seconds, cores_rate)


def _contended_rate(rate: float, cpu_seconds: float, cores: float, crowded_speed: float) -> float:
    """Returns the rate of a thread when the other cores are busy too.

    At `rate` elements per second, that of an otherwise idle machine, `rate * cpu_seconds` cores are busy. The speed of
    a core falls linearly from 1, with one core busy, to `crowded_speed`, with all of them busy.
    """
    if rate == float("inf") or cores <= 1 or rate * cpu_seconds <= 1:
        return rate
    fall = (1 - crowded_speed) / (cores - 1)
    return rate * (1 + fall) / (1 + fall * rate * cpu_seconds)


def _kind(segment: Segment) -> Bound:
    if not segment.nodes:
        return Bound.CONSUMER
    return Bound.PARALLEL if segment.parallel else Bound.SEGMENT


def predict_examples(pipeline: Pipeline, profile: Profile, cores: float) -> Prediction:
    """Returns a pipeline's predicted rate in examples per second, or why none can be predicted."""
    reason = no_prediction_reason(pipeline, profile)
    found = predict(pipeline, profile, cores)
    per_element = profile.examples_per_element
    if reason:
        return Prediction(why=reason, fallback_rate=found.rate * per_element)
    if found.rate == float("inf"):
        return Prediction(why="nothing that runs has a cost")
    return Prediction(found.rate * per_element, found.cpu_seconds / per_element)


def sequential_segments(
    prediction: ThroughputPrediction, *, consumer_rate: float = float("inf")
) -> tuple[tuple[str, ...], ...]:
    """Returns the node ids of the segments that bind: one thread, slower than the cores and the consumer allow.

    Slowest first. Splitting one of these (by a prefetch inside it or a parallel operator) raises its bound;
    splitting any other gains nothing.
    """
    reachable = min(prediction.cores_rate, consumer_rate)
    threads = [one for one in prediction.segments if one.nodes and one.parallelism == 1 and one.rate < reachable]
    return tuple(segment.nodes for segment in sorted(threads, key=lambda segment: segment.rate))


def _bytes_read(pipeline: Pipeline, profile: Profile, readers: tuple[str, ...]) -> float:
    """Bytes read from files per element of the output: as measured, else the output of the readers."""
    if not readers:
        return 0.0
    if profile.files is not None and profile.files.bytes_per_element is not None:
        return profile.files.bytes_per_element
    counts = visits(pipeline, profile)
    measured = {name: profile.operator(name) for name in readers}
    return sum(counts[name] * (cost.bytes_out or 0.0) for name, cost in measured.items() if cost is not None)


def reads_files(node: Node) -> bool:
    """Whether an operator reads files: a source, an interleave of readers, a map that calls `tf.io.read_file`."""
    known, function = operator_facts(node.op), node.function
    opens = any(kind.startswith(_READERS) for kind in node.inner)
    return opens or (known.source and known.reads_files) or (function is not None and function.reads_files)


_READERS = ("TFRecord", "TextLine", "FixedLength", "CSV")

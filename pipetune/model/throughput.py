"""Predicts how many elements per second a pipeline can deliver, and what bounds it.

With v visits per output element and c seconds per visit: rate <= 1 / sum(v c) of every sequential segment,
<= p / (v c) of every parallel operator, <= cores / sum of all CPU seconds, <= storage bandwidth / bytes read. A core
is slower while the others are busy, so the bound of each thread falls as more of them run (`core.overheads`).
Based on the cost models of tf.data (Murray et al., VLDB 2021, section 3.2) and Plumber (Kuchnik et al., MLSys
2022).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pipetune.core.operators import facts
from pipetune.core.overheads import IDEAL
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.prediction import Foreseen
from pipetune.core.profile import Profile
from pipetune.model.stages import RUNTIME, Segment, cut, visits
from pipetune.model.trust import why_not


class Bound(enum.StrEnum):
    """What keeps the rate from being higher."""

    SEGMENT = "segment"  # operators that run in one thread
    PARALLEL = "parallel"  # a parallel operator with all its threads busy
    CORES = "cores"  # all available cores are busy
    STORAGE = "storage"  # bytes read per second
    CONSUMER = "consumer"  # the thread that takes the elements, in Python


@dataclass(frozen=True)
class Prediction:
    """The rate a pipeline can reach, and what bounds it."""

    rate: float  # elements of the output per second
    bound: Bound
    nodes: tuple[str, ...]  # operators that bind; all with a cost if the cores bind
    bottleneck: str | None  # the costliest of them
    segments: tuple[Segment, ...]
    cpu_seconds: float  # per element of the output, all operators
    cores_rate: float  # the rate if all available cores were busy with it

    @property
    def seconds(self) -> float:
        """Seconds per element of the output."""
        return 1 / self.rate


def predict(
    pipeline: Pipeline,
    profile: Profile,
    cores: float,
    *,
    defaults_on: bool | None = None,
    storage_bytes_per_second: float | None = None,
) -> Prediction:
    """Predicts rate and bound of `pipeline` after the first epoch, for a consumer that never lets it wait.

    Args:
        pipeline: the original pipeline, or one with edits applied.
        profile: costs of the original pipeline at parallelism 1, and the machine's overheads if they were measured;
            operators that an edit inserted are assumed to cost next to nothing.
        cores: cores available to the process.
        defaults_on: as in `stages.cut`.
        storage_bytes_per_second: storage bandwidth; None for the measured one, or no bound if none was measured.
    """
    if storage_bytes_per_second is None and profile.files is not None:
        storage_bytes_per_second = profile.files.storage_bytes_per_second
    overheads = profile.overheads or IDEAL
    segments = cut(pipeline, profile, cores, defaults_on=defaults_on, overheads=overheads)
    work = [part for segment in segments for part in segment.work]
    cpu_seconds = sum(part.cpu_seconds for part in work)
    bounds: list[tuple[float, Bound, tuple[str, ...]]] = [
        (crowded(segment.rate, cpu_seconds, cores, overheads.crowded_speed), _kind(segment), segment.nodes)
        for segment in segments
    ]
    named = tuple(dict.fromkeys(part.node for part in work if part.node != RUNTIME))
    cores_rate = cores * _speed(cores, overheads.crowded_speed) / cpu_seconds if cpu_seconds > 0 else float("inf")
    if cpu_seconds > 0:
        bounds.append((cores_rate, Bound.CORES, named))
    running = {part.node for part in work}
    readers = tuple(node.id for node in pipeline if node.id in running and reads_files(node))
    read_bytes = _bytes_read(pipeline, profile, readers)
    if storage_bytes_per_second is not None and read_bytes > 0:
        bounds.append((storage_bytes_per_second / read_bytes, Bound.STORAGE, readers))
    if not bounds:  # everything is upstream of a cache that is itself the output
        return Prediction(float("inf"), Bound.CORES, (), None, segments, 0.0, float("inf"))
    rate, bound, nodes = min(bounds, key=lambda entry: entry[0])
    costs = {part.node: part.cpu_seconds if bound is Bound.CORES else part.seconds for part in work}
    bottleneck = max(nodes, key=lambda name: costs.get(name, 0.0), default=None)
    return Prediction(rate, bound, nodes, bottleneck, segments, cpu_seconds, cores_rate)


def crowded(rate: float, cpu_seconds: float, cores: float, crowded_speed: float) -> float:
    """The rate of a thread when the other cores are busy too.

    At `rate` elements per second, `rate * cpu_seconds` cores are busy. The speed of a core falls linearly from 1, with
    one core busy, to `crowded_speed`, with all of them busy.

    Args:
        rate: elements per second of the thread on an otherwise idle machine.
        cpu_seconds: CPU time of all operators per element.
        cores: cores available to the process.
        crowded_speed: speed of a core while all cores are busy, relative to one alone.
    """
    if rate == float("inf") or cores <= 1 or rate * cpu_seconds <= 1:
        return rate
    fall = (1 - crowded_speed) / (cores - 1)
    return rate * (1 + fall) / (1 + fall * rate * cpu_seconds)


def _speed(cores: float, crowded_speed: float) -> float:
    return crowded_speed if cores > 1 else 1.0


def _kind(segment: Segment) -> Bound:
    if not segment.nodes:
        return Bound.CONSUMER
    return Bound.PARALLEL if segment.parallel else Bound.SEGMENT


def predict_rate(
    pipeline: Pipeline, profile: Profile, cores: float, *, defaults_on: bool | None = None
) -> float:
    """The predicted rate in elements of the output per second; arguments as in `predict`."""
    return predict(pipeline, profile, cores, defaults_on=defaults_on).rate


def foresee(pipeline: Pipeline, profile: Profile, cores: float) -> Foreseen:
    """Predicts a pipeline for the search: its rate in examples per second, or why none can be predicted."""
    reason = why_not(pipeline, profile)
    found = predict(pipeline, profile, cores)
    per_element = profile.examples_per_element
    if reason:
        return Foreseen(why=reason, guess=found.rate * per_element)
    if found.rate == float("inf"):
        return Foreseen(why="nothing that runs has a cost")
    return Foreseen(found.rate * per_element, found.cpu_seconds / per_element)


def training_rate(input_rate: float, consumer_rate: float, *, pipelined: bool) -> float:
    """Steps per second: min(input, consumer) if input and model overlap (`pipelined`); otherwise they take turns.

    Both rates are above zero and may be infinite.
    """
    if pipelined:
        return min(input_rate, consumer_rate)
    return 1 / (1 / input_rate + 1 / consumer_rate)


def sequential_segments(
    prediction: Prediction, *, consumer_rate: float = float("inf")
) -> tuple[tuple[str, ...], ...]:
    """Node ids of the segments that bind: one thread, slower than the cores and the consumer would allow.

    Slowest first. Splitting one of these (by a prefetch inside it or a parallel operator) raises its bound;
    splitting any other gains nothing.
    """
    reachable = min(prediction.cores_rate, consumer_rate)
    binding = [
        segment
        for segment in prediction.segments
        if segment.nodes and segment.parallelism == 1 and segment.rate < reachable
    ]
    return tuple(segment.nodes for segment in sorted(binding, key=lambda segment: segment.rate))


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
    known, function = facts(node.op), node.function
    opens = any(kind.startswith(_READERS) for kind in node.inner)
    return opens or (known.source and known.reads_files) or (function is not None and function.reads_files)


_READERS = ("TFRecord", "TextLine", "FixedLength", "CSV")

"""The accuracy of diagnoses: how many injected bottlenecks are named, on real pipelines with real measurements.

Every bottleneck is much larger than the noise of a busy machine: the operator takes at least five times as long as the
step that waits for it, or the step takes much longer than the input. Operators that wait sleep in the runtime
(`SleepDataset`), which is independent of other work on the machine. Those that work compute for a calibrated time.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import ProgressCallback, known_costs
from benchmarks.accuracy import grammar
from benchmarks.claims import Claim
from benchmarks.dataset_study import create_study
from benchmarks.resumable import ResumableResults
from pipetune.capture import consumption, loop_consumer
from pipetune.capture.fit_consumer import FitConsumer
from pipetune.core import files
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import Cause, Diagnosis
from pipetune.core.settings import Settings
from pipetune.stages.planning import give_verdict
from pipetune.stages.profiling import take_profile
from pipetune.timing.iterators import shortened_pauses

Dataset = tf.data.Dataset

SLOW_MAP = "injected"
"""Name of the function of the slow map, in pipelines with several maps."""

_STEP_SECONDS = 0.001
_SLOW_SECONDS = 0.0015  # per example; a batch has eight
_BATCH = 8
_RECORDS = 32
_BURST_SECONDS, _BURST_STEP_SECONDS = 0.05, 0.008  # pause after every eight elements; length of a step


@dataclass(frozen=True)
class InjectedBottleneck:
    """A pipeline, how it is consumed, and the expected diagnosis."""

    name: str  # "slow read", "slow map", "slow batch", "small prefetch", "slow consumer", "Python function"
    how: str
    cause: Cause
    operator: str  # expected in the diagnosis; "" if no operator is the cause
    dataset: Callable[[str], Any]  # builds the dataset, given a folder for files
    consumer: Callable[[], consumption.Consumer] = lambda: loop_consumer.EmulatedConsumer(_STEP_SECONDS)
    steps: int | None = None  # per window; None: chosen as in an analysis


def injected_bottlenecks() -> tuple[InjectedBottleneck, ...]:
    """Returns all cases: each kind of bottleneck with several causes."""
    slow_step = functools.partial(loop_consumer.EmulatedConsumer, 0.03)
    bursty_step = functools.partial(loop_consumer.EmulatedConsumer, _BURST_STEP_SECONDS)
    operator = Cause.OPERATOR
    return (
        InjectedBottleneck("slow read", "storage waits", operator, "interleave", _waiting_read),
        InjectedBottleneck("slow read", "decompression works", operator, "TFRecordDataset", _working_read),
        InjectedBottleneck("slow map", "works, TensorFlow runs it in parallel", operator, "map", _working_map),
        InjectedBottleneck("slow map", "works, draws random numbers", operator, "map", _random_map),
        InjectedBottleneck("slow map", "waits", operator, "map", _waiting_map),
        InjectedBottleneck("slow map", "works, under fit", operator, "map", _random_map_pairs, lambda: _fit(8)),
        InjectedBottleneck("slow batch", "copies", operator, "batch", _slow_batch),
        InjectedBottleneck("small prefetch", "bursts", Cause.BUFFER, "prefetch", lambda _: _bursts(1), bursty_step, 16),
        InjectedBottleneck("slow consumer", "waits", Cause.CONSUMER, "", _light, slow_step),
        InjectedBottleneck(
            "slow consumer", "bursts, prefetched", Cause.CONSUMER, "", lambda _: _bursts(16), bursty_step, 16
        ),
        InjectedBottleneck("slow consumer", "fit computes", Cause.CONSUMER, "", _light_pairs, lambda: _fit(3072)),
        InjectedBottleneck("Python function", "in a map", Cause.PYTHON, "map", _python_map),
        InjectedBottleneck("Python function", "a generator", Cause.PYTHON, "from_generator", _python_generator),
    )


# -- slow operators


def delay_elements(dataset: Any, seconds: float) -> Any:
    """Returns the dataset with each element delayed inside the runtime, without using CPU time."""
    return known_costs.with_sleep(dataset, round(1e6 * seconds))


def _working(seconds: float) -> Callable[[Any], Any]:
    """Returns an identity function of an int64 that computes for `seconds`."""
    rounds = max(1, round(seconds / grammar.round_seconds()))

    def injected(value: Any) -> Any:
        result = grammar.run_kernels(tf.cast(value, tf.float32), rounds)
        return value + tf.cast(tf.reduce_sum(result) * 0.0, tf.int64)

    return injected


def _spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


# -- the pipelines. Each has fast operators as well, which a wrong diagnosis could name. If there are several maps, the
# function of the slow one is called `injected` (SLOW_MAP).


def _waiting_read(folder: str) -> Any:
    files = [_records(folder, f"part-{number}", count=_RECORDS, size=100) for number in range(2)]
    read = Dataset.from_tensor_slices(files).interleave(
        lambda file: delay_elements(tf.data.TFRecordDataset(file), _SLOW_SECONDS), cycle_length=1
    )
    return read.map(tf.strings.length).batch(_BATCH)


def _working_read(folder: str) -> Any:
    path = _records(folder, "packed", count=_BATCH, size=700_000, compression="GZIP")
    return tf.data.TFRecordDataset(path, compression_type="GZIP").map(tf.strings.length).batch(_BATCH)


def _light(_folder: str) -> Any:
    return Dataset.range(512).map(lambda value: value + 1).batch(_BATCH)


def _pairs(dataset: Any) -> Any:
    return dataset.map(lambda value: (tf.fill([32], tf.cast(value, tf.float32) * 1e-3), tf.zeros([1])))


def _light_pairs(_folder: str) -> Any:
    return _pairs(Dataset.range(512)).batch(4 * _BATCH)


def _working_map(_folder: str) -> Any:
    light = Dataset.range(512).map(lambda value: value + 1)
    return light.shuffle(16).map(_working(2 * _SLOW_SECONDS)).batch(_BATCH)


def _random_map(_folder: str) -> Any:
    work = _working(_SLOW_SECONDS)

    def injected(value: Any) -> Any:
        return work(value + tf.random.uniform([], 0, 2, tf.int64))

    return Dataset.range(512).map(lambda value: value + 1).map(injected).batch(_BATCH)


def _random_map_pairs(folder: str) -> Any:
    return _pairs(_random_map(folder).unbatch()).batch(_BATCH)


def _waiting_map(_folder: str) -> Any:
    def injected(value: Any) -> Any:
        return tf.data.experimental.get_single_element(delay_elements(Dataset.from_tensors(value), _SLOW_SECONDS))

    return Dataset.range(512).map(lambda value: value + 1).map(injected, num_parallel_calls=1).batch(_BATCH)


def _slow_batch(_folder: str) -> Any:
    image = np.ones([500_000], "float32")

    def light(_value: Any) -> Any:
        return tf.constant(image)

    return Dataset.range(512).map(light).batch(32)


def _bursts(buffer: int) -> Any:
    def burst(value: Any) -> Any:
        half = _BURST_SECONDS / 2  # it sleeps twice: before the element, and before the end of the dataset
        return delay_elements(Dataset.from_tensors(value), half).flat_map(lambda _: Dataset.range(_BATCH))

    return Dataset.range(512).flat_map(burst).prefetch(buffer)


def _python_map(_folder: str) -> Any:
    def work(value: Any) -> Any:
        _spin(_SLOW_SECONDS)
        return value

    def injected(value: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(work, [value], tf.int64), [])

    return Dataset.range(512).map(lambda value: value + 1).map(injected, num_parallel_calls=2).batch(_BATCH)


def _python_generator(_folder: str) -> Any:
    def generate() -> Any:
        for value in range(512):
            _spin(_SLOW_SECONDS)
            yield value

    read = Dataset.from_generator(generate, output_signature=tf.TensorSpec([], tf.int64))
    return read.map(lambda value: value + 1).batch(_BATCH)


def _records(folder: str, name: str, *, count: int, size: int, compression: str = "") -> str:
    """Writes records of 16 random letters, which compress well but take time to decompress; returns the path."""
    path = os.path.join(folder, f"{name}.tfrecord")
    draw = np.random.default_rng(0)
    options = tf.io.TFRecordOptions(compression_type=compression, compression_level=1) if compression else None
    with tf.io.TFRecordWriter(path, options) as writer:
        for _ in range(count):
            writer.write(draw.integers(97, 113, size, dtype=np.uint8).tobytes())
    return path


def _fit(width: int) -> consumption.Consumer:
    """Returns a consumer that calls Keras's `fit` on a model with two layers of `width` units."""
    import keras

    model = keras.Sequential([keras.layers.Dense(width, "relu"), keras.layers.Dense(width), keras.layers.Dense(1)])
    model.build([None, 32])
    model.compile("sgd", "mse")
    return FitConsumer(model, type(model).fit, {})


@dataclass(frozen=True)
class Row:
    """One pipeline, as a row of the confusion table."""

    injected: str
    how: str
    wanted: str  # expected cause and operator, such as "operator: map"
    named: str  # those of the diagnosis
    evidence: str  # measurements of the training step, and the verdict

    @property
    def right(self) -> bool:
        """Whether the diagnosis named the injected bottleneck."""
        return self.wanted == self.named


@dataclass(frozen=True)
class Bottleneck:
    """The figure, with the confusion table."""

    cases: int
    named: int  # cases with the right cause and operator
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


def measure(*, quick: bool, seed: int, progress: ProgressCallback, saved: ResumableResults) -> Bottleneck:
    """Diagnoses every pipeline; with `quick`, windows are as short as those of `analyze --quick`."""
    rows = []
    with shortened_pauses(), files.temporary_folder("bench") as folder:
        for case in injected_bottlenecks():
            progress(f"{case.name} ({case.how})")
            diagnose = partial(_row, case, folder, quick=quick, seed=seed)
            rows.append(saved.get(Row, f"{case.name} ({case.how})", diagnose))
    note = "Real pipelines through the profile and the diagnosis of `analyze`; cause and operator must both be right."
    return Bottleneck(len(rows), sum(row.right for row in rows), tuple(rows), (note,))


def claims(result: Bottleneck, *, quick: bool) -> Sequence[Claim]:
    """Returns a claim for each kind of bottleneck, and one for all of them."""
    found = []
    for kind in dict.fromkeys(row.injected for row in result.rows):
        rows = [row for row in result.rows if row.injected == kind]
        wrong = "; ".join(f"{row.how}: {row.named}" for row in rows if not row.right)
        measured = f"{sum(row.right for row in rows)} of {len(rows)} named" + (f" ({wrong})" if wrong else "")
        found.append(Claim(kind, measured, "all", not wrong))
    return [*found, Claim("all", f"{result.named} of {result.cases} named", "all", result.named == result.cases)]


def _row(case: InjectedBottleneck, folder: str, *, quick: bool, seed: int) -> Row:
    settings = Settings(trials=False, quick=quick, steps=case.steps, seed=seed)
    study = create_study(case.dataset(folder), consumer=case.consumer(), settings=settings)
    try:
        profile = take_profile(study)
        diagnosis = give_verdict(study, profile)
    finally:
        study.runner.close()
    step = profile.consumer
    times = [
        f"{name} {1e3 * seconds:.1f} ms"
        for name, seconds in (("real", step.real_seconds), ("bound", step.bound_seconds), ("input", step.input_seconds))
        if seconds is not None
    ]
    return Row(
        injected=case.name,
        how=case.how,
        wanted=_describe(case.cause, case.operator),
        named=_named(diagnosis, study.subject.source.pipeline),
        evidence=", ".join([*times, diagnosis.verdict.value, step.why]).rstrip(", "),
    )


def _named(diagnosis: Diagnosis, pipeline: Pipeline) -> str:
    """Returns cause and operator of a diagnosis; of a map other than the slow one also the function."""
    if diagnosis.cause_node is None:
        return _describe(diagnosis.cause, "")
    node = pipeline[diagnosis.cause_node]
    if node.op == "map" and node.function is not None and node.function.name != SLOW_MAP:
        return _describe(diagnosis.cause, f"{node.op} {node.function.name}")
    return _describe(diagnosis.cause, node.op)


def _describe(cause: Cause | None, operator: str) -> str:
    return f"{cause.value if cause else 'nothing'}{f': {operator}' if operator else ''}"

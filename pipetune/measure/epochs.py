"""Runs a pipeline through epochs and times each element; measures overheads of the runtime and of device copies."""

from __future__ import annotations

import functools
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.edits import SetArgument, apply_edits
from pipetune.core.errors import PipetuneError
from pipetune.core.machine import CallCost, DeviceTransfer, Overheads
from pipetune.core.measurement import RunFailed
from pipetune.measure.run_dynamics import Epoch
from pipetune.pipelines import live, replay
from pipetune.pipelines.errors import first_line
from pipetune.timing import windows
from pipetune.timing.iterators import free_iterators, wait_for_released_iterators

MOST_ELEMENTS = 100_000  # arrival times kept


def run_epochs(
    dataset: Any, *, seconds: float, most_epochs: int = 20, most_elements: int = MOST_ELEMENTS
) -> list[Epoch]:
    """Consumes the dataset as `fit` does, with a new iterator per epoch, for about `seconds`; returns the epochs seen.

    An endless dataset is one epoch that does not end. Creating an iterator counts towards its first element.

    Args:
        seconds: approximate length of the run; the first epoch is cut off as well, but none after one element, whose
            time says nothing of the others.
        most_epochs: number of epochs, at most.
        most_elements: number of elements in all epochs together, at most.

    Raises:
        RunFailed: the pipeline raised, or is empty.
    """
    end = time.perf_counter() + seconds
    epochs: list[Epoch] = []
    left = most_elements
    while len(epochs) < most_epochs and left > 0 and (not epochs or time.perf_counter() < end):
        free_iterators()
        epoch = _run_epoch(dataset, end, left)
        if not epoch.arrivals:
            if not epochs:
                raise RunFailed("The dataset is empty.")
            break
        epochs.append(epoch)
        left -= len(epoch.arrivals)
        if not epoch.complete:
            break
    free_iterators()
    return epochs


def first_seconds(dataset: Any) -> float:
    """Returns the seconds from requesting an iterator to its first element.

    Raises:
        RunFailed: the pipeline raised, or is empty.
    """
    (epoch,) = run_epochs(dataset, seconds=0.0, most_epochs=1, most_elements=1)
    return epoch.first_seconds


def pass_seconds(dataset: Any, *, elements: int, seconds: float) -> float:
    """Returns the seconds of one pass over the first `elements`, its first element included.

    Args:
        elements: in a pass; fewer if the dataset ends before.
        seconds: after which the rest of the pass is extrapolated.

    Raises:
        RunFailed: the pipeline raised, or is empty.
    """
    (epoch,) = run_epochs(dataset, seconds=seconds, most_epochs=1, most_elements=elements)
    seen, last = len(epoch.arrivals), epoch.arrivals[-1]
    if epoch.complete or seen == elements:
        return last
    return last + epoch.element_seconds * (elements - seen)


def without_shuffle(source: live.LivePipeline) -> Any | None:
    """Returns the pipeline with shuffle buffers of one element; None if nothing shuffles or it cannot be rebuilt."""
    edits = [
        SetArgument(node.id, "buffer_size", 1)
        for node in source.pipeline
        if node.op == "shuffle" and node.argument("buffer_size") not in (None, 1)
    ]
    if not edits:
        return None
    try:
        return replay.replay(source, apply_edits(source.pipeline, edits))
    except (PipetuneError, tf.errors.OpError, ValueError, TypeError):
        return None


def _run_epoch(dataset: Any, end: float, most: int) -> Epoch:
    arrivals: list[float] = []
    complete = False
    requested = time.perf_counter()
    with windows.as_run_failed():
        for _ in dataset:
            now = time.perf_counter()
            arrivals.append(now - requested)
            if (now >= end and len(arrivals) > 1) or len(arrivals) >= most:
                break
        else:
            complete = True
    return Epoch(tuple(arrivals), complete)


_ROWS = {"brief": 64, "short": 32, "long": 8}
"""Kinds of functions, with rows per batch of each: enough that taking a batch in Python costs little per row."""

_TAKEN_ROWS = 256  # rows of other batches, by judgement: so many that taking a batch in Python costs little per row
_READERS = 4  # as many as scripts open, regardless of the number of cores
_WARM_UP_SHARE = 0.3  # of a window, by judgement: a shorter one would time threads that are still starting
_LOWEST_CROWDED_SPEED = 0.5  # lower bound of `crowded_speed`
_NEXT_WINDOWS, _NEXT_SECONDS = 3, 0.03  # by judgement: a median ignores one disturbed window


def measure_next(element_spec: Any) -> float | None:
    """Returns the seconds of `next` in Python for elements of this structure; None if no such element can be made.

    It grows with the number of components: an element that is one tensor takes half as long as a pair (measured: 50 and
    115 us). The runtime passes on references, so that the size of the tensors does not matter: they are empty here.
    """
    try:
        element = tf.nest.map_structure(lambda spec: tf.zeros([0], spec.dtype), element_spec)
        dataset = windows.without_optimizations(tf.data.Dataset.from_tensors(element).repeat())
        return statistics.median(_window(dataset, _NEXT_SECONDS)[1] for _ in range(_NEXT_WINDOWS))
    except (AttributeError, TypeError, ValueError, tf.errors.OpError):  # a component that is no tensor
        return None


@functools.cache
def measure_overheads(cores: int, *, seconds: float = 2.0, rounds: int = 4) -> Overheads:
    """Returns the overheads of this process, measured once, in about `seconds`.

    Args:
        cores: cores available to the process; all of them are kept busy for a moment.
        seconds: approximate time for all windows.
        rounds: number of windows of each pipeline.
    """
    datasets = _datasets(cores)
    window = seconds / (rounds * len(datasets))
    cpu: dict[str, list[float]] = defaultdict(list)
    wall: dict[str, list[float]] = defaultdict(list)
    free_iterators()
    for _ in range(rounds):
        for name, dataset in datasets.items():
            cpu_seconds, wall_seconds = _window(dataset, window)
            cpu[name].append(cpu_seconds)
            wall[name].append(wall_seconds)
    return _from(
        {name: statistics.median(found) for name, found in cpu.items()},
        {name: statistics.median(found) for name, found in wall.items()},
        # Taking an element from Python varies by more than waking a thread takes: medians differed by 0 to 23 us in six
        # measurements, the quickest windows by 5 to 15.
        {name: min(wall[name]) for name in _TAKEN},
        cores,
    )


def _from(cpu: Mapping[str, float], wall: Mapping[str, float], quickest: Mapping[str, float], cores: int) -> Overheads:
    """Derives the overheads from CPU and wall seconds per batch of each pipeline, and from the quickest windows."""
    # Neither idle threads that spin nor other processes on the core are part of a call in one thread.
    alone = {name: min(wall[name], cpu[name]) / rows for name, rows in _ROWS.items()}

    def busy(name: str, form: str) -> float:
        """Returns the CPU seconds per call in addition to the function's own, including idle threads that spin."""
        return max(0.0, cpu[f"{name}, {form}"] / _ROWS[name] - (1 + slower) * alone[name])

    def excess(name: str, form: str) -> float:
        """Returns the seconds of all cores together per call, in addition to the time of the call in one thread."""
        return cores * wall[f"{name}, {form}"] / _ROWS[name] - alone[name]

    def excess_cpu(name: str) -> float:
        """Returns the CPU seconds per call with all cores busy, in addition to those of the call in one thread."""
        return statistics.fmean(cpu[f"{name}, {form}"] for form in _FORMS) / _ROWS[name] - alone[name]

    # The excess is the same for all calls of some tens of microseconds; it grows with the length of the call where a
    # core is slower while the others are busy. It is one of CPU seconds: wall time also grows beside other processes,
    # from whom a user's training may be free.
    least, most = excess_cpu("short"), excess_cpu("long")
    difference = alone["long"] - alone["short"]
    slower = 0.0
    if cores > 1 and difference > 0:
        slower = min(max(0.0, (most - least) / difference), 1 / _LOWEST_CROWDED_SPEED - 1)
    calls = {name: [max(0.0, excess(name, form) - slower * alone[name]) for form in _FORMS] for name in _ROWS}
    # A thread is woken in the same time whatever it then calls. The CPU time of a call falls further with its length:
    # idle threads spin less. Around calls of 600 us it was 0 to 7 us, where 25 us had been measured at the short one.
    calls["long"] = calls["short"]
    row_ahead, row = wall["rows, ahead"] / _TAKEN_ROWS, wall["rows"] / _TAKEN_ROWS
    return Overheads(
        next_seconds=quickest["taken"],
        wake_seconds=max(0.0, quickest["taken, ahead"] - quickest["taken"]),
        notify_seconds=max(0.0, wall["taken, ahead"] - wall["taken"]),
        buffer_seconds=max(0.0, row_ahead - row / 2),  # two threads then share the row's own work
        interleave_seconds=max(0.0, (wall["rows, interleaved"] - wall["rows, in turn"]) / _TAKEN_ROWS),
        calls=tuple(
            CallCost(alone[name], *calls[name], *(busy(name, form) for form in _FORMS))
            for name in sorted(calls, key=lambda name: alone[name])
        ),
        spin_seconds=max(0.0, cpu["long"] / _ROWS["long"] - alone["long"]),
        crowded_speed=1 / (1 + slower),
    )


_FORMS = ("parallel", "fused")
_TAKEN = ("taken", "taken, ahead")


def _datasets(cores: int) -> dict[str, Any]:
    source = tf.data.Dataset.range(1 << 60)
    element = source.batch(8)
    plain = windows.without_optimizations
    fusing = tf.data.Options()
    fusing.experimental_optimization.map_and_batch_fusion = True
    made = {
        "taken": plain(element),
        "taken, ahead": plain(element.prefetch(2)),
        "rows": plain(source.batch(_TAKEN_ROWS)),
        "rows, ahead": plain(source.prefetch(tf.data.AUTOTUNE).batch(_TAKEN_ROWS)),
        "rows, in turn": plain(_interleaved(source, None)),
        "rows, interleaved": plain(_interleaved(source, _READERS)),
    }
    functions: Mapping[str, Callable[..., Any]] = {
        "brief": functools.partial(_spin, lanes=128, kernels=8),  # much shorter than the overhead of calling it
        "short": functools.partial(_spin, lanes=512, kernels=10),  # some tens of microseconds in one thread
        "long": sorting(2),  # most of 1 ms: a slower core costs more than the call
    }
    for name, function in functions.items():
        rows = _ROWS[name]
        parallel = source.map(function, num_parallel_calls=cores).batch(rows)
        made[name] = plain(source.map(function, synchronous=True).batch(rows))
        made[f"{name}, parallel"] = plain(parallel.prefetch(2))  # as TensorFlow would insert it
        made[f"{name}, fused"] = plain(parallel).with_options(fusing)
    return made


def sorting(sorts: int) -> Callable[[Any], Any]:
    """Returns a function of an int64 scalar that sorts 4000 numbers `sorts` times, in TensorFlow and in one thread."""
    mixed = tf.constant([(7919.0 * index) % 4001.0 - 2000.0 for index in range(4000)])

    def work(number: Any) -> Any:
        values = mixed + tf.cast(number % 7, tf.float32)
        for _ in range(sorts):
            values = tf.math.top_k(values * mixed, k=4000).values
        return number + tf.cast(tf.math.is_nan(values[0]), tf.int64)

    return work


def _interleaved(source: Any, parallel: int | None) -> Any:
    """Returns batches of rows of negligible cost, interleaved from several sources, one row of each at a time."""
    rows = source.interleave(lambda _: source, cycle_length=_READERS, num_parallel_calls=parallel)
    return rows.batch(_TAKEN_ROWS)


def _spin(value: Any, *, lanes: int, kernels: int) -> Any:
    """Runs small kernels one after another, none of which is split over threads."""
    vector = tf.fill([lanes], tf.cast(value % 2, tf.float32))
    for _ in range(kernels):
        vector = tf.sin(vector) + 1.0
    return tf.reduce_sum(vector)


def _window(dataset: Any, seconds: float) -> tuple[float, float]:
    """Returns the CPU and wall seconds per element, without the warm-up at the start of the window."""
    iterator = iter(dataset)
    try:
        windows.consume(iterator, _WARM_UP_SHARE * seconds)
        cpu, wall = time.process_time(), time.perf_counter()
        count = windows.consume(iterator, (1 - _WARM_UP_SHARE) * seconds)
        return (time.process_time() - cpu) / count, (time.perf_counter() - wall) / count
    finally:
        del iterator
        wait_for_released_iterators()  # a collection, which only finds cycles, would take as long as the window


_WARM_UP = 2  # the first copies set up memory on the device
_MOST = 30  # copies


def measure_transfer(dataset: Any, device: str, *, limit_seconds: float = 0.5) -> DeviceTransfer | None:
    """Copies the first element of `dataset` to `device` repeatedly, and waits for each copy.

    Args:
        dataset: the dataset that training consumes; if it already ends on a device, its part on the host is used.
        device: TensorFlow's name of the target, such as "/GPU:0".
        limit_seconds: time after which copying ends; at least three copies are made.

    Returns:
        The timings, or None if an element holds nothing that can be copied (strings stay on the host).

    Raises:
        RunFailed: the dataset is empty, or the device accepts no copy; the message says why.
    """
    try:
        element = next(iter(windows.host_part(dataset).take(1)), None)
        if element is None:
            raise RunFailed("The dataset is empty.")
        components = [component for component in tf.nest.flatten(element, expand_composites=True) if _copied(component)]
        if not components:
            return None
        seconds, copied = _time_copies(components, device, limit_seconds)
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise RunFailed(f"The copy to {device} could not be timed: {first_line(error)}") from error
    return DeviceTransfer(
        device=device,
        element_bytes=sum(int(component.shape.num_elements() or 0) * component.dtype.size for component in components),
        seconds=statistics.median(seconds[_WARM_UP:] or seconds),
        copies=len(seconds[_WARM_UP:] or seconds),
        equal=all(
            np.asarray(one).tobytes() == np.asarray(other).tobytes()
            for one, other in zip(components, copied, strict=True)
        ),
    )


def _copied(component: Any) -> bool:
    return isinstance(component, tf.Tensor) and component.dtype not in (tf.string, tf.variant, tf.resource)


def _time_copies(components: list[Any], device: str, limit_seconds: float) -> tuple[list[float], list[Any]]:
    seconds: list[float] = []
    copied: list[Any] = []
    end = time.perf_counter() + limit_seconds
    while len(seconds) <= _WARM_UP or (len(seconds) < _MOST and time.perf_counter() < end):
        # TensorFlow keeps the copy of an eager tensor on another device, and would not copy the same tensor again.
        with tf.device("/CPU:0"):
            uncopied = [tf.identity(component) for component in components]
        windows.wait_for_device()
        started = time.perf_counter()
        with tf.device(device):
            copied = [tf.identity(component) for component in uncopied]
        windows.wait_for_device()
        seconds.append(time.perf_counter() - started)
        # With soft placement, TensorFlow silently ignores a device that does not exist.
        if f"/device:{device.strip('/')}".lower() not in copied[0].device.lower():
            raise RunFailed(f"The copy to {device} could not be timed: TensorFlow put it on {copied[0].device}.")
    return seconds, copied

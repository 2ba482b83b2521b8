"""Measures a dataset consumed as fast as possible: one new iterator at a time, warm-up excluded."""

from __future__ import annotations

import gc
import itertools
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from pipetune.core.measurement import RunFailed, Window
from pipetune.tf import private
from pipetune.tf.measure import failures

REPLAYS = True  # datasets built in calls from this module are pipetune's, not the user's

LONGEST = 2.5
"""A window may take this many times the requested seconds, so that it ends with an epoch."""

_POLL_SECONDS = 0.1
_DRAIN_SECONDS = 0.05
"""Consumed before a window begins: buffers fill while the runtime's parameters are read, and would be counted."""

_INTERVALS_KEPT = 256


def input_window(
    dataset: Any,
    *,
    seconds: float,
    warmup_seconds: float = 0.3,
    settle_seconds: float = 1.0,
    warmup_elements: int = 0,
    examples_per_element: float = 1.0,
    epoch_elements: int | None = None,
    parts: int = 1,
    on_end: Callable[[Any], None] | None = None,
    on_poll: Callable[[Any], None] | None = None,
) -> Window:
    """Iterates `dataset` (repeated forever) for about `seconds` after its warm-up.

    The warm-up lasts `warmup_seconds`, at least `warmup_elements` elements (a cache needs a whole epoch), and then
    until AUTOTUNE's parameters are stable, at most `settle_seconds` longer: after that the window is marked as not
    converged.

    Args:
        dataset: the dataset to measure.
        seconds: length of the window.
        warmup_seconds: shortest warm-up.
        settle_seconds: longest wait for AUTOTUNE, after the warm-up.
        warmup_elements: fewest elements of the warm-up.
        examples_per_element: for `Window.examples`.
        epoch_elements: elements in an epoch; None if unknown. With it the window covers whole epochs, if that makes it
            at most `LONGEST` times as long: a shuffle buffer is drained at the end of an epoch and filled at the start
            of the next, so parts of an epoch are not alike.
        parts: elements of `dataset` that are taken together and counted as one: the parts into which a strategy has
            divided an element.
        on_end: called with the iterator before it is freed, to read the runtime's model.
        on_poll: the same, whenever AUTOTUNE's parameters are polled; never while the window is timed.

    Raises:
        RunFailed: the pipeline raised, or is empty. The cause is the user's own exception.
    """
    settle()
    iterator = take = None
    try:
        with failures.told():
            started = time.perf_counter()
            iterator = iter(endless(dataset))
            take = iterator.__next__ if parts == 1 else _together(iterator, parts)
            try:
                take()
            except StopIteration:
                raise RunFailed("The dataset is empty.") from None
            first_seconds = time.perf_counter() - started
            poll = on_poll or _look_away
            poll(iterator)
            _warm_up(take, warmup_seconds, warmup_elements)
            standing = _settle_parameters(iterator, take, settle_seconds, poll)
            _warm_up(take, _DRAIN_SECONDS, 1)
            window = _measure(take, seconds, examples_per_element, first_seconds, epoch_elements)
            after = parameters(iterator)
            converged = after is None or standing == after
            poll(iterator)
            if on_end is not None:
                on_end(iterator)
            return Window(**{**vars(window), "converged": converged})
    finally:
        del iterator, take
        settle()


def endless(dataset: Any) -> Any:
    """The dataset repeated forever; unchanged if it already is endless."""
    return on_host(dataset, lambda host: host if is_endless(host) else host.repeat())


def undisturbed(dataset: Any) -> Any:
    """The dataset exactly as written: TensorFlow parallelizes nothing and adds no prefetch."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)


def is_endless(dataset: Any) -> bool:
    return bool(int(host_part(dataset).cardinality()) == tf.data.INFINITE_CARDINALITY)


def on_host(dataset: Any, change: Callable[[Any], Any]) -> Any:
    """Applies `change` to the end of `dataset`, but before a final copy to a device, which must stay the last step."""
    found = private.host_part(dataset)
    if found is None:
        return change(dataset)
    host, put_behind = found
    return put_behind(change(host))


def host_part(dataset: Any) -> Any:
    """`dataset` without a final copy to a device."""
    found = private.host_part(dataset)
    return dataset if found is None else found[0]


def settle() -> None:
    """Frees unreferenced iterators: one left alive keeps filling its buffers in the background."""
    gc.collect()


def parameters(iterator: Any) -> tuple[tuple[str, float], ...] | None:
    """Current value of every parameter that the runtime tunes and that affects the rate; None without a model.

    Buffer sizes are left out: they keep growing for minutes, and affect memory, not the rate.
    """
    try:
        model = tf.data.experimental.get_model_proto(iterator)
    except (tf.errors.OpError, ValueError):
        return None
    return tuple(
        sorted(
            (f"{node.id}/{parameter.name}", in_force(parameter))
            for node in model.nodes.values()
            for parameter in node.parameters
            if parameter.tunable and parameter.name != "buffer_size"
        )
    )


def in_force(parameter: Any) -> float:
    """The value the operator runs with; `value` is what the model computes with (model.h, struct Parameter)."""
    actual = float(parameter.state_value) if parameter.tunable else -1.0
    return actual if actual >= 0 else float(parameter.value)


def _together(iterator: Any, parts: int) -> Callable[[], Any]:
    def take() -> None:
        for _ in range(parts):
            next(iterator)

    return take


def _warm_up(take: Callable[[], Any], seconds: float, elements: int) -> None:
    end = time.perf_counter() + seconds
    taken = 0
    while taken < elements or time.perf_counter() < end:
        take()
        taken += 1


def _look_away(iterator: Any) -> None:
    """Does nothing: the default of `on_poll`."""


def _settle_parameters(
    iterator: Any, take: Callable[[], Any], limit_seconds: float, poll: Callable[[Any], None]
) -> tuple[tuple[str, float], ...] | None:
    """Consumes until the tuned values are equal at two polls; returns them, or None if they keep changing."""
    end = time.perf_counter() + limit_seconds
    before = parameters(iterator)
    if not before:
        return before
    while time.perf_counter() < end:
        _warm_up(take, _POLL_SECONDS, 1)
        after = parameters(iterator)
        poll(iterator)
        if after == before:
            return after
        before = after
    return None


def _measure(
    take: Callable[[], Any],
    seconds: float,
    examples_per_element: float,
    first_seconds: float,
    epoch_elements: int | None,
) -> Window:
    steps, wanted = 0, 0
    arrivals: deque[float] = deque([0.0], maxlen=_INTERVALS_KEPT + 1)
    cpu_started, started = time.process_time(), time.perf_counter()
    while True:
        take()
        steps += 1
        passed = time.perf_counter() - started
        arrivals.append(passed)
        if passed >= seconds and steps >= wanted:
            if wanted or epoch_elements is None:
                break
            wanted = epoch_elements * -(-steps // epoch_elements)
            if steps == wanted or passed * wanted / steps > LONGEST * seconds:
                break
    return Window(
        steps=steps,
        examples=max(1, round(steps * examples_per_element)),
        wall_seconds=passed,
        cpu_seconds=time.process_time() - cpu_started,
        first_seconds=first_seconds,
        intervals=tuple(later - earlier for earlier, later in itertools.pairwise(arrivals)),
    )


def rows(element: Any) -> int:
    """Examples in one element: rows of its first component; 1 if it has none."""
    components = tf.nest.flatten(element, expand_composites=False)
    if not components:
        return 1
    first = components[0]
    if isinstance(first, tf.RaggedTensor):
        return int(first.nrows())
    if isinstance(first, tf.SparseTensor):
        return int(first.dense_shape[0]) if first.dense_shape.shape[0] else 1
    shape = getattr(first, "shape", None)
    if shape is None or shape.rank == 0 or shape.rank is None:
        return 1
    return int(shape[0])


def examples_per_element(dataset: Any, batched: bool) -> float:
    """Examples in one full element of a pipeline: the batch size where it batches, else 1."""
    if not batched:
        return 1.0
    for component in tf.nest.flatten(dataset.element_spec):
        shape = getattr(component, "shape", None)
        if shape is not None and shape.rank and shape[0] is not None:
            return float(shape[0])
        break
    for element in dataset.take(1):
        return float(rows(element))
    return 1.0


assert private.DatasetV2 is tf.data.Dataset, "tf.data.Dataset is the version 2 class"

"""Measures a dataset consumed as fast as possible, one new iterator at a time, and closes windows of training steps."""

from __future__ import annotations

import contextlib
import itertools
import operator
import statistics
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.measurement import Pause, RunFailed, Window
from pipetune.pipelines.errors import first_line
from pipetune.pipelines.objects import inherits, live_instances
from pipetune.timing.cpu_load import available_cores, core_seconds, has_children
from pipetune.timing.iterators import free_iterators, iterating


def waits_for_other_libraries() -> list[Callable[[], object]]:
    """Returns what waits until all is done that JAX and PyTorch have queued, for each that the script uses.

    TensorFlow knows nothing of such steps. JAX queues on processors too: a loop that reads no value is up to 32 steps
    ahead there. The exception of a queued step surfaces in the wait at the latest.
    """
    found: list[Callable[[], object]] = []
    jax, cuda = started_jax(), started_cuda()
    if jax is not None and hasattr(jax, "live_arrays"):
        found.append(lambda: jax.block_until_ready(jax.live_arrays()))
    if cuda is not None:
        found.append(cuda.synchronize)
    return found


def started_jax() -> Any:
    """Returns JAX if it has started its devices; else None: another library may only have imported it.

    To ask it for arrays before would start them and take the memory of a GPU.
    """
    started = getattr(sys.modules.get("jax._src.xla_bridge"), "backends_are_initialized", lambda: True)  # private
    return sys.modules.get("jax") if started() else None


def started_cuda() -> Any:
    """Returns `torch.cuda` if PyTorch uses a GPU; else None."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


@contextlib.contextmanager
def as_run_failed(what: str = "The pipeline") -> Iterator[None]:
    """Context manager for code that takes elements of an endless dataset.

    Raises:
        RunFailed: `what` raised (the cause is its own exception), or its data ran out.
    """
    try:
        yield
    except StopIteration:  # of a generator function that returns an exhausted iterator
        raise RunFailed("The data ran out: the dataset is empty when it is iterated a second time.") from None
    except (tf.errors.OpError, ValueError, TypeError) as error:
        raise RunFailed(f"{what} raised {type(error).__name__}: {first_line(error)}") from error


_MANY_TIMES = 10.0  # the median step, by judgement: a smaller factor counts steps that were only slow
_SHORTEST_SECONDS = 0.02  # the smallest XLA program takes longer than this to compile
_NOTICEABLE = 0.02  # share of the step time below which compilation is ignored


class WindowTimer:
    """The clocks of one window, which begins when the object is constructed and ends with `stop`."""

    def __init__(self) -> None:
        self.wall_seconds = self.cpu_seconds = 0.0  # of the window, once it has ended
        self.others_seconds: float | None = None  # that the cores ran other processes; None: unknown, or its children
        self._traced_seconds = tensorflow_private.tracing_seconds()
        self._cores = available_cores()
        self.cores = len(self._cores)  # how many the process may run on
        self._used = core_seconds(self._cores)
        self._cpu_start, self.start = time.process_time(), time.perf_counter()

    def stop(self) -> None:
        """Ends the window."""
        self.wall_seconds = time.perf_counter() - self.start
        self.cpu_seconds = time.process_time() - self._cpu_start
        used = core_seconds(self._cores)
        if used is not None and self._used is not None and not has_children():
            # In ticks of 10 ms, and sometimes a tick too few.
            self.others_seconds = max(0.0, sum(used) - sum(self._used) - self.cpu_seconds)

    def compile_seconds(self, step_seconds: Sequence[float], *, new_shapes: bool) -> float:
        """Returns the seconds of the window spent tracing and compiling, or 0 if they are negligible.

        Args:
            step_seconds: duration of every step in the window, without its wait for input if that is known.
            new_shapes: whether a shape not seen before may have reached a step that XLA compiles.
        """
        found = tensorflow_private.tracing_seconds() - self._traced_seconds
        if new_shapes and len(step_seconds) > 2:
            usual = statistics.median(step_seconds)
            ordinary = max(_SHORTEST_SECONDS, _MANY_TIMES * usual)
            found = max(found, sum(one - usual for one in step_seconds if one > ordinary))
        return found if found > _NOTICEABLE * sum(step_seconds) else 0.0


def shapes_vary(element_spec: Any) -> bool:
    """Whether elements of this spec may have different shapes."""
    shapes = [getattr(component, "shape", None) for component in tf.nest.flatten(element_spec)]
    return any(shape is None or not shape.is_fully_defined() for shape in shapes)


def signature(element: Any) -> tuple[object, ...]:
    """Returns the shapes of one element's components; for a component that is not a tensor, its type name."""
    return tuple(
        tuple(component.shape) if isinstance(component, tf.Tensor) else type(component).__name__
        for component in tf.nest.flatten(element, expand_composites=True)
    )


_SMALL = 1024  # values in a tensor that is read whole; of a larger one only the first value is copied to the host
_VARIABLES_READ = 4  # variables read per device, at most


def wait_for_device(produced: Any = None, *, variables: Sequence[Any] = ()) -> None:
    """Waits until the work that produces `produced`, and everything queued before it, is done.

    Args:
        produced: what the last step returned, in any structure; None if it is not accessible.
        variables: variables that the step changes; they are also read.

    Raises:
        Exception: the exception of the queued work of the step; it surfaces here at the latest.
    """
    read_values(produced)
    for variable in variables:
        _read(variable)
    if tf.executing_eagerly():
        tensorflow_private.sync_devices()


def read_values(produced: Any) -> None:
    """Waits for what a step returned, in any structure, and not for what was queued after it."""
    for value in _values(produced):
        _read(value)


class DeviceSynchronizer:
    """Closes the windows of one consumer: reads what its step returned, or else waits for all that is queued."""

    def __init__(self) -> None:
        self._variables: tuple[Any, ...] | None = None

    def __call__(self, produced: Any = None) -> None:
        """Waits as `wait_for_device` does; without `produced`, for `training_variables` and for other libraries."""
        if produced is not None:
            wait_for_device(produced)
            return
        if self._variables is None:
            self._variables = training_variables()
        wait_for_device(variables=self._variables)
        for wait in waits_for_other_libraries():
            wait()


def training_variables() -> tuple[Any, ...]:
    """Returns some trainable variables of every device, smallest first; reading one waits for all queued steps."""
    found: dict[str, list[Any]] = {}
    for variable in readable_trainable_variables():
        found.setdefault(str(variable.device), []).append(variable)
    return tuple(
        variable
        for of_device in found.values()
        for variable in sorted(of_device, key=lambda one: one.shape.num_elements() or 0)[:_VARIABLES_READ]
    )


def readable_trainable_variables() -> list[Any]:
    """Returns the trainable variables of the process that can be read; of distributed ones, those of each replica."""
    return [variable for variable in live_instances(is_variable_type) if is_readable(variable) and variable.trainable]


def is_variable_type(kind: type) -> bool:
    """Whether these are variables of one device: those of replicas are live objects beside the distributed one."""
    return inherits(kind, tf.Variable) and not inherits(kind, tensorflow_private.DistributedVariable)


def is_readable(variable: Any) -> bool:
    """Whether a variable has a value, and is not in a graph, where there is nothing to read."""
    try:
        if variable.trainable is None or not hasattr(variable.handle, "numpy"):
            return False
        return bool(variable.handle.dtype == tf.resource and variable.is_initialized())
    except (AttributeError, ValueError, tf.errors.OpError):
        return False


def _values(produced: Any) -> Iterator[Any]:
    """Yields the leaves of what a step returned; plain containers are opened, objects of any library are kept whole."""
    if isinstance(produced, Mapping | tuple | list):
        for value in produced.values() if isinstance(produced, Mapping) else produced:
            yield from _values(value)
    elif isinstance(produced, tf.RaggedTensor | tf.SparseTensor):
        yield from tf.nest.flatten(produced, expand_composites=True)
    elif produced is not None:
        yield produced


def _read(value: Any) -> None:
    """Waits for one value, of any library, by copying it or a part of it to the host."""
    if isinstance(value, tf.Tensor):
        if hasattr(value, "numpy") and value.dtype not in (tf.variant, tf.resource):
            count = value.shape.num_elements()
            (value if count is not None and count <= _SMALL else tf.reshape(value, [-1])[:1]).numpy()
    elif hasattr(value, "block_until_ready"):  # JAX
        value.block_until_ready()
    elif hasattr(value, "detach"):  # PyTorch
        value.detach().cpu()
    elif hasattr(value, "numpy"):
        value.numpy()
    elif hasattr(value, "__array__"):
        np.asarray(value)


MOST_STRETCH = 2.5
"""A window may take this many times the requested seconds, so that it ends with an epoch."""

_POLL_SECONDS = 0.1  # between two readings of AUTOTUNE's values, by judgement: equal ones too close prove little
_DRAIN_SECONDS = 0.05
"""Consumed before a window begins: buffers fill while the runtime's parameters are read, and would be counted."""

_INTERVALS_KEPT = 256  # of the last elements of a window, by judgement: enough to show bursts, and small in a session


def input_window(
    dataset: Any,
    *,
    seconds: float,
    warmup_seconds: float = 0.3,
    settle_seconds: float = 1.0,
    examples_per_element: float = 1.0,
    epoch_elements: int | None = None,
    parts: int = 1,
    on_end: Callable[[Any], None] = lambda _iterator: None,
    on_poll: Callable[[Any], None] = lambda _iterator: None,
) -> Window:
    """Returns a window of `dataset` (repeated forever) of about `seconds`, after its warm-up.

    The warm-up lasts `warmup_seconds`, and then until AUTOTUNE's parameters are stable, at most `settle_seconds`
    longer. If they are not stable by then, the window is marked as not converged.

    Args:
        dataset: the dataset to measure.
        seconds: length of the window.
        warmup_seconds: shortest warm-up.
        settle_seconds: longest wait for AUTOTUNE, after the warm-up.
        examples_per_element: for `Window.examples`.
        epoch_elements: elements in an epoch; None if unknown. With it the window covers whole epochs, if that makes it
            at most `MOST_STRETCH` times as long: a shuffle buffer is drained at the end of an epoch and filled at the
            start of the next, so parts of an epoch are not alike.
        parts: elements of `dataset` that are taken together and counted as one: the parts into which a strategy has
            divided an element.
        on_end: called with the iterator before it is freed, to read the runtime's model.
        on_poll: called with the iterator whenever AUTOTUNE's parameters are polled; never while the window is timed.

    Raises:
        RunFailed: the pipeline raised, or is empty. The cause is the user's own exception.
    """
    free_iterators()
    arrivals, started = array("d"), time.perf_counter()
    with as_run_failed(), iterating(repeat_forever(dataset)) as iterator:

        def take() -> None:
            for _ in range(parts):
                next(iterator)
            arrivals.append(time.perf_counter())

        try:
            take()
        except StopIteration:
            raise RunFailed("The dataset is empty.") from None
        on_poll(iterator)
        _warm_up(take, warmup_seconds)
        standing = _settle_parameters(iterator, take, settle_seconds, on_poll)
        _warm_up(take, _DRAIN_SECONDS)
        window = _measure(take, arrivals, seconds, examples_per_element, arrivals[0] - started, epoch_elements)
        after = tuned_parameters(iterator)
        converged = after is None or standing == after
        on_poll(iterator)
        on_end(iterator)
        return replace(window, converged=converged, pause=find_pause(arrivals))


def repeat_forever(dataset: Any) -> Any:
    """Returns the dataset repeated forever; unchanged if it already is endless."""
    return apply_on_host(dataset, lambda host: host if is_endless(host) else host.repeat())


def without_optimizations(dataset: Any) -> Any:
    """Returns the dataset exactly as written: TensorFlow parallelizes nothing and adds no prefetch."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)


def is_endless(dataset: Any) -> bool:
    """Whether a dataset has infinite cardinality; False if the cardinality is unknown."""
    return bool(int(host_part(dataset).cardinality()) == tf.data.INFINITE_CARDINALITY)


def apply_on_host(dataset: Any, change: Callable[[Any], Any]) -> Any:
    """Returns `dataset` with `change` applied to its end, but before a final copy to a device, which must come last."""
    found = tensorflow_private.split_device_copy(dataset)
    if found is None:
        return change(dataset)
    host, put_behind = found
    return put_behind(change(host))


def host_part(dataset: Any) -> Any:
    """Returns `dataset` without a final copy to a device."""
    found = tensorflow_private.split_device_copy(dataset)
    return dataset if found is None else found[0]


def tuned_parameters(iterator: Any) -> tuple[tuple[str, float], ...] | None:
    """Returns the current value of every tuned parameter that affects the rate, by name; None without a model.

    Buffer sizes are left out: they keep growing for minutes, and affect memory, not the rate.
    """
    try:
        model = tf.data.experimental.get_model_proto(iterator)
    except (tf.errors.OpError, ValueError):
        return None
    return tuple(
        sorted(
            (f"{node.id}/{parameter.name}", effective_value(parameter))
            for node in model.nodes.values()
            for parameter in node.parameters
            if parameter.tunable and parameter.name != "buffer_size"
        )
    )


def effective_value(parameter: Any) -> float:
    """Returns the value in effect for the operator; `value` is that of the model (model.h, struct Parameter)."""
    actual = float(parameter.state_value) if parameter.tunable else -1.0
    return actual if actual >= 0 else float(parameter.value)


_FEWEST_ARRIVALS = 16
_PAUSE_FACTOR = 20.0  # times the usual time between two elements, by judgement: processors and disks are shared
_SHORTEST_PAUSE_SECONDS = 0.05  # the scheduler of a busy machine causes shorter ones
_SHORTEST_ONLY_PAUSE_SECONDS = 0.3  # of a pause that is seen once, and may have been another process


def find_pause(times: Sequence[float]) -> Pause | None:
    """Returns the pauses of an input whose elements arrived at these times, in seconds from the first on; or None."""
    if len(times) <= _FEWEST_ARRIVALS:
        return None
    seconds = np.diff(times)
    (pauses,) = np.nonzero(seconds > max(_PAUSE_FACTOR * float(np.median(seconds)), _SHORTEST_PAUSE_SECONDS))
    if not len(pauses):
        return None
    length = float(np.median(seconds[pauses]))
    if len(pauses) > 1:  # the first one comes sooner where a shuffle buffer is filled before
        return Pause(int(np.median(np.diff(pauses))), length)
    return Pause(int(pauses[0]) + 1, length) if length > _SHORTEST_ONLY_PAUSE_SECONDS else None


def consume(iterator: Iterator[Any], seconds: float, *, fewest: int = 1) -> int:
    """Takes elements for so many seconds, and at least the fewest; returns how many."""
    count, end = 0, time.perf_counter() + seconds
    while count < fewest or time.perf_counter() < end:
        next(iterator)
        count += 1
    return count


def _warm_up(take: Callable[[], Any], seconds: float) -> None:
    end = time.perf_counter() + seconds
    take()
    while time.perf_counter() < end:
        take()


def _settle_parameters(
    iterator: Any, take: Callable[[], Any], limit_seconds: float, poll: Callable[[Any], None]
) -> tuple[tuple[str, float], ...] | None:
    """Consumes until the tuned values are equal at two polls; returns them, or None if they keep changing."""
    end = time.perf_counter() + limit_seconds
    before = tuned_parameters(iterator)
    if not before:
        return before
    while time.perf_counter() < end:
        _warm_up(take, _POLL_SECONDS)
        after = tuned_parameters(iterator)
        poll(iterator)
        if after == before:
            return after
        before = after
    return None


def _measure(
    take: Callable[[], Any],
    arrivals: array[float],
    seconds: float,
    examples_per_element: float,
    first_seconds: float,
    epoch_elements: int | None,
) -> Window:
    until, timer = 0, WindowTimer()
    for steps in itertools.count(1):
        take()
        passed = arrivals[-1] - timer.start
        if passed >= seconds and steps >= until:
            if until or epoch_elements is None:
                break
            until = epoch_elements * -(-steps // epoch_elements)
            longest = max(map(operator.sub, arrivals[-steps:], [timer.start, *arrivals[-steps:]]))
            whole = longest + (passed - longest) * until / steps  # a shuffle buffer is filled once an epoch
            if steps == until or whole > MOST_STRETCH * seconds:
                break
        elif until and passed > MOST_STRETCH * seconds:
            break
    timer.stop()
    latest = [timer.start, *arrivals[-steps:]][-_INTERVALS_KEPT - 1 :]
    return Window(
        steps=steps,
        examples=max(1, round(steps * examples_per_element)),
        wall_seconds=passed,
        cpu_seconds=timer.cpu_seconds,
        first_seconds=first_seconds,
        intervals=tuple(later - earlier for earlier, later in itertools.pairwise(latest)),
        others_seconds=timer.others_seconds,
        cores=timer.cores,
    )


def row_count(element: Any) -> int:
    """Returns the number of examples in one element: the rows of its first component with axes; 1 if there is none."""
    first = _first_with_axes(element)
    if isinstance(first, tf.RaggedTensor):
        return int(first.nrows())
    if isinstance(first, tf.SparseTensor):
        return int(first.dense_shape[0]) if first.dense_shape.shape[0] else 1
    shape = getattr(first, "shape", None)
    return int(shape[0]) if shape is not None and shape.rank else 1


def _first_with_axes(element: Any) -> Any:
    """Returns the first component of an element or its spec that may have rows: a number beside a batch has none."""
    parts = tf.nest.flatten(element, expand_composites=False)
    return next((part for part in parts if getattr(getattr(part, "shape", None), "rank", None) != 0), None)


def examples_per_element(dataset: Any, batched: bool) -> float:
    """Returns the number of examples in one full element of a dataset: the batch size if it is `batched`, else 1."""
    if not batched:
        return 1.0
    shape = getattr(_first_with_axes(dataset.element_spec), "shape", None)
    if shape is not None and shape.rank and shape[0] is not None:
        return float(shape[0])
    return next((float(row_count(element)) for element in dataset.take(1)), 1.0)


assert tensorflow_private.DatasetV2 is tf.data.Dataset, "tf.data.Dataset is the version 2 class"

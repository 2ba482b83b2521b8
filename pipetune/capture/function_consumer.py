"""Training inside a `tf.function` that takes its elements itself, from a dataset or an iterator."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.capture import written_files
from pipetune.capture.distributed_input import DistributedInput
from pipetune.core.measurement import RunFailed, StepSeries, Window
from pipetune.pipelines.errors import step_failed
from pipetune.pipelines.functions import operations, written_captures
from pipetune.timing import windows
from pipetune.timing.iterators import free_iterators
from pipetune.timing.steps import NO_CLOCK, InputRelay, StepRecorder

_DATASETS = (
    tensorflow_private.DatasetV2,
    tensorflow_private.DistributedDataset,
    tensorflow_private.DistributedDatasetFromFunction,
)

_LEAVING = frozenset({"IteratorGetNext", "TakeDataset", "TakeWhileDataset"})
"""Operators of functions that may not read a dataset to its end: `next` that raises there, `take`, and `break`."""


@dataclass(frozen=True, eq=False)
class FunctionInput:
    """What a function takes elements from: a dataset or an iterator, as the script made it or a strategy."""

    value: Any  # the dataset or iterator, which may be a distributed one
    dataset: Any  # the script's own dataset
    handed: DistributedInput | None = None  # how a strategy distributed it

    @property
    def is_dataset(self) -> bool:
        """Whether each call of the function begins at the first element; it else goes on with an iterator."""
        return isinstance(self.value, _DATASETS)

    def made_from(self, dataset: Any) -> Any:
        """Returns another dataset in the form of `value`: as a dataset or a new iterator, and distributed alike."""
        made = dataset if self.handed is None else self.handed.distribute(dataset)
        return made if self.is_dataset else iter(made)


@dataclass(frozen=True, eq=False)
class FunctionCall:
    """A call of a traced function, with the tensors that it is given.

    A dataset is one of these tensors, an iterator one or more. With those of another one whose elements have the same
    types and shapes the function runs on that, without being traced again.
    """

    concrete: Any
    run: Callable[[Any, list[Any], list[Any]], Any]  # the method that runs a function on its arguments and captures
    arguments: Sequence[Any]
    captures: Sequence[Any]

    @functools.cached_property
    def _operations(self) -> set[str]:
        return operations(self.concrete)

    @property
    def takes_datasets(self) -> bool:
        """Whether a dataset may be among what the function is given."""
        return any(tensor.dtype == tf.variant for tensor in (*self.arguments, *self.captures))

    def inputs_among(self, known: Iterable[FunctionInput]) -> list[FunctionInput]:
        """Returns those that the function is given, in the order of its arguments and then of what it captures.

        Args:
            known: what a strategy has distributed before what it consists of.
        """
        places = {id(tensor): place for place, tensor in enumerate((*self.arguments, *self.captures))}
        found: dict[int, FunctionInput] = {}
        for one in known:
            own = [places.get(id(tensor), -1) for tensor in _tensors(one.value)]
            if own and -1 not in own and found.keys().isdisjoint(own):
                found.update(dict.fromkeys(own, one))
        return list(dict.fromkeys(one for _, one in sorted(found.items(), key=lambda item: item[0])))

    def trains(self) -> bool:
        """Whether the function writes to a trainable variable."""
        written = {id(self.captures[place]) for place in written_captures(self.concrete)}
        return bool(written) and any(id(one.handle) in written for one in windows.readable_trainable_variables())

    def steps(self) -> int | None:
        """Returns how many elements the function takes of an iterator: one, or with a loop as its only number says.

        None if it has a loop that none or several whole numbers end.
        """
        if _LOOPS.isdisjoint(self._operations):
            return 1
        limits = [self.arguments[place] for place in _loop_limits(self.concrete) if place < len(self.arguments)]
        numbers = [int(one) for one in limits if one.dtype.is_integer and one.shape.rank == 0]
        return numbers[0] if len(numbers) == 1 else None

    def leaves_datasets_early(self) -> bool:
        """Whether the function may leave a dataset before its end: it counts its elements, or has a `break`."""
        return not _LEAVING.isdisjoint(self._operations)

    def repeated(self, replaced: Iterable[tuple[Any, Any]]) -> Any:
        """Runs the function again, and returns its result.

        Args:
            replaced: datasets or iterators that it is given, each with the one that it takes instead.
        """
        instead = {id(old): new for one in replaced for old, new in zip(*map(_tensors, one), strict=True)}
        arguments, captures = (
            [instead.get(id(tensor), tensor) for tensor in given] for given in (self.arguments, self.captures)
        )
        return self.run(self.concrete, arguments, captures)


def _loop_limits(concrete: Any) -> set[int]:
    """Returns which arguments the condition of the only loop of a function depends on, as they were given."""
    graph_def = concrete.graph.as_graph_def()
    loops = [node for node in graph_def.node if node.op in _LOOPS]
    if len(loops) != 1:
        return set()
    (test,) = (one for one in graph_def.library.function if one.signature.name == loops[0].attr["cond"].func.name)
    inputs = {node.name: node.input for node in test.node_def}
    needed, left = set[str](), list(test.ret.values())
    while left:
        name = left.pop().partition(":")[0]
        if name not in needed:
            needed.add(name)
            left += inputs.get(name, ())
    copies = {node.name: node.input[0] for node in graph_def.node if node.op in ("Identity", "Cast")}
    arguments, found = [tensor.op.name for tensor in concrete.graph.inputs], set[int]()
    for argument, given in zip(test.signature.input_arg, loops[0].input, strict=False):
        name = given.partition(":")[0]
        while name in copies:
            name = copies[name].partition(":")[0]
        if argument.name in needed and name in arguments:
            found.add(arguments.index(name))
    return found


_LOOPS = frozenset({"While", "StatelessWhile"})


def _tensors(value: Any) -> list[Any]:
    return tf.nest.flatten(value, expand_composites=True)  # type: ignore[no-any-return]


_STEPS_AHEAD = 8
"""More steps than the buffers hold that a strategy appends: until they are full, requests are faster than steps."""


class _Clock:
    """Reads the clocks at requests for an element, which are alike: what a call does before and after does not count.

    Args:
        first: elements of a step.
        opens: elements that are not counted.
        closes: elements in all.
    """

    def __init__(self, *, first: int, opens: int, closes: int) -> None:
        self._first, self._opens, self._closes = first, opens, closes
        self.requests = {first, opens, closes}
        self.timer = windows.WindowTimer()
        self.first_read = self.waited = 0.0
        self.closed = False

    def read(self, elements: int, waited: float) -> None:
        """Called at one of `requests`, with what is read before it and the seconds of waiting for that."""
        if elements == self._closes:
            self.timer.stop()
            self.waited, self.closed = waited - self.waited, True
        if elements == self._first:
            self.first_read = time.perf_counter()
        if elements == self._opens:
            self.waited, self.timer = waited, windows.WindowTimer()


class FunctionConsumer:
    """A function that takes its elements itself: called again with the elements of each window."""

    kind = "function"

    def __init__(self, call: FunctionCall, given: FunctionInput, others: Sequence[FunctionInput] = ()) -> None:
        """Stores the call.

        Args:
            call: the script's call, which has not run yet.
            given: what the function trains on.
            others: what else it takes elements from; of the script's iterators it gets new ones, so that they stay as
                they are.
        """
        self.description = "a tf.function"
        self._call, self._given, self._others = call, given, others
        self._elements_per_step = given.handed.handover.elements_per_step if given.handed is not None else 1
        self._synchronize = windows.DeviceSynchronizer()
        self._one_step_per_call = False  # as far as is known

    def window(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        """Implements `Consumer.window`; a window that includes compilation is repeated once."""
        window = self._window(dataset, steps=steps, warmup=warmup)
        return self._window(dataset, steps=steps, warmup=warmup) if window.compile_seconds else window

    def _window(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        each = self._elements_per_step
        ahead = 0 if self._given.handed is None else _STEPS_AHEAD
        measured, skipped = -(-steps // each) * each, max(1, warmup, ahead) * each
        clock = _Clock(first=each, opens=skipped, closes=skipped + measured)
        free_iterators()
        started = time.perf_counter()
        whole, endless = skipped + measured + each, windows.repeat_forever(dataset)
        relay = InputRelay(endless, on_request=clock.read, requests=clock.requests, limit=whole)
        try:
            with windows.as_run_failed("The tf.function"):
                self._train(relay, clock, calls=whole)
        finally:
            relay.close()
            free_iterators()
        return Window(
            steps=measured,
            examples=measured,
            wall_seconds=clock.timer.wall_seconds,
            cpu_seconds=clock.timer.cpu_seconds,
            first_seconds=clock.first_read - started,
            wait_seconds=clock.waited if self._given.handed is None else None,
            compile_seconds=clock.timer.compile_seconds([clock.timer.wall_seconds], new_shapes=False),
            others_seconds=clock.timer.others_seconds,
            cores=clock.timer.cores,
        )

    def _train(self, relay: InputRelay, clock: _Clock, *, calls: int) -> None:
        """Calls the function until the clock has been read for the last time, and waits until its steps are done.

        Raises:
            RunFailed: the function raised before, or does not take the elements.
        """
        replaced, produced, plain = self._replaced(relay), None, self._given.handed is None
        try:
            for _ in range(calls):
                before = relay.elements
                produced = self._run(replaced)
                taken = relay.elements - before  # a strategy may have taken more, or have one left
                if clock.closed or (taken == 0 and plain):
                    break
                self._one_step_per_call = taken == 1 and plain and not self._given.is_dataset
        except (RunFailed, tf.errors.OutOfRangeError):
            if not clock.closed:
                raise
            produced = None  # what a call does with the end of the data does not matter
        if not clock.closed:
            raise RunFailed("The tf.function ended, and has taken too few elements.")
        self._synchronize(produced)

    def _replaced(self, relay: InputRelay) -> list[tuple[Any, Any]]:
        """Returns the inputs of the script's call, each with what the function takes instead."""
        for one in self._others:
            if one.is_dataset:  # it is the script's own
                written_files.report_caches(one.dataset, measuring=True)
        others = [one for one in self._others if not one.is_dataset]
        instead = [(one.value, one.made_from(windows.repeat_forever(one.dataset))) for one in others]
        return [(self._given.value, self._given.made_from(relay.dataset)), *instead]

    def _run(self, replaced: list[tuple[Any, Any]]) -> Any:
        try:
            return self._call.repeated(replaced)
        except tf.errors.OutOfRangeError:
            raise
        except Exception as error:  # whatever the user's own step raises ends this window, not pipetune
            raise step_failed("The tf.function", error) from error

    def record_steps(self, dataset: Any, *, steps: int, seconds: float) -> StepSeries:
        """Implements `Consumer.record_steps`, if each call takes one step."""
        if not self._one_step_per_call:
            return StepSeries(why="A tf.function runs many steps in one call, in which single steps cannot be timed.")
        recorder, relay = StepRecorder(steps=steps, seconds=seconds), InputRelay(dataset)
        free_iterators()
        try:
            replaced, wanted = self._replaced(relay), True
            while wanted:
                recorder.begin()
                recorder.keep_pace(self._run(replaced))
                wanted = recorder.end(relay.read)
        finally:
            relay.close()
            free_iterators()
        return recorder.series()


def obstacle(given: FunctionInput) -> str:
    """Returns why a function cannot be called with another input; '' if it can."""
    if windows.host_part(given.dataset) is not given.dataset:
        return "The dataset copies its elements to a device, from which a tf.function takes them."
    return NO_CLOCK if tensorflow_private.op_determinism_enabled() else ""

"""Observes a coordinator of parameter servers, and what the functions that it sends capture from the script."""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.capture import coordinator_consumer, job_processes
from pipetune.capture.consumption import NoConsumer
from pipetune.capture.coordinator_consumer import CoordinatorConsumer, ScheduledCall
from pipetune.capture.distributed_input import DistributedInput
from pipetune.capture.loops import closed_over
from pipetune.capture.observed_script import ObservedScript
from pipetune.capture.rebuilding import codes_in
from pipetune.core.distribution import COORDINATOR, FIT, CapturedKind, CapturedObject
from pipetune.core.errors import PipetuneError
from pipetune.core.files import is_library
from pipetune.core.measurement import RunFailed
from pipetune.pipelines import call_sites
from pipetune.pipelines.call_sites import called_by_library, inside_workflow

_LOAD_OUTSIDE = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"})
_LOAD_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_LOAD_LOCAL = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW"})
_MOST_PARTS = 64  # items inspected per container, at most
_MOST_FUNCTIONS = 200  # functions inspected, including those that they call, at most


@dataclass(frozen=True, eq=False)
class NameReference:
    """A name as written in the user's code ("train", "self.train"), with its current value."""

    name: str
    value: Any
    file: str
    line: int

    def parts(self) -> Iterator[tuple[str, Any]]:
        """Yields the name with its value, and for a container also each of its items: "splits['train']"."""
        yield self.name, self.value
        if isinstance(self.value, dict):
            entries = list(self.value.items())
        else:
            entries = list(enumerate(self.value)) if isinstance(self.value, list | tuple) else []
        yield from ((f"{self.name}[{key!r}]", value) for key, value in entries[:_MOST_PARTS])


@dataclass(frozen=True, eq=False)
class _Call:
    """A Python function, and the arguments it is known to be called with."""

    function: FunctionType
    arguments: Mapping[str, Any]
    key: tuple[object, ...]  # equal for calls with the same arguments


def name_references(function: Any) -> Iterator[NameReference]:
    """Yields every outside name that a user function refers to, including those of the user functions it calls.

    Of library functions in between, only closures, arguments and their attributes are followed.

    Args:
        function: a function, a method, a `tf.function`, a `functools.partial` or a callable object.
    """
    call = _call_of(function)
    return _in_call(call, set()) if call is not None else iter(())


def _call_of(value: Any, /, *given: Any, **named: Any) -> _Call | None:
    """Returns the Python function that calling `value` with at least these arguments runs; None if unknown."""
    if isinstance(value, functools.partial):
        return _call_of(value.func, *value.args, *given, **{**value.keywords, **named})
    if isinstance(value, MethodType):
        return _call_of(value.__func__, value.__self__, *given, **named)
    if isinstance(value, staticmethod):
        return _call_of(value.__func__, *given, **named)
    inner = inspect.getattr_static(value, "_python_function", None)  # of a tf.function
    if inner is not None:
        return _call_of(inner, *given, **named)
    if isinstance(value, FunctionType):
        key = (value.__code__, *map(id, (*given, *named.values(), *closed_over(value).values())))
        try:
            known = inspect.signature(value, follow_wrapped=False).bind_partial(*given, **named)
        except TypeError:
            return _Call(value, {}, key)
        known.apply_defaults()
        return _Call(value, known.arguments, key)
    called = inspect.getattr_static(type(value), "__call__", None)
    return _call_of(called, value, *given, **named) if isinstance(called, FunctionType) else None


def _in_call(call: _Call, seen: set[object]) -> Iterator[NameReference]:
    if call.key in seen or len(seen) >= _MOST_FUNCTIONS:
        return
    seen.add(call.key)
    if is_library(call.function.__code__.co_filename):
        held = (held for value in call.arguments.values() for held in getattr(value, "__dict__", {}).values())
        reached = [*closed_over(call.function).values(), *call.arguments.values(), *held]
    else:
        found = list(_references_in(call))
        yield from found
        reached = [value for mention in found for _, value in mention.parts()]
    for value in reached:
        inner = _call_of(value)
        if inner is not None:
            yield from _in_call(inner, seen)


def _references_in(call: _Call) -> Iterator[NameReference]:
    """Yields the arguments and outside names that a function and its nested functions load, and their attributes."""
    function = call.function
    for code in codes_in(function.__code__):
        steps = list(dis.get_instructions(code))
        for place, step in enumerate(steps):
            name = str(step.argval)
            free = name in function.__code__.co_freevars
            outside = step.opname in _LOAD_OUTSIDE and (free or not step.opname.endswith("DEREF"))
            if name in call.arguments and (step.opname in _LOAD_LOCAL or step.opname.endswith("DEREF")):
                value = call.arguments[name]
            elif outside and free:
                value = closed_over(function).get(name)
            elif outside:
                value = function.__globals__.get(name, getattr(builtins, name, None))
            else:
                continue
            line = step.positions.lineno if step.positions is not None and step.positions.lineno else 0
            yield NameReference(name, value, code.co_filename, line)
            for member in steps[place + 1 :]:
                if member.opname not in _LOAD_ATTRIBUTE:
                    break
                name, value = f"{name}.{member.argval}", _member(value, str(member.argval))
                yield NameReference(name, value, code.co_filename, line)


def _member(value: Any, name: str) -> Any:
    """Returns an attribute of an object if it can be read without running code of its class; None otherwise."""
    found = inspect.getattr_static(value, name, None)
    if isinstance(found, FunctionType) and inspect.getattr_static(type(value), name, None) is found:
        return MethodType(found, value)
    return found


def find(made: Any, given: Any, *, file: str, line: int) -> tuple[CapturedObject, ...]:
    """Returns what a per-worker dataset captures from this process, without duplicates, with names from the script.

    Args:
        made: the result of `create_per_worker_dataset(given)`.
        given: a dataset function or a distributed dataset.
        file: file of that call, the location of captures whose name is not found.
        line: line of that call.
    """
    held = [tensor for tensor in tensorflow_private.captured_tensors(made) if _is_local_only(tensor)]
    if not held:
        return ()
    found: dict[int, CapturedObject] = {}
    for mention in name_references(tensorflow_private.unwrap_dataset_function(given)):
        for name, value in mention.parts():
            for tensor in held:
                if id(tensor) not in found and any(tensor is one for one in tensorflow_private.handle_tensors(value)):
                    found[id(tensor)] = CapturedObject(_kind(tensor, value), name, mention.file, mention.line)
    for tensor in held:
        found.setdefault(id(tensor), CapturedObject(_kind(tensor), "", file, line))
    return tuple(dict.fromkeys(found.values()))


def _is_local_only(tensor: Any) -> bool:
    """Whether the tensor refers to an object in the script's process that cannot be copied to a worker."""
    if tensor.dtype not in (tf.variant, tf.resource):
        return False
    device = str(getattr(tensor, "device", ""))
    return tensor.dtype == tf.variant or not any(job in device for job in ("/job:ps/", "/job:worker/"))


def _kind(tensor: Any, value: Any = None) -> CapturedKind:
    if tensor.dtype == tf.variant:
        return CapturedKind.DATASET
    return CapturedKind.ITERATOR if isinstance(value, tf.data.Iterator) else CapturedKind.STATE


_USE = "_pipetune_per_worker"  # attribute of a per-worker dataset and its iterators: its use, and its `WorkerDataset`

PARAMETER_SERVER_HINT = (
    "Add --parameter-servers 1 to start a chief and parameter servers in addition to the workers. If the "
    "script starts its cluster itself, omit --workers."
)
"""Hint for a script with parameter servers that is run with `--workers` alone."""


def watch(script: ObservedScript) -> None:
    """Hooks every coordinator until the patches are undone."""
    owner = tf.distribute.coordinator.ClusterCoordinator
    script.wrap(owner, "create_per_worker_dataset", _around_creation)
    script.wrap(owner, "schedule", _around_schedule)
    script.patches.wrap(tensorflow_private.PerWorkerDataset, "__iter__", _around_iter)
    if script.lockstep and job_processes.own_index(os.environ) == 0:
        script.patches.wrap(tf.distribute.Server, "join", _refuse_serving)


def _refuse_serving(original: Any, server: Any) -> None:
    raise PipetuneError("The script calls tf.distribute.Server.join instead of training.", hint=PARAMETER_SERVER_HINT)


def _around_creation(script: ObservedScript, original: Any, coordinator: Any, dataset_fn: Any) -> Any:
    """Notes the dataset that each worker will build: the script may train on it."""
    if script.role() or script.training_begun:
        return original(coordinator, dataset_fn)
    with script.as_role("a look"):
        found = coordinator_consumer.worker_dataset_of(coordinator, dataset_fn)
    with call_sites.restoring_records():
        made = original(coordinator, dataset_fn)
    if found is not None:
        use = script.record_use(found.dataset, "preview", f"ClusterCoordinator.{COORDINATOR}")
        use.distributed_input = DistributedInput(coordinator.strategy, found.dataset, None, COORDINATOR)
        use.captured = find(made, dataset_fn, file=use.file, line=use.line)
        setattr(made, _USE, (use, found))
    return made


def _around_iter(original: Any, dataset: Any) -> Any:
    iterator = original(dataset)
    if hasattr(dataset, _USE):
        setattr(iterator, _USE, getattr(dataset, _USE))
    return iterator


def _around_schedule(
    script: ObservedScript, original: Any, coordinator: Any, fn: Any, args: Any = None, kwargs: Any = None
) -> Any:
    """Begins training at the first call that is given an iterator of a per-worker dataset."""
    if script.training_begun and not inside_workflow():
        script.stop()
    found = [value for value in tf.nest.flatten((args, kwargs)) if hasattr(value, _USE)]
    if script.role() or script.training_begun or not found:
        return original(coordinator, fn, args, kwargs)
    iterator = found[0]
    use, described = getattr(iterator, _USE)
    if script.target_dataset is not None and use.name != script.target_dataset:
        return original(coordinator, fn, args, kwargs)
    by_fit = called_by_library()
    use.role, use.consumer_call = "training", FIT if by_fit else "ClusterCoordinator.schedule"
    frame, _ = call_sites.user_frame(sys._getframe(1))
    file, line = (frame.f_code.co_filename, frame.f_lineno) if frame is not None else (use.file, use.line)
    schedule = functools.partial(original, coordinator)
    scheduled = ScheduledCall(fn, args, kwargs, iterator, schedule, file=file, line=line, by_fit=by_fit)
    consumer = CoordinatorConsumer(scheduled, described, workers=use.distributed_input.handover.workers)
    with script.as_role("a look"):
        try:
            consumer.prepare()
        except RunFailed as failure:
            why = f"The workers cannot run their steps on another dataset: {failure}"
            script.begin_training(use, NoConsumer(why))
            script.stop()
    script.begin_training(use, consumer)
    script.stop()

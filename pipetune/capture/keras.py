"""Observes the datasets given to `Model.fit`, `evaluate` and `predict`, and what trains in `fit`."""

from __future__ import annotations

import ast
import functools
import inspect
import math
import sys
import time
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.capture import consumption, distributed_input, job_processes
from pipetune.capture.consumption import UNCERTAIN_ELEMENTS, UNCERTAIN_SECONDS, Consumption, whole_call_stopwatch
from pipetune.capture.fit_consumer import FitConsumer, InferenceConsumer, build_optimizer, callbacks_of, is_tf_keras
from pipetune.capture.observed_script import ObservedScript
from pipetune.capture.patches import ImportWatcher
from pipetune.capture.rebuilding import is_read_once
from pipetune.capture.validation import in_callbacks
from pipetune.core.distribution import FIT, VALIDATION_DATA
from pipetune.core.results import ResumeMethod, ResumePoint
from pipetune.pipelines import call_sites


def describe_input(value: Any) -> str:
    """Returns a description of data that is not a dataset, and of what could make its input faster.

    The text has no final full stop.
    """
    kinds = {base.__name__ for base in type(value).__mro__}
    if "PyDataset" in kinds:
        return _python_batches(value)
    arrays = tf.nest.flatten(value)
    if arrays and all(isinstance(one, np.ndarray | tf.Tensor) and one.ndim for one in arrays):
        return _arrays(arrays)
    owned = tensorflow_private.OwnedIterator  # not the class of one that is observed
    kind = owned if isinstance(value, owned) else type(value)
    return f"Model.fit was given {kind.__name__}, not a tf.data.Dataset"


def _arrays(arrays: list[Any]) -> str:
    rows = len(arrays[0])
    size = sum(
        one.nbytes if isinstance(one, np.ndarray) else one.shape.num_elements() * one.dtype.size for one in arrays
    )
    kind = type(arrays[0]).__name__
    return (
        f"Model.fit was given {kind} ({rows:,} rows, {size / 2**20:,.1f} MiB), not a tf.data.Dataset; Keras draws row "
        "indices and gathers each batch in one operation, so there is nothing to tune unless the rows need "
        "preprocessing"
    )


def _python_batches(value: Any) -> str:
    """Describes a `PyDataset`: Python code makes every batch, in as many workers as it specifies."""
    kind, workers = type(value).__name__, int(getattr(value, "workers", 1) or 1)
    processes = bool(getattr(value, "use_multiprocessing", False))
    how = f"workers={workers}, use_multiprocessing={processes}, max_queue_size={getattr(value, 'max_queue_size', 10)}"
    sentence = f"Model.fit was given {kind}, not a tf.data.Dataset; Python code makes its batches ({how})"
    seconds = _batch_seconds(value)
    if seconds is None:
        return sentence
    rate, took = (f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in (workers / seconds, 1000 * seconds))
    shared = "" if processes or workers == 1 else ", and fewer because its threads share the GIL"
    return (
        f"{sentence}: one batch took {took} ms, so training gets at most {rate} batches/s{shared}. "
        "More workers with use_multiprocessing=True, or a tf.data.Dataset whose map functions run no Python "
        "code, raise that limit"
    )


def _batch_seconds(value: Any) -> float | None:
    """Returns the seconds of a second access to the first batch; Keras also reads some batches before it trains."""
    try:
        value[0]
        started = time.perf_counter()
        value[0]
        return max(1e-6, time.perf_counter() - started)
    except Exception:  # whatever the user's code raises, `fit` is about to raise it
        return None


_FIT = {
    "keras.src.backend.tensorflow.trainer": "TensorFlowTrainer",
    "keras.src.backend.jax.trainer": "JAXTrainer",
    "keras.src.backend.torch.trainer": "TorchTrainer",
    "tf_keras.src.engine.training": "Model",
}
_LAYERS = ("keras.src.layers", "tf_keras.src.layers")


def watch(script: ObservedScript) -> None:
    """Hooks Keras as soon as it is imported, until the patches are undone."""
    script.patches.enter_context(ImportWatcher([*_FIT, *_LAYERS], functools.partial(_patch, script)))


def _patch(script: ObservedScript, module: ModuleType) -> None:
    """Wraps Keras's training methods, and `adapt` of its layers, in a module just imported."""
    owner = getattr(module, _FIT.get(module.__name__, ""), None)
    if owner is not None:
        script.wrap(owner, "fit", around_fit)
        for name, role in (("evaluate", "evaluation"), ("predict", "prediction")):
            script.wrap(owner, name, functools.partial(_around_inference, name, role))
    if module.__name__ in _LAYERS:
        for layer in list(vars(module).values()):
            if inspect.isclass(layer) and "adapt" in vars(layer):
                script.wrap(layer, "adapt", _around_adapt)


def _around_role(role: str, script: ObservedScript, original: Any, *args: Any, **kwargs: Any) -> Any:
    outermost = not script.role()
    with script.as_role(role):
        given = map(distributed_input.host_dataset, (*args[1:2], kwargs.get("x"), kwargs.get("data")))
        uses = [script.record_use(one, role, role) for one in given if isinstance(one, tensorflow_private.DatasetV2)]
        for use in uses:
            use.steps_per_epoch = _count(kwargs.get("steps", use.steps_per_epoch))
        with whole_call_stopwatch(uses if outermost else []):
            return original(*args, **kwargs)


def _around_inference(
    method: str, role: str, script: ObservedScript, original: Any, model: Any, *args: Any, **kwargs: Any
) -> Any:
    """Runs in place of the script's `predict` or `evaluate`, which is measured where the script trains nothing.

    It is taken for what the script does at its end, or once it has lasted as long as a loop that shows no sign of
    training, if no training can follow; at once where it was taken before, or where the user asks for its dataset.
    """
    call = inspect.signature(original).bind(model, *args, **kwargs)
    dataset, strategy = call.arguments.get("x"), getattr(model, "distribute_strategy", None)
    alone = not (script.lockstep or job_processes.is_multi_worker(strategy))
    if isinstance(dataset, tensorflow_private.DatasetV2) and alone and not (script.role() or script.training_begun):
        use = script.record_use(dataset, role, f"Model.{method}")
        if use.role == role:
            use.inference = InferenceConsumer(model, method, original)
            use.loop = next(script.loop_numbers)
            use.distributed_input = distributed_input.distribute_like_fit(strategy, dataset)
            use.steps_per_epoch = _count(call.arguments.get("steps"))
            caller, called = call_sites.user_frame(sys._getframe())
            if caller is not None and called == "_around_inference":
                use.epochs_certain = is_read_once(caller, method=method, dataset=dataset)
                use.epochs = 1 if use.epochs_certain else None
            if script.is_known_to_train(use) or script.target_dataset == use.name:
                script.begin_inference(use)
            own = call.arguments.get("callbacks") or []
            trains = (_calls_what_trains(code.co_filename) for code, _ in use.call_path)  # before it or after
            if script.target_dataset is None and isinstance(own, list) and not any(trains):
                call.arguments["callbacks"] = [*own, _until_it_is_taken(script, use, callbacks_of(model).Callback)]
    return _around_role(role, script, original, *call.args, **call.kwargs)


_TRAINING = frozenset({"fit", "train", "train_step", "train_on_batch", "apply_gradients", "apply", "minimize"})
"""Methods that train: a script that calls one of these may evaluate first."""


@functools.cache
def _calls_what_trains(file: str) -> bool:
    """Whether a file calls what trains, anywhere; also where that is unknown."""
    tree = call_sites.syntax_tree(file)
    nodes = ast.walk(tree) if tree is not None else ()
    return tree is None or any(isinstance(one, ast.Call) and call_sites.called_name(one) in _TRAINING for one in nodes)


def _until_it_is_taken(script: ObservedScript, use: Consumption, base: type) -> Any:
    """Returns a Keras callback that counts the batches of an inference, and takes it for what the script does."""
    started = time.monotonic()

    class Count(base):
        def on_predict_batch_end(self, _batch: int, logs: Any = None) -> None:
            use.elements += 1
            if use.elements >= UNCERTAIN_ELEMENTS and time.monotonic() - started >= UNCERTAIN_SECONDS:
                script.begin_inference(use)

        on_test_batch_end = on_predict_batch_end

    return Count()


def _around_adapt(script: ObservedScript, original: Any, *args: Any, **kwargs: Any) -> Any:
    if script.role() == "adapt":  # `StringLookup` calls its base class, with what was chosen for it
        return original(*args, **kwargs)

    def adapt(*args: Any, **kwargs: Any) -> Any:
        return original(*map(chosen, args), **{name: chosen(value) for name, value in kwargs.items()})

    def chosen(value: Any) -> Any:
        is_dataset = isinstance(value, tensorflow_private.DatasetV2)
        return script.adapts_to(value) if is_dataset and not script.training_begun else value

    return _around_role("adapt", script, adapt, *args, **kwargs)


def around_fit(script: ObservedScript, original: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
    """Runs in place of the script's `fit`: if it trains on a dataset, pipetune takes over, and this never returns."""
    if script.role() or script.training_begun:
        if script.training_begun and not script.role():
            if script.loop is not None:
                script.loop.abandon(
                    "The script's loop calls Model.fit, or ended before such a call, so no measuring window of the "
                    "loop can finish."
                )
            script.stop()
        return original(model, *args, **kwargs)
    call = inspect.signature(original).bind(model, *args, **kwargs)
    call.apply_defaults()
    given = call.arguments
    validation = distributed_input.host_dataset(given.get("validation_data"))
    if isinstance(validation, tensorflow_private.DatasetV2):
        how = VALIDATION_DATA if validation is given.get("validation_data") else f"distributed {VALIDATION_DATA}"
        checked = script.record_use(validation, "validation", how)
        checked.steps_per_epoch = _count(given.get("validation_steps"))
        often = given.get("validation_freq")
        if isinstance(often, list):  # the numbers of the epochs after which it runs
            epochs = range(given["initial_epoch"] + 1, given["epochs"] + 1)
            often = -(-len(epochs) // max(1, sum(number in epochs for number in often))) or 1
        checked.every = often if isinstance(often, int) else 1
    data = _made_by_creator(model, given.get("x"))
    dataset = distributed_input.host_dataset(data)
    if isinstance(dataset, tensorflow_private.DistributedDatasetFromFunction):
        # built through a coordinator: `coordinators` sees it
        return original(model, *args, **kwargs)
    if not isinstance(dataset, tensorflow_private.DatasetV2):
        for iterator in script.iterators:
            if iterator is dataset:  # tf_keras reads it in threads of TensorFlow: that is no loop of the script
                iterator._pipetune_trains_after = math.inf
        with script.as_role("fit on other data"):
            script.notes.append(describe_input(dataset))
            script.on_other_data(script.notes[-1])
            return original(model, *args, **kwargs)
    use = _record_fit(script, model, dataset, given)
    callbacks = getattr(given.get("callbacks"), "callbacks", given.get("callbacks"))
    callbacks = callbacks if isinstance(callbacks, tuple | list) else [callbacks]
    if any(base.__name__ == "BackupAndRestore" for one in callbacks for base in type(one).__mro__):
        # It saves the epoch, not the position in the data.
        script.record_resuming(ResumePoint(ResumeMethod.EPOCHS, "BackupAndRestore", use.file, use.line))
    script.record_validation(in_callbacks(callbacks, use.call_path), use, how="a callback of Model.fit")
    if script.target_dataset is not None and use.name != script.target_dataset:
        return original(model, *args, **kwargs)
    strategy, handed = getattr(model, "distribute_strategy", None), distributed_input.find_distributed_input(data)
    use.distributed_input = handed or distributed_input.distribute_like_fit(strategy, dataset)
    use.sharded_across_workers = job_processes.is_multi_worker(strategy) and (handed is None or handed.handover.divides)
    if handed is not None and use.steps_per_epoch is not None:
        use.steps_per_epoch *= handed.handover.elements_per_step  # in elements of the dataset; `fit` counts steps
    why = job_processes.switching_obstacle(use.distributed_input, in_step=script.lockstep)
    if why:
        script.begin_training(use, consumption.NoConsumer(why))
        script.stop()
    kept = {name: given[name] for name in ("class_weight",) if given.get(name) is not None}
    build_optimizer(model)
    script.begin_training(use, FitConsumer(model, original, kept, handed=handed))
    script.stop()


def _record_fit(script: ObservedScript, model: Any, dataset: Any, given: dict[str, Any]) -> Consumption:
    use = script.record_use(dataset, "training", FIT)
    use.steps_per_epoch = _count(given.get("steps_per_epoch"))
    epochs, begun = given.get("epochs"), given.get("initial_epoch")
    use.epochs = epochs - begun if isinstance(epochs, int) and isinstance(begun, int) else None
    use.restarts_iterator, use.epochs_certain = not is_tf_keras(model), False
    caller, called = call_sites.user_frame(sys._getframe())
    if caller is not None and called == "around_fit":  # called by the script, not by a library
        use.epochs_certain = is_read_once(caller, method="fit", dataset=dataset)
        use.later_fit = _later_fit(caller, dataset)
    return use


def _count(steps: Any) -> int | None:
    """Returns a number of steps, which may be given as a tensor, such as a cardinality, or as a fraction."""
    return None if steps is None else math.ceil(steps)


def _later_fit(caller: FrameType, dataset: Any) -> tuple[str, int] | None:
    """Returns what `fit` is called with further down, as after a test of a few batches: a variable, and the line.

    None if it is called with no other dataset that there is already.
    """
    variables = {**caller.f_globals, **caller.f_locals}
    tree = call_sites.syntax_tree(caller.f_code.co_filename)
    for call in ast.walk(tree) if tree is not None else ():
        match call:
            case ast.Call(ast.Attribute(attr="fit"), given, named) if call.lineno > caller.f_lineno:
                for value in (*given[:1], *(one.value for one in named if one.arg == "x")):
                    other = variables.get(value.id) if isinstance(value, ast.Name) else None
                    if isinstance(other, tensorflow_private.DatasetV2) and other is not dataset:
                        return ast.unparse(value), call.lineno
    return None


def _made_by_creator(model: Any, value: Any) -> Any:
    """Returns what tf_keras's `fit` trains on when given a DatasetCreator; any other `value` unchanged."""
    if type(value).__name__ != "DatasetCreator" or not is_tf_keras(model):
        return value
    return model.distribute_strategy.distribute_datasets_from_function(value, options=value.input_options)

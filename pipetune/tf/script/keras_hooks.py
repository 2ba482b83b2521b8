"""Hooks Keras's `fit`, `evaluate`, `predict` and `adapt`: `fit` on a dataset is where training begins."""

from __future__ import annotations

import functools
import inspect
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pipetune.core.handover import FIT
from pipetune.tf import private
from pipetune.tf.script import capture, consumers, fit_consumer, handing_over, other_data, strategies, workers
from pipetune.tf.script.consumption import Consumption, whole_call
from pipetune.tf.script.imports import ImportWatcher
from pipetune.tf.script.once import made_once
from pipetune.tf.script.resuming import in_callbacks

if TYPE_CHECKING:
    from pipetune.tf.script.hooks import Hooks

_FIT = {
    "keras.src.backend.tensorflow.trainer": "TensorFlowTrainer",
    "keras.src.backend.jax.trainer": "JAXTrainer",
    "keras.src.backend.torch.trainer": "TorchTrainer",
    "tf_keras.src.engine.training": "Model",
}
_LAYERS = ("keras.src.layers", "tf_keras.src.layers")


def watch(hooks: Hooks) -> None:
    """Hooks Keras as soon as it is imported, until the patches are undone."""
    watcher = ImportWatcher([*_FIT, *_LAYERS], functools.partial(_patch, hooks))
    hooks.patches.at_the_end(watcher.__exit__)
    watcher.__enter__()


def _patch(hooks: Hooks, module: ModuleType) -> None:
    """Wraps Keras's training methods, and `adapt` of its layers, in a module just imported."""
    owner = getattr(module, _FIT.get(module.__name__, ""), None)
    if owner is not None:
        hooks.patches.wrap(owner, "fit", functools.partial(around_fit, hooks))
        for name, role in (("evaluate", "evaluation"), ("predict", "prediction")):
            hooks.patches.wrap(owner, name, functools.partial(_around_role, hooks, role))
    if module.__name__ in _LAYERS:
        for layer in list(vars(module).values()):
            if inspect.isclass(layer) and "adapt" in vars(layer):
                hooks.patches.wrap(layer, "adapt", functools.partial(_around_role, hooks, "adapt"))


def _around_role(hooks: Hooks, role: str, original: Any, *args: Any, **kwargs: Any) -> Any:
    outermost = not hooks.role()
    with hooks.as_role(role):
        given = map(_host_dataset, (*args[1:2], kwargs.get("x"), kwargs.get("data")))
        uses = [hooks.note(value, role, role) for value in given if isinstance(value, private.DatasetV2)]
        for use in uses:
            use.steps_per_epoch = kwargs.get("steps", use.steps_per_epoch)
        with whole_call(uses if outermost else []):
            return original(*args, **kwargs)


def around_fit(hooks: Hooks, original: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
    """Runs in place of the script's `fit`: if it trains on a dataset, pipetune takes over, and this never returns."""
    if hooks.role() or hooks.begun:
        if hooks.begun and not hooks.role():
            if hooks.loop is not None:
                hooks.loop.abandon("The script's loop calls Model.fit, or has ended before one: no window of it ends.")
            hooks.stop()
        return original(model, *args, **kwargs)
    call = inspect.signature(original).bind(model, *args, **kwargs)
    call.apply_defaults()
    given = call.arguments
    validation = _host_dataset(given.get("validation_data"))
    if isinstance(validation, private.DatasetV2):
        checked = hooks.note(validation, "validation", "validation_data of Model.fit")
        checked.steps_per_epoch = given.get("validation_steps")
    data = _made_by_creator(model, given.get("x"))
    dataset = _host_dataset(data)
    if isinstance(dataset, private.DistributedFromFunction):  # built through a coordinator: `coordinators` sees it
        return original(model, *args, **kwargs)
    if not isinstance(dataset, private.DatasetV2):
        with hooks.as_role("fit on other data"):
            hooks.notes.append(other_data.described(dataset))
            return original(model, *args, **kwargs)
    use = _noted(hooks, model, dataset, given)
    for found in in_callbacks(given.get("callbacks"), file=use.file, line=use.line):
        hooks.resumes(found)
    if hooks.wanted is not None and use.name != hooks.wanted:
        return original(model, *args, **kwargs)
    strategy, handed = getattr(model, "distribute_strategy", None), handing_over.of(data)
    use.handed = handed or strategies.taken_by_fit(strategy, dataset)
    use.across_workers = workers.across(strategy) and (handed is None or handed.facts().divides)
    if handed is not None and use.steps_per_epoch is not None:
        use.steps_per_epoch *= handed.facts().elements_per_step  # in elements of the dataset; `fit` counts steps
    why = strategies.why_not_switched(use.handed, in_step=hooks.in_step)
    if why:
        hooks.begin(use, consumers.NoConsumer(why))
        hooks.stop()
    kept = {name: given[name] for name in ("class_weight",) if given.get(name) is not None}
    fit_consumer.build_optimizer(model)
    calls = fit_consumer.callback_list(model)
    hooks.begin(use, fit_consumer.FitConsumer(model, original, kept, calls, handed=handed))
    hooks.stop()


def _noted(hooks: Hooks, model: Any, dataset: Any, given: dict[str, Any]) -> Consumption:
    use = hooks.note(dataset, "training", FIT)
    use.steps_per_epoch = given.get("steps_per_epoch")
    epochs, begun = given.get("epochs"), given.get("initial_epoch")
    use.epochs = epochs - begun if isinstance(epochs, int) and isinstance(begun, int) else None
    use.starts_again = not fit_consumer.of_tf_keras(model)
    caller, called = capture.user_frame(sys._getframe())
    if caller is not None and called == "around_fit":  # called by the script, not by a library
        use.certain = made_once(caller, "fit", data=use.variable)
    use.extra = {"callbacks": given.get("callbacks"), "validation_steps": given.get("validation_steps")}
    return use


def _made_by_creator(model: Any, value: Any) -> Any:
    """Returns what tf_keras's `fit` trains on when given a DatasetCreator; any other `value` unchanged."""
    if type(value).__name__ != "DatasetCreator" or not fit_consumer.of_tf_keras(model):
        return value
    return model.distribute_strategy.distribute_datasets_from_function(value, options=value.input_options)


def _host_dataset(value: Any) -> Any:
    """Returns the script's own dataset if `value` was distributed by a strategy; any other `value` unchanged."""
    handed = handing_over.of(value)
    return value if handed is None else handed.dataset

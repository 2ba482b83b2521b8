"""Models, optimizers and arrays that a step of `pipetune.tune` changes and that cannot be restored are found."""

from __future__ import annotations

import functools
import sys
import types
import warnings
from typing import Any

import pytest
import tensorflow as tf

import pipetune
from pipetune.capture.protection import unrestorable_names, unrestorable_state


class _Module:
    pass


class _Array:
    pass


@pytest.fixture(autouse=True)
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for the classes of PyTorch and JAX that are looked for."""
    nn, optim = types.SimpleNamespace(Module=_Module), types.SimpleNamespace(Optimizer=type("Optimizer", (), {}))
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(nn=nn, optim=optim))
    monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(Array=_Array))


def test_steps_that_change_nothing_of_torch_or_jax_are_silent() -> None:
    weight, constant = tf.Variable(1.0), _Array()

    def step(element: Any) -> None:
        weight.assign_add(1.0)
        print(constant, element)

    assert unrestorable_state(step) == [] and unrestorable_state(print) == []


def test_cell_can_change_what_it_and_its_functions_name() -> None:
    model, frozen = _Module(), _Module()

    def step(element: Any) -> None:
        print(model, element)

    names = {"train_step": step, "frozen": frozen, "params": _Array(), "kept": [_Array()], "other": _Module()}
    code = compile("for x in data:\n    train_step(x)\n    print(frozen, params, kept)\n", "cell", "exec")
    assert unrestorable_names(code, names) == ["model (PyTorch)", "frozen (PyTorch)", "kept[0] (JAX)"]
    assert unrestorable_names(compile("train(x)", "cell", "exec"), names) == []


def test_models_are_found_wherever_the_step_reaches_them() -> None:
    model = _Module()

    class Trainer:
        def __init__(self) -> None:
            self.parts = {"model": _Module()}
            self.weights = _Array()

        def step(self, element: Any) -> None:
            pass

        def __call__(self, element: Any) -> None:
            pass

    def closed_over(element: Any) -> None:
        print(model, element)

    def given(network: Any, element: Any) -> None:
        pass

    members = ["self.parts['model'] (PyTorch)", "self.weights (JAX)"]
    assert unrestorable_state(closed_over) == ["model (PyTorch)"]
    assert unrestorable_state(Trainer().step) == members
    assert unrestorable_state(Trainer()) == [one.replace("self", "Trainer", 1) for one in members]
    assert unrestorable_state(functools.partial(given, model)) == ["argument 1 (PyTorch)"]


def test_jax_arrays_are_listed_where_the_step_can_replace_them() -> None:
    state = {"weights": _Array()}
    weights: Any = _Array()

    def updates_dictionary(element: Any) -> None:
        state["weights"] = element

    def rebinds(element: Any) -> None:
        nonlocal weights
        weights = element

    assert unrestorable_state(updates_dictionary) == ["state['weights'] (JAX)"]
    assert unrestorable_state(rebinds) == ["weights (JAX)"]


def test_tune_warns_before_the_first_step() -> None:
    model, called = _Module(), []

    def step(element: Any) -> None:
        called.append((model, element))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="The step can change model \\(PyTorch\\), which pipetune cannot restore"):
            pipetune.tune(tf.data.Dataset.range(10), step=step)
    assert not called

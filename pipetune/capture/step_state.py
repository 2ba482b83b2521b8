"""What a step function changes that cannot be put back after it was measured: objects of PyTorch and JAX."""

from __future__ import annotations

import dis
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from types import CodeType
from typing import Any

_DEPTH = 3  # attributes and items that are followed: self.trainer.model


def unrestorable_state(step: Callable[..., Any]) -> list[str]:
    """Returns what a step can reach and change, and pipetune cannot restore, in words: "model (PyTorch)".

    Looked at: what the function closes over, the globals that it names, its defaults and bound arguments, and the
    object it is a method of. A JAX array is listed where the step can rebind or replace it: it is in a container, in
    an object, or in a variable that the step declares `global` or `nonlocal`.
    """
    found: dict[str, None] = {}
    for name, value, rebound in _reachable(step):
        for path, kind in _states(name, value, _DEPTH, held=rebound):
            found[f"{path} ({kind})"] = None
    return list(found)


def unrestorable_names(code: CodeType, namespace: Mapping[str, Any]) -> list[str]:
    """Returns the same of what the code of a cell can change: by the names in it, and in functions among them.

    Args:
        code: of the cell.
        namespace: the names of the notebook, which pipetune can bind as they were.
    """
    found: dict[str, None] = {}
    for name in code.co_names:
        value = namespace.get(name)
        if inspect.isfunction(value):
            found |= dict.fromkeys(unrestorable_state(value))
        else:
            found |= dict.fromkeys(f"{path} ({kind})" for path, kind in _states(name, value, _DEPTH, held=False))
    return list(found)


def _reachable(step: Callable[..., Any]) -> Iterator[tuple[str, Any, bool]]:
    """Yields the name and value of each variable that the step uses from outside, and whether it may rebind it."""
    while isinstance(step, functools.partial):
        yield from ((f"argument {index}", value, False) for index, value in enumerate(step.args, 1))
        yield from ((name, value, False) for name, value in step.keywords.items())
        step = step.func
    owner = getattr(step, "__self__", None)
    if owner is not None and not inspect.ismodule(owner):
        yield "self", owner, True
    function = inspect.unwrap(getattr(step, "__func__", step))
    if not inspect.isfunction(function):
        if not inspect.isbuiltin(function):
            yield type(step).__name__, step, True  # an object with __call__
        return
    variables = inspect.getclosurevars(function)
    names = {**variables.globals, **variables.nonlocals}
    code = function.__code__
    stored = _stored_names(function)
    yield from ((name, value, name in stored) for name, value in names.items())
    arguments = code.co_varnames[: code.co_argcount][::-1]
    yield from (
        (name, value, False) for name, value in zip(arguments, (function.__defaults__ or ())[::-1], strict=False)
    )


def _stored_names(function: Any) -> set[str]:
    return {one.argval for one in dis.get_instructions(function) if one.opname in ("STORE_GLOBAL", "STORE_DEREF")}


def _states(name: str, value: Any, depth: int, *, held: bool) -> Iterator[tuple[str, str]]:
    """Yields path and library of each state found in a value.

    Args:
        held: whether the step can put another object in its place.
    """
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and isinstance(value, (torch.nn.Module, torch.optim.Optimizer)):
        yield name, "PyTorch"
    elif jax is not None and isinstance(value, jax.Array):
        if held:
            yield name, "JAX"
    elif depth and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _states(f"{name}[{key!r}]", item, depth - 1, held=True)
    elif depth and isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _states(f"{name}[{index}]", item, depth - 1, held=held or isinstance(value, list))
    elif depth and not inspect.ismodule(value) and not inspect.isroutine(value) and not inspect.isclass(value):
        for key, item in getattr(value, "__dict__", {}).items():
            yield from _states(f"{name}.{key}", item, depth - 1, held=True)

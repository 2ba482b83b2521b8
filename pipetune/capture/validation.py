"""The data that a script validates on after each epoch by code of its own: nothing has read it when training begins."""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from pipetune import tensorflow_private
from pipetune.capture.early_ends import SHORTER, UNKNOWN, KnownVariables, assigned_in, exits_of
from pipetune.capture.loops import called_name
from pipetune.capture.rebuilding import loops_at, spans, tree_of
from pipetune.pipelines import call_sites

_LEAVING = ast.Return | ast.Break | ast.Continue
_MOST_CALLS = 3  # functions inside each other that are followed, by judgement


def in_loop(read: call_sites.CallPath, frame: FrameType | None) -> Iterator[tuple[Any, call_sites.CallPath]]:
    """Yields each dataset that every iteration of the loop around training reads to its end, with the call stack there.

    What the loop does under a condition that is not known to hold is left out, as `if epoch % 5 == 0: evaluate()`.

    Args:
        read: the user's call stack where an iterator of the training data is made.
        frame: the innermost frame of it.
    """
    for index, step in enumerate(read):
        if frame is None or frame.f_code is not step[0]:
            return
        if loops := loops_at(step):
            known = KnownVariables.in_frame(frame, assigned_in(loops[0]))
            yield from _placed(_read_by(loops[0].body, known, _MOST_CALLS), step[0], read[index + 1 :])
            return
        frame, _ = call_sites.user_frame(frame.f_back)


def in_callbacks(callbacks: Iterable[Any], fit: call_sites.CallPath) -> Iterator[tuple[Any, call_sites.CallPath]]:
    """Yields each dataset that a callback of the script reads to its end after each epoch, with the call stack there.

    Args:
        callbacks: of `fit`.
        fit: the user's call stack where it is called.
    """
    for one in callbacks:
        method = inspect.getattr_static(type(one), "on_epoch_end", None)
        if isinstance(method, FunctionType) and not call_sites.is_library(method.__code__.co_filename):
            yield from _placed(_read_in_function(method, [one], {}, _MOST_CALLS), method.__code__, fit)


def _placed(
    found: Iterable[tuple[Any, ast.stmt]], code: CodeType, callers: call_sites.CallPath
) -> Iterator[tuple[Any, call_sites.CallPath]]:
    """Yields datasets with the call stack of what reads them: statements in `code`, which `callers` run."""
    places = [(line or 0, column or 0) for line, _, column, _ in code.co_positions()]
    for dataset, statement in found:
        offset = next((2 * index for index, place in enumerate(places) if spans(statement, place)), None)
        if offset is not None:
            yield dataset, ((code, offset), *callers)


def _read_by(body: Sequence[ast.stmt], known: KnownVariables, calls: int) -> Iterator[tuple[Any, ast.stmt]]:
    """Yields the datasets that statements read to the end, each with the outermost statement that reads it.

    Args:
        body: the statements.
        known: the values that they see.
        calls: how many functions inside each other may be followed from here.
    """
    for statement in body:
        match statement:
            case ast.If(test=test, body=then, orelse=otherwise):
                holds = known.truth(test)
                taken = [*then, *otherwise] if holds is None else then if holds else otherwise
                if holds is not None:
                    yield from _read_by(taken, known, calls)
                if any(isinstance(node, _LEAVING) for one in taken for node in ast.walk(one)):
                    return
            case ast.With(body=inner) | ast.Try(body=inner):
                yield from _read_by(inner, known, calls)
            case ast.For(iter=iterated, body=inner):
                dataset = _iterated(iterated, known)
                if dataset is not None and not any(map(known.may_hold, exits_of(inner))):
                    yield dataset, statement
            case ast.Expr() | ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.Return():
                for part in ast.walk(statement):
                    found = list(_read_in_call(part, known, calls)) if isinstance(part, ast.Call) else []
                    if isinstance(part, ast.ListComp | ast.SetComp | ast.DictComp):
                        found.append(_iterated(part.generators[0].iter, known))
                    yield from ((dataset, statement) for dataset in found if dataset is not None)
        if isinstance(statement, _LEAVING):
            return


def _iterated(expression: ast.expr, known: KnownVariables) -> Any:
    """Returns the dataset that a `for` statement iterates, as in `enumerate(data)` or `tqdm(data)`; None if none."""
    match expression:
        case ast.Call(func=ast.Attribute(value=owner, attr=method)) if _dataset(owner, known) is not None:
            return _dataset(owner, known) if method == "as_numpy_iterator" else None
        case ast.Call(args=[first, *_]) if called_name(expression) not in SHORTER:
            return _dataset(first, known)
    return _dataset(expression, known)


def _dataset(expression: ast.expr, known: KnownVariables) -> Any:
    value = known.value(expression)
    return value if isinstance(value, tensorflow_private.DatasetV2) else None


def _read_in_call(call: ast.Call, known: KnownVariables, calls: int) -> Iterator[Any]:
    """Yields the datasets that a call reads to the end: `evaluate` of a Keras model, or a function of the script."""
    called, named = known.value(call.func), {one.arg: known.value(one.value) for one in call.keywords if one.arg}
    function = called.__func__ if isinstance(called, staticmethod) else called
    if isinstance(function, FunctionType) and not call_sites.is_library(function.__code__.co_filename):
        values = [known.value(one) for one in call.args]
        if isinstance(call.func, ast.Attribute) and function is called:
            owner = known.value(call.func.value)
            values = values if isinstance(owner, ModuleType | type) else [owner, *values]
        yield from (dataset for dataset, _ in _read_in_function(function, values, named, calls))
    elif called_name(call) == "evaluate" and "steps" not in named:
        for one in (*map(known.value, call.args[:1]), named.get("x")):
            if isinstance(one, tensorflow_private.DatasetV2):
                yield one


def _read_in_function(
    function: FunctionType, values: Sequence[Any], named: Mapping[str, Any], calls: int
) -> Iterator[tuple[Any, ast.stmt]]:
    """Yields what a function of the script reads, as `_read_by`.

    Args:
        function: a Python function.
        values: of its positional arguments, `UNKNOWN` for those of which none is known.
        named: the values of its keyword arguments.
        calls: as in `_read_by`, this one included.
    """
    code, defaults = function.__code__, function.__defaults__ or ()
    tree = tree_of(code.co_filename) if calls else None
    definition = next(iter(call_sites.definitions_of(code, tree)), None) if tree is not None else None
    if definition is None:
        return
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    usual = dict(zip(reversed(parameters[: code.co_argcount]), reversed(defaults), strict=False))
    names = {**function.__globals__, **_closed_over(function), **dict.fromkeys(parameters, UNKNOWN), **usual}
    names |= {**(function.__kwdefaults__ or {}), **dict(zip(parameters, values, strict=False)), **named}
    yield from _read_by(definition.body, KnownVariables(names, assigned_in(definition)), calls - 1)


def _closed_over(function: FunctionType) -> dict[str, Any]:
    """Returns the values of the variables of outer functions that a function uses."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not assigned yet
            found[name] = cell.cell_contents
    return found

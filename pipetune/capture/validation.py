"""The data that a script validates on while it trains, by code of its own: nothing has read it when training begins."""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from pipetune import tensorflow_private
from pipetune.capture.distributed_input import host_dataset
from pipetune.capture.early_ends import SHORTER, exits_of, header_at
from pipetune.capture.loops import UNKNOWN, KnownVariables, assigned_in, closed_over
from pipetune.capture.rebuilding import loops_at, spans, start_of, tree_of
from pipetune.core.files import is_library
from pipetune.pipelines import call_sites

_LEAVING = ast.Return | ast.Break | ast.Continue
_MOST_CALLS = 3  # functions inside each other that are followed, by judgement
_MOST_ITERATIONS = 9  # of a loop over datasets, by judgement
_READING_ALL = frozenset({"dict", "list", "max", "min", "set", "sorted", "sum", "tuple"})  # of a generator expression
_AFTER = {"on_epoch_end": False, "on_train_batch_end": True, "on_batch_end": True}
"""The methods of a Keras callback that may validate, and whether they run after a step."""


@dataclass(frozen=True)
class Reading:
    """A dataset that the script reads to its end while it trains."""

    dataset: Any
    path: call_sites.CallPath  # the user's call stack where it is read
    every: int = 1  # epochs of training between two passes, or training steps
    in_steps: bool = False


def in_loop(read: call_sites.CallPath, frame: FrameType | None, *, steps: int | None = 1) -> Iterator[Reading]:
    """Yields what the loops around training read to its end: after each epoch, or now and then.

    What a loop does under a condition that is not known is left out, apart from one that holds in every N-th iteration,
    as `if epoch % 5 == 0: evaluate()`.

    Args:
        read: the user's call stack where an iterator of the training data is made.
        frame: the frame that takes an element of it, which is in a call of that stack, or in one further in.
        steps: elements that it takes there; None: not known.
    """
    of_epochs = next(((step[0], start_of(loops[0])) for step in read if (loops := loops_at(step))), None)
    while frame is not None:
        path = call_sites.path_from(frame)
        header = header_at(path[0])
        for loop in [*([header] if header else []), *loops_at(path[0])]:
            known = KnownVariables.in_frame(frame, assigned_in(loop))
            found = _placed(_read_by(loop.body, known, _MOST_CALLS), frame.f_code, path[1:])
            if of_epochs == (frame.f_code, start_of(loop)):
                yield from found
                return
            if steps is not None:
                in_steps = (replace(one, every=steps * one.every, in_steps=True) for one in found)
                yield from (one for one in in_steps if one.every > 1)
                iterations = known.iterations(loop)
                steps = None if iterations is None else steps * iterations
        frame, _ = call_sites.user_frame(frame.f_back)


def in_callbacks(callbacks: Iterable[Any], fit: call_sites.CallPath) -> Iterator[Reading]:
    """Yields what the callbacks of the script read to its end after each epoch, or after every N-th epoch or batch.

    Args:
        callbacks: of `fit`.
        fit: the user's call stack where it is called.
    """
    for one, (name, in_steps) in itertools.product(callbacks, _AFTER.items()):
        method = inspect.getattr_static(type(one), name, None)
        if isinstance(method, FunctionType) and not is_library(method.__code__.co_filename):
            for found in _placed(_read_in_function(method, [one], {}, _MOST_CALLS), method.__code__, fit):
                if found.every > 1 or not in_steps:
                    yield replace(found, in_steps=in_steps)


_Read = tuple[Any, ast.stmt, int]
"""A dataset, the outermost statement that reads it to its end, and in how many iterations that runs once."""


def _placed(found: Iterable[_Read], code: CodeType, callers: call_sites.CallPath) -> Iterator[Reading]:
    """Yields what statements in `code` read, which `callers` run."""
    places = [(line or 0, column or 0) for line, _, column, _ in code.co_positions()]
    for dataset, statement, every in found:
        offset = next((2 * index for index, place in enumerate(places) if spans(statement, place)), None)
        if offset is not None:
            yield Reading(dataset, ((code, offset), *callers), every)


def _read_by(body: Sequence[ast.stmt], known: KnownVariables, calls: int) -> Iterator[_Read]:
    """Yields what statements read; from here `calls` functions inside each other may be followed."""
    for statement in body:
        match statement:
            case ast.If(test=test, body=then, orelse=otherwise):
                holds = known.truth(test)
                taken = [*then, *otherwise] if holds is None else then if holds else otherwise
                period = 1 if holds is not None else known.period(test)
                if period is not None:
                    for dataset, reads, every in _read_by(taken if holds is not None else then, known, calls):
                        yield dataset, reads, every * period
                if any(isinstance(node, _LEAVING) for one in taken for node in ast.walk(one)):
                    return
            case ast.With(body=inner) | ast.Try(body=inner):
                yield from _read_by(inner, known, calls)
            case ast.For(target=target, iter=iterated, body=inner):
                dataset = _iterated(iterated, known)
                if any(map(known.may_hold, exits_of(inner))):
                    continue
                if dataset is not None:
                    yield dataset, statement, 1
                for names in _names_in_turn(target, iterated, known):
                    if assigned_in(ast.Module(inner, [])).isdisjoint(names):
                        yield from _read_by(inner, known.with_names(names), calls)
            case ast.Expr() | ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.Return():
                for part in ast.walk(statement):
                    found = list(_read_in_call(part, known, calls)) if isinstance(part, ast.Call) else []
                    if isinstance(part, ast.ListComp | ast.SetComp | ast.DictComp):
                        found.append((_iterated(part.generators[0].iter, known), 1))
                    yield from ((dataset, statement, every) for dataset, every in found if dataset is not None)
        if isinstance(statement, _LEAVING):
            return


def _names_in_turn(target: ast.expr, iterated: ast.expr, known: KnownVariables) -> Iterator[dict[str, Any]]:
    """Yields the variables of a loop over a list, or over the values or items of a dict, in each of its iterations."""
    held: Any = known.value(iterated)
    match iterated:
        case ast.Call(func=ast.Attribute(value=owner, attr="values" | "items" as method), args=[]):
            table = known.value(owner)
            held = list(getattr(table, method)()) if type(table) is dict else UNKNOWN
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            held = [known.value(one) for one in parts]
    for item in held if type(held) in (list, tuple) and len(held) <= _MOST_ITERATIONS else ():
        match target:
            case ast.Name(id=name):
                yield {name: item}
            case ast.Tuple(elts=[*parts]) if type(item) is tuple and len(item) == len(parts):
                yield {part.id: one for part, one in zip(parts, item, strict=True) if isinstance(part, ast.Name)}


def _iterated(expression: ast.expr, known: KnownVariables) -> Any:
    """Returns the dataset that a `for` statement iterates, as in `enumerate(data)` or `tqdm(data)`; None if none."""
    match expression:
        case ast.Call(func=ast.Attribute(value=owner, attr=method)) if _dataset(owner, known) is not None:
            return _dataset(owner, known) if method == "as_numpy_iterator" else None
        case ast.Call(args=[first, *_]) if call_sites.called_name(expression) not in SHORTER:
            return _dataset(first, known)
    return _dataset(expression, known)


def _dataset(expression: ast.expr, known: KnownVariables) -> Any:
    value = host_dataset(known.value(expression))
    return value if isinstance(value, tensorflow_private.DatasetV2) else None


def _read_in_call(call: ast.Call, known: KnownVariables, calls: int) -> Iterator[tuple[Any, int]]:
    """Yields what a call reads to its end, and in how many calls once: a function of the script, `evaluate`, `sum`."""
    called = tensorflow_private.undecorated(known.value(call.func))
    named = {one.arg: known.value(one.value) for one in call.keywords if one.arg}
    function = called.__func__ if isinstance(called, staticmethod) else called
    if isinstance(function, FunctionType) and not is_library(function.__code__.co_filename):
        values = [known.value(one) for one in call.args]
        if isinstance(call.func, ast.Attribute) and function is called:
            owner = known.value(call.func.value)
            values = values if isinstance(owner, ModuleType | type) else [owner, *values]
        yield from ((dataset, every) for dataset, _, every in _read_in_function(function, values, named, calls))
    elif isinstance(first := next(iter(call.args), None), ast.GeneratorExp):
        if call_sites.called_name(call) in _READING_ALL:
            yield _iterated(first.generators[0].iter, known), 1
    elif call_sites.called_name(call) == "evaluate" and "steps" not in named:
        for one in (*map(known.value, call.args[:1]), named.get("x")):
            if isinstance(one, tensorflow_private.DatasetV2):
                yield one, 1


def _read_in_function(
    function: FunctionType, values: Sequence[Any], named: Mapping[str, Any], calls: int
) -> Iterator[_Read]:
    """Yields what a function reads, called with these values, or `UNKNOWN` ones; it is itself one of the `calls`."""
    code, defaults = function.__code__, function.__defaults__ or ()
    tree = tree_of(code.co_filename) if calls else None
    definition = next(iter(call_sites.definitions_of(code, tree)), None) if tree is not None else None
    if definition is None:
        return
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    usual = dict(zip(reversed(parameters[: code.co_argcount]), reversed(defaults), strict=False))
    names = {**function.__globals__, **closed_over(function), **dict.fromkeys(parameters, UNKNOWN), **usual}
    names |= {**(function.__kwdefaults__ or {}), **dict(zip(parameters, values, strict=False)), **named}
    yield from _read_by(definition.body, KnownVariables(names, assigned_in(definition)), calls - 1)

"""Records, for every dataset created while recording is active, the call in the user's source that created it."""

from __future__ import annotations

import ast
import contextlib
import dis
import functools
import linecache
import os
import random
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.files import is_library
from pipetune.core.pipeline import SourceLocation
from pipetune.pipelines.objects import inherits, live_instances

_workflow_thread = threading.local()


@contextlib.contextmanager
def running_workflow() -> Iterator[None]:
    """Context manager: iterators used on this thread count as pipetune's, not as the script's."""
    before = getattr(_workflow_thread, "busy", False)
    _workflow_thread.busy = True
    try:
        yield
    finally:
        _workflow_thread.busy = before


def inside_workflow() -> bool:
    """Whether this thread is currently running pipetune's work."""
    return bool(getattr(_workflow_thread, "busy", False))


_WRAPPING = ("pipetune.", "tensorflow.python.autograph.")

_FORWARDING = ("pipetune.capture.", "pipetune.pipelines.call_sites", "pipetune.tensorflow_private")


def called_by_library() -> bool:
    """Whether the intercepted call came from Keras or TensorFlow rather than from the user."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_WRAPPING):
        frame = frame.f_back
    return frame is not None and is_library(frame.f_code.co_filename)


_SITE = "_pipetune_site"
_PATH = "_pipetune_path"
_SEEDS = "_pipetune_seeds"


@dataclass(frozen=True)
class Site:
    """A call site in user code: code object and bytecode offset, or (`code` None) a statement AutoGraph converted."""

    code: CodeType | None
    offset: int
    file: str
    line: int
    scope: str
    method: str
    library: str  # the package of the called function; "" for TensorFlow


FramePosition = tuple[CodeType, int]
"""The position of a frame: its code object and the bytecode offset in it."""

CallPath = tuple[FramePosition, ...]
"""The user's frames on a call stack, innermost first."""

Span = tuple[int | None, int | None, int | None, int | None]
"""First and last line, first and last column."""

_calls: dict[tuple[Site, str], Counter[CallPath]] = {}
"""How many datasets each call site has created, by its site, their class and the call stack; () for further stacks."""

_live_datasets: weakref.WeakSet[Any] = weakref.WeakSet()  # every recorded dataset that is still alive

_MOST_FRAMES = 8  # frames reported per call stack
_MAX_PATHS = 64  # distinct call stacks kept per call site


class Recorder:
    """Context manager: records the source location of every dataset created while it is active."""

    def __enter__(self) -> Recorder:
        self._original = tensorflow_private.DatasetV2.__init__
        original = self._original

        @functools.wraps(original)
        def record(dataset: Any, *args: Any, **kwargs: Any) -> None:
            original(dataset, *args, **kwargs)
            _record(dataset)

        tensorflow_private.DatasetV2.__init__ = record
        return self

    def __exit__(self, *_error: object) -> None:
        tensorflow_private.DatasetV2.__init__ = self._original


def location(dataset: Any) -> SourceLocation | None:
    """Returns the source span of the call that created `dataset`; None if it was not recorded."""
    found = site_of(dataset)
    return None if found is None else _span(found)


def site_of(dataset: Any) -> Site | None:
    """Returns the call site in the user's code that created `dataset`; None if it was not recorded."""
    found: Site | None = getattr(dataset, _SITE, None)
    return found


def live_datasets() -> list[Any]:
    """Returns all recorded datasets that are still alive, including those of TensorFlow's private classes."""
    return list(_live_datasets)


def datasets_of(tensors: Iterable[Any], *, recorded: bool = False) -> list[Any]:
    """Returns the dataset of each variant tensor; None for one that is of no dataset.

    Args:
        tensors: outputs of datasets.
        recorded: whether only recorded datasets are looked at; searching all objects takes some tenths of a second.
    """
    tensors = list(tensors)
    if recorded or not tensors:
        datasets = live_datasets()
    else:
        datasets = live_instances(lambda kind: inherits(kind, tensorflow_private.DatasetV2))
    return [next((one for one in datasets if one._variant_tensor is tensor), None) for tensor in tensors]


def call_sites() -> list[SourceLocation]:
    """Returns the source spans of all calls that created datasets, without duplicates."""
    return list(dict.fromkeys(_span(found) for found, _ in _calls))


@dataclass
class _SeedCount:
    """Counts the seeds that were drawn after `tf.random.set_seed`, by how far their generator went in between."""

    count: int = 0
    generator: Any = None  # as it was last seen
    state: random.Random = field(default_factory=random.Random)

    def update(self) -> int:
        """Returns the number of seeds drawn so far; where there were several since the last time, it counts two."""
        generator, new = tensorflow_private.op_seed_generator(), 0
        if generator is None:
            return self.count
        if generator is not self.generator:
            self.generator, new = generator, 2  # it starts anew
        while new < 2 and self.state.getstate() != generator.getstate():
            self.state.randint(0, 2**31 - 1)  # as TensorFlow draws one
            new += 1
        self.state.setstate(generator.getstate())
        self.count += new
        return self.count


_seeds = _SeedCount()


def seeds_drawn(dataset: Any) -> int | None:
    """Returns the number of seeds that the script had drawn once `dataset` was made; None if that is not known."""
    return getattr(dataset, _SEEDS, None)


def path_of(dataset: Any) -> CallPath:
    """Returns the user's call stack at the creation of `dataset`; empty if it was not recorded."""
    return getattr(dataset, _PATH, ())


def enclosing_calls(dataset: Any) -> tuple[SourceLocation, ...]:
    """Returns the script's calls around the one that created `dataset`, innermost first."""
    return _locations(path_of(dataset))


def other_enclosing_calls(dataset: Any) -> tuple[tuple[SourceLocation, ...], ...]:
    """Returns `enclosing_calls` of other datasets from the same call site, where it differs from that of `dataset`."""
    own = path_of(dataset)
    return tuple(_locations(path) for path in _alike(dataset) if path != own)


def datasets_at_call(dataset: Any) -> int:
    """Returns how many datasets of its class the call site of `dataset` has created, at least 1."""
    return max(1, _alike(dataset).total())


def _alike(dataset: Any) -> Counter[CallPath]:
    """Returns the call stacks at which the call site of `dataset` has created datasets of its class."""
    found = site_of(dataset)
    return Counter() if found is None else _calls.get((found, type(dataset).__name__), Counter())


def _locations(path: CallPath) -> tuple[SourceLocation, ...]:
    path = path[: _MOST_FRAMES + 1]
    return _spans(path, tuple(code.co_filename for code, _ in path))  # code objects of two files may compare equal


@functools.lru_cache(maxsize=1024)
def _spans(path: CallPath, files: tuple[str, ...]) -> tuple[SourceLocation, ...]:
    """Returns the calls of a call stack in which others run: all but the innermost one."""
    found = []
    for (called, _), step, name in zip(path, path[1:], files[1:], strict=False):
        line, end_line, column, end_column = _generator_call(step, called, name) or span_of(step)
        if line is None or end_line is None or column is None or end_column is None:
            break
        found.append(SourceLocation(_path(name), line, column, end_line, end_column, "", step[0].co_qualname))
    return tuple(found)


def _generator_call(step: FramePosition, called: CodeType, file: str) -> Span | None:
    """Returns the span of the call in the header of a `for` statement whose generator runs; None elsewhere.

    A generator runs where the statement takes an element, and CPython gives the statement as the position.
    """
    code, offset = step
    if dis.opname[code.co_code[offset]] != "FOR_ITER":
        return None
    place = start_of(step)
    headers = [
        loop.iter
        for loop in ast.walk(syntax_tree(file) or ast.Module([], []))
        if isinstance(loop, ast.For) and place in [(one.lineno, one.col_offset) for one in (loop, loop.iter)]
    ]
    calls = [node for header in headers for node in ast.walk(header) if isinstance(node, ast.Call)]
    found = [
        (one.lineno, one.end_lineno or 0, one.col_offset, one.end_col_offset or 0)
        for one in calls
        if called_name(one) == called.co_name
    ]
    return found[0] if len(found) == 1 else None


def path_from(frame: FrameType | None) -> CallPath:
    """Returns the user's frames of the call stack that ends in `frame`."""
    found = []
    while frame is not None:
        if not is_library(frame.f_code.co_filename):
            found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(found)


def same_calls(one: CallPath, other: CallPath) -> bool:
    """Whether two call stacks are in the same calls.

    Their positions may differ all the same: CPython ends a call at another instruction once it has specialized it.
    """
    return len(one) == len(other) and all(
        here[0] is there[0] and span_of(here) == span_of(there) for here, there in zip(one, other, strict=True)
    )


def start_of(step: FramePosition) -> tuple[int, int] | None:
    """Returns line and column at which the code at a frame's position starts; None if they are not known."""
    line, _, column, _ = span_of(step)
    return None if line is None or column is None else (line, column)


def span_of(step: FramePosition) -> Span:
    """Returns line, end line, column and end column of the code at a frame's position; columns count UTF-8 bytes."""
    code, offset = step
    return list(code.co_positions())[offset // 2]


@contextlib.contextmanager
def restoring_records() -> Iterator[None]:
    """Context manager: discards what is recorded inside, for a call that pipetune repeats and the script makes once."""
    before, living = {record: paths.copy() for record, paths in _calls.items()}, live_datasets()
    try:
        yield
    finally:
        clear()
        _calls.update(before)
        _live_datasets.update(living)


def clear() -> None:
    """Clears everything that was recorded; for a new script in the same process."""
    _calls.clear()
    _live_datasets.clear()


def forget(file: str) -> None:
    """Discards what was recorded of calls in `file`, which is about to run again: a cell of a notebook."""
    for record in [record for record in _calls if record[0].file == file]:
        del _calls[record]
    for dataset in live_datasets():
        found = site_of(dataset)
        if found is not None and found.file == file:
            _live_datasets.discard(dataset)


def user_frame(frame: FrameType | None) -> tuple[FrameType | None, str]:
    """Returns the innermost frame of the user's code, and the name of the library function it called."""
    user, called = _user_and_called(frame)
    return user, _callee_name(called)


def _user_and_called(frame: FrameType | None) -> tuple[FrameType | None, FrameType | None]:
    """Returns the innermost frame of the user's code, and the frame of the library function it called."""
    called: FrameType | None = None
    while frame is not None and is_library(frame.f_code.co_filename):
        if frame.f_code.co_name not in _WRAPPERS:
            called = frame
        frame = frame.f_back
    return frame, called


def _package(called: FrameType | None) -> str:
    """Returns the package that a library function belongs to; '' for TensorFlow."""
    name = str(called.f_globals.get("__name__", "")).partition(".")[0] if called is not None else ""
    return "" if name == "tensorflow" else name


_WRAPPERS = frozenset(
    {"error_handler", "wrapper", "wrapped", "op_dispatch_handler", "__call__", "__new__", "converted_call",
     "_call_unconverted"}
)  # fmt: skip


def _callee_name(frame: FrameType | None) -> str:
    """Returns the name by which the user called a library function; for a constructor, the name of the class."""
    if frame is None:
        return ""
    if frame.f_code.co_name == "__init__" and frame.f_code.co_varnames:
        return type(frame.f_locals.get(frame.f_code.co_varnames[0])).__name__.removesuffix("V2")
    return frame.f_code.co_name


def _record(dataset: Any) -> None:
    if hasattr(dataset, _SITE):
        return  # two recorders are active: the script itself uses `pipetune.record`
    frame, called = _user_and_called(sys._getframe(2))
    if frame is None or _inside_pipetune(sys._getframe(2), frame):
        return
    code, method, library = frame.f_code, _callee_name(called), _package(called)
    if "__autograph_generated_file" in code.co_filename:
        origin = tensorflow_private.autograph_origin(code.co_filename, frame.f_lineno)
        if origin is None:
            return
        found = Site(None, 0, origin[0], origin[1], origin[2], method, library)
    else:
        found = Site(code, frame.f_lasti, code.co_filename, frame.f_lineno, code.co_qualname, method, library)
    object.__setattr__(dataset, _SITE, found)
    _live_datasets.add(dataset)
    if tf.executing_eagerly():
        object.__setattr__(dataset, _SEEDS, _seeds.update())
    path = path_from(frame)
    object.__setattr__(dataset, _PATH, path)
    paths = _calls.setdefault((found, type(dataset).__name__), Counter())
    paths[path if len(paths) < _MAX_PATHS else ()] += 1


def _inside_pipetune(frame: FrameType | None, user: FrameType) -> bool:
    """Whether pipetune itself creates this dataset, in a replay or a measurement.

    Modules in `_FORWARDING` only pass on calls that the user or a library has made.
    """
    while frame is not None and frame is not user:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("pipetune.") and not module.startswith(_FORWARDING):
            return True
        frame = frame.f_back
    return False


def _path(filename: str) -> str:
    """Returns the absolute path of a source file; the name of a cell of an IPython terminal, which has none, as is."""
    return filename if filename.startswith("<") else os.path.abspath(filename)


@functools.lru_cache(maxsize=4096)
def _span(found: Site) -> SourceLocation:
    file = _path(found.file)
    if found.code is not None:
        line, end_line, column, end_column = span_of((found.code, found.offset))
        if line is not None and end_line is not None and column is not None and end_column is not None:
            method = called_name(call_expression(found.file, line, column, end_line, end_column)) or found.method
            return SourceLocation(file, line, column, end_line, end_column, method, found.scope, library=found.library)
    return SourceLocation(file, found.line, 0, found.line, 0, found.method, found.scope, False, found.library)


def syntax_tree(file: str) -> ast.Module | None:
    """Returns the syntax tree of a source file, which is empty if it cannot be read; None if it is not Python."""
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


def definitions_of(code: CodeType, tree: ast.Module) -> list[ast.FunctionDef]:
    """Returns the `def` statements in a syntax tree that have the name and the first line of a code object."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return [one for one in functions if (one.name, first_line(one)) == (code.co_name, code.co_firstlineno)]


def first_line(node: ast.FunctionDef | ast.ClassDef) -> int:
    """Returns the line in which a definition begins, with its decorators."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def call_expression(file: str, line: int, column: int, end_line: int, end_column: int) -> ast.Call | None:
    """Returns the call expression that a source span covers; None if it cannot be parsed or is no call.

    Args:
        file: path of the source file.
        line, end_line: first and last line, from 1.
        column, end_column: where the call begins and ends in them: UTF-8 bytes from 0, the end exclusive.
    """
    lines = [linecache.getline(file, number).encode() for number in range(line, end_line + 1)]
    if not lines:
        return None
    lines[-1] = lines[-1][:end_column]
    lines[0] = lines[0][column:]
    try:
        expression = ast.parse(b"(" + b"".join(lines).strip() + b"\n)", mode="eval").body
    except SyntaxError:
        return None
    return expression if isinstance(expression, ast.Call) else None


def called_name(call: ast.expr | None) -> str:
    """Returns the name of the function or method that is called; "" if an expression returns it, or it is no call."""
    match call:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name
    return ""

"""Which files the script writes, and whether training may write them again: a cache would keep the old data."""

from __future__ import annotations

import ast
import functools
import os
import sys
from collections.abc import Iterable, Iterator

from pipetune.capture.rebuilding import Loop, contains, function_at, loops_at, shared_frames, tree_of
from pipetune.pipelines import call_sites
from pipetune.pipelines.call_sites import CallPath, inside_workflow
from pipetune.pipelines.files import named_files
from pipetune.pipelines.live import LivePipeline

_MOST_FILES = 20_000  # by judgement: a stack takes some microseconds for each


class WrittenFiles:
    """The files that the script has written so far, and its call stacks while it did."""

    def __init__(self) -> None:
        self._stacks: dict[str, CallPath] = {}

    def add(self, path: str) -> None:
        """Notes that the code that runs now will write the file at `path`."""
        if len(self._stacks) < _MOST_FILES and not inside_workflow():
            self._stacks[path] = call_sites.path_from(sys._getframe(1))

    def written_again(self, source: LivePipeline, read: CallPath) -> str:
        """Returns a file of the pipeline that training may write again; "" if it is not seen to write any.

        Args:
            source: the pipeline.
            read: the user's call stack where the script reads it.
        """
        first = next((node.id for node in source.pipeline if not node.inputs), None)
        made = call_sites.path_of(source.datasets[first]) if first is not None else ()
        again = {path for path, stack in self._stacks.items() if stack and _is_repeated(stack, read, made)}
        paths = named_files(source).paths if again else ()
        return next((path for path in paths if os.path.realpath(path) in again), "")


@functools.lru_cache(maxsize=1024)
def _is_repeated(wrote: CallPath, read: CallPath, made: CallPath) -> bool:
    """Whether code that wrote a file runs again in a loop around the reading, or is called there or by a callback."""
    shared = shared_frames(wrote, read)
    for writing, reading in shared:
        place = call_sites.start_of(writing)
        if place is not None and any(contains(loop, place) for loop in _loops(reading, made)):
            return True
    writers = {code.co_name for code, _ in wrote[: len(wrote) - len(shared)]}
    files = dict.fromkeys(code.co_filename for code, _ in (*wrote, *read))
    trees = [tree for tree in map(tree_of, files) if tree is not None]
    bodies = (*_repeated(read, made), *(one for tree in trees for one in _callbacks(tree)))
    return not writers.isdisjoint(_called(bodies, trees))


def _called(bodies: Iterable[ast.AST], trees: Iterable[ast.Module]) -> set[str]:
    """Returns the names that these parts of a script call, and that the functions of these names call in turn."""
    calls_of: dict[str, set[str]] = {}  # by the name of a function
    for function in (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        calls_of.setdefault(function.name, set()).update(_calls_in(function))
    new = {name for body in bodies for name in _calls_in(body)}
    found = set[str]()
    while new:
        found |= new
        new = {name for one in new for name in calls_of.get(one, ())} - found
    return found


def _calls_in(part: ast.AST) -> Iterator[str]:
    return (call_sites.called_name(node) for node in ast.walk(part) if isinstance(node, ast.Call))


def _loops(reading: call_sites.FramePosition, made: CallPath) -> list[Loop]:
    """Returns the loops around a frame's position, without those that also build the data: each time new data."""
    built = [call_sites.start_of(step) for step in made if step[0] is reading[0]]
    return [loop for loop in loops_at(reading) if not any(place and contains(loop, place) for place in built)]


def _repeated(read: CallPath, made: CallPath) -> Iterator[ast.AST]:
    """Yields the loops around a reading, and the functions that an iteration of one calls on the way to it."""
    inside = False
    for step in reversed(read):
        loops, function = _loops(step, made), function_at(step)
        if inside and function is not None:
            yield function
        yield from loops
        inside = inside or bool(loops)


def _callbacks(tree: ast.Module) -> Iterator[ast.AST]:
    """Yields what Keras calls at the ends of epochs and steps, by its name: methods, arguments of `LambdaCallback`."""
    for node in ast.walk(tree):
        name = node.name if isinstance(node, ast.FunctionDef) else node.arg if isinstance(node, ast.keyword) else None
        if (name or "").startswith("on_"):  # as the methods of `keras.callbacks.Callback`
            yield node

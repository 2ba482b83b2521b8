"""Which files the script writes, and whether training may write them again: a cache would keep the old data."""

from __future__ import annotations

import ast
import functools
import os
import sys
from collections.abc import Iterable, Iterator

from pipetune.capture.loops import called_name
from pipetune.capture.rebuilding import contains, loops_at, shared_frames, tree_of
from pipetune.pipelines import call_sites
from pipetune.pipelines.call_sites import CallPath, inside_workflow
from pipetune.pipelines.files import named_files
from pipetune.pipelines.live import LivePipeline

_MOST_FILES = 20_000  # by judgement: a stack takes some microseconds for each
_CALLBACK_METHODS = "on_"  # of `keras.callbacks.Callback`: what its names begin with
_EMPTY = ast.Module([], [])  # where a source cannot be read


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
        again = {path for path, stack in self._stacks.items() if stack and _is_repeated(stack, read)}
        paths = named_files(source).paths if again else ()
        return next((path for path in paths if os.path.realpath(path) in again), "")


@functools.lru_cache(maxsize=1024)
def _is_repeated(wrote: CallPath, read: CallPath) -> bool:
    """Whether code that wrote a file runs again in a loop around the reading, or is called there or by a callback."""
    shared = shared_frames(wrote, read)
    for writing, reading in shared:
        place = call_sites.start_of(writing)
        if place is not None and any(contains(loop, place) for loop in loops_at(reading)):
            return True
    writers = {code.co_name for code, _ in wrote[: len(wrote) - len(shared)]}
    bodies = (*_repeated(read), *_callbacks({code.co_filename for code, _ in (*wrote, *read)}))
    calls = (node for body in bodies for node in ast.walk(body) if isinstance(node, ast.Call))
    return any(called_name(call) in writers for call in calls)


def _repeated(read: CallPath) -> Iterator[ast.AST]:
    """Yields the loops around a reading, and the functions that an iteration of one calls on the way to it."""
    inside = False
    for step in reversed(read):
        loops, place = loops_at(step), call_sites.start_of(step)
        if inside and place is not None:
            functions = [
                one for one in ast.walk(tree_of(step[0].co_filename) or _EMPTY) if isinstance(one, ast.FunctionDef)
            ]
            yield from [one for one in functions if contains(one, place)][-1:]
        yield from loops
        inside = inside or bool(loops)


def _callbacks(files: Iterable[str]) -> Iterator[ast.FunctionDef]:
    """Yields the methods in these files that Keras calls at the end of epochs and steps, by their names."""
    for file in files:
        for node in ast.walk(tree_of(file) or _EMPTY):
            if isinstance(node, ast.FunctionDef) and node.name.startswith(_CALLBACK_METHODS):
                yield node

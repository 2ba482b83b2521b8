"""Describes the cleanup that a script does not run because pipetune ends its process."""

from __future__ import annotations

import ast
import atexit
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from pipetune.capture.patches import Patches
from pipetune.core.files import is_library
from pipetune.core.measurement import joined
from pipetune.pipelines import call_sites

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = frozenset({"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"})


class ExitHandlers:
    """Counts the `atexit` handlers that the script itself registers, until the patches are undone."""

    def __init__(self, patches: Patches) -> None:
        self.count = 0
        original: Callable[..., Any] = atexit.register

        def register(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if not is_library(sys._getframe(1).f_code.co_filename):
                self.count += 1
            return original(function, *args, **kwargs)

        patches.replace(atexit, "register", register)


def describe_pending(frame: FrameType | None, handlers: int) -> str:
    """Returns a sentence about the code that does not run if the script is ended at `frame`; '' if there is none.

    Args:
        frame: the innermost frame of its thread, possibly in pipetune; None if the script has reached its end.
        handlers: number of `atexit` handlers that the script registered.
    """
    stack = traceback.walk_stack(frame) if frame is not None else ()
    standing = [one for one, _ in stack if not is_library(one.f_code.co_filename)]
    functions = (one for one in standing if one.f_code.co_name not in _COMPREHENSIONS)  # which stand in a function, too
    blocks = [name for one in functions for name in _open_blocks(one)]
    pending = ["its remaining code"] if standing else []
    counts = {"finally block": blocks.count("finally"), "with block": blocks.count("with"), "atexit handler": handlers}
    pending += [f"{count} {what}{'s' if count > 1 else ''}" for what, count in counts.items() if count]
    if not pending:
        return ""
    place = f" at {os.path.basename(standing[0].f_code.co_filename)}:{standing[0].f_lineno}" if standing else ""
    return f"The script was ended{place}, without its clean-up: {joined(pending)} did not run."


def _open_blocks(frame: FrameType) -> list[str]:
    """Returns the kinds of the cleanup blocks ("finally", "with") that enclose the current line of the frame."""
    tree = call_sites.syntax_tree(frame.f_code.co_filename)
    if tree is None:
        return []
    scope: ast.AST = tree
    for node in ast.walk(tree):  # outer ones come first
        if isinstance(node, _SCOPES) and _covers(node, frame.f_lineno) and frame.f_code.co_name != "<module>":
            scope = node
    blocks: list[tuple[str, Sequence[ast.AST]]] = []
    for node in _within(scope):
        if isinstance(node, ast.Try | ast.TryStar) and node.finalbody:
            blocks.append(("finally", (*node.body, *node.handlers, *node.orelse)))
        elif isinstance(node, ast.With | ast.AsyncWith):
            blocks.append(("with", node.body))
    return [kind for kind, parts in blocks if any(_covers(part, frame.f_lineno) for part in parts)]


def _within(scope: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, _SCOPES):
            yield child
            yield from _within(child)


def _covers(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", line + 1), getattr(node, "end_lineno", None)
    return first <= line <= (last or first)

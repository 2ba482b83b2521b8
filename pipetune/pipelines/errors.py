"""Errors of TensorFlow and of user code: reduced to one line, or to the result that nothing is known."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar


def first_line(error: BaseException | None) -> str:
    """Returns the message of an error as one line of at most 300 characters; "unknown" if there is none.

    If a graph ran, TensorFlow puts its own stack before the message; that is skipped.
    """
    lines = str(error).splitlines() if error is not None else []
    kept = [line.strip() for line in lines if line.strip() and not line.startswith(_STACK)]
    kept = [_ROOT.sub("", line) for line in kept if not _MULTIPLE_ERRORS.fullmatch(line)]
    return kept[0][:300] if kept else "unknown"


_STACK = ("Graph execution error", "Detected at node", "<stack traces unavailable>", "  File ", "\t [[")
_MULTIPLE_ERRORS = re.compile(r"\d+ root error\(s\) found\.")  # followed by a list of errors: the first is reported
_ROOT = re.compile(r"^\(0\) [A-Z_]+: +")


_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")


def unknown_on_error(
    unknown: Callable[[str], _Result],
) -> Callable[[Callable[_Params, _Result]], Callable[_Params, _Result]]:
    """Decorates a probe to return `unknown(reason)` where it raises; the reason is the last clause of a sentence.

    A user's function may return anything (an `Optional`, `IndexedSlices`, a dataset, an object of the user's own), and
    is traced here on inputs that it was not written for.
    """

    def guarded(probe: Callable[_Params, _Result]) -> Callable[_Params, _Result]:
        @functools.wraps(probe)
        def answer(*args: _Params.args, **kwargs: _Params.kwargs) -> _Result:
            try:
                return probe(*args, **kwargs)
            except Exception as error:  # whatever the user's function or TensorFlow raises on it
                return unknown(f"it cannot be examined ({type(error).__name__}: {first_line(error)})")

        return answer

    return guarded

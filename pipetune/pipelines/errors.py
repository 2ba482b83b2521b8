"""Errors of TensorFlow and of user code: reduced to one line, or to the result that nothing is known."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from pipetune.core.errors import first_message_line
from pipetune.core.measurement import RunFailed


def first_line(error: BaseException | None) -> str:
    """Returns the message of an error as one line of at most 300 characters; "unknown" if there is none."""
    return first_message_line("" if error is None else str(error)) or "unknown"


def step_failed(what: str, error: Exception) -> RunFailed:
    """Returns the failure of a window in which `what`, the user's own training, has raised an error."""
    raised = f"{type(error).__name__}: {first_line(error).rstrip('.')}"
    return RunFailed(f"{what} raised {raised} (does the script train without pipetune?)")


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

"""Errors that pipetune raises for users: what happened, and what to do about it."""

from __future__ import annotations

import difflib
import re
import traceback
from collections.abc import Iterable

_MIN_SIMILARITY = 0.6  # difflib's default: "analyse" matches "analyze", "train.py" matches no command


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns " Did you mean analyze?", to be appended to a message; "" if no known word is similar."""
    names = {name.lstrip("-"): name for name in known}  # the dashes of options would make all of them similar
    near = difflib.get_close_matches(word.lstrip("-"), names, n=1, cutoff=_MIN_SIMILARITY)
    return f" Did you mean {names[near[0]]}?" if near else ""


def first_message_line(message: str) -> str:
    """Returns the first line of an error's message that says something, of at most 300 characters; "" if none does.

    If a graph ran, TensorFlow puts its own stack before the message; that is skipped.
    """
    kept = [line.strip() for line in message.splitlines() if line.strip() and not line.startswith(_STACK)]
    kept = [_ROOT.sub("", line) for line in kept if not _MULTIPLE_ERRORS.fullmatch(line)]
    return kept[0][:300] if kept else ""


_STACK = ("Graph execution error", "Detected at node", "<stack traces unavailable>", "  File ", "\t [[")
_MULTIPLE_ERRORS = re.compile(r"\d+ root error\(s\) found\.")  # followed by a list of errors: the first is reported
_ROOT = re.compile(r"^\(0\) [A-Z_]+: +")


class PipetuneError(Exception):
    """An error that the user can act on.

    Args:
        message: what happened, one sentence.
        hint: what to do about it, one sentence; may be empty.
        exit_code: the command's exit status (see the README, "Exit codes").
    """

    def __init__(self, message: str, *, hint: str = "", exit_code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class PlanMismatch(PipetuneError):
    """A plan was made for another pipeline; the message names the first operator that differs."""


class StepFailed(Exception):
    """The step given to `pipetune.tune` or `profile` raised on the original data; its exception is the cause.

    Everything the step had changed until then is restored.
    """


class CannotReplay(PipetuneError):
    """A live dataset contains an operator that cannot be rebuilt on a different input dataset."""


class CannotExpress(PipetuneError):
    """An edit cannot be expressed exactly in the user's source; the message says why."""


def invalid_source(path: str, error: SyntaxError | ValueError) -> PipetuneError:
    """Returns the error for a script that Python cannot compile; it shows the line of code as Python does."""
    shown = "".join(traceback.format_exception_only(error)).rstrip()
    return PipetuneError(f"{path} is not valid Python.\n{shown}", hint="Correct that line first.", exit_code=3)


class MalformedData(PipetuneError):
    """JSON that does not have the structure the reader expects; the message says where."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(
            f"The data does not have the expected structure: {where or 'top level'}: {problem}.",
            hint="It was cut short, edited by hand, or written by another version of pipetune.",
        )

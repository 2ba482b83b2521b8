"""Reduces errors of TensorFlow, or of user code that it calls, to one line."""

from __future__ import annotations

import re


def first_line(error: BaseException | None) -> str:
    """The message of an error as one line of at most 300 characters; "unknown" if there is none.

    If a graph ran, TensorFlow puts its own stack before the message; that is skipped.
    """
    lines = str(error).splitlines() if error is not None else []
    told = [line.strip() for line in lines if line.strip() and not line.startswith(_STACK)]
    told = [_ROOT.sub("", line) for line in told if not _SEVERAL.fullmatch(line)]
    return told[0][:300] if told else "unknown"


_STACK = ("Graph execution error", "Detected at node", "<stack traces unavailable>", "  File ", "\t [[")
_SEVERAL = re.compile(r"\d+ root error\(s\) found\.")  # followed by a list of errors: the first is reported
_ROOT = re.compile(r"^\(0\) [A-Z_]+: +")

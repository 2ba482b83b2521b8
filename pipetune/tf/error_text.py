"""What an error of TensorFlow, or of the user's code under it, says in one line."""

from __future__ import annotations

import re


def first_line(error: BaseException | None) -> str:
    """What an error says in one line; TensorFlow's own stack stands before it where a graph ran."""
    lines = str(error).splitlines() if error is not None else []
    told = [line.strip() for line in lines if line.strip() and not line.startswith(_STACK)]
    told = [_ROOT.sub("", line) for line in told if not _SEVERAL.fullmatch(line)]
    return told[0][:300] if told else "unknown"


_STACK = ("Graph execution error", "Detected at node", "<stack traces unavailable>", "  File ", "\t [[")
_SEVERAL = re.compile(r"\d+ root error\(s\) found\.")  # of which it lists some: the first is told
_ROOT = re.compile(r"^\(0\) [A-Z_]+: +")

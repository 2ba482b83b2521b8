"""Suggestions for misspelled words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_ALIKE = 0.6  # similarity, difflib's default: "analyse" matches "analyze", "train.py" no command


def did_you_mean(word: str, known: Iterable[str], *, prefix: str = "") -> str:
    """Returns " Did you mean analyze?", to be appended to a message; "" if no known word is similar."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=_ALIKE)
    return f" Did you mean {prefix}{near[0]}?" if near else ""

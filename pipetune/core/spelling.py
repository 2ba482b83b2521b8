"""What somebody may have meant by a word that is none of those there are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_ALIKE = 0.6  # of 1, difflib's own default: "analyse" is near "analyze", "train.py" near no command


def did_you_mean(word: str, known: Iterable[str], *, prefix: str = "") -> str:
    """ " Did you mean analyze?", to be put behind a message; empty where nothing is near."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=_ALIKE)
    return f" Did you mean {prefix}{near[0]}?" if near else ""

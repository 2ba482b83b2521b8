"""Benchmarks of pipetune itself, run from a clone of the repository; no part of the package.

`pipetune bench` starts them: `rivals`, with --accuracy `accuracy`, and with --decisions `decisions`. Each has a
`suite.py` with its figures, and a `__main__.py` that measures them in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

CLONE = Path(__file__).resolve().parents[1]
EXAMPLES = CLONE / "examples"

ProgressCallback = Callable[[str], None]
"""Called with a short description of what is measured now."""

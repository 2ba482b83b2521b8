"""Benchmarks of pipetune itself, run from a clone of the repository; no part of the package.

`pipetune bench` starts them: `rivals`, or with --decisions `decisions`. Each has a `suite.py` with the figures, and a
`__main__.py` that measures them.
"""

from __future__ import annotations

from pathlib import Path

CLONE = Path(__file__).resolve().parents[1]
EXAMPLES = CLONE / "examples"

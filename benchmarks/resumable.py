"""Partial results of a figure, saved to a file so that it can continue after an interruption."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pipetune.core.codec import Json, decode, encode
from pipetune.core.files import write_text

Value = TypeVar("Value")


class ResumableResults:
    """Dataclasses by name; each is saved to the file as soon as it is measured.

    Args:
        path: the file. It is created with the first result, and removed by `delete`.
        condition: what the results depend on: seed, release, quick or not. Results saved under another condition are
            ignored.
    """

    def __init__(self, path: Path, *, condition: str) -> None:
        self._path = path
        self._condition = condition
        self._results: dict[str, Json] = {}
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        if isinstance(data, dict) and data.get("of") == condition and isinstance(data.get("results"), dict):
            self._results = data["results"]

    def get(self, kind: type[Value], name: str, measure: Callable[[], Value]) -> Value:
        """Returns the saved result with this name, or measures and saves it."""
        if name not in self._results:
            self._results[name] = encode(measure())
            write_text(self._path, json.dumps({"of": self._condition, "results": self._results}, allow_nan=False))
        return decode(kind, self._results[name])

    def delete(self) -> None:
        """Forgets all results and removes the file, once the measurement is complete."""
        self._results.clear()
        self._path.unlink(missing_ok=True)

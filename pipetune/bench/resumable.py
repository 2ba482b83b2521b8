"""Partial results of a long measurement, saved to a file so that it can continue after an interruption."""

from __future__ import annotations

import json
from pathlib import Path

from pipetune.core.codec import Json
from pipetune.core.files import write_text


class ResumableResults:
    """Results by name; each is saved to the file as soon as it is set.

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

    def __contains__(self, name: str) -> bool:
        return name in self._results

    def __getitem__(self, name: str) -> Json:
        return self._results[name]

    def __setitem__(self, name: str, result: Json) -> None:
        self._results[name] = result
        write_text(self._path, json.dumps({"of": self._condition, "results": self._results}, allow_nan=False))

    def delete(self) -> None:
        """Forgets all results and removes the file, once the measurement is complete."""
        self._results.clear()
        self._path.unlink(missing_ok=True)

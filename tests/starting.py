"""What processes that the tests start have in common."""

from __future__ import annotations

import os
from pathlib import Path

LEAN = Path(__file__).with_name("lean")


def search_path(*folders: Path) -> str:
    """PYTHONPATH of a process that looks into these folders first, and starts quickly."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys(filter(None, [*map(str, folders), str(LEAN), *given])))

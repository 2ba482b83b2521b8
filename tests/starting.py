"""What processes that the tests start have in common."""

from __future__ import annotations

import os
from pathlib import Path


def search_path(*folders: Path) -> str:
    """PYTHONPATH of a process that looks into these folders first."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys(filter(None, [*map(str, folders), *given])))

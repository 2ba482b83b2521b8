"""The IPython shell that runs this process, if one does. IPython is never imported here."""

from __future__ import annotations

import sys
from typing import Any


def running_shell() -> Any | None:
    """Returns the running `InteractiveShell`, of a terminal or a notebook; None if there is none."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_ipython() if get_ipython is not None else None


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    return getattr(running_shell(), "kernel", None) is not None

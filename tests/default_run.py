"""Which cases of a table `make test` runs; the others go the way of one of these, and run in `make test-exhaustive`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def cases(names: Iterable[str], *, default: Collection[str]) -> list[Any]:
    """A parameter for each name, those that are not in `default` marked as exhaustive."""
    found = list(names)
    assert set(default) <= set(found), set(default) - set(found)
    return [pytest.param(name, marks=[] if name in default else [pytest.mark.exhaustive]) for name in found]

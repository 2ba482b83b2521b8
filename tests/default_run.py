"""Which cases of a table run in `make test`; the others use the same code and run in `make test-exhaustive`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def cases(values: Iterable[Any], *, default: Collection[Any]) -> list[Any]:
    """Returns a parameter for each value; those that are not in `default` are marked as exhaustive."""
    found = list(values)
    assert set(default) <= set(found), set(default) - set(found)
    return [pytest.param(value, marks=[] if value in default else [pytest.mark.exhaustive]) for value in found]

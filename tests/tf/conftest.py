"""What every test of TensorFlow parts leaves behind for the next: no global seed."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_global_seed() -> Iterator[None]:
    """Takes back a global seed that a test set: datasets made later would draw theirs from it."""
    yield
    if "tensorflow" in sys.modules:
        sys.modules["tensorflow"].random.set_seed(None)


@pytest.fixture
def counted_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules are written after their elements were counted: neither indices nor filled batches are run."""
    from pipetune.distribution import proving

    monkeypatch.setattr(proving.index_coverage, "check_order", lambda *_, **__: "")
    monkeypatch.setattr(proving.fill_coverage, "check_fill", lambda *_, **__: "")

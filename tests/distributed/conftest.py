"""Fixtures of the tests of distributed modules."""

from __future__ import annotations

import pytest


@pytest.fixture
def counted_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules are written once their elements are counted; indices and filled batches are not checked."""
    from pipetune.distributed import writing

    monkeypatch.setattr(writing.index_coverage, "check_order", lambda *_, **__: "")
    monkeypatch.setattr(writing.coverage, "check_fill", lambda *_, **__: "")

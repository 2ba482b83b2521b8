"""Fixtures of the tests of distributed modules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def counted_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules are written once their elements are counted; indices and filled batches are not checked."""
    from pipetune.distributed import writing

    monkeypatch.setattr(writing.coverage, "check_order", lambda *_, **__: "")
    monkeypatch.setattr(writing.coverage, "check_fill", lambda *_, **__: "")


@pytest.fixture(scope="module")
def counted_for_two_workers() -> Iterator[None]:
    """The elements of modules are counted for two workers alone, where their counts are not what is tested."""
    from pipetune.distributed.verify import coverage

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coverage, "WORKER_COUNTS", (2,))
        yield

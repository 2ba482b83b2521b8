"""The confusion table: every injected bottleneck, run for real, is named with its cause and its operator."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")
pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.exhaustive,  # a figure of `pipetune bench --accuracy`, which has the other cases of its code
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

from benchmarks.accuracy.bottleneck import claims, injected_bottlenecks, measure
from benchmarks.resumable import ResumableResults


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the table stands for two cores, and takes a while")
def test_every_injected_bottleneck_is_named(tmp_path: Path) -> None:
    saved = ResumableResults(tmp_path / "saved.json", condition="")
    result = measure(quick=True, seed=0, progress=lambda _: None, saved=saved)
    assert result.cases == len(injected_bottlenecks())
    assert result.named == result.cases, [row for row in result.rows if not row.right]
    assert all(claim.met for claim in claims(result, quick=True))

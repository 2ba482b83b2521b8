"""The figure that compares measured costs with known ones; tolerances are wide, since the machine is shared."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from benchmarks.accuracy import attribution
from benchmarks.accuracy.attribution import Attribution, Row
from benchmarks.resumable import ResumableResults


def row(*, cpu: float, waiting: float, true_cpu: float = 1e-3, true_waiting: float = 0.0) -> Row:
    return Row("a case", "map", "works", true_cpu, cpu, true_waiting, waiting, None)


def test_error_is_relative_to_cpu_time_of_work_and_to_time_of_waiting() -> None:
    assert row(cpu=1.1e-3, waiting=0.5e-3).error == pytest.approx(0.1)
    assert row(cpu=2e-4, waiting=1.5e-3, true_cpu=1e-4, true_waiting=2e-3).error == pytest.approx(0.25)


def test_waiting_measured_as_work_is_not_recognised() -> None:
    assert row(cpu=1e-4, waiting=2e-3, true_cpu=1e-4, true_waiting=2e-3).recognised
    assert not row(cpu=2e-3, waiting=1e-4, true_cpu=1e-4, true_waiting=2e-3).recognised
    assert row(cpu=1e-3, waiting=1e-4).recognised and not row(cpu=1e-4, waiting=1e-3).recognised


def test_claims() -> None:
    result = Attribution(2, 0.04, 0.12, 1, (row(cpu=1e-3, waiting=0.0), row(cpu=0.0, waiting=1e-3)))
    assert [claim.met for claim in attribution.claims(result, quick=False)] == [True, False, False]
    assert [claim.met for claim in attribution.claims(result, quick=True)] == [None, None, False]
    assert attribution.claims(result, quick=False)[2].measured == "1 of 2"


@pytest.mark.exhaustive  # a figure of `pipetune bench --accuracy`; tests/measure/test_differencing.py has its code
def test_operators_of_known_cost_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting taken for work, or a cost at a neighbour, is an error of a hundred percent and more."""
    monkeypatch.setattr(attribution, "_COST_SECONDS", 2.0)
    monkeypatch.setattr(attribution, "QUICK", ("one after another, parallelism 2",))
    activities: list[str] = []
    saved = ResumableResults(tmp_path / "saved.json", condition="")
    result = attribution.measure(quick=True, seed=0, progress=activities.append, saved=saved)
    assert result.cases == len(activities) == 1
    assert [one.known for one in result.rows] == ["works", "waits", "python"]
    assert result.recognised == 3
    assert result.max_error < 0.6

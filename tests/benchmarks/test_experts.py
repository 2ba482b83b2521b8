"""The experts' scripts train on the same data as the scripts beside them, on small data over three whole epochs.

Those that move random functions (photos, normalise_then_draw, speech) are not here: their draws can be compared only in
pipelines that share a source.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import EXAMPLES
from benchmarks.decisions.cases import load_cases

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.exhaustive]

REFINED = {"spec", "cardinality"}
"""Gathering rows reveals what windows hide: their length and their number. Neither changes the data."""


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the examples with small data."""
    folder = tmp_path_factory.mktemp("small") / "examples"
    shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("data", "distributed", "__pycache__"))
    for name in ("photos", "csv", "gnmt", "transformer", "staged", "decisions"):
        options = ["--count", "24", "--shards", "4"] if name == "photos" else ["--small"]
        subprocess.run([sys.executable, str(folder / name / "make_data.py"), *options], check=True, capture_output=True)
    return folder


@pytest.mark.parametrize(
    "name", ["csv", "gnmt", "transformer", "staged", "helper", "printed_loop", "validation_skip", "lambdas", "table"]
)
def test_an_expert_trains_on_the_same_data(name: str, examples: Path) -> None:
    from benchmarks.decisions.equality import training_dataset
    from pipetune.core.edits import Safety
    from pipetune.equality.compare import compare_datasets

    case = replace(load_cases()[name], script=str(examples / load_cases()[name].script))
    assert case.expert is not None
    original, expert = (training_dataset(path, case) for path in (case.path, case.expert))
    found = compare_datasets(original, expert, Safety.STATISTICAL, time_limit_seconds=60.0)
    different = {check.name: check.detail for check in found.checks if check.equal is False}
    assert set(different) <= REFINED, different
    assert found.elements > 0

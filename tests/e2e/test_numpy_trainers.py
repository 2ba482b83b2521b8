"""Trainers in JAX and PyTorch that take NumPy arrays: the examples, analyzed as a user does."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import jsonschema
import pytest

from tests.core.schemas import schema
from tests.e2e.command import ROOT, Case, analyze, python

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.timeout(600)]

EXAMPLES = ROOT / "examples"


def needs(library: str) -> pytest.MarkDecorator:
    """Skips where the library is missing; it is only looked for, as an import here would show in other tests."""
    return pytest.mark.skipif(
        importlib.util.find_spec(library) is None, reason=f"{library} is not installed: pip install {library}"
    )


@pytest.mark.parametrize(
    ("name", "data_of", "size", "sign"),
    [
        pytest.param(
            "jax",
            "photos",
            ("--count", "200", "--shards", "4"),
            "it updates parameters, which holds JAX arrays",
            marks=needs("jax"),
        ),
        pytest.param("pytorch", "csv", (), "it calls torch.optim.Optimizer.step", marks=needs("torch")),
    ],
)
def test_training_on_numpy_arrays_is_analyzed(
    name: str, data_of: str, size: tuple[str, ...], sign: str, tmp_path: Path
) -> None:
    script, data = EXAMPLES / name / "train.py", tmp_path / "data"
    assert python(EXAMPLES / data_of / "make_data.py", "--out", data, *size).returncode == 0
    case = Case(str(script), ("--data", str(data), "--epochs", "100"), options=("--budget", "20"))
    done = analyze(case, tmp_path / "run")
    assert done.code == 0, done.err

    trained = done.summary["training_at"]
    (line,) = (number for number, text in enumerate(script.read_text().splitlines(), 1) if "as_numpy_iterator" in text)
    assert (trained["file"], trained["line"], trained["kind"]) == (str(script), line, "a Python loop")
    assert trained["others"] == [] and f"train.py:{line} ({sign})" in done.said

    consumer = done.first["profile"]["consumer"]
    assert consumer["kind"] == "loop" and consumer["real_seconds"] > consumer["bound_seconds"] > 0
    # The input is several times as slow as the step; how sure that is depends on what else the machine does.
    assert done.summary["verdict"] in ("input-bound", "undetermined")
    assert done.summary["outcome"] in ("proven", "likely", "undecided", "none")
    jsonschema.validate(done.session, schema("session"))
    assert {"session.json", "report.html", "plan.json", "tuned.patch"} <= done.files

"""Scripts that start in unusual ways, end early or train in JAX or PyTorch, and options that change measurements."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import jsonschema
import pytest

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

import pipetune
from tests.core.schemas import schema
from tests.e2e.command import ROOT, SCRIPTS, Case, Done, analyze, python


def source_files(done: Done) -> set[str]:
    return {node["location"]["file"] for node in done.first["pipeline"]["nodes"]}


@pytest.mark.exhaustive
@pytest.mark.run("changes-directory")
def test_results_and_source_are_found_after_a_change_of_directory(done: Done) -> None:
    assert done.files >= {"session.json", "report.html", "plan.json"}
    assert source_files(done) == {str(SCRIPTS / "changes_directory.py")}
    assert (done.folder / "features.npy").exists()


@pytest.mark.run("multiworker")
def test_distributed_module_is_written_and_checked(done: Done) -> None:
    form = done.session["distributed"]
    assert form["kind"] == "multiworker"
    module = (done.results / "distributed.py").read_text()
    compile(module, "distributed.py", "exec")
    assert "def dataset_fn(input_context" in module and "get_per_replica_batch_size" in module
    assert {check["workers"] for check in form["checks"]} == {2, 3, 4}
    for check in form["checks"]:
        assert (check["elements"], check["missing"], check["duplicated"]) == (160, 0, 0)
    report = (done.results / "report.html").read_text()
    assert "multiworker" in report
    found = done.summary["distributed"]
    assert [coverage["once"] for coverage in found["coverage"]] == [160] * 3
    assert {coverage["bytes_read_over_used"] for coverage in found["coverage"]} == {1.0}
    assert report.count('class="band-row"') == 2 + 3 + 4, "the pipeline as written gives the first of these once more"
    assert "2 workers together get 160 elements, every one once in an epoch." in report
    assert "Every element once per epoch with 2, 3 and 4 workers" in " ".join(done.out.split())
    as_written = form["as_written"]["coverage"]
    assert as_written["once"] == 160, "TensorFlow divides four files"


@pytest.mark.run("raises-within", code=3)
def test_script_raises_while_reading_data(done: Done) -> None:
    assert "InvalidArgumentError" in done.err and "assertion failed: [a broken element]" in done.err
    assert str(Path(pipetune.__file__).parent) not in done.err
    assert "The script raised an exception: tensorflow.python.framework.errors_impl.InvalidArgumentError" in done.said
    assert done.files >= {"session.json", "report.html", "tuned.patch", "script.log"}
    assert done.operators == ["from_tensor_slices", "map", "batch"], "what was captured is kept"


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
@pytest.mark.run("interrupted", code=130)
def test_ctrl_c_leaves_a_complete_report(done: Done) -> None:
    assert "Interrupted. Everything measured until then was saved." in done.said
    assert done.files >= {"session.json", "report.html", "tuned.patch", "plan.json"}
    assert done.summary["status"] == "interrupted"
    assert done.first["diagnosis"]["verdict"] == done.summary["verdict"]
    assert done.first["profile"]["operators"] and "of each step" in done.out + done.err
    assert "Interrupted" in (done.results / "report.html").read_text()
    assert (done.results / "tuned.patch").read_text() == ""
    assert not list(done.folder.glob("checkpoint*")), "nothing of the user's is saved then either"


EXAMPLES = ROOT / "examples"


def needs(library: str) -> pytest.MarkDecorator:
    """Skips where the library is missing; it is only looked for, as an import here would show in other tests."""
    return pytest.mark.skipif(
        importlib.util.find_spec(library) is None, reason=f"{library} is not installed: pip install {library}"
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "data_of", "size", "sign"), [
    pytest.param(
        "jax",
        "photos",
        ("--count", "200", "--shards", "4"),
        "it updates parameters, which holds JAX arrays",
        marks=needs("jax"),
    ),
    pytest.param("pytorch", "csv", (), "it calls torch.optim.Optimizer.step", marks=needs("torch")),
])  # fmt: skip
def test_training_on_numpy_arrays_is_analyzed(name, data_of, size, sign, tmp_path) -> None:
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

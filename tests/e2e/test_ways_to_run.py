"""Scripts that start in unusual ways, and options that change what is measured."""

from __future__ import annotations

import json

import pytest

from tests.e2e.command import SCRIPTS, Done

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]


def source_files(done: Done) -> set[str]:
    return {node["location"]["file"] for node in done.first["pipeline"]["nodes"]}


@pytest.mark.exhaustive
@pytest.mark.run("absl")
def test_absl_gets_its_flags(done: Done) -> None:
    assert "left over ['rest']" in done.log
    assert done.operators == ["from_tensor_slices", "map", "batch"]
    assert done.summary["training"]["defaults_step_ms"] > 0
    printed = json.loads(done.out)
    assert {key: printed[key] for key in done.summary} == done.summary
    assert printed.keys() - done.summary.keys() == {"command", "exit_code", "paths"}
    assert done.plan["fingerprint"]


@pytest.mark.exhaustive
@pytest.mark.run("argparse")
def test_confidential_run_reveals_nothing_of_a_script_with_arguments(done: Done) -> None:
    assert "name='hunter2-secret', rows=6400, out='x', seed=3, verbose=True" in done.log, "they reach it unchanged"
    kept = [(done.results / name).read_text() for name in ("session.json", "report.html", "plan.json")]
    for text in [*kept, done.out]:
        assert "hunter2" not in text
        assert "argparse_script" not in text and str(SCRIPTS) not in text and str(done.results) not in text
        assert "x * 2.0" not in text and "from_tensor_slices((features" not in text
    assert done.first["profile"]["operators"], "figures stay"


@pytest.mark.exhaustive
@pytest.mark.run("spawns")
def test_spawned_processes_import_the_script(done: Done) -> None:
    assert done.operators == ["from_tensor_slices", "map", "batch"]


@pytest.mark.exhaustive
@pytest.mark.run("changes-directory")
def test_results_and_source_are_found_after_a_change_of_directory(done: Done) -> None:
    assert done.files >= {"session.json", "report.html", "plan.json"}
    assert source_files(done) == {str(SCRIPTS / "changes_directory.py")}
    assert (done.folder / "features.npy").exists()


@pytest.mark.exhaustive
@pytest.mark.run("package")
def test_module_with_relative_imports(done: Done) -> None:
    pipeline = SCRIPTS / "package_relative" / "pipeline.py"
    assert source_files(done) == {str(pipeline)}
    dataset = done.summary["datasets"][0]
    assert dataset["file"] == str(pipeline) and dataset["role"] == "training"


@pytest.mark.exhaustive
@pytest.mark.run("step-time")
def test_given_step_time_is_emulated(done: Done) -> None:
    assert done.first["profile"]["consumer"]["kind"] == "emulated"
    assert done.summary["training"]["bound_step_ms"] >= 49  # the clock is read a little late at the beginning


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


@pytest.mark.exhaustive
@pytest.mark.run("shard-for-four")
def test_job_that_leaves_data_out_gets_a_warning_with_the_amount(done: Done) -> None:
    (finding,) = (one for one in done.summary["warnings"] if one["code"] == "data-left-out")
    assert "3,200 of 6,400 elements reach none of 2 workers in an epoch" in finding["message"]
    assert finding["file"].endswith("shard_for_four.py") and finding["line"] == 16
    found = done.summary["datasets"][0]["as_written"]["coverage"]
    assert (found["never"], found["once"], found["told_by"]) == (3200, 3200, "number")
    assert [worker["elements"] for worker in found["workers"]] == [1600, 1600]
    assert "Of 6,400 elements 3,200 come never and 3,200 come once." in " ".join(done.out.split())
    report = (done.results / "report.html").read_text()
    assert 'id="distributed"' in report and report.count('class="fill band-never"') == 48

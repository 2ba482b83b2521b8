"""`pipetune analyze` from the command line: what is printed, where, and the exit status."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pipetune.cli.analyze import settings_of
from pipetune.cli.main import build_parser
from pipetune.core.cluster import ClusterTask
from pipetune.supervisor import request
from tests.cli.results import Shell
from tests.supervisor.test_analysis import FAKE, SOON
from tests.supervisor.test_local_cluster import FAKE as FAKE_CLUSTER

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a script, and a worker that measures nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    real = request.AnalysisRequest

    def fake(**fields: object) -> request.AnalysisRequest:
        return real(**{**fields, "worker_command": FAKE, "limits": SOON})  # type: ignore[arg-type]

    monkeypatch.setattr(request, "AnalysisRequest", fake)
    return tmp_path


def results(folder: Path, name: str = "") -> dict[str, Any]:
    """The session in `reports/train`, or in a folder there."""
    return dict(json.loads((folder / "reports" / "train" / name / "session.json").read_text()))


def test_speedup_is_printed_first_and_results_go_to_reports(folder: Path, pipetune: Shell) -> None:
    shown = pipetune("analyze train.py normal")
    assert shown.code == 0
    assert shown.out.startswith("1.99x faster training"), "of the patch, not the 1.30x of before"
    assert "INPUT-BOUND" in shown.err and "the script prints this" not in shown.err
    written = {"distributed.py", "plan.json", "report.html", "script.log", "session.json", "tuned.patch"}
    assert {path.name for path in (folder / "reports" / "train").glob("*.*")} == written
    (run,) = Path("reports/train/runs").glob("2*")
    assert "\n  pipetune apply reports/train\n" in shown.out
    assert f"pipetune apply {run}<" in (run / "report.html").read_text(), "which may show another run one day"
    (folder / "other").mkdir()
    (folder / "other" / "train.py").write_text("")
    before = Path("reports/train/session.json").read_text()
    assert pipetune("analyze other/train.py script_failed").code == 3
    assert Path("reports/train/session.json").read_text() == before, "another script's results are never replaced"
    assert Path("reports/other-train/session.json").exists()


@pytest.mark.parametrize(
    ("scenario", "code", "kind", "traceback", "output"),
    [
        ("script_failed", 3, "script", "ValueError: of the user", ""),
        ("script_wants_arguments", 3, "script", "", "the following arguments are required: --data"),
        ("no_dataset", 4, "no-dataset", "", ""),
    ],
)
def test_json_of_a_run_that_did_not_finish_says_why_and_what_was_measured(
    folder: Path, pipetune: Shell, scenario: str, code: int, kind: str, traceback: str, output: str
) -> None:
    shown = pipetune("analyze --json train.py", scenario)
    printed = json.loads(shown.out)
    error = printed["error"]
    assert (shown.code, printed["exit_code"], error["exit_code"], error["kind"]) == (code, code, code, kind)
    assert f"pipetune: {error['message']}\n  {error['hint']}\n" in shown.err
    assert error["traceback"].strip().endswith(traceback) and error["output"].endswith(output)
    assert bool(error["traceback"]) == bool(traceback) and bool(error["output"]) == bool(output)
    assert printed["outcome"] == "failed" and Path(printed["paths"]["session"]).exists()


def test_json_of_a_confidential_run_names_no_path(folder: Path, pipetune: Shell) -> None:
    code, out, _ = pipetune("analyze --json --confidential train.py script_failed")
    assert code == 3
    assert str(folder) not in out and "Traceback" not in out and json.loads(out)["error"]["kind"] == "script"


def test_output_of_a_script_that_exits_is_shown(folder: Path, pipetune: Shell) -> None:
    code, _, error = pipetune("analyze train.py script_wants_arguments")
    shown = [f"  line {number}" for number in range(12, 20)]
    shown += ["  usage: train.py [-h] --data DATA", "  train.py: error: the following arguments are required: --data"]
    shown = ["The output of the script ends:", *shown, "pipetune: The script ended with exit status 2."]
    assert code == 3 and "\n".join(shown) in error
    (log,) = Path("reports/train").glob("runs/*/script.log")
    assert f"Its output is in {log.absolute()}." in error


@pytest.mark.one_core
def test_summary_is_shown_after_ctrl_c(folder: Path, pipetune: Shell) -> None:
    code, out, error = pipetune("analyze train.py waits_for_ctrl_c")
    assert code == 130 and "The run was interrupted; what was measured is below." in out
    assert "Interrupted" in error and "report.html" in error


def test_json_is_the_summary_without_output_and_progress(folder: Path, pipetune: Shell) -> None:
    code, out, error = pipetune("analyze --verbose --json train.py normal")
    assert code == 0 and "the script prints this" in error and "INPUT-BOUND" in error
    printed, summary = json.loads(out), results(folder)["summary"]
    assert {name: value for name, value in printed.items() if name in summary} == summary
    assert Path(printed["paths"]["patch"]).read_text() == Path("reports/train/tuned.patch").read_text()


def test_rules_are_excluded_by_name(folder: Path, pipetune: Shell) -> None:
    words = ["analyze", "--without", "cache,prefetch", "--without", "parallel-map", "train.py"]
    settings = settings_of(build_parser().parse_args(words))
    assert settings.without == {"cache", "prefetch", "parallel-map"}
    done = pipetune("analyze --without cash train.py normal")
    assert done.code == 2 and "no rule called 'cash'" in done.err


def cluster_of_two(index: int) -> str:
    cluster = {"worker": ["a:1", "b:1"]}
    return json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})


def test_lost_worker_is_named_with_the_end_of_its_log(
    folder: Path, pipetune: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "FAKE", FAKE_CLUSTER)
    code, _, error = pipetune("analyze --workers 2 train.py last_is_killed")
    assert code == 3
    assert "The output of the lost worker ends:\n  worker 1 prints this\n" in error
    assert "\n  out of memory\npipetune: Worker 1 was killed (SIGKILL)" in error
    (log,) = Path("reports/train").glob("runs/*/worker-0.log")
    assert f"{log} to worker-1.log" in error


def test_cluster_task_starts_no_workers_and_uses_its_own_folder(
    folder: Path, pipetune: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", cluster_of_two(1))
    done = pipetune("analyze --workers 2 train.py normal")
    assert done.code == 0 and "TF_CONFIG is set: this machine is worker 1 of an existing cluster" in done.err
    own, patch = folder / "reports" / "train" / "worker-1", results(folder, "worker-1")["patch"]
    assert not list(own.glob("worker-*.log"))
    assert (own / "script.log").read_text() == "the script prints this\n", "the patched script is not run"
    assert (patch["verified"], bool(patch["diff"])) == (None, True)
    assert "other tasks of the cluster" in patch["verification"]


OWN = "parser.add_argument('--budget')\nflags.DEFINE_integer('time_limit', 60, 'of a step')\n"


@pytest.mark.parametrize(
    ("source", "given", "named"),
    [
        ("import tensorflow as tf\n", "--budget 30 --time-limit=30", "--budget, --time-limit"),
        ("import tensorflow as tf\n", "--epochs 30 --help", ""),
        (OWN, "--budget 30 --time-limit=30", ""),
    ],
)
def test_option_of_pipetune_after_the_script_is_warned_of(
    folder: Path, pipetune: Shell, source: str, given: str, named: str
) -> None:
    (folder / "train.py").write_text(source)
    done = pipetune(f"analyze train.py no_dataset {given}")
    error = " ".join(done.err.split())
    assert done.code == 4 and ("passed to train.py" in error) is bool(named)
    for said in (f"{named}: passed to train.py, as everything after it is.", "pipetune analyze --budget ... train.py"):
        assert (said in error) is bool(named)


@pytest.mark.parametrize("horovod", [True, False])
def test_mpirun_process_is_a_rank_if_the_script_imports_horovod(
    folder: Path, pipetune: Shell, monkeypatch: pytest.MonkeyPatch, horovod: bool
) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    if horovod:
        (folder / "train.py").write_text("def main():\n    import horovod.tensorflow as hvd\n")
    code, _, error = pipetune("analyze train.py normal")
    assert code == 0 and ("OMPI_COMM_WORLD_SIZE reports 2 processes" in error) is not horovod
    assert ("set HOROVOD_RANK and HOROVOD_SIZE" in " ".join(error.split())) is not horovod, "how to tell"
    patch = results(folder, "worker-1" if horovod else "process-1")["patch"]
    assert patch["verified"] is (None if horovod else True), "a rank of several does not run the patched script"


def test_first_task_notes_missing_tasks_of_the_cluster(
    folder: Path, pipetune: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", cluster_of_two(0))
    done = pipetune("analyze train.py normal")
    notes, said = results(folder)["notes"], " ".join(done.err.split())
    assert "wrote no session below this task's results folder" in notes[-1]
    assert "connected within 0 s" in notes[-2], "in the report too"
    assert done.code == 0 and "TF_CONFIG" not in said
    assert "Not all tasks of the cluster connected within 0 s: each measures only its own input." in said


@pytest.mark.parametrize(
    ("words", "place", "workers", "servers"),
    [
        ("", None, 1, 0),
        ("--workers 3", None, 3, 0),
        ("--workers 3", ClusterTask("worker", 0, 2), 1, 0),  # of an existing cluster
        ("--parameter-servers 1", None, 2, 1),
        ("--parameter-servers 1", ClusterTask("chief", 0, 1), 1, 0),
        ("--parameter-servers 1 --workers 1", None, 1, 1),
    ],
)
def test_numbers_of_processes_are_settings(words: str, place: ClusterTask | None, workers: int, servers: int) -> None:
    settings = settings_of(build_parser().parse_args(["analyze", *words.split(), "train.py"]), place)
    assert (settings.workers, settings.parameter_servers) == (workers, servers)


def test_single_worker_is_refused(folder: Path, pipetune: Shell) -> None:
    done = pipetune("analyze --workers 1 train.py")
    assert done.code == 2 and "--workers 1 starts a single process" in done.err


def test_malformed_tf_config_is_rejected_before_anything_runs(
    folder: Path, pipetune: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", "worker:0")
    done = pipetune("analyze train.py normal")
    assert done.code == 2 and "pipetune: TF_CONFIG is not JSON" in done.err
    assert not (folder / "reports").exists()

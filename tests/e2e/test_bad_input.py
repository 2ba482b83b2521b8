"""Scripts that fail, hang, are killed or interrupted, and one that must not be changed: clear words, nothing lost."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import pipetune
from pipetune.core import session_file
from tests.e2e.command import Done

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.timeout(600)]

PACKAGE = str(Path(pipetune.__file__).parent)
WRITTEN = {"session.json", "report.html", "tuned.patch", "script.log"}


def left_a_report(done: Done) -> bool:
    """Whether session and report exist, are readable, and state how the run ended."""
    session = session_file.load(done.results)
    return done.files >= WRITTEN and session.status_detail in " ".join(done.err.split("\n  "))


@pytest.mark.run("raises-within", code=3)
def test_script_raises_while_reading_data(done: Done) -> None:
    assert "InvalidArgumentError" in done.err and "assertion failed: [a broken element]" in done.err
    assert PACKAGE not in done.err
    assert "The script raised an exception: tensorflow.python.framework.errors_impl.InvalidArgumentError" in done.said
    assert done.files >= WRITTEN
    assert done.operators == ["from_tensor_slices", "map", "batch"], "what was captured is kept"


@pytest.mark.exhaustive
@pytest.mark.run("killed", code=3)
def test_script_is_killed_while_measured(done: Done) -> None:
    assert "was killed (SIGKILL), possibly because the system ran out of memory" in done.said
    assert left_a_report(done)
    assert done.summary["status"] == "failed"


@pytest.mark.exhaustive
@pytest.mark.run("hangs", code=3)
def test_script_hangs_before_training(done: Done) -> None:
    assert "sent no message for 10 s and was killed" in done.said
    assert left_a_report(done)
    assert "hanging" in done.log


@pytest.mark.exhaustive
@pytest.mark.run("loses-a-worker", code=3)
def test_worker_killed_within_a_window_ends_the_command(done: Done) -> None:
    assert done.summary["status"] == "failed"
    assert "Worker 1 was killed (SIGKILL)" in done.said
    assert "The other workers were stopped as well." in done.said
    assert "no more of this" in done.said, "the end of its log"
    assert "[input or model?]" in done.said, "it had begun to measure"
    assert not any(path.startswith(str(done.results)) for path in _open_files()), "nothing is left that writes there"


def _open_files() -> Iterator[str]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            yield from (file.path for file in process.open_files())


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
@pytest.mark.run("variable")
def test_map_that_reads_a_trained_variable_is_not_rewritten(done: Done) -> None:
    (dataset,) = done.summary["datasets"]
    assert dataset["rewrites"] == [] and (done.results / "tuned.patch").read_text() == ""
    silent = {silence["rule"]: silence["why"] for silence in done.first["silences"]}
    assert "variable" in silent["prefetch"] and "variable" in silent["cache"]
    assert not {one["rule"] for one in dataset["offered"]} & {"prefetch", "cache"}
    assert "python-parallel" in str(dataset["offered"] + dataset["rejected"]) or "parallel-map" in silent

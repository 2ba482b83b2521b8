"""Scripts that fail, end early or have nothing to tune: a clear message, the right exit code, nothing lost."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import pipetune
from pipetune.core import sessionfile
from tests.e2e.command import PRECIOUS, Done

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

PACKAGE = str(Path(pipetune.__file__).parent)
WRITTEN = {"session.json", "report.html", "tuned.patch", "script.log"}


def left_a_report(done: Done) -> bool:
    """Whether session and report are there, readable, and say how the run ended."""
    session = sessionfile.load(done.results)
    return done.files >= WRITTEN and session.status_detail in " ".join(done.err.split("\n  "))


@pytest.mark.run("missing")
def test_a_script_that_is_missing(done: Done) -> None:
    assert done.code == 2
    assert "There is no script no_such_script.py." in done.said and "Traceback" not in done.err
    assert not done.files, "nothing is made for a script that cannot be run"


@pytest.mark.run("binary")
def test_a_file_that_is_no_text(done: Done) -> None:
    assert done.code == 2
    assert "is not Python source" in done.said and "Traceback" not in done.err


@pytest.mark.run("syntax")
def test_a_text_that_is_no_python(done: Done) -> None:
    assert done.code == 3
    assert "not_python.txt" in done.said and "'(' was never closed" in done.said
    assert PACKAGE not in done.err
    assert done.files >= WRITTEN


@pytest.mark.run("out-is-a-file")
def test_results_that_cannot_be_written(done: Done) -> None:
    assert done.code == 2
    assert "Results cannot be written to" in done.said and "--out DIR" in done.said
    assert (done.folder / "model.keras").read_bytes() == PRECIOUS
    assert "Runs the script" not in done.err, "nothing was run"


@pytest.mark.run("no-gpu")
def test_a_device_that_is_absent(done: Done) -> None:
    assert done.code == 5
    assert "gpu" in done.said.lower() and "Traceback" not in done.err
    assert "trained" not in done.log, "the script does not run"


@pytest.mark.exhaustive
@pytest.mark.run("raises-before")
def test_it_raises_before_any_dataset(done: Done) -> None:
    assert done.code == 3
    assert 'return {"learning_rate": 0.1}["learning-rate"]' in done.err
    assert "\nKeyError: 'learning-rate'\n" in done.err
    assert "The script raised: KeyError: 'learning-rate'" in done.said
    assert PACKAGE not in done.err, "the traceback is the user's own"
    assert left_a_report(done)
    assert done.summary["status"] == "failed"


@pytest.mark.run("raises-after")
def test_it_raises_after_a_look_at_the_pipeline(done: Done) -> None:
    assert done.code == 3
    assert "\nFileNotFoundError: no weights at the registry\n" in done.err
    assert 'raises_after_a_look.py", line 13, in <module>' in done.err
    assert PACKAGE not in done.err
    assert left_a_report(done)
    assert "looked at (32,)" in done.log


@pytest.mark.run("raises-within")
def test_it_raises_in_the_middle_of_the_data(done: Done) -> None:
    assert done.code == 3
    assert "InvalidArgumentError" in done.err and "assertion failed: [a broken element]" in done.err
    assert PACKAGE not in done.err
    assert "The script raised: tensorflow.python.framework.errors_impl.InvalidArgumentError" in done.said
    assert done.files >= WRITTEN
    assert done.operators == ["from_tensor_slices", "map", "batch"], "what was captured is kept"


@pytest.mark.run("raises-in-its-loop")
def test_its_loop_raises_while_it_is_measured(done: Done) -> None:
    assert done.code == 3
    assert "    check(step)\n" in done.err and "\nValueError: the loss is nan at step 60\n" in done.err
    assert PACKAGE not in done.err
    assert left_a_report(done)
    assert done.first["profile"]["operators"], "what was measured is kept"


@pytest.mark.exhaustive
@pytest.mark.run("exits-before")
def test_it_exits_before_any_dataset(done: Done) -> None:
    assert done.code == 3
    assert "The script ended with exit status 3." in done.said and "Traceback" not in done.err
    assert left_a_report(done)


@pytest.mark.run("exits-within")
def test_it_ends_its_process_while_it_is_measured(done: Done) -> None:
    assert done.code == 3
    assert "ended its process with exit status 5" in done.said
    assert left_a_report(done)
    assert done.operators == ["from_tensor_slices", "map", "batch"]


@pytest.mark.run("killed")
def test_it_is_killed_while_it_is_measured(done: Done) -> None:
    assert done.code == 3
    assert "was killed (SIGKILL), as a system out of memory does" in done.said
    assert left_a_report(done)
    assert done.summary["status"] == "failed"


@pytest.mark.run("hangs")
def test_it_hangs_before_it_trains(done: Done) -> None:
    assert done.code == 3
    assert "gave no sign of life for 10 s and was ended" in done.said
    assert left_a_report(done)
    assert "hanging" in done.log


@pytest.mark.run("no-dataset")
def test_it_consumes_no_dataset(done: Done) -> None:
    assert done.code == 4
    assert "trained on no tf.data dataset" in done.said and "pass a tf.data.Dataset to fit" in done.said
    assert left_a_report(done)
    assert done.summary["status"] == "no-dataset"


@pytest.mark.exhaustive
@pytest.mark.run("looked-at")
def test_it_looks_at_one_element_only(done: Done) -> None:
    assert done.code == 4
    assert "of dataset it took one element only (built_not_consumed.py:7)" in done.said
    assert left_a_report(done)


@pytest.mark.exhaustive
@pytest.mark.run("empty")
def test_it_consumes_an_empty_dataset(done: Done) -> None:
    assert done.code == 4
    assert "The dataset is empty." in done.said
    assert left_a_report(done)


@pytest.mark.run("subprocess")
def test_it_trains_in_another_process(done: Done) -> None:
    assert done.code == 4
    assert "trained on no tf.data dataset" in done.said
    assert "A process that the script starts is not looked into" in done.said
    assert "200/200" in done.log, "the other process was left alone"
    assert left_a_report(done)


@pytest.mark.run("loses-a-worker")
def test_a_worker_killed_in_the_middle_of_a_window_ends_the_command(done: Done) -> None:
    assert (done.code, done.summary["status"]) == (3, "failed"), done.err
    assert "Worker 1 was killed (SIGKILL)" in done.said
    assert "The other workers were ended with it." in done.said
    assert "no more of this" in done.said, "the end of its log"
    assert "comparing the training step" in done.said, "it had begun to measure"
    assert not any(path.startswith(str(done.results)) for path in _open_files()), "nothing is left that writes there"


def _open_files() -> Iterator[str]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            yield from (file.path for file in process.open_files())

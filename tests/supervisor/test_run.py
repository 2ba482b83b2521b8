"""Workers of `pipetune run`, on the user's terminal, and of `pipetune doctor`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipetune.core.errors import PipetuneError
from pipetune.supervisor.monitoring import Timeouts
from pipetune.supervisor.single_worker import read_machine, run_with_plan
from pipetune.supervisor.target import Target
from tests.core.sessions import MACHINE
from tests.supervisor.fake_worker import TRACEBACK
from tests.supervisor.test_analysis import FAKE

pytestmark = pytest.mark.slow


def test_machine_is_read_by_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE", "machine")
    assert read_machine("cpu", worker_command=FAKE).machine == MACHINE


@pytest.mark.parametrize(("what", "says", "code"), [("absent", "no GPU", 5), ("dies", "status 3", 1)])
def test_worker_that_cannot_read_machine_is_reported(
    monkeypatch: pytest.MonkeyPatch, what: str, says: str, code: int
) -> None:
    monkeypatch.setenv("FAKE", what)
    with pytest.raises(PipetuneError, match=says) as caught:
        read_machine("gpu", worker_command=FAKE, limits=Timeouts(start=10))
    assert caught.value.exit_code == code


def run(what: str, options: str = "") -> subprocess.CompletedProcess[str]:
    """Calls `run_with_plan` in a process with its own input and output."""
    program = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})\n"
        "from pathlib import Path\n"
        "from pipetune.supervisor.single_worker import run_with_plan\n"
        "from pipetune.supervisor.target import Target\n"
        "target = Target(script='train.py', arguments=('--epochs', '3'), directory='.')\n"
        f"sys.exit(run_with_plan(target, Path('plan.json'), worker_command={FAKE!r}{options}))\n"
    )
    environment, words = {**os.environ, "FAKE": what}, [sys.executable, "-c", program]
    return subprocess.run(words, input="typed\n", capture_output=True, text=True, check=False, env=environment)


RAN = "in: typed plan: plan.json arguments: ('--epochs', '3') group: True\n"


@pytest.mark.parametrize(
    ("what", "code", "out", "err"),
    [
        ("runs", 0, RAN, "pipetune: The plan is applied to train.\n"),
        ("raises", 3, "", TRACEBACK),
        ("exits_with_a_message", 3, "", "no data\n"),
        ("handles_ctrl_c", 130, "saved after Ctrl-C\n", ""),
    ],
)
def test_run_uses_terminal_prints_traceback_of_script_and_leaves_ctrl_c_to_it(
    what: str, code: int, out: str, err: str
) -> None:
    done = run(what)
    assert (done.returncode, done.stdout, done.stderr) == (code, out, err)


def test_output_of_the_script_can_go_to_standard_error() -> None:
    done = run("runs", ", prints_to_stderr=True")
    assert (done.returncode, done.stdout) == (0, "")
    assert "in: typed plan: plan.json" in done.stderr and "pipetune: The plan is applied to train.\n" in done.stderr


def test_worker_that_cannot_be_started_is_reported(tmp_path: Path) -> None:
    with pytest.raises(PipetuneError, match="cannot be started") as caught:
        run_with_plan(Target(script="train.py"), tmp_path, worker_command=("/nonexistent/python",))
    assert caught.value.exit_code == 1

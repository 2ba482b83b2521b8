"""`analyze`, `pipetune run` and `pipetune doctor` with a fake worker, for every way in which a worker can end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.slow

from pipetune.core import session_file
from pipetune.core.errors import PipetuneError
from pipetune.core.results import Outcome
from pipetune.core.settings import Settings
from pipetune.supervisor.analysis import analyze
from pipetune.supervisor.monitoring import Interrupts, Timeouts, WorkerMonitor
from pipetune.supervisor.request import AnalysisRequest, AnalysisResult
from pipetune.supervisor.results_folder import Results
from pipetune.supervisor.single_worker import read_machine, run_with_plan
from pipetune.supervisor.target import Target
from tests.core.sessions import MACHINE, PARALLEL, WINDOW
from tests.supervisor.fake_worker import TRACEBACK

FAKE = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
SOON = Timeouts(start=60, phases={}, other_phases=20.0, shutdown=1.0, grace=3.0, meeting=0.1)
FILES = ["plan.json", "report.html", "script.log", "session.json", "tuned.patch"]


class Recorder:
    """A screen that records its calls; `while_verifying` is called at each update of the verification."""

    def __init__(self, *, while_verifying: Callable[[], None] = lambda: None) -> None:
        self._while_verifying = while_verifying
        self.said, self.warned, self.verdicts, self.phases, self.done, self.results = (list[str]() for _ in range(6))
        self.say, self.warn, self.conclude = self.said.append, self.warned.append, self.results.append

    def update(self, phase: str, doing: str = "", left: float | None = None) -> None:
        self.phases.append(phase)
        self.done.append(doing)
        if phase == "verification":
            self._while_verifying()

    def verdict(self, word: str, sentence: str) -> None:
        self.verdicts.append(word)


def request(
    out: Path, scenario: str, *words: str, limits: Timeouts = SOON, command: Sequence[str] = FAKE, **more: Any
) -> AnalysisRequest:
    target = Target(script="/somewhere/train.py", arguments=(scenario, *words), directory=str(out.parent))
    return AnalysisRequest(target, Settings(), Results(out), limits=limits, worker_command=command, **more)


def run(tmp_path: Path, scenario: str, *words: str) -> tuple[AnalysisResult, Recorder, Path]:
    screen, out = Recorder(), tmp_path / "out"
    analysis = analyze(request(out, scenario, *words), screen=screen)
    assert session_file.load(analysis.results.folder) == analysis.session  # results are saved in every case
    assert (analysis.results.folder / "report.html").read_text().startswith("<!")
    return analysis, screen, out


def test_worker_has_own_session_and_no_stdin(tmp_path: Path) -> None:
    assert f"{tmp_path} True ''" in run(tmp_path, "says_where_it_runs")[1].said


@pytest.mark.one_core
@pytest.mark.parametrize(("words", "code", "detail"), [
    (("script_failed",), 3, "The script raised an exception: ValueError: of the user"),
    (("no_dataset",), 4, "Nothing was consumed."),
    (("script_exits_with_an_error",), 3, "The script ended with exit status 7."),
    (("vanish", "0"), 4, "The script exited with status 0."),
    (("vanish", "5"), 3, "The script exited with status 5."),
    (("cannot_start",), 1, "The measuring process exited with status 1 before it sent any message."),
])  # fmt: skip
def test_worker_that_ends_without_measurements_is_explained(tmp_path, words, code, detail) -> None:
    analysis, _, out = run(tmp_path, *words)
    assert analysis.exit_code == code and analysis.session.status_detail.startswith(detail)
    assert analysis.traceback == (TRACEBACK if words == ("script_failed",) else "")
    assert (out / "tuned.patch").read_text() == ""
    assert sorted(os.listdir(analysis.results.folder)) == FILES[1:], "there is no plan"


@pytest.mark.one_core
def test_worker_killed_in_trial_is_restarted_without_that_plan(tmp_path: Path) -> None:
    analysis, screen, _ = run(tmp_path, "killed_in_a_trial")
    assert analysis.exit_code == 0
    (warning,) = screen.warned
    assert "While trying prefetch, the process was killed (SIGKILL)" in warning
    assert any(text.startswith("skipped: it was killed") for text in screen.said)
    outcomes = [(trial.plan.key, trial.outcome) for trial in analysis.session.trials]
    assert outcomes[:2] == [(PARALLEL.key, Outcome.REJECTED), (WINDOW.key, Outcome.FAILED)]
    assert outcomes[2][1] is Outcome.ACCEPTED  # from the second worker
    assert analysis.session.side_effects["saves_suppressed"] == 3
    assert "Suppressed while pipetune measures: saves." in screen.said


@pytest.mark.parametrize(("scenario", "detail"), [
    ("killed_in_every_trial", "The measuring process was killed (SIGKILL)"),
    ("restart_never_gets_going", "The measuring process exited with status 9"),
])  # fmt: skip
def test_second_lost_worker_ends_run_and_keeps_measurements(tmp_path: Path, scenario: str, detail: str) -> None:
    analysis, screen, _ = run(tmp_path, scenario)
    assert (analysis.exit_code, analysis.session.status, len(screen.warned)) == (1, "failed", 1)
    assert analysis.session.status_detail.startswith(detail)
    assert analysis.session.profiled_datasets


@pytest.mark.parametrize(
    ("words", "code", "studied"),
    [(["ignores_ctrl_c", "0"], 1, True), (["hang_without_a_word"], 1, False), (["hang_in_the_script"], 3, False)],
)
def test_hung_worker_is_ended_and_reported(tmp_path: Path, words: list[str], code: int, studied: bool) -> None:
    limits = replace(SOON, other_phases=1.0, start=1.0 if words == ["hang_without_a_word"] else SOON.start)
    analysis = analyze(request(tmp_path / "out", *words, limits=limits), screen=Recorder())
    assert analysis.exit_code == code
    assert "sent no message" in analysis.session.status_detail
    assert bool(analysis.session.profiled_datasets) is studied


def test_limit_of_a_wait_is_named_where_it_has_one_of_its_own() -> None:
    messages, exits = os.pipe(), os.pipe()
    running: Any = SimpleNamespace(message_descriptor=messages[0], exit_descriptor=exits[0], attached=False)
    running.kill, running.process = lambda: os.close(messages[1]), SimpleNamespace(wait=lambda: -signal.SIGKILL)
    with Interrupts() as interrupts:
        monitor = WorkerMonitor(running, limits=SOON, interrupts=interrupts, on_message=lambda _: None, phase="trials")
        assert not monitor.wait(seconds=0.01)
        assert monitor.end().exit_reason == "sent no message for 0 s and was killed"
    for descriptor in (messages[0], *exits):
        os.close(descriptor)


def test_each_phase_has_its_own_timeout(tmp_path: Path) -> None:
    patient = replace(SOON, other_phases=0.2, phases={"capture": 20.0, "trials": 20.0, "verification": 20.0})
    analysis = analyze(request(tmp_path / "out", "slow_phases", limits=patient), screen=Recorder())
    assert analysis.exit_code == 0
    assert analysis.session.patch is not None and analysis.session.patch.verified is True


@pytest.mark.exhaustive
def test_worker_that_hangs_after_finishing_is_ended(tmp_path: Path) -> None:
    analysis, _, _ = run(tmp_path, "never_ends_after_the_last_word")
    assert (analysis.exit_code, analysis.session.status) == (0, "done")


def test_invalid_messages_are_ignored_with_warning(tmp_path: Path) -> None:
    analysis, screen, _ = run(tmp_path, "garbage")
    assert analysis.exit_code == 0
    assert any("not valid messages and were ignored" in text for text in screen.warned)


@pytest.mark.one_core
def test_ctrl_c_keeps_measurements_and_writes_report(tmp_path: Path) -> None:
    handler = signal.getsignal(signal.SIGINT)
    analysis, _, _ = run(tmp_path, "waits_for_ctrl_c")
    assert analysis.exit_code == 130
    assert analysis.session.status == "interrupted"
    assert analysis.session.training is not None  # saved by the worker after the interrupt
    assert analysis.session.patch is not None and analysis.session.patch.verified is None
    assert signal.getsignal(signal.SIGINT) is handler


def test_hangup_that_nohup_ignores_stays_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupts.count == 0
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.exhaustive
@pytest.mark.parametrize("times", ["1", "2"])
def test_script_that_ignores_ctrl_c_is_ended(tmp_path: Path, times: str) -> None:
    analysis, _, _ = run(tmp_path, "ignores_ctrl_c", times)
    assert (analysis.exit_code, analysis.session.status) == (130, "interrupted")
    assert analysis.session.profiled_datasets


@pytest.mark.parametrize("then", ["exit", "hang"])
def test_all_child_processes_are_ended(tmp_path: Path, then: str) -> None:
    note = tmp_path / "pids"
    one = request(tmp_path / "out", "many_children", str(note), then, limits=replace(SOON, other_phases=3.0))
    assert analyze(one, screen=Recorder()).exit_code != 5, "what a forked child says is ignored"

    def is_gone(pid: int) -> bool:
        return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE

    end, pids = time.monotonic() + 5, [int(pid) for pid in note.read_text().split()]
    while not all(map(is_gone, pids)):
        assert time.monotonic() < end, list(map(is_gone, pids))
        time.sleep(0.1)


def test_unwritable_results_folder_is_rejected_before_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    screen = Recorder()
    with pytest.raises(PipetuneError, match="cannot be written") as caught:
        analyze(request(tmp_path / "file" / "inside", "normal"), screen=screen)
    assert "Nothing was run" in caught.value.hint
    assert not screen.said and not screen.phases


def test_confidential_verbose_run_contains_no_source_and_paths(tmp_path: Path) -> None:
    out = tmp_path / "out"
    seen: list[bool] = []

    def look() -> None:
        seen.append(json.loads((out / "session.json").read_text())["summary"]["verdict"] == "input-bound")

    screen = Recorder(while_verifying=look)
    one = replace(request(out, "normal", verbose=True), results=Results(out, confidential=True))
    analysis = analyze(one, screen=screen)
    assert seen and all(seen), "the session is written as soon as there is a verdict"
    assert screen.said.count("the script prints this") == 3
    for text in ((out / "session.json").read_text(), (out / "report.html").read_text()):
        assert "hunter2" not in text and "/home/ada" not in text
    assert analysis.session.command.confidential is True
    assert "+++ b/train.py" in (out / "tuned.patch").read_text()  # the patch stays readable for the user


def test_machine_is_read_by_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE", "machine")
    assert read_machine("cpu", worker_command=FAKE).machine == MACHINE


@pytest.mark.parametrize(("what", "says", "code"), [("absent", "no GPU", 5), ("dies", "status 3", 1)])
def test_worker_that_cannot_read_machine_is_reported(monkeypatch, what, says, code) -> None:
    monkeypatch.setenv("FAKE", what)
    with pytest.raises(PipetuneError, match=says) as caught:
        read_machine("gpu", worker_command=FAKE, limits=Timeouts(start=10))
    assert caught.value.exit_code == code


def ran(what: str, options: str = "") -> subprocess.CompletedProcess[str]:
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


@pytest.mark.parametrize(("what", "code", "out", "err"), [
    ("runs", 0, RAN, "pipetune: The plan is applied to train.\n"),
    ("raises", 3, "", TRACEBACK),
    ("exits_with_a_message", 3, "", "no data\n"),
    ("handles_ctrl_c", 130, "saved after Ctrl-C\n", ""),
])  # fmt: skip
def test_run_uses_terminal_prints_traceback_of_script_and_leaves_ctrl_c_to_it(what, code, out, err) -> None:
    done = ran(what)
    assert (done.returncode, done.stdout, done.stderr) == (code, out, err)


def test_output_of_the_script_can_go_to_standard_error() -> None:
    done = ran("runs", ", prints_to_stderr=True")
    assert (done.returncode, done.stdout) == (0, "")
    assert "in: typed plan: plan.json" in done.stderr and "pipetune: The plan is applied to train.\n" in done.stderr


def test_worker_that_cannot_be_started_is_reported(tmp_path: Path) -> None:
    with pytest.raises(PipetuneError, match="cannot be started") as caught:
        run_with_plan(Target(script="train.py"), tmp_path, worker_command=("/nonexistent/python",))
    assert caught.value.exit_code == 1

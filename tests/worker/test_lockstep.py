"""Scripts that train in several processes: in lockstep, or as workers and servers that have to serve."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture import job_processes, protection
from pipetune.capture.consumption import Consumer, Consumption, NoConsumer
from pipetune.capture.lockstep_consumer import LockstepConsumer
from pipetune.capture.loop_consumer import LoopConsumer
from pipetune.core import messages, restoration
from pipetune.core.cluster import LockstepRole
from pipetune.core.distribution import COORDINATOR, DATASET, InputDistribution
from pipetune.core.errors import PipetuneError
from pipetune.core.messages import Job, Mode
from pipetune.core.settings import Settings
from pipetune.pipelines import live
from pipetune.worker import lockstep, study

IN_STEP = InputDistribution("MultiWorkerMirroredStrategy", 2, DATASET, workers=2)


def team(difference: str = "") -> Any:
    """Two workers; the peer finds the same pipeline, or reports this difference."""

    class Two(list[int]):
        def wait_for_workers(self, operators: tuple[str, ...]) -> str:
            assert operators == ("range (n0)", "batch (n1)")
            return difference

    return Two([0, 1])


def consumed(facts: InputDistribution | None) -> Consumption:
    dataset = tf.data.Dataset.range(8).batch(4)
    use = Consumption(dataset=dataset, variable="train", role="training", consumer_call="a Python loop")
    use.distributed_input = None if facts is None else SimpleNamespace(handover=facts)  # type: ignore[assignment]
    return use


def consumer_of(consumer: Consumer, *, difference: str = "", facts: InputDistribution | None = IN_STEP) -> Consumer:
    use = consumed(facts)
    return study.consumer_of(team(difference), use, live.read(use.dataset), consumer)


@pytest.mark.parametrize(("facts", "how"), [
    (None, "It does not pass its dataset to a strategy."),
    (InputDistribution("MirroredStrategy", 2, DATASET), "It trains under MirroredStrategy, in one process."),
])  # fmt: skip
def test_script_that_trains_in_one_process_is_rejected(facts: InputDistribution | None, how: str) -> None:
    with pytest.raises(PipetuneError, match="2 workers were started, but the script does not train in") as caught:
        study.require_team(LockstepRole(0, 2), team(), consumed(facts))
    assert caught.value.message.endswith(how)
    assert (caught.value.exit_code, "MultiWorkerMirroredStrategy" in caught.value.hint) == (2, True)


@pytest.mark.parametrize("facts", [None, InputDistribution("MirroredStrategy", 2, DATASET)])
def test_script_with_one_process_is_measured_alone_on_existing_cluster(facts: InputDistribution | None) -> None:
    study.require_team(LockstepRole(0, 2, existing_cluster=True), team(), consumed(facts))
    loop = LoopConsumer()
    assert consumer_of(loop, facts=facts) is loop
    assert consumer_of(loop, facts=facts, difference="worker 1 has 3 operators") is loop, "each has a step of its own"


def test_multi_worker_script_is_accepted_and_parameter_server_script_is_rejected_with_hint() -> None:
    study.require_team(LockstepRole(0, 2), team(), consumed(IN_STEP))
    by_coordinator = consumed(InputDistribution("ParameterServerStrategy", 1, COORDINATOR, 2))
    with pytest.raises(PipetuneError, match="trains under ParameterServerStrategy, with a coordinator") as caught:
        study.require_team(LockstepRole(0, 2), team(), by_coordinator)
    assert "Add --parameter-servers 1" in caught.value.hint


@pytest.fixture
def rank_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of horovodrun, with a script that imports Horovod."""
    monkeypatch.setitem(sys.modules, "horovod", ModuleType("horovod"))
    for name, value in {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)


def test_single_horovod_rank_cannot_switch_pipelines(rank_of_two: None) -> None:
    assert "2 processes train in lockstep under Horovod" in job_processes.switching_obstacle(None)
    assert job_processes.local_ranks() == 2, "they share the cores, and are no neighbours"


def test_horovod_ranks_with_equal_pipelines_train_in_lockstep(rank_of_two: None) -> None:
    assert job_processes.switching_obstacle(None, in_step=True) == ""
    assert isinstance(consumer_of(LoopConsumer(), facts=None), LockstepConsumer)
    found = consumer_of(LoopConsumer(), facts=None, difference="worker 1 has 3 operators")
    assert isinstance(found, NoConsumer), "a loop that waits for the other rank is not run alone"


def test_script_without_horovod_under_horovodrun_is_measured_alone(rank_of_two, monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "horovod")
    loop = LoopConsumer()
    assert consumer_of(loop, facts=None) is loop
    assert (job_processes.switching_obstacle(None), job_processes.local_ranks()) == ("", 1)


def test_workers_with_different_pipelines_have_no_consumer() -> None:
    why = "worker 1 has 3 operators and worker 0 2"
    found = consumer_of(LoopConsumer(), difference=why)
    assert isinstance(found, NoConsumer)
    assert found.description == f"The workers cannot try another pipeline in lockstep: {why}."


def test_loop_is_wrapped_in_lockstep_consumer_and_what_cannot_be_switched_is_unchanged() -> None:
    alone = NoConsumer("It is inside a tf.function.")
    assert consumer_of(alone) is alone
    found = consumer_of(LoopConsumer())
    assert isinstance(found, LockstepConsumer)
    assert found.description == "a Python loop, in 2 processes in lockstep"


# -- workers and servers of a job with parameter servers


@pytest.fixture(autouse=True)
def _undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(protection, "disable_saving", lambda _: None)  # it cannot be undone


@pytest.mark.parametrize(("text", "kind", "says"), [
    ("pass", messages.AnalysisFailed, "ended, but it should serve"),
    ("raise SystemExit(0)", messages.AnalysisFailed, "ended, but it should serve"),
    ("raise SystemExit('no data')", messages.ScriptExited, "no data"),
    ("raise ValueError('of the user')", messages.ScriptFailed, "ValueError: of the user"),
])  # fmt: skip
def test_script_that_does_not_serve_is_an_error(tmp_path: Path, text: str, kind: type[Any], says: str) -> None:
    path, heard = tmp_path / "train.py", list[messages.Message]()
    path.write_text(text)
    job = Job(Mode.SERVE, -1, Settings(), script=str(path))
    assert lockstep.run_server_task(job, SimpleNamespace(send=heard.append)) == 3  # type: ignore[arg-type]
    begun, message = heard
    assert isinstance(begun, messages.Progress) and isinstance(message, kind) and says in str(message)


@pytest.mark.tensorflow
def test_script_that_trains_in_server_task_overwrites_nothing(tmp_path: Path) -> None:
    """In its own process: saving stays disabled there, and exit handlers do not run."""
    kept, path = tmp_path / "kept", tmp_path / "train.py"
    kept.write_text("of last week")
    text = f"import atexit, tensorflow as tf\ntf.io.write_file({str(kept)!r}, 'of today')\nprint('trained')\n"
    path.write_text(f"{text}atexit.register(print, 'at its end')")
    read_end, write_end = os.pipe()
    for folder in ("job", "undo"):
        (tmp_path / folder).mkdir()
    job = Job(Mode.SERVE, write_end, Settings(), script=str(path), undo=str(tmp_path / "undo"))
    messages.write_job(job, tmp_path / "job" / "job.json")
    command = [sys.executable, "-P", "-m", "pipetune.worker", str(tmp_path / "job" / "job.json")]
    ended = subprocess.run(command, pass_fds=[write_end], capture_output=True, text=True, check=False)
    os.close(write_end)
    os.close(read_end)
    assert (ended.returncode, ended.stdout) == (3, "trained\n"), ended.stderr
    restoration.restore(str(tmp_path / "undo"))
    assert kept.read_text() == "of last week"


BY_COORDINATOR = InputDistribution("ParameterServerStrategy", 1, COORDINATOR, 2)


def test_note_lists_processes_that_share_the_machine() -> None:
    assert lockstep.parameter_server_note(Settings(), BY_COORDINATOR, cores=2) == ""
    assert lockstep.parameter_server_note(Settings(workers=2), None, cores=2) == ""
    found = lockstep.parameter_server_note(Settings(workers=2, parameter_servers=1), BY_COORDINATOR, cores=4)
    assert found.startswith("A chief, 2 workers and 1 parameter server share the 4 cores of this machine")


@pytest.mark.parametrize(("handover", "how"), [
    (None, "does not pass its dataset to a strategy"),
    (InputDistribution("MirroredStrategy", 2, DATASET), "under MirroredStrategy"),
])  # fmt: skip
def test_servers_for_script_without_parameter_servers_are_rejected(handover, how) -> None:
    with pytest.raises(PipetuneError, match=how) as refused:
        lockstep.parameter_server_note(Settings(workers=2, parameter_servers=1), handover, cores=2)
    assert "Omit --parameter-servers" in refused.value.hint

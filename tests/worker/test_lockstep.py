"""Conditions for training a script in several workers in lockstep, and the resulting consumer."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture import job_processes
from pipetune.capture.consumption import Consumer, Consumption, NoConsumer
from pipetune.capture.lockstep_consumer import LockstepConsumer
from pipetune.capture.loop_consumer import LoopConsumer
from pipetune.core.cluster import LockstepRole
from pipetune.core.distribution import COORDINATOR, DATASET, InputDistribution
from pipetune.core.errors import PipetuneError
from pipetune.pipelines import live
from pipetune.worker import lockstep

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
    use.distributed_input = None if facts is None else SimpleNamespace(handover=lambda: facts)  # type: ignore[assignment]
    return use


def consumer_of(consumer: Consumer, *, difference: str = "", facts: InputDistribution | None = IN_STEP) -> Consumer:
    use = consumed(facts)
    return lockstep.consumer_of(team(difference), use, live.read(use.dataset), consumer)


@pytest.mark.parametrize(
    ("facts", "how"),
    [
        (None, "It does not pass its dataset to a strategy."),
        (InputDistribution("MirroredStrategy", 2, DATASET), "It trains under MirroredStrategy, in one process."),
    ],
)
def test_script_that_trains_in_one_process_is_rejected(facts: InputDistribution | None, how: str) -> None:
    with pytest.raises(PipetuneError, match="2 workers were started, but the script does not train in") as caught:
        lockstep.checked_team(LockstepRole(0, 2), team(), consumed(facts))
    assert caught.value.message.endswith(how)
    assert (caught.value.exit_code, "MultiWorkerMirroredStrategy" in caught.value.hint) == (2, True)


@pytest.mark.parametrize("facts", [None, InputDistribution("MirroredStrategy", 2, DATASET)])
def test_script_with_one_process_is_measured_alone_on_existing_cluster(facts: InputDistribution | None) -> None:
    found = team()
    assert lockstep.checked_team(LockstepRole(0, 2, existing_cluster=True), found, consumed(facts)) is found
    loop = LoopConsumer()
    assert consumer_of(loop, facts=facts) is loop
    assert consumer_of(loop, facts=facts, difference="worker 1 has 3 operators") is loop, "each has a step of its own"


def test_multi_worker_script_gets_its_team_and_parameter_server_script_is_rejected_with_hint() -> None:
    found = team()
    assert lockstep.checked_team(LockstepRole(0, 2), found, consumed(IN_STEP)) is found
    by_coordinator = consumed(InputDistribution("ParameterServerStrategy", 1, COORDINATOR, 2))
    with pytest.raises(PipetuneError, match="trains under ParameterServerStrategy, with a coordinator") as caught:
        lockstep.checked_team(LockstepRole(0, 2), team(), by_coordinator)
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


def test_script_without_horovod_under_horovodrun_is_measured_alone(
    rank_of_two: None, monkeypatch: pytest.MonkeyPatch
) -> None:
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

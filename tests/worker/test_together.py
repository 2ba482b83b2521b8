"""What a script has to be for several workers to be started for it, and what trains then."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core.cluster import Task
from pipetune.core.errors import PipetuneError
from pipetune.core.handover import COORDINATOR, DATASET, Handover
from pipetune.tf.pipelines import live
from pipetune.tf.script import strategies, workers
from pipetune.tf.script.consumers import Consumer, NoConsumer
from pipetune.tf.script.consumption import Consumption
from pipetune.tf.script.in_step_consumer import InStepConsumer
from pipetune.tf.script.loop_consumer import LoopConsumer
from pipetune.worker import together

IN_STEP = Handover("MultiWorkerMirroredStrategy", 2, DATASET, workers=2)


def team(difference: str = "") -> Any:
    """Two workers of which the other one finds the same pipeline, or says what differs."""

    class Two:
        def __len__(self) -> int:
            return 2

        def gather(self, operators: tuple[str, ...]) -> str:
            assert operators == ("range (n0)", "batch (n1)")
            return difference

    return Two()


def consumed(facts: Handover | None) -> Consumption:
    dataset = tf.data.Dataset.range(8).batch(4)
    use = Consumption(dataset=dataset, variable="train", role="training", how="a Python loop")
    use.handed = None if facts is None else SimpleNamespace(facts=lambda: facts)  # type: ignore[assignment]
    return use


def consumer_of(consumer: Consumer, *, difference: str = "", facts: Handover | None = IN_STEP) -> Consumer:
    use = consumed(facts)
    return together.consumer_of(team(difference), use, live.read(use.dataset), consumer)


@pytest.mark.parametrize(
    ("facts", "how"),
    [
        (None, "It hands its dataset to no strategy."),
        (Handover("MirroredStrategy", 2, DATASET), "It trains under MirroredStrategy, in one process."),
    ],
)
def test_a_script_that_trains_in_one_process_is_refused(facts: Handover | None, how: str) -> None:
    with pytest.raises(PipetuneError, match="2 workers were started, but the script does not train in") as caught:
        together.join_in(Task(0, 2), team(), consumed(facts))
    assert caught.value.message.endswith(how)
    assert (caught.value.exit_code, "MultiWorkerMirroredStrategy" in caught.value.hint) == (2, True)


@pytest.mark.parametrize("facts", [None, Handover("MirroredStrategy", 2, DATASET)])
def test_on_a_cluster_that_exists_such_a_script_is_tried_alone_and_the_inputs_compared(facts: Handover | None) -> None:
    found = team()
    assert together.join_in(Task(0, 2, elsewhere=True), found, consumed(facts)) is found
    loop = LoopConsumer()
    assert consumer_of(loop, facts=facts) is loop
    assert consumer_of(loop, facts=facts, difference="worker 1 has 3 operators") is loop, "each has a step of its own"


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_script_that_trains_in_these_processes_has_its_team(elsewhere: bool) -> None:
    found = team()
    assert together.join_in(Task(0, 2, elsewhere=elsewhere), found, consumed(IN_STEP)) is found


def test_a_script_with_parameter_servers_is_told_what_starts_them() -> None:
    by_coordinator = consumed(Handover("ParameterServerStrategy", 1, COORDINATOR, 2))
    with pytest.raises(PipetuneError, match="trains under ParameterServerStrategy, by a coordinator") as caught:
        together.join_in(Task(0, 2), team(), by_coordinator)
    assert "Add --parameter-servers 1" in caught.value.hint


@pytest.fixture
def rank_of_two(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As under horovodrun, in a script that imports Horovod."""
    monkeypatch.setitem(sys.modules, "horovod", ModuleType("horovod"))
    for name, value in {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    yield


def test_a_rank_of_horovod_tries_nothing_alone(rank_of_two: None) -> None:
    assert "2 processes train in step under Horovod" in strategies.why_not_switched(None)
    assert workers.ranks_here() == 2, "they share the cores, and are no neighbours"


def test_ranks_of_horovod_that_do_the_same_train_in_step(rank_of_two: None) -> None:
    assert strategies.why_not_switched(None, in_step=True) == ""
    assert isinstance(consumer_of(LoopConsumer(), facts=None), InStepConsumer)
    found = consumer_of(LoopConsumer(), facts=None, difference="worker 1 has 3 operators")
    assert isinstance(found, NoConsumer), "a loop that waits for the other rank is not run alone"


def test_where_horovodrun_started_a_script_without_horovod_each_trains_for_itself(
    rank_of_two: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "horovod")
    loop = LoopConsumer()
    assert consumer_of(loop, facts=None) is loop
    assert (strategies.why_not_switched(None), workers.ranks_here()) == ("", 1)


def test_other_pipelines_on_other_workers_are_measured_alone() -> None:
    found = consumer_of(LoopConsumer(), difference="worker 1 has 3 operators and worker 0 2")
    assert isinstance(found, NoConsumer)
    assert found.sentence == (
        "The workers cannot try another pipeline together: worker 1 has 3 operators and worker 0 2."
    )


def test_what_cannot_be_switched_stays_as_it_is() -> None:
    alone = NoConsumer("It is inside a tf.function.")
    assert consumer_of(alone) is alone


def test_what_trains_does_so_in_step() -> None:
    found = consumer_of(LoopConsumer())
    assert isinstance(found, InStepConsumer)
    assert found.sentence == "a Python loop, in 2 processes in step"


def test_without_a_task_there_is_no_team() -> None:
    with together.team_of(None, None) as found:  # type: ignore[arg-type]
        assert found is None

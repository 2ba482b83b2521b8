"""How a strategy takes a dataset to its replicas: one plain sentence, the same everywhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.distribution import COORDINATOR, DATASET, FIT, FUNCTION, PIPELINE_PER_PROCESS, InputDistribution
from pipetune.core.pipeline import SERVICE, Node, Pipeline
from pipetune.core.session import Session
from pipetune.core.summary import summary
from pipetune.report.handover import between, handover, step_note
from pipetune.report.terminal import summary_text
from tests.core.sessions import session

MIRRORED = InputDistribution("MirroredStrategy", 2, DATASET, batch=64, shares=(32, 32), prefetched=2)


def test_without_a_strategy_nothing_is_said() -> None:
    assert handover(None) == ""
    assert "replica" not in summary_text(session())
    assert summary(session())["datasets"][0]["handover"] is None  # type: ignore[index, call-overload]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            MIRRORED,
            "MirroredStrategy takes the dataset to 2 replicas, by experimental_distribute_dataset: each global batch "
            "of 64 is divided into 32 for each replica, and 2 elements are prefetched behind it.",
        ),
        (
            replace(MIRRORED, how=FIT, replicas=3, batch=8, shares=(3, 3, 2), prefetched=3),
            "MirroredStrategy takes the dataset to 3 replicas, by Model.fit: each global batch of 8 is divided into 3, "
            "3 and 2, and 3 elements are prefetched behind it.",
        ),
        (
            replace(MIRRORED, batch=None, shares=(0, 0)),
            "MirroredStrategy takes the dataset to 2 replicas, by experimental_distribute_dataset: each batch is "
            "divided by 2, and 2 elements are prefetched behind it.",
        ),
        (
            InputDistribution("MultiWorkerMirroredStrategy", 4, DATASET, 2, None, (0, 0), True, 2, "DATA"),
            "MultiWorkerMirroredStrategy takes the dataset to 4 replicas of 2 workers, by "
            "experimental_distribute_dataset: it is sharded over the workers by auto_shard_policy DATA, each batch is "
            "divided by 4, and 2 elements are prefetched behind it.",
        ),
        (
            InputDistribution("OneDeviceStrategy", 1, DATASET, batch=8),
            "OneDeviceStrategy takes the dataset to 1 replica, by experimental_distribute_dataset: no batch "
            "is divided.",
        ),
        (
            InputDistribution("MultiWorkerMirroredStrategy", 4, DATASET, 2, 64, (16, 16), True, 2, "AUTO"),
            "MultiWorkerMirroredStrategy takes the dataset to 4 replicas of 2 workers, by "
            "experimental_distribute_dataset: it is sharded over the workers by auto_shard_policy AUTO, each global "
            "batch of 64 is divided into 16 for each replica, and 2 elements are prefetched behind it.",
        ),
        (
            InputDistribution("MirroredStrategy", 2, FUNCTION, batch=32),
            "MirroredStrategy takes what the script's function makes to 2 replicas, by "
            "distribute_datasets_from_function: each replica gets its batches of 32, 64 in a training step; nothing is "
            "divided, sharded or prefetched for it.",
        ),
        (
            InputDistribution("ParameterServerStrategy", 1, COORDINATOR, 3),
            "ParameterServerStrategy builds the dataset again on each of its 3 workers, by create_per_worker_dataset: "
            "nothing is divided or sharded.",
        ),
        (
            InputDistribution("Horovod", 4, PIPELINE_PER_PROCESS, 4),
            "Horovod trains in 4 processes, each of which builds a pipeline of its own.",
        ),
    ],
)
@pytest.mark.mission("B2.said")
def test_what_is_said(found: InputDistribution, said: str) -> None:
    assert handover(found) == said


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, ""),
        (InputDistribution("ParameterServerStrategy", 1, COORDINATOR), ""),
        (MIRRORED, ""),
        (InputDistribution("MirroredStrategy", 2, FUNCTION), "one element, for one replica"),
        (InputDistribution("ParameterServerStrategy", 1, COORDINATOR, 3), "one of each of the 3 workers"),
    ],
)
def test_what_a_step_is(found: InputDistribution | None, said: str) -> None:
    assert (said in step_note(found)) and bool(said) is bool(step_note(found))


def under_mirrored() -> Session:
    made = session()
    return replace(made, datasets=(replace(made.datasets[0], handover=MIRRORED), *made.datasets[1:]))


def test_the_terminal_and_the_data_have_it() -> None:
    made = under_mirrored()
    assert handover(MIRRORED) in " ".join(summary_text(made).split())
    assert summary(made)["datasets"][0]["handover"]["shares"] == [32, 32]  # type: ignore[index, call-overload]


def test_a_step_of_several_elements_is_explained_where_steps_are_first_named() -> None:
    made = under_mirrored()
    assert "A step here" not in summary_text(made)
    function = replace(made.datasets[0], handover=InputDistribution("MirroredStrategy", 2, FUNCTION, batch=32))
    text = " ".join(summary_text(replace(made, datasets=(function,))).split())
    note = "A step here is one element, for one replica: a training step takes 2 of them at a time."
    assert text.index(note) < text.index("Training waits for data")


def test_a_service_is_told_before_the_strategy() -> None:
    made = session().datasets[0]
    nodes = (Node("n0", "opaque", label=SERVICE), Node("n1", "opaque", label="_OtherDataset"))
    assert between(replace(made, pipeline=Pipeline(nodes[1:]))) == ""
    said = between(replace(made, pipeline=Pipeline(nodes), handover=MIRRORED))
    assert said.startswith("The tf.data service delivers it") and said.endswith(handover(MIRRORED))

"""How a strategy takes a dataset to its replicas, and how far its workers' inputs are apart, in plain sentences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.core import distribution
from pipetune.core.distribution import COORDINATOR, DATASET, FIT, FUNCTION, InputDistribution, InputSkew, WorkerInput
from pipetune.core.pipeline import SERVICE, Node, Pipeline
from pipetune.core.summary import summary
from pipetune.report.answer import step_note
from pipetune.report.distribution import between, handover, skew
from tests.core.sessions import session
from tests.report.reading import summary_line, with_main

MIRRORED = InputDistribution("MirroredStrategy", 2, DATASET, batch=64, shares=(32, 32), prefetched=2)
ON_THREE = replace(MIRRORED, how=FIT, replicas=3, batch=8, shares=(3, 3, 2), prefetched=3)
SHARDED = InputDistribution("MultiWorkerMirroredStrategy", 4, DATASET, 2, None, (0, 0), True, 2, "DATA")
ON_ONE = InputDistribution("OneDeviceStrategy", 1, DATASET, batch=8)
BY_FUNCTION = InputDistribution("MirroredStrategy", 2, FUNCTION, batch=32)
SERVED = InputDistribution("ParameterServerStrategy", 1, COORDINATOR, 3)
RANKS = InputDistribution("Horovod", 4, distribution.PIPELINE_PER_PROCESS, 4)

TO_TWO = "MirroredStrategy takes the dataset to 2 replicas, by experimental_distribute_dataset"
TO_THREE = "MirroredStrategy takes the dataset to 3 replicas, by Model.fit"
TO_FOUR = "MultiWorkerMirroredStrategy takes the dataset to 4 replicas of 2 workers, by experimental_distribute_dataset"
BY_POLICY = "it is sharded over the workers by auto_shard_policy DATA, each batch is divided by 4"
TO_ONE = "OneDeviceStrategy takes the dataset to 1 replica, by experimental_distribute_dataset"
MADE = "MirroredStrategy takes what the script's function makes to 2 replicas, by distribute_datasets_from_function"
ITS_OWN = "each replica gets its batches of 32, 64 in a training step"
ANEW = "ParameterServerStrategy builds the dataset again on each of its 3 workers, by create_per_worker_dataset"
AHEAD = "2 elements are prefetched behind it."


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (MIRRORED, f"{TO_TWO}: each global batch of 64 is divided into 32 for each replica, and {AHEAD}"),
        (ON_THREE, f"{TO_THREE}: each global batch of 8 is divided into 3, 3 and 2, and {AHEAD.replace('2', '3')}"),
        (replace(MIRRORED, batch=None, shares=(0, 0)), f"{TO_TWO}: each batch is divided by 2, and {AHEAD}"),
        (SHARDED, f"{TO_FOUR}: {BY_POLICY}, and {AHEAD}"),
        (ON_ONE, f"{TO_ONE}: no batch is divided."),
        (BY_FUNCTION, f"{MADE}: {ITS_OWN}; nothing is divided, sharded or prefetched for it."),
        (SERVED, f"{ANEW}: nothing is divided or sharded."),
        (RANKS, "Horovod trains in 4 processes, each of which builds a pipeline of its own."),
    ],
)
@pytest.mark.mission("B2.said")
def test_what_is_said(found: InputDistribution, said: str) -> None:
    assert handover(found) == said


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, ""),
        (replace(SERVED, workers=1), ""),
        (MIRRORED, ""),
        (replace(BY_FUNCTION, batch=None), "one element, for one replica"),
        (SERVED, "one of each of the 3 workers"),
    ],
)
def test_what_a_step_is(found: InputDistribution | None, said: str) -> None:
    assert (said in step_note(found)) and bool(said) is bool(step_note(found))


def test_the_terminal_and_the_data_have_it() -> None:
    made = with_main(session(), handover=MIRRORED)
    assert handover(MIRRORED) in summary_line(made)
    assert summary(made)["datasets"][0]["handover"]["shares"] == [32, 32]  # type: ignore[index, call-overload]


def test_a_step_of_several_elements_is_explained_where_steps_are_first_named() -> None:
    assert "A step here" not in summary_line(with_main(session(), handover=MIRRORED))
    text = summary_line(with_main(session(), handover=BY_FUNCTION))
    note = "A step here is one element, for one replica: a training step takes 2 of them at a time."
    assert text.index(note) < text.index("Training waits for data")


def test_a_service_is_told_before_the_strategy() -> None:
    made = session().datasets[0]
    nodes = (Node("n0", "opaque", label=SERVICE), Node("n1", "opaque", label="_OtherDataset"))
    assert between(replace(made, pipeline=Pipeline(nodes[1:]))) == ""
    said = between(replace(made, pipeline=Pipeline(nodes), handover=MIRRORED))
    assert said.startswith("The tf.data service delivers it") and said.endswith(handover(MIRRORED))


# -- how far the inputs of several workers are apart

EVEN = WorkerInput(0, (0.010, 0.011, 0.012), 0.05)
LATE = WorkerInput(1, (0.022, 0.020, 0.021), 0.08)
NEAR = WorkerInput(1, (0.011, 0.013, 0.012), 0.05)
THIRD = WorkerInput(2, (0.012, 0.010, 0.011))
LOST = WorkerInput(2, why="the dataset is empty")


@pytest.mark.parametrize("inputs", [(), (EVEN,), (EVEN, LOST)])
def test_one_input_has_no_skew(inputs: tuple[WorkerInput, ...]) -> None:
    found = InputSkew(inputs)
    assert (found.ratio, found.slowest, found.first_batch_spread_seconds, found.is_certain) == (None, None, None, False)


@pytest.mark.mission("E2.skew")
def test_the_slowest_is_compared_with_the_median() -> None:
    two, three = InputSkew((EVEN, LATE)), InputSkew((EVEN, LATE, THIRD))
    assert (two.ratio, three.ratio) == (pytest.approx(21 / 16), pytest.approx(21 / 11))
    assert two.slowest is three.slowest is LATE
    assert three.first_batch_spread_seconds == pytest.approx(0.03), "of those that were seen"


@pytest.mark.parametrize(("inputs", "certain"), [((EVEN, LATE), True), ((EVEN, NEAR), False), ((EVEN, THIRD), False)])
def test_it_is_certain_where_no_round_says_otherwise(inputs: tuple[WorkerInput, ...], certain: bool) -> None:
    assert InputSkew(inputs).is_certain is certain


OF_TWO = "Input skew: each alone, the inputs of 2 workers take"
WAITS = "worker 1 1.31x the median, and every step waits for it"
SLOWER = f"{WAITS}; the last worker's first batch comes 30.0 ms after the first's."
ALIKE = f"{OF_TWO} 11.0 ms to 12.0 ms a step, no further apart than the rounds of one worker."


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ((EVEN, LATE), f"{OF_TWO} 11.0 ms to 21.0 ms a step, {SLOWER}"),
        ((EVEN, replace(NEAR, first_seconds=None)), ALIKE),
        ((EVEN, LOST), "The input of worker 2 was not measured: The dataset is empty."),
    ],
)
@pytest.mark.mission("E2.skew")
def test_what_is_said_of_skew(inputs: tuple[WorkerInput, ...], said: str) -> None:
    assert skew(InputSkew(inputs)) == said


def test_the_terminal_says_it_and_the_data_have_it() -> None:
    found = InputSkew((EVEN, LATE, LOST))
    made = with_main(session(), skew=found)
    assert skew(found) in summary_line(made)
    kept: Any = summary(made)["datasets"][0]["skew"]  # type: ignore[index, call-overload]
    assert (kept["slowest"], kept["certain"], kept["ratio"]) == (1, True, pytest.approx(21 / 16))
    assert kept["first_batch_ms"] == pytest.approx(30)
    assert [one["ms_per_step"] for one in kept["inputs"]] == [pytest.approx(11), pytest.approx(21), None]
    assert kept["inputs"][2]["why"] == LOST.why

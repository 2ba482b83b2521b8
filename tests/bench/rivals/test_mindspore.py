"""MindSpore's queue rule, round by round, on invented queues."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pipetune.bench.rivals.mindspore import (
    Seen,
    Stage,
    adjusted,
    first_stages,
    mindspore_edits,
    queues_of,
    tune,
)
from pipetune.core.editing import apply_edits
from pipetune.rules.base import RuleContext
from pipetune.testing.words import read

IDLE = {"a": 0.1, "b": 0.1}
LIGHT = {"a": 0.5, "b": 0.5}


def context(text: str, *, cores: int = 4) -> RuleContext:
    words = read(text)
    return RuleContext(words.pipeline, words.profile, cores=cores)


# Queues behind a and b as filled, how busy their workers are; their workers and queues in the next round (2 and 16).
ROUNDS: list[tuple[tuple[float, float], Mapping[str, float], list[tuple[int, int]]]] = [
    ((0.1, 0.0), LIGHT, [(4, 16), (2, 16)]),  # a is slow: full in front, empty behind
    ((0.7, 0.1), LIGHT, [(2, 16), (4, 16)]),
    ((0.7, 0.5), {"a": 0.8, "b": 0.5}, [(4, 16), (2, 16)]),  # busy
    ((0.7, 0.5), {"a": 0.75, "b": 0.35}, [(2, 16), (2, 16)]),  # just not
    ((0.1, 0.0), IDLE, [(4, 16), (2, 20)]),  # b starves: a longer queue
    ((0.6, 0.7), IDLE, [(4, 16), (2, 16)]),  # a: 1.0 - 0.6 above the threshold, nothing for b
    ((0.3, 0.7), IDLE, [(4, 16), (2, 20)]),  # b stands before a full queue
    ((0.0, 0.75), IDLE, [(2, 16), (2, 16)]),  # the last queue is full enough: nothing is wrong
]


@pytest.mark.parametrize(("filled", "busy", "expected"), ROUNDS)
def test_one_round(filled: tuple[float, float], busy: Mapping[str, float], expected: list[tuple[int, int]]) -> None:
    stages = (Stage("a", 2, 16), Stage("b", 2, 16))
    found = adjusted(stages, Seen(1.0, {"a": filled[0], "b": filled[1]}), busy, cores=8)
    assert [(stage.workers, stage.queue) for stage in found] == expected


def test_workers_stay_within_the_cores_and_queues_within_their_limit() -> None:
    stages = (Stage("a", 7, 127), Stage("b", 8, 128))
    found = adjusted(stages, Seen(1.0, {"a": 0.0, "b": 0.0}), {"a": 0.9, "b": 0.1}, cores=8)
    assert found == (Stage("a", 8, 127), Stage("b", 8, 128))


def test_the_best_round_is_kept_when_the_rule_ends() -> None:
    known = context("range | map cpu=1ms | batch 2", cores=16)
    rates = {8: 100.0, 10: 120.0, 12: 110.0, 14: 105.0, 16: 100.0}
    asked: list[int] = []

    def measure(stages: tuple[Stage, ...]) -> Seen:
        asked.append(stages[0].workers)
        return Seen(rates[stages[0].workers], {})

    assert tune(known, measure) == (Stage("n1", 10, 16),)
    assert asked == [8, 10, 12, 14, 16]  # there the cores end, and nothing changes any more


def test_it_ends_after_rounds_without_gain() -> None:
    asked: list[int] = []

    def measure(stages: tuple[Stage, ...]) -> Seen:
        asked.append(stages[0].workers)
        return Seen(100.0 - len(asked), {})

    assert tune(context("range | map | batch 2", cores=100), measure) == (Stage("n1", 8, 16),)
    assert asked == [8, 10, 12, 14, 16, 18]


def test_nothing_is_measured_where_nothing_works_in_parallel() -> None:
    def never(stages: tuple[Stage, ...]) -> Seen:
        raise AssertionError

    assert tune(context("range | shuffle 9 | batch 2"), never) == ()
    assert first_stages(context("range | map synchronous=True")) == ()
    assert first_stages(context("range | map", cores=2)) == (Stage("n1", 2, 16),)


@pytest.mark.parametrize(
    ("text", "queues", "at_end"),
    [
        ("range | map | shuffle 5 | map | batch 2", {"n1": 11, "n3": 12}, 16),
        ("range | batch 2 | map", {"n2": 11}, 11),  # its queue is the one at the end
        ("range | map | prefetch 2 | batch 4", {"n1": 11}, 16),  # the script's own prefetch becomes the queue
        ("range | batch 4 | map | prefetch AUTOTUNE", {"n2": 11}, 11),
    ],
)
def test_every_stage_gets_its_queue(text: str, queues: dict[str, int], at_end: int) -> None:
    known = context(text)
    stages = tuple(Stage(name, 3, size) for name, size in queues.items())
    edited = apply_edits(known.pipeline, mindspore_edits(known, stages))
    found = queues_of(edited, stages)
    assert {name: edited[queue].argument("buffer_size") for name, queue in found.items()} == queues
    assert all(edited[name].argument("num_parallel_calls") == 3 for name in queues)
    assert edited.output.op == "prefetch" and edited.output.argument("buffer_size") == at_end
    assert [node.op for node in edited].count("prefetch") == len(set(found.values()) | {edited.output.id})


def test_readers_stay_as_they_start_and_keep_their_order() -> None:
    known = context("list_files | interleave cycle_length=2 | map | batch 2", cores=16)
    edited = apply_edits(known.pipeline, mindspore_edits(known, first_stages(known)))
    (reader,) = [node for node in edited if node.op == "interleave"]
    assert (reader.argument("cycle_length"), reader.argument("num_parallel_calls")) == (2, 2)

"""Caches and snapshots in files: while pipetune measures, none of the script's is filled, locked or written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture.consumption import NoConsumer
from pipetune.core.edits import Insert, Plan, Rewrite, Safety, SetArgument, apply_edits
from pipetune.distributed.verify.emitted import loaded
from pipetune.measure.runner import TensorFlowRunner
from pipetune.pipelines import live, replay
from pipetune.pipelines.files import files_written_by, private_files, private_folder
from pipetune.timing.iterators import free_all_iterators
from tests.core.sessions import MACHINE

Dataset = tf.data.Dataset


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files() -> list[str]:
    return sorted(os.path.join(above, name) for above, _, names in os.walk(".") for name in names)


class Calls:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, number: Any) -> Any:
        self.count += 1
        return number

    def rows(self) -> Any:
        return Dataset.range(100).map(lambda number: tf.numpy_function(self, [number], tf.int64))


def numbers(dataset: Any) -> list[int]:
    return sorted(int(number) for batch in dataset.as_numpy_iterator() for number in batch)


KEPT = {
    "cache": lambda rows: rows.cache("kept").batch(10),
    "snapshot": lambda rows: rows.snapshot("kept").batch(10),
    "snapshot with functions": lambda rows: rows.snapshot(
        "kept", shard_func=lambda number: number % 3, reader_func=lambda parts: parts.flat_map(lambda part: part)
    ).batch(10),
}


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_unfilled_cache_is_filled_in_a_private_folder(kept: Any) -> None:
    calls = Calls()
    dataset = kept(calls.rows())
    with private_files():
        source = replay.read(dataset)
        assert source.pipeline == live.read(dataset).pipeline, "the pipeline is as it is written"
        assert numbers(source.dataset) == numbers(source.dataset) == list(range(100))
        assert calls.count == 100, "it is a cache there, too"
        edited = apply_edits(source.pipeline, [SetArgument(source.pipeline.output.id, "batch_size", 5)])
        assert numbers(replay.replay(source, edited)) == list(range(100))
        folder = private_folder()
        assert os.listdir(folder)
    assert files() == [] and not os.path.exists(folder)


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_complete_cache_is_read_and_not_written(kept: Any) -> None:
    calls = Calls()
    dataset = kept(calls.rows())
    numbers(dataset)
    written = {name: os.stat(name).st_mtime_ns for name in files()}
    assert written and calls.count == 100
    with private_files():
        source = replay.read(dataset)
        above = source.pipeline[source.pipeline.output.inputs[0]]
        edited = apply_edits(source.pipeline, [Insert(above.id, "prefetch", "more", {"buffer_size": 2})])
        assert numbers(source.dataset) == numbers(replay.replay(source, edited)) == list(range(100))
    assert calls.count == 100 and {name: os.stat(name).st_mtime_ns for name in files()} == written


def test_cache_being_filled_by_another_iterator_is_left_alone() -> None:
    dataset = Dataset.range(100).cache("kept").batch(10)
    filling = iter(dataset)
    next(filling)
    begun = files()
    assert len(begun) == 2, "what is written, and a lock"
    with private_files():
        assert numbers(replay.read(dataset).dataset) == list(range(100))
    assert files() == begun
    free_all_iterators()
    assert files() == []


def test_two_variants_do_not_share_a_file() -> None:
    with private_files():
        source = replay.read(Dataset.range(10).map(lambda x: x + 1).cache("kept").batch(10))
        (first,) = (node for node in source.pipeline if node.op == "range")
        other = replay.replay(source, apply_edits(source.pipeline, [SetArgument(first.id, "stop", 3)]))
        assert numbers(source.dataset) == list(range(1, 11)) and numbers(other) == [1, 2, 3]
    assert files() == []


def test_cache_added_by_a_plan_does_not_read_files_of_an_earlier_run() -> None:
    numbers(Dataset.range(50).cache("planned").batch(10))
    source = live.read(Dataset.range(100).batch(10))
    added = Insert("n0", "cache", "cache@n0", {"filename": "planned"})
    plan = Plan("planned", (Rewrite("cache", "n0", Safety.EXACT, (added,), "Keeps it."),))
    before = files()
    runner = TensorFlowRunner(source, NoConsumer(""), machine=MACHINE, examples_per_element=10)
    assert numbers(runner.training_dataset(plan)) == list(range(100))
    folder = private_folder()
    assert os.listdir(folder)
    runner.close()
    assert files() == before and not os.path.exists(folder)


def test_loaded_module_does_not_fill_its_caches() -> None:
    text = "import tensorflow as tf\nmade = tf.data.Dataset.range(9).cache('kept').batch(3)\nkept = made.cache\n"
    with loaded(text) as module:
        assert numbers(module.made) == list(range(9))
    assert files() == [] and private_folder() == ""


def test_freeing_iterators_removes_their_lock_files() -> None:
    iterators: list[Any] = []
    for number in range(3):
        iterators.append(iter(Dataset.range(100).map(lambda x: x + 1).cache(f"kept-{number}").prefetch(2)))
        next(iterators[-1])
    assert len([name for name in files() if name.endswith(".lockfile")]) == 3
    free_all_iterators()
    assert files() == []


def test_files_written_by_a_pipeline_are_known() -> None:
    numbers(Dataset.range(3).cache("complete").batch(3))
    two = Dataset.zip(Dataset.range(3).cache("one"), Dataset.range(3).snapshot("two").cache("complete"))
    assert sorted(files_written_by(two.cache().batch(2))) == ["one", "two"]

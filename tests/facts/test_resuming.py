"""How TensorFlow restores a saved iterator in another pipeline, and treats a cache file (`rewrites/resuming.py`)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

Dataset = tf.data.Dataset
TAKEN = 4


def source() -> Any:
    return Dataset.range(60)


def times_ten(x: Any) -> Any:
    return x * 10


def mapped(calls: int | None = None) -> Any:
    return source().map(times_ten, num_parallel_calls=calls)


def pairs(number: int) -> Any:
    return Dataset.from_tensors(number).repeat(2)


def as_written(dataset: Any) -> Any:
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    return dataset.with_options(options)


def with_budget(dataset: Any) -> Any:
    options = tf.data.Options()
    options.autotune.cpu_budget = options.threading.private_threadpool_size = 2
    options.autotune.ram_budget = 2**30
    return dataset.with_options(options)


PIPELINES: dict[str, Callable[[], Any]] = {
    "plain": lambda: mapped().batch(2),
    "prefetch 2": lambda: mapped().batch(2).prefetch(2),
    "prefetch 4": lambda: mapped().batch(2).prefetch(4),
    "prefetch AUTOTUNE": lambda: mapped().batch(2).prefetch(tf.data.AUTOTUNE),
    "parallel 2": lambda: mapped(2).batch(2),
    "parallel 4": lambda: mapped(4).batch(2),
    "parallel AUTOTUNE": lambda: mapped(tf.data.AUTOTUNE).batch(2),
    "parallel batch": lambda: mapped().batch(2, num_parallel_calls=2),
    "cache": lambda: mapped().cache().batch(2),
    "shuffle first": lambda: source().shuffle(8, seed=1).map(times_ten).batch(2),
    "shuffle last": lambda: mapped().shuffle(8, seed=1).batch(2),
    "shuffle 16 first": lambda: source().shuffle(16, seed=1).map(times_ten).batch(2),
    "interleave": lambda: source().interleave(pairs, 2, 1).batch(2),
    "parallel interleave": lambda: source().interleave(pairs, 2, 1, num_parallel_calls=2).batch(2),
    "budget": lambda: with_budget(mapped(tf.data.AUTOTUNE).batch(2)),
    "options": lambda: as_written(mapped().batch(2)),
}


def resumed(saved: str, restored: str, folder: Path) -> tuple[list[Any], list[Any]]:
    """The next elements of the resumed run, and those that the interrupted run would have received."""
    iterator = iter(PIPELINES[saved]())
    for _ in range(TAKEN):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(folder / "saved"))
    wanted = [next(iterator).numpy().tolist() for _ in range(5)]
    other = iter(PIPELINES[restored]())
    tf.train.Checkpoint(iterator=other).read(path)
    return [next(other).numpy().tolist() for _ in range(5)], wanted


@pytest.mark.parametrize(
    ("saved", "restored"),
    [
        *((name, name) for name in PIPELINES),
        ("prefetch 2", "prefetch 4"), ("prefetch 4", "prefetch AUTOTUNE"), ("parallel 2", "parallel 4"),
        ("parallel 4", "parallel AUTOTUNE"), ("parallel AUTOTUNE", "parallel 2"), ("parallel AUTOTUNE", "budget"),
        ("plain", "parallel 2"), ("parallel 4", "plain"),  # TensorFlow makes this map parallel anyway
    ],
)  # fmt: skip
def test_parallelism_and_buffer_sizes_are_not_part_of_the_state(saved: str, restored: str, tmp_path: Path) -> None:
    found, wanted = resumed(saved, restored, tmp_path)
    assert found == wanted


@pytest.mark.parametrize(
    ("saved", "restored"),
    [
        ("plain", "prefetch 2"), ("prefetch 2", "plain"), ("plain", "parallel batch"), ("plain", "cache"),
        ("shuffle first", "shuffle last"), ("interleave", "parallel interleave"), ("plain", "options"),
        ("options", "plain"),
    ],
)  # fmt: skip
def test_checkpoint_of_other_operators_is_refused(saved: str, restored: str, tmp_path: Path) -> None:
    with pytest.raises(tf.errors.NotFoundError):
        resumed(saved, restored, tmp_path)


def test_checkpoint_of_another_shuffle_buffer_fails_while_reading(tmp_path: Path) -> None:
    """Whether it fails depends on the drawn order: nearly always, but not always."""

    def failed(attempt: int) -> bool:
        try:
            resumed("shuffle first", "shuffle 16 first", tmp_path / str(attempt))
        except tf.errors.InternalError:
            return True
        return False

    assert any(failed(attempt) for attempt in range(10))


@pytest.mark.parametrize(
    ("made", "error"),
    [
        (lambda: source().apply(tf.data.experimental.prefetch_to_device("/CPU:0")), tf.errors.UnimplementedError),
        (lambda: source().map(lambda x: tf.random.uniform([])), tf.errors.FailedPreconditionError),
    ],
    ids=["copy to a device", "random map"],
)
def test_state_that_cannot_be_saved(made: Callable[[], Any], error: type[Exception], tmp_path: Path) -> None:
    iterator = iter(made())
    next(iterator)
    with pytest.raises(error):
        tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "saved"))


def test_cache_file_after_a_skip_returns_what_another_skip_wrote(tmp_path: Path) -> None:
    def after(steps: int) -> list[int]:
        return [int(x) for x in Dataset.range(6).skip(steps).cache(str(tmp_path / "kept"))]

    assert after(2) == [2, 3, 4, 5] and after(4) == [2, 3, 4, 5]


_KILLED = """
import os, sys, tensorflow as tf
rows = iter(tf.data.Dataset.range(9).cache(sys.argv[1]))
[next(rows) for _ in range(3)]
os._exit(9)
"""


@pytest.mark.exhaustive
def test_killed_run_leaves_its_cache_file_locked(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path / "kept")], check=False, capture_output=True)
    assert list(tmp_path.glob("kept*"))
    with pytest.raises(tf.errors.AlreadyExistsError):
        list(Dataset.range(9).cache(str(tmp_path / "kept")))

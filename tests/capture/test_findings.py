"""Bugs in the user's script: where each is found, and where it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture import findings, job_processes
from pipetune.capture.consumption import Consumption
from pipetune.core.distribution import CapturedKind, CapturedObject
from pipetune.core.profile import Finding
from pipetune.pipelines import call_sites, live

Dataset = tf.data.Dataset


def use(dataset: Any, role: str = "training", **more: Any) -> Consumption:
    return Consumption(dataset, "", role, "Model.fit", **more)


def found(training: Any, *others: tuple[Any, str], **more: Any) -> list[Finding]:
    rest = [(live.read(dataset), use(dataset, role)) for dataset, role in others]
    return findings.find(live.read(training), use(training, **more), rest)


def codes(*args: Any, **more: Any) -> list[str]:
    return [finding.code for finding in found(*args, **more)]


def numbers(count: int = 100) -> Any:
    return Dataset.range(count)


def draw(x: Any) -> Any:
    return tf.random.uniform([])


CACHES: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "nothing cached": (lambda: numbers().map(draw).shuffle(5), []),
    "cache first": (lambda: numbers().cache().map(draw).shuffle(5), []),
    "cache behind a pure map": (lambda: numbers().map(lambda x: x + 1).cache(), []),
    "cache behind a fixed shuffle": (lambda: numbers().shuffle(5, reshuffle_each_iteration=False).cache(), []),
    "cached augmentation": (lambda: numbers().map(draw).cache().batch(2), ["cached-augmentation"]),
    "cached augmentation, file": (lambda: numbers().map(draw).cache("/tmp/x"), ["cached-augmentation"]),
    "cached order": (lambda: numbers().shuffle(5).cache(), ["frozen-order"]),
    "cached order, shuffled anew": (lambda: numbers().shuffle(5).cache().shuffle(5).batch(2), []),
    "cached order, shuffled once more": (
        lambda: numbers().shuffle(5).cache().shuffle(5, reshuffle_each_iteration=False), ["frozen-order"]
    ),
    "cached batches, shuffled anew": (lambda: numbers().shuffle(5).batch(2).cache().shuffle(5), ["frozen-order"]),
    "both": (lambda: numbers().shuffle(5).map(draw).batch(2).cache(), ["cached-augmentation", "frozen-order"]),
    "cached draws inside an interleave": (
        lambda: numbers(3).interleave(lambda x: Dataset.range(3).map(draw)).cache(), ["cached-augmentation"]
    ),
    "take before the cache": (lambda: numbers().take(10).cache(), []),
    "take after the cache": (lambda: numbers().cache().take(10), ["partial-cache"]),
    "take of everything": (lambda: numbers().cache().take(100), []),
}  # fmt: skip


@pytest.mark.parametrize("name", CACHES)
def test_cache_findings(name: str) -> None:
    make, expected = CACHES[name]
    assert codes(make()) == expected


@pytest.mark.parametrize(("role", "expected"), [("validation", []), ("evaluation", []), ("training", ["frozen-order"])])
def test_frozen_order_is_reported_for_other_training_datasets_only(role: str, expected: list[str]) -> None:
    assert codes(numbers(), (numbers().shuffle(5).batch(2).cache(), role)) == expected


def test_cached_shuffled_file_list_is_frozen_order(tmp_path: Any) -> None:
    (tmp_path / "a").write_text("")
    assert codes(Dataset.list_files(str(tmp_path / "*")).cache()) == ["frozen-order"]
    assert codes(Dataset.list_files(str(tmp_path / "*"), shuffle=False).cache()) == []


def test_cache_that_fit_does_not_exhaust_is_partial() -> None:
    assert codes(numbers().batch(10).cache(), steps_per_epoch=4, epochs=2) == ["partial-cache"]
    assert codes(numbers().batch(10).cache(), steps_per_epoch=10) == []
    assert codes(numbers().batch(10).cache().repeat(), steps_per_epoch=4, epochs=2) == []


def test_validation_split_of_a_reshuffled_dataset_leaks() -> None:
    shuffled = numbers().shuffle(100)
    train, validation = shuffled.skip(20).batch(4), shuffled.take(20).batch(4)
    for role in ("validation", "evaluation", "prediction"):
        assert codes(train, (validation, role)) == ["validation-leak"]
    assert codes(train, (validation, "preview")) == ["validation-leak"]  # the other half, in any role
    assert codes(train) == ["validation-leak"]
    del validation
    assert codes(train) == []
    fixed = numbers().shuffle(100, reshuffle_each_iteration=False)
    assert codes(fixed.skip(20), (fixed.take(20), "validation")) == []
    plain = numbers()
    assert codes(plain.skip(20).shuffle(80), (plain.take(20), "validation")) == []
    assert codes(numbers().shuffle(9).skip(20), (numbers().shuffle(9).take(20), "validation")) == []
    assert codes(shuffled, (shuffled.map(lambda x: x), "validation")) == []  # nothing is split


def test_take_of_a_reshuffled_dataset_changes_the_subset() -> None:
    shuffled = numbers().shuffle(100)
    assert codes(shuffled.take(20).batch(4)) == ["subset-changes"]
    kept = numbers().shuffle(100, reshuffle_each_iteration=False)
    assert codes(kept.take(20).batch(4)) == []


def test_take_for_evaluation_without_a_split_is_no_leak() -> None:
    shuffled = numbers().shuffle(100)
    assert codes(shuffled.batch(4), (shuffled.batch(4).take(1), "evaluation")) == []


@pytest.mark.parametrize(
    ("make", "steps", "epochs", "expected"),
    [
        (lambda: numbers().batch(10), 4, 3, ["runs-out-of-data"]),
        (lambda: numbers().batch(10), 5, 2, []),
        (lambda: numbers().batch(10), 11, None, ["runs-out-of-data"]),
        (lambda: numbers().batch(10), None, 5, []),
        (lambda: numbers().batch(10).repeat(), 4, 30, []),
        (lambda: numbers().batch(10).repeat(3), 10, 3, []),
        (lambda: numbers().filter(lambda x: x > 3), 1000, 3, []),  # unknown cardinality
    ],
)
def test_data_that_runs_out_is_found(make: Any, steps: int | None, epochs: int | None, expected: list[str]) -> None:
    assert codes(make(), steps_per_epoch=steps, epochs=epochs) == expected


def test_message_has_steps_epochs_and_batches() -> None:
    (finding,) = found(numbers().batch(10), steps_per_epoch=600, epochs=2)
    assert "600 steps x 2 epochs = 1,200 batches; the dataset has 10" in finding.message
    assert finding.hint


def test_finding_has_its_line_and_is_reported_once() -> None:
    with call_sites.Recorder():
        shared = numbers().map(draw).cache()
    (finding,) = found(shared.batch(2), (shared.batch(3), "validation"))
    location = call_sites.location(shared)
    assert location is not None
    assert (finding.file, finding.line) == (__file__, location.line)
    (unrecorded,) = found(numbers().map(draw).cache())
    assert unrecorded.file is None and unrecorded.line is None


def test_findings_of_batch_prefetch_and_repeat() -> None:
    assert codes(numbers().batch(16).prefetch(16)) == ["prefetch-batch-size"]
    assert codes(numbers().repeat().cache()) == ["endless-cache"]
    assert codes(numbers().repeat().shuffle(50).batch(10)) == ["epochs-blend"]
    assert codes(numbers().repeat().batch(32), steps_per_epoch=4) == ["repeat-before-batch"]
    assert codes(numbers().shuffle(50).repeat().batch(10).prefetch(2), steps_per_epoch=10) == []


def test_dataset_captured_by_a_worker_function_is_found() -> None:
    taken = CapturedObject(CapturedKind.DATASET, "train", "train.py", 7)
    (finding,) = found(numbers(), captured=(taken,))
    assert (finding.code, finding.file, finding.line) == ("captured-dataset", "train.py", 7)


def test_cache_exhausted_by_validation_is_not_partial() -> None:
    cached = numbers().cache()
    assert codes(cached.take(80)) == ["partial-cache"]
    assert codes(cached.take(80), (cached.skip(80), "validation")) == []
    assert set(codes(cached.take(80), (cached.take(90), "validation"))) == {"partial-cache"}


def test_workers_without_sharding_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}')
    monkeypatch.setattr(
        job_processes, "_sources", lambda: ["import tensorflow"]
    )  # the sources of these tests read the worker's identity
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    whole = numbers().batch(10).with_options(options)
    assert codes(whole, sharded_across_workers=True) == ["unsharded-workers"]
    assert codes(numbers().batch(10), sharded_across_workers=True) == []
    assert codes(numbers().shard(2, 0).batch(10).with_options(options), sharded_across_workers=True) == []
    assert codes(numbers().batch(10)) == ["unsharded-workers"]
    assert codes(numbers().shuffle(9).batch(10)) == []
    monkeypatch.undo()
    assert codes(whole, sharded_across_workers=True) == []


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("steps", "taken"),
    [(4, [4, 4, 2, 4]), (5, [5, 5, 5, 5]), (10, [10, 10, 10, 10]), (12, [10, 10, 10, 10])],
)
def test_keras_restarts_exhausted_data_in_the_next_epoch(steps: int, taken: list[int]) -> None:
    """The basis of `runs-out-of-data`: Keras 3 cuts the epoch short that reaches the end, and training continues."""
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    seen: list[int] = []

    class Steps(keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            seen.append(0)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            seen[-1] += 1

    data = Dataset.from_tensor_slices(([[1.0]] * 10, [[1.0]] * 10)).batch(1)
    model.fit(data, steps_per_epoch=steps, epochs=4, callbacks=[Steps()], verbose=0)
    assert seen == taken
    expected = [] if 10 % steps == 0 else ["runs-out-of-data"]
    assert codes(data, steps_per_epoch=steps, epochs=4, restarts_iterator=True) == expected

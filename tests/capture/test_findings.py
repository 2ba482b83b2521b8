"""Bugs in the user's script: where each is found, and where it is not."""

from __future__ import annotations

from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture import findings, job_processes
from pipetune.capture.consumption import Consumption
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


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: numbers().map(lambda x: x + 1).shuffle(5, reshuffle_each_iteration=False).cache().map(draw), []),
        (lambda: numbers().shuffle(5).map(draw).batch(2).cache(), ["cached-augmentation", "frozen-order"]),
        (lambda: numbers(3).interleave(lambda x: Dataset.range(3).map(draw)).cache(), ["cached-augmentation"]),
        (lambda: numbers().cache().take(100), []),
    ],
)
def test_live_datasets_are_read_as_what_the_checks_need(make: Any, expected: list[str]) -> None:
    """The checks themselves are tested in `tests/lint`."""
    assert codes(make()) == expected


def test_cached_shuffled_file_list_is_frozen_order(tmp_path: Any) -> None:
    (tmp_path / "a").write_text("")
    assert codes(Dataset.list_files(str(tmp_path / "*")).cache()) == ["frozen-order"]
    assert codes(Dataset.list_files(str(tmp_path / "*"), shuffle=False).cache()) == []


def test_validation_split_of_a_reshuffled_dataset_leaks() -> None:
    shuffled = numbers().shuffle(100)
    train, validation = shuffled.skip(20).batch(4), shuffled.take(20).batch(4)
    assert codes(train, (validation, "validation")) == ["validation-leak"]
    assert codes(train, (validation, "preview")) == ["validation-leak"]  # the other half, in any role
    assert codes(train) == ["validation-leak"]
    del validation
    assert codes(train) == []
    assert codes(numbers().shuffle(9).skip(20), (numbers().shuffle(9).take(20), "validation")) == []


def test_finding_has_its_line_and_is_reported_once() -> None:
    with call_sites.Recorder():
        shared = numbers().map(draw).cache()
    (finding,) = found(shared.batch(2), (shared.batch(3), "validation"))
    location = call_sites.location(shared)
    assert location is not None and (finding.file, finding.line) == (__file__, location.line)
    (unrecorded,) = found(numbers().map(draw).cache())
    assert unrecorded.file is None and unrecorded.line is None


def test_cache_exhausted_by_validation_is_not_partial() -> None:
    cached = numbers().cache()
    assert codes(cached.take(80)) == ["partial-cache"]
    assert codes(cached.take(80), (cached.skip(80), "validation")) == []
    assert set(codes(cached.take(80), (cached.take(90), "validation"))) == {"partial-cache"}


def test_workers_without_sharding_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}')
    monkeypatch.setattr(job_processes, "_sources", lambda: ["import tensorflow"])  # these tests read the identity
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    whole = numbers().batch(10).with_options(options)
    assert codes(whole, sharded_across_workers=True) == ["unsharded-workers"]
    assert codes(numbers().batch(10), sharded_across_workers=True) == []
    assert codes(numbers().shard(2, 0).batch(10).with_options(options), sharded_across_workers=True) == []
    assert codes(numbers().batch(10)) == ["unsharded-workers"] and codes(numbers().shuffle(9).batch(10)) == []
    monkeypatch.undo()
    assert codes(whole, sharded_across_workers=True) == []


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_keras_restarts_exhausted_data_in_the_next_epoch() -> None:
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
    for steps, taken in ((4, [4, 4, 2, 4]), (5, [5] * 4), (10, [10] * 4), (12, [10] * 4)):
        seen.clear()
        model.fit(data, steps_per_epoch=steps, epochs=4, callbacks=[Steps()], verbose=0)
        assert seen == taken
        expected = [] if 10 % steps == 0 else ["runs-out-of-data"]
        assert codes(data, steps_per_epoch=steps, epochs=4, restarts_iterator=True) == expected

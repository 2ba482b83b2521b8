"""What is found in a script besides its speed: bugs, how it resumes, and what it leaves to chance."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = [pytest.mark.tensorflow, pytest.mark.filterwarnings("ignore::UserWarning")]

from pipetune.capture import findings, job_processes
from pipetune.capture.consumption import Consumption
from pipetune.capture.repeatability import repeatable, with_seeds
from pipetune.core.profile import Finding
from pipetune.core.results import ResumeMethod, ResumePoint
from pipetune.pipelines import call_sites, live, resume_points
from tests.capture.test_hooks import compiled, pairs, run, run_text

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


@pytest.mark.parametrize(("make", "expected"), [
    (lambda: numbers().map(lambda x: x + 1).shuffle(5, reshuffle_each_iteration=False).cache().map(draw), []),
    (lambda: numbers().shuffle(5).map(draw).batch(2).cache(), ["cached-augmentation", "frozen-order"]),
    (lambda: numbers(3).interleave(lambda x: Dataset.range(3).map(draw)).cache(), ["cached-augmentation"]),
    (lambda: numbers().cache().take(100), []),
])  # fmt: skip
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


def test_keras_restarts_exhausted_data_in_the_next_epoch() -> None:
    """The basis of `runs-out-of-data`: Keras 3 cuts the epoch short that reaches the end, and training continues."""
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


# -- how a script resumes


HERE = Path(__file__).name
STEPS_DONE = 7


def recorded(make: Any) -> list[ResumePoint]:
    with call_sites.Recorder():
        dataset = make()
    return resume_points.find(live.read(dataset))


def split() -> Any:
    data = Dataset.range(20).batch(2)
    held_out = 3
    global KEPT
    KEPT = data.take(held_out)
    return data.skip(held_out)


def split_in_three() -> Any:
    data = Dataset.range(20).batch(2)
    tested, checked = 3, 2
    global KEPT
    KEPT = data.take(tested), data.skip(tested).take(checked)
    return data.skip(tested + checked)


def split_by_calls() -> Any:
    def part(*, trained: bool) -> Any:
        data = Dataset.range(20).batch(2)
        return data.skip(held_out) if trained else data.take(held_out)

    held_out = 3
    global KEPT
    KEPT = part(trained=False)
    return part(trained=True)


def header() -> Any:
    lines = 1
    return tf.data.TextLineDataset("rows.csv").skip(lines).batch(2)


SILENT = {
    "no skip": lambda: Dataset.range(9).batch(2),
    "a number, further up": lambda: Dataset.range(9).skip(1).batch(2),
    "a split": split,
    "a split in three": split_in_three,
    "a split by two calls": split_by_calls,
    "the header of a file": header,
    "a negative number, further up": lambda: Dataset.range(9).skip(-1).batch(2),
    "other ids": lambda: Dataset.from_tensors({"id": 1, "tfds_identity": 2}).batch(2),
}


@pytest.mark.parametrize("name", SILENT)
def test_pipeline_without_a_resume_point_has_none(name: str) -> None:
    assert recorded(SILENT[name]) == []


def test_skip_by_a_variable_is_a_resume_point() -> None:
    def resumed() -> Any:
        start = 0  # as in a first run
        return Dataset.range(40).batch(2).skip(start).map(lambda x: x + 1).prefetch(1)

    (found,) = recorded(resumed)
    assert (found.way, found.what, Path(found.file).name) == (ResumeMethod.SKIP, "skip(start)", HERE)
    assert found.line > 0 and found.node


@pytest.mark.parametrize(("make", "what"), [
    (lambda: Dataset.range(40).batch(2).skip(count=5).prefetch(2), "skip(5)"),
    (lambda: Dataset.range(40).skip(
        STEPS_DONE * 2,
    ).batch(2), "skip(STEPS_DONE * 2)"),
])  # fmt: skip
def test_skip_after_or_before_batch_is_described_by_its_source(make: Any, what: str) -> None:
    assert [found.what for found in recorded(make)] == [what]


def test_tfds_id_component_is_a_resume_point() -> None:
    (found,) = recorded(lambda: Dataset.from_tensors({"image": 1.0, "tfds_id": "train__1"}).repeat(4).batch(2))
    assert (found.way, found.what) == (ResumeMethod.IDS, "tfds_id")


def test_skip_after_an_unseeded_shuffle_warns_of_a_different_order() -> None:
    for seed, expected in ((None, True), (1, False)):
        with call_sites.Recorder():
            source = live.read(Dataset.range(40).shuffle(9, seed=seed).skip(STEPS_DONE).batch(2))
        (found,) = resume_points.find(source)
        (finding,) = resume_points.findings([found], source.pipeline)
        assert finding.code == "resumes" and finding.line == found.line
        assert ("different order in each run" in finding.message) is expected


@pytest.mark.parametrize(("text", "name"), [
    ("tf.train.Checkpoint(weight=tf.Variable(1.0), step=tf.Variable(0)).restore(None)\niter(Dataset.range(3))", ""),
    ("iterator = iter(Dataset.range(3))\ntf.train.Checkpoint(step=tf.Variable(0), iterator=iterator)", "iterator"),
    ("module = tf.Module()\nmodule.place = iter(Dataset.range(3))\ntf.train.Checkpoint(root=module)", "place"),
    ("kept = tf.train.Checkpoint()\nkept.data = iter(Dataset.range(3))\nkept.restore(None)", "data"),
    ("tf.train.Checkpoint(rows=Dataset.range(3).as_numpy_iterator())", "rows"),
])  # fmt: skip
def test_checkpoint_of_an_iterator_is_a_resume_point(text: str, name: str) -> None:
    found = run_text(text).script.resuming
    assert [one.what for one in found] == ([f"tf.train.Checkpoint({name}=...)"] if name else [])
    assert all(one.way is ResumeMethod.ITERATOR_STATE and one.file.endswith("/train.py") and one.line for one in found)


def resuming(callbacks: Any) -> list[ResumePoint]:
    return run(lambda: compiled().fit(pairs(), callbacks=callbacks, verbose=0)).script.resuming


def test_backup_and_restore_callback_is_a_resume_point(tmp_path: Path) -> None:
    backup = keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))
    other = keras.callbacks.TerminateOnNaN()
    assert resuming(None) == resuming([other]) == resuming(other) == []
    for callbacks in (backup, [other, backup], keras.callbacks.CallbackList([backup])):
        (found,) = resuming(callbacks)
        assert (found.way, found.what, Path(found.file).name) == (ResumeMethod.EPOCHS, "BackupAndRestore", HERE)
    assert not (tmp_path / "backup").exists()


# -- what a script leaves to chance, which is the same in every process


def test_draws_without_seeds_are_the_same_in_every_process() -> None:
    original, draws = np.random.default_rng, []
    for _ in range(2):
        random.random(), np.random.random()
        tf.random.set_seed(None)  # forgets the kernels of earlier draws, as in a new process
        with repeatable(until=lambda: False):
            drawn: list[Any] = [np.random.default_rng().integers(1_000_000) for _ in range(2)]
            assert drawn[0] != drawn[1]
            seeded = np.random.default_rng(5), np.random.default_rng(seed=5), original(5)
            assert len({generator.integers(1_000_000) for generator in seeded}) == 1
            drawn += [random.random(), np.random.randint(1_000_000), tf.random.shuffle(tf.range(99)).numpy().tolist()]
        draws.append(drawn)
    assert draws[0] == draws[1] and np.random.default_rng is original


def test_a_folder_named_at_random_is_made_again_by_the_processes_of_one_analysis(tmp_path: Path) -> None:
    before = tmp_path / "before"
    before.mkdir()
    names, begun, began = [], False, time.time() + 0.1
    time.sleep(0.2)
    for when in (began, began, began + 1000):
        with repeatable(until=lambda: begun, began=when):
            names.append(tmp_path / f"run-{random.randint(0, 10**9)}")
            (names[-1] / "logs").mkdir(parents=True)
            os.makedirs(names[-1] / "logs" / "more", exist_ok=True)
            with pytest.raises(FileExistsError):
                before.mkdir()
            (tmp_path / "file").touch()
            with pytest.raises(FileExistsError):
                os.mkdir(tmp_path / "file")
    assert names[0] == names[1] != names[2]
    begun = True
    with repeatable(until=lambda: begun, began=began), pytest.raises(FileExistsError):
        names[0].mkdir()
    with repeatable(until=lambda: False), pytest.raises(FileExistsError):
        names[0].mkdir()


def test_lists_of_files_are_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.io.gfile, "glob", lambda pattern: ["b/2", "a/1", pattern])
    with repeatable(until=lambda: True):
        assert tf.io.gfile.glob("a/*") == ["a/*", "a/1", "b/2"]
    assert tf.io.gfile.glob("a/*") == ["b/2", "a/1", "a/*"]


def test_layers_adapt_to_the_same_part_of_shuffled_data_in_every_process() -> None:
    def part() -> Any:
        numbers = tf.data.Dataset.range(40).shuffle(40, reshuffle_each_iteration=False)
        return numbers.skip(30).shuffle(10).map(lambda x: x * 2).batch(3)

    def read(dataset: Any) -> list[int]:
        return [int(number) for batch in dataset for number in batch]

    assert read(with_seeds(part())) == read(with_seeds(part())) != list(range(60, 80, 2))
    assert len(read(with_seeds(part()))) == 10 and with_seeds(part()).element_spec == part().element_spec
    for kept in (tf.data.Dataset.range(4).shuffle(4, seed=1), tf.data.Dataset.range(4), part().cache()):
        assert with_seeds(kept) is kept

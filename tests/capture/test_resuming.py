"""How a script resumes: what is recognised as resuming, and what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = [pytest.mark.tensorflow, pytest.mark.filterwarnings("ignore::UserWarning")]

from pipetune.core.results import ResumeMethod, ResumePoint
from pipetune.pipelines import call_sites, live, resume_points
from tests.capture.test_hooks import compiled, pairs, run, run_text

Dataset = tf.data.Dataset
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


def header() -> Any:
    lines = 1
    return tf.data.TextLineDataset("rows.csv").skip(lines).batch(2)


SILENT = {
    "no skip": lambda: Dataset.range(9).batch(2),
    "a number, further up": lambda: Dataset.range(9).skip(1).batch(2),
    "a split": split,
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


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: Dataset.range(40).batch(2).skip(count=5).prefetch(2), "skip(5)"),
        (lambda: Dataset.range(40).skip(
            STEPS_DONE * 2,
        ).batch(2), "skip(STEPS_DONE * 2)"),
    ],
)  # fmt: skip
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


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("tf.train.Checkpoint(weight=tf.Variable(1.0), step=tf.Variable(0)).restore(None)\niter(Dataset.range(3))", ""),
        ("iterator = iter(Dataset.range(3))\ntf.train.Checkpoint(step=tf.Variable(0), iterator=iterator)", "iterator"),
        ("module = tf.Module()\nmodule.place = iter(Dataset.range(3))\ntf.train.Checkpoint(root=module)", "place"),
        ("kept = tf.train.Checkpoint()\nkept.data = iter(Dataset.range(3))\nkept.restore(None)", "data"),
        ("tf.train.Checkpoint(rows=Dataset.range(3).as_numpy_iterator())", "rows"),
    ],
)
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

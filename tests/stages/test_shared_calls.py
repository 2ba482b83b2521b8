"""Calls that create training and validation data: changed only if both keep their data and become faster."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.capture.consumption import Consumption
from pipetune.core.edits import Insert, Move, Plan, ReplaceFunction, Rewrite, Safety
from pipetune.core.functions import FunctionVariant
from pipetune.core.measurement import Interval, Window
from pipetune.core.profile import Diagnosis, Verdict
from pipetune.core.results import Comparison, EqualityCheck
from pipetune.core.session import Candidate
from pipetune.core.time_plan import TimePlan
from pipetune.measure.runner import TensorFlowRunner
from pipetune.pipelines import live
from pipetune.pipelines.live import siblings
from pipetune.source.patch_application import patched_texts
from pipetune.stages import emission
from pipetune.stages.confirmation import keep_candidate
from pipetune.stages.emission import SharedCallTrials, make_patch
from tests.stages.studies import executed, recorded, study_of

Function = Callable[[Any], Any]
measured = emission._speedup


def invented(median: float, low: float, high: float) -> Interval:
    return Interval(median=median, low=low, high=high, pairs=5, method="invented")


@pytest.fixture(autouse=True)
def _faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces the measured speedup, so that the load of the machine does not matter."""
    monkeypatch.setattr(emission, "_speedup", lambda *_, **__: invented(1.8, 1.6, 2.0))


ON_BATCHES = Rewrite(
    "vectorize-map", "n1", Safety.EXACT, (Move("n1", "n2"), ReplaceFunction("n1", FunctionVariant.ON_BATCHES, "d")), ""
)
NOTHING = Plan("")
CACHED = Rewrite("cache", "n2", Safety.EXACT, (Insert("n2", "cache", "c", {"filename": ""}),), "")


def affine(x: Any) -> Any:
    return x * 2.0 + 1.0


def draws(x: Any) -> Any:
    return x + tf.random.uniform([])


def make(rows: int, function: Function) -> Any:
    return tf.data.Dataset.from_tensor_slices(np.arange(rows, dtype="float32")).map(function).batch(64)


def shared(
    training: Function = affine, validation: Function = affine, *, more: Function | None = None, gone: bool = False
) -> SharedCallTrials:
    """The calls of `make` for both datasets and for an unconsumed one, `more`, which is alive or deleted."""
    with recorded():
        made = [make(4096, training), make(1024, validation)]
        if more is not None:
            made.append(make(90, more))
    if gone:
        made.pop()
        gc.collect()
    return SharedCallTrials(study_of(made[0], Consumption(made[1], "check", "validation", "fit")), NOTHING)


@pytest.mark.parametrize(
    ("original", "pairs", "ratio"), [(6.0, 3, 2.0), (3.0, 5, 1.0)], ids=["plain after three pairs", "left open"]
)
def test_speedup_is_measured_in_pairs_of_windows(original: float, pairs: int, ratio: float) -> None:
    asked: list[str] = []

    class Runner:
        def input_window(self, plan: Plan, *, seconds: float, warmup_seconds: float) -> Window:
            asked.append(plan.key)
            seconds = 3.0 if plan.rewrites else original * (1 + (len(asked) % 4) / 8)
            return Window(steps=2, examples=10, wall_seconds=seconds, cpu_seconds=1.0, first_seconds=0.0)

    plan = Plan("", (ON_BATCHES,))
    found = measured(Runner(), plan, seed=1)  # type: ignore[arg-type]
    assert found.pairs == pairs and found.low < found.median < found.high
    assert found.median == pytest.approx(ratio, rel=0.3)
    taken = [tuple(asked[turn : turn + 2]) for turn in range(0, 2 * pairs, 2)]
    assert len(asked) == 2 * pairs and all(set(pair) == {"", plan.key} for pair in taken) and len(set(taken)) == 2


def test_call_with_different_functions_is_not_changed() -> None:
    assert not shared(affine, tf.abs).may_change(ON_BATCHES)


@pytest.mark.exhaustive
def test_unconsumed_dataset_is_checked_while_alive() -> None:
    calls = shared(more=affine)
    assert calls.may_change(ON_BATCHES), (calls.notes, calls.pipelines)
    assert not shared(more=draws).may_change(ON_BATCHES)
    assert not shared(more=affine, gone=True).may_change(ON_BATCHES)


def test_what_a_strategy_derives_from_a_dataset_is_no_other_dataset(tmp_path: Path) -> None:
    """Nor are a reader's own datasets, which it makes in the call that created it, and those within `unbatch`."""
    path = str(tmp_path / "data.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        writer.write(b"x")
    with recorded():
        dataset = tf.data.TFRecordDataset([path]).batch(2).unbatch().batch(3)
        divided = dataset.map(lambda row: row).prefetch(2)
        ragged = tf.data.Dataset.range(9).map(tf.range).ragged_batch(2).prefetch(1)
    assert siblings(live.read(dataset), []) == [] and divided is not None
    assert siblings(live.read(ragged), []) == []


def test_cache_is_not_added_to_shared_call() -> None:
    assert not shared().may_change(CACHED)


@pytest.mark.parametrize(("role", "elements", "edit", "safety", "shares"), [
    ("adapt", 1, CACHED.edits[0], Safety.EXACT, True),
    ("validation", 1, CACHED.edits[0], Safety.EXACT, False),
    ("preview", 1, CACHED.edits[0], Safety.STATISTICAL, True),
    ("preview", 1, CACHED.edits[0], Safety.REORDERS, True),  # who reads it once gets an order as before
    ("adapt", 1, CACHED.edits[0], Safety.REORDERS, True),
    ("preview", 100, CACHED.edits[0], Safety.REORDERS, False),
    ("preview", 1, Move("n2", "n0"), Safety.EXACT, True),
    ("preview", 1, Move("n2", "n0"), Safety.REORDERS, False),
    ("adapt", 1, Move("n2", "n0"), Safety.EXACT, False),
    ("preview", 100, CACHED.edits[0], Safety.EXACT, True),
    ("preview", 100, Move("n2", "n0"), Safety.EXACT, False),
])  # fmt: skip
def test_preview_reads_what_the_dataset_that_it_shows_reads(role, elements, edit, safety, shares) -> None:
    with recorded():
        dataset = make(4096, affine)
        shown = dataset.take(1)
    calls = SharedCallTrials(study_of(dataset.shuffle(9), Consumption(shown, "shown", role, "iter", elements)), NOTHING)
    assert calls.may_change(replace(CACHED, edits=(edit,), safety=safety)) is shares


def test_what_is_made_of_all_that_training_reads_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """`adapt` of each of twelve features was compared and measured for three minutes."""
    with recorded():
        dataset, other = make(4096, affine), make(1024, affine)
        adapted = [dataset.take(20).map(lambda x, k=k: x * k) for k in range(3)]
    uses = [Consumption(one, "feature", "adapt", "adapt", 20) for one in adapted]
    study = study_of(dataset, *uses, Consumption(other, "check", "validation", "fit"))
    tried: list[int] = []
    untried = SharedCallTrials._try_on_other

    def accept(_: SharedCallTrials, index: int, rewrite: Rewrite) -> Plan:
        tried.append(index)
        return Plan("", (rewrite,))

    monkeypatch.setattr(SharedCallTrials, "_try_on_other", accept)
    assert SharedCallTrials(study, Plan("", (ON_BATCHES,))).may_change(ON_BATCHES) and tried == [3]
    monkeypatch.setattr(SharedCallTrials, "_try_on_other", untried)
    monkeypatch.setattr(TimePlan, "of_sixty", lambda *_: -1.0)
    late = SharedCallTrials(study, NOTHING)
    assert not late.may_change(ON_BATCHES)
    assert late.notes[0].endswith("with check, where the same change was not tried: its time was over.")


def fold(dataset: Any, *, held_out: bool) -> Any:
    """Every third element, or the others, as scripts select them by number."""
    numbered = dataset.enumerate().filter(lambda number, _: (number % 3 == 0) == held_out)
    return numbered.map(lambda _, row: row)


@pytest.mark.parametrize(("split", "steps", "shares"), [
    (lambda dataset: (dataset.shard(2, 0), dataset.shard(2, 1).prefetch(1)), None, True),
    (lambda dataset: (dataset.shard(2, 0), dataset.shard(2, 1).prefetch(1)), 2, False),
    (lambda dataset: (fold(dataset, held_out=False), fold(dataset, held_out=True)), None, True),
    (lambda dataset: (dataset, tf.data.Dataset.zip(tf.data.Dataset.range(9), dataset)), None, False),
])  # fmt: skip
def test_validation_that_is_another_part_reads_the_cache_to_its_end(split, steps, shares) -> None:
    with recorded():
        train, held_out = split(make(4096, affine))
    use = Consumption(held_out, "held_out", "validation", "fit", steps_per_epoch=steps)
    assert SharedCallTrials(study_of(train, use), NOTHING).may_change(replace(CACHED, edits=CACHED.edits[:1])) is shares


@pytest.mark.parametrize(("seeds", "shares"), [((1, 2), True), ((1,), False)])
def test_cache_before_a_loop_serves_all_that_its_iterations_make(seeds: tuple[int, ...], shares: bool) -> None:
    with recorded():
        dataset = make(4096, affine)
        made = [dataset.shuffle(9, seed) for seed in seeds]
        other = dataset.take(9)
    calls = SharedCallTrials(study_of(made[-1] if shares else other), NOTHING)
    assert calls.may_change(replace(CACHED, edits=(CACHED.edits[0],))) is shares and made


def test_call_is_not_changed_if_data_would_change() -> None:
    calls = shared(draws, draws)
    assert not calls.may_change(ON_BATCHES)
    (note,) = calls.notes
    assert "could not be shown to preserve the data" in note


def test_call_is_not_changed_if_other_input_may_become_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emission, "_speedup", lambda *_, **__: invented(1.1, 0.9, 1.3))
    equal = Comparison(Safety.EXACT, (EqualityCheck("values", True), EqualityCheck("epochs", True)), 9, epochs=3)
    monkeypatch.setattr(TensorFlowRunner, "compare", lambda *_: equal)
    calls = shared()
    assert not calls.may_change(ON_BATCHES)
    assert "may make its input slower: 1.10 times as fast (0.90 to 1.30, 5 pairs)." in calls.notes[0]


SCRIPT = """import numpy as np
import tensorflow as tf
def prepare(rows, training):
    ds = tf.data.Dataset.from_tensor_slices(np.arange(rows, dtype="float32"))
    ds = ds.map(lambda x: x * 2.0 + 1.0)
    if training:
        ds = ds.shuffle(100, seed=1)
    return ds.batch(64)
train, check = prepare(4096, True), prepare(1024, False)
"""


def test_patch_changes_both_datasets_and_is_rebuilt_from_session(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    before = executed(path, SCRIPT)
    check = Consumption(before["check"], "check", "validation", "fit")
    study = study_of(before["train"], check, directory=str(tmp_path))
    journal = study.journal
    edits = (Move("n1", "n3"), ReplaceFunction("n1", FunctionVariant.ON_BATCHES, "d"))
    plan = Plan("tuned", (Rewrite("vectorize-map", "n1", Safety.EXACT, edits, ""),))
    journal.update_dataset(plan=plan, diagnosis=Diagnosis(Verdict.INPUT_BOUND, ""))
    gain = replace(invented(1.0, 0.9, 1.1), pairs=0)
    keep_candidate(study, Candidate(plan, gain, probability=0.3, unit="training", why="No time was left."))
    candidate = journal.session.candidate
    assert candidate is not None and "prepare(4096, True, vectorize_map=True), prepare(1024, False)" in candidate.diff
    assert not any("the call is shared" in note for note in journal.session.notes), "what is unlikely is not measured"
    patch = make_patch(study, plan)
    assert patch.covered == (plan.rewrites[0].key,) and len(patch.expected) > 9
    (note,) = (note for note in journal.session.notes if note.startswith("vectorize-map"))
    assert "the call is shared with check, where the same change yields the same data" in note
    assert "makes its input 1.80 times as fast (1.60 to 2.00, 5 pairs): both are changed." in note
    ((_, new),) = patched_texts(patch).items()
    assert "    return ds.batch(64).map(lambda x: x * 2.0 + 1.0)\n" in new
    assert "+    return ds.batch(64).map(" in patch.diff
    original, after = executed(path, SCRIPT), executed(path, new)  # datasets that were read once reshuffle
    for name in ("train", "check"):
        pairs = zip(original[name], after[name], strict=True)
        assert all(np.array_equal(one, another) for one, another in pairs)


HELPER = """import numpy as np
import tensorflow as tf
def prepare(rows):
    ds = tf.data.Dataset.from_tensor_slices(np.arange(rows, dtype="float32")).map(lambda x: x * 2.0 + 1.0)
    return ds.batch(64).prefetch(1)
train, check, test = prepare(4096), prepare(1024), prepare(512)
shown = train.take(1)
"""


@pytest.mark.parametrize(("role", "elements", "safety", "changed"), [
    ("preview", 1, Safety.EXACT, True),
    ("preview", 1, Safety.REORDERS, True),
    ("preview", 100, Safety.STATISTICAL, False),
    ("adapt", 100, Safety.REORDERS, True),
    ("evaluation", 1, Safety.EXACT, False),
])  # fmt: skip
def test_preview_of_what_a_helper_has_made_for_training_changes_with_it(
    role: str, elements: int, safety: Safety, changed: bool, tmp_path: Path
) -> None:
    """As in many tutorials: the helper makes training, validation and test data, of which the first is shown."""
    path = tmp_path / "train.py"
    path.write_text(HELPER)
    made = executed(path, HELPER)
    uses = (
        Consumption(made["shown"], "shown", role, "iter", elements),
        Consumption(made["check"], "check", "validation", "fit"),
    )
    study = study_of(made["train"], *uses, directory=str(tmp_path))
    plan = Plan("tuned", (replace(CACHED, safety=safety),))
    study.journal.update_dataset(plan=plan, diagnosis=Diagnosis(Verdict.INPUT_BOUND, ""))
    try:
        patch = make_patch(study, plan)
    finally:
        study.runner.close()
    assert bool(patch.covered) is changed, patch.not_covered
    if changed:
        ((_, new),) = patched_texts(patch).items()
        assert "prepare(4096, cache=True), prepare(1024), prepare(512)" in new

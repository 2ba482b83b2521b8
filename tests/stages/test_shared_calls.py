"""Calls that make training and validation data: changed for both only where both stay as they are and gain."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.core.comparison import Check, Comparison
from pipetune.core.edits import Insert, Move, Plan, ReplaceFunction, Rewrite, Safety
from pipetune.core.functions import FunctionForm
from pipetune.core.measurement import Interval, Window
from pipetune.core.profile import Diagnosis, Verdict
from pipetune.core.session import Session
from pipetune.core.settings import Settings
from pipetune.journal import Journal, Silence
from pipetune.stages import shared_calls
from pipetune.stages.emission import make_patch, overlay_of
from pipetune.stages.shared_calls import SharedCalls
from pipetune.stages.study import Study, Subject
from pipetune.tf.measure.runner import TensorFlowRunner
from pipetune.tf.pipelines import live
from pipetune.tf.script import capture
from pipetune.tf.script.consumers import NoConsumer
from pipetune.tf.script.consumption import Consumption
from tests.core.sessions import MACHINE

Function = Callable[[Any], Any]
measured = shared_calls._measured


def invented(median: float, low: float, high: float) -> Interval:
    return Interval(median=median, low=low, high=high, pairs=5, method="invented")


@pytest.fixture(autouse=True)
def _faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured is invented: how busy the machine is decides nothing here."""
    monkeypatch.setattr(shared_calls, "_measured", lambda *_, **__: invented(1.8, 1.6, 2.0))


ON_BATCHES = Rewrite(
    "vectorize-map",
    "n1",
    Safety.EXACT,
    (Move("n1", "n2"), ReplaceFunction("n1", FunctionForm.ON_BATCHES, "d")),
    "",
)
CACHED = Rewrite("cache", "n2", Safety.EXACT, (Insert("n2", "cache", "c", {"filename": ""}),), "")


def affine(x: Any) -> Any:
    return x * 2.0 + 1.0


def draws(x: Any) -> Any:
    return x + tf.random.uniform([])


def make(rows: int, function: Function) -> Any:
    return tf.data.Dataset.from_tensor_slices(np.arange(rows, dtype="float32")).map(function).batch(64)


def shared(
    training: Function = affine, validation: Function = affine, *, more: Function | None = None, gone: bool = False
) -> SharedCalls:
    """The calls of `make`, for both datasets and for one `more` that nothing has consumed, alive or gone."""
    capture.forget()
    gc.collect()  # what the test before has made at the same calls
    with capture.Recorder():
        made = [make(4096, training), make(1024, validation)]
        if more is not None:
            made.append(make(90, more))
    if gone:
        made.pop()
        gc.collect()
    uses = [Consumption(made[0], "train", "training", "fit"), Consumption(made[1], "check", "validation", "fit")]
    mine, other = (live.read(use.dataset, name=use.name) for use in uses)
    subject = Subject(mine, NoConsumer("nobody trains"), uses[0], ((other, uses[1]),))
    settings = Settings(budget_seconds=10.0)
    return SharedCalls(Study(subject, settings, MACHINE, Journal(Session("0", {}), settings, Silence())))


def test_windows_of_both_are_measured_in_pairs() -> None:
    asked: list[str] = []

    class Runner:
        def input_window(self, plan: Plan, *, seconds: float, warmup_seconds: float) -> Window:
            asked.append(plan.key)
            seconds = 3.0 if plan.rewrites else 6.0 + len(asked) / 100
            return Window(steps=2, examples=10, wall_seconds=seconds, cpu_seconds=1.0, first_seconds=0.0)

    plan = Plan("", (ON_BATCHES,))
    ratio = measured(Runner(), plan, seed=1)  # type: ignore[arg-type]
    assert ratio.pairs == 5 and 1.9 < ratio.low < ratio.median < ratio.high < 2.1
    pairs = [set(asked[turn : turn + 2]) for turn in range(0, 10, 2)]
    assert pairs == [{"", plan.key}] * 5 and len({tuple(asked[turn : turn + 2]) for turn in range(0, 10, 2)}) == 2


def test_another_function_is_another_matter() -> None:
    assert not shared(affine, tf.abs).may_change(ON_BATCHES)


def test_a_dataset_that_nothing_has_consumed_is_read_while_it_is_alive() -> None:
    calls = shared(more=affine)
    assert calls.may_change(ON_BATCHES), (calls.notes, calls.pipelines)
    assert not shared(more=draws).may_change(ON_BATCHES)
    assert not shared(more=affine, gone=True).may_change(ON_BATCHES)


def test_what_holds_memory_stays() -> None:
    assert not shared().may_change(CACHED)


def test_data_that_would_change() -> None:
    calls = shared(draws, draws)
    assert not calls.may_change(ON_BATCHES)
    (note,) = calls.notes
    assert "could not be shown to leave the data as it is" in note


def test_what_may_be_slower_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_calls, "_measured", lambda *_, **__: invented(1.1, 0.9, 1.3))
    equal = Comparison(Safety.EXACT, (Check("values", True), Check("epochs", True)), elements=9, epochs=3)
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


def test_the_patch_changes_both_and_is_made_again_from_the_session(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    before = executed(path, SCRIPT)
    roles = {"train": "training", "check": "validation"}
    uses = [Consumption(before[name], name, role, "fit") for name, role in roles.items()]
    mine, other = (live.read(use.dataset, name=use.name) for use in uses)
    subject = Subject(mine, NoConsumer("nobody trains"), uses[0], ((other, uses[1]),))
    settings = Settings(budget_seconds=10.0)
    journal = Journal(Session("0", {"directory": str(tmp_path)}, datasets=subject.results()), settings, Silence())
    study = Study(subject, settings, MACHINE, journal)
    edits = (Move("n1", "n3"), ReplaceFunction("n1", FunctionForm.ON_BATCHES, "d"))
    plan = Plan("tuned", (Rewrite("vectorize-map", "n1", Safety.EXACT, edits, ""),))
    journal.dataset(plan=plan, diagnosis=Diagnosis(Verdict.INPUT_BOUND, ""))
    patch = make_patch(study, plan)
    assert patch.covered == (plan.rewrites[0].key,) and len(patch.expected) > 9
    (note,) = (note for note in journal.session.notes if note.startswith("vectorize-map"))
    assert "the call is shared with check, where the same change gives the same data" in note
    assert "makes its input 1.80 times as fast (1.60 to 2.00, 5 pairs): it is changed for both." in note
    ((_, new),) = overlay_of(journal.session).items()
    assert "    return ds.batch(64).map(lambda x: x * 2.0 + 1.0)\n" in new
    assert "+    return ds.batch(64).map(" in patch.diff
    original, after = executed(path, SCRIPT), executed(path, new)  # what was read once shuffles anew
    for name in ("train", "check"):
        pairs = zip(original[name], after[name], strict=True)
        assert all(np.array_equal(one, another) for one, another in pairs)


def executed(path: Path, text: str) -> dict[str, Any]:
    """What a script makes, recorded under the name of its file."""
    made: dict[str, Any] = {"__name__": "__main__"}
    capture.forget()
    with capture.Recorder():
        exec(compile(text, str(path), "exec"), made)
    return made

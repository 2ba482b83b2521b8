"""Calls that make training and validation data: changed for both only where both stay as they are and gain."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core.edits import Insert, Move, ReplaceFunction, Rewrite, Safety
from pipetune.core.functions import FunctionForm
from pipetune.core.measurement import Interval
from pipetune.core.session import Session
from pipetune.core.settings import Settings
from pipetune.journal import Journal, Silence
from pipetune.stages import shared_calls
from pipetune.stages.shared_calls import SharedCalls
from pipetune.stages.study import Study, Subject
from pipetune.tf.pipelines import live
from pipetune.tf.script import capture
from pipetune.tf.script.consumers import NoConsumer
from pipetune.tf.script.consumption import Consumption
from tests.core.sessions import MACHINE

Function = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few short windows; as in a worker, they collect garbage over what is new only."""
    monkeypatch.setattr(shared_calls, "_PAIRS", 3)
    monkeypatch.setattr(shared_calls, "_WINDOW_SECONDS", 0.1)
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


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


def shared(training: Function = affine, validation: Function = affine, *, more: int = 0) -> SharedCalls:
    """The calls of `make`, for both datasets and for `more` that nobody has read."""
    capture.forget()
    with capture.Recorder():
        made = [make(4096, training), make(1024, validation), *(make(9, affine) for _ in range(more))]
    uses = [Consumption(made[0], "train", "training", "fit"), Consumption(made[1], "check", "validation", "fit")]
    mine, other = (live.read(use.dataset, name=use.name) for use in uses)
    subject = Subject(mine, NoConsumer("nobody trains"), uses[0], ((other, uses[1]),))
    settings = Settings(budget_seconds=10.0)
    return SharedCalls(Study(subject, settings, MACHINE, Journal(Session("0", {}), settings, Silence())))


def test_both_gain() -> None:
    calls = shared()
    assert calls.may_change(ON_BATCHES) and calls.may_change(ON_BATCHES)
    (note,) = calls.notes
    assert note.startswith("vectorize-map: the call is shared with check, where the same change gives the same data")
    assert "times as fast" in note and "3 pairs" in note


def test_another_function_is_another_matter() -> None:
    assert not shared(affine, tf.abs).may_change(ON_BATCHES)


def test_a_dataset_that_nobody_has_read_yet() -> None:
    assert not shared(more=1).may_change(ON_BATCHES)


def test_what_holds_memory_stays() -> None:
    assert not shared().may_change(CACHED)


def test_data_that_would_change() -> None:
    calls = shared(draws, draws)
    assert not calls.may_change(ON_BATCHES)
    (note,) = calls.notes
    assert "could not be shown to leave the data as it is" in note


def test_what_is_not_faster_there(monkeypatch: pytest.MonkeyPatch) -> None:
    same = Interval(median=1.1, low=0.9, high=1.3, pairs=5, method="invented")
    monkeypatch.setattr(shared_calls, "_measured", lambda *_, **__: same)
    calls = shared()
    assert not calls.may_change(ON_BATCHES)
    assert "was not measured to be faster: 1.10 times as fast (0.90 to 1.30, 5 pairs)" in calls.notes[0]

"""Every form of `forms.py`: captured, a plan written into it, the patched script run.

It must make the operators of the plan, and every dataset of the script must have the elements it had.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import linecache
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

import numpy as np

from pipetune.core.editing import apply_edits
from pipetune.core.edits import (
    Edit,
    Insert,
    Move,
    Plan,
    Remove,
    ReplaceFunction,
    Rewrite,
    Safety,
    SetArgument,
    SetOption,
)
from pipetune.core.functions import FunctionForm
from pipetune.core.pipeline import Pipeline
from pipetune.rules import gather_batches, gather_windows
from pipetune.rules.base import RuleContext
from pipetune.source.emit import emit
from pipetune.tf.pipelines import gathering, live, on_batches
from pipetune.tf.pipelines.replay import replay
from pipetune.tf.script import capture
from pipetune.worker.verifying import first_difference
from tests.source.forms import DATA, FORMS, Form

BEFORE = "import tensorflow as tf\nfrom data import *\n"


class Stopped(Exception):
    """Raised where training begins, as pipetune stops a script there."""


@dataclass(frozen=True)
class Run:
    """What a script made and consumed."""

    trained: Any
    evaluated: list[Any]


@contextlib.contextmanager
def _importing(folder: Path) -> Iterator[None]:
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and file.startswith(str(folder)):
                del sys.modules[name]
        importlib.invalidate_caches()


def run(folder: Path, *, whole: bool) -> Run:
    """Runs `train.py` of a folder, as far as its first training step or to its end."""
    linecache.clearcache()
    capture.forget()
    path = folder / "train.py"
    with _importing(folder), capture.Recorder():
        data = importlib.import_module("data")
        if not whole:
            fit = data.fit

            def stop(*given: Any) -> None:
                fit(*given)
                raise Stopped

            data.fit = stop
        with contextlib.suppress(Stopped):
            exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), {"__name__": "__main__"})
        return Run(data.trained[0], list(data.evaluated))


def write(folder: Path, form: Form) -> None:
    (folder / "data.py").write_text(DATA)
    for name, text in form.files.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "train.py").write_text(BEFORE + form.script)


def edits_of(words: str, source: live.LivePipeline) -> tuple[Edit, ...]:
    """The edits that a plan in words stands for: "vectorized map; prefetch"."""
    pipeline = source.pipeline
    found: list[Edit] = []
    for part in words.split("; "):
        found += _edits(part, source, pipeline)
        pipeline = apply_edits(source.pipeline, found)
    return tuple(found)


def _edits(words: str, source: live.LivePipeline, pipeline: Pipeline) -> list[Edit]:
    if "=" in words:
        place, _, value = words.partition("=")
        owner, _, name = place.partition(".")
        if owner == "options":
            return [SetOption(name, eval(value))]
        return [SetArgument(node.id, name, eval(value)) for node in _named(owner, pipeline)]
    verb, *names = words.split()
    nodes = [node for name in names for node in _named(name, pipeline)]
    match verb:
        case "prefetch":
            last = next(node for node in reversed(pipeline.nodes) if node.op != "with_options")
            return [Insert(last.id, "prefetch", "ahead", {"buffer_size": -1})]
        case "cached":
            return [Insert(nodes[-1].id, "cache", "cached", {"filename": ""})]
        case "moved":
            above = pipeline[nodes[1].inputs[0]].id if len(nodes) > 1 else nodes[0].id
            return [Move(nodes[0].id, above)]
        case "removed":
            return [Remove(nodes[0].id)]
        case "fused":
            *first, last = (node.id for node in nodes)
            fused = ReplaceFunction(last, FunctionForm.FUSED, "fused", tuple(first))
            return [fused, *(Remove(name) for name in reversed(first))]
        case "gathered" | "series":
            told = gathering.with_answers(source, on_batches.with_answers(source, pipeline))
            rules = (gather_batches.RULE, gather_windows.RULE)
            proposals = [one for rule in rules for one in rule.propose(RuleContext(told))]
            (rewrite,) = (one for one in proposals if isinstance(one, Rewrite))
            return list(rewrite.edits)
    form = {
        "vectorized": FunctionForm.VECTORIZED,
        "batched": FunctionForm.ON_BATCHES,
        "parsed": FunctionForm.PARSING,
    }[verb]
    batch = next(node for node in reversed(pipeline.nodes) if node.op == "batch")
    return [
        edit for node in reversed(nodes) for edit in (Move(node.id, batch.id), ReplaceFunction(node.id, form, "form"))
    ]


def _named(name: str, pipeline: Pipeline) -> list[Any]:
    op, _, position = name.partition("#")
    op = op.removesuffix(".input")
    found = [node for node in pipeline if node.op == op]
    assert found, f"no {op} in {[node.op for node in pipeline]}"
    return [found[int(position)]] if position else found


def drawn(dataset: Any) -> list[Any]:
    return [tf.nest.map_structure(_value, element) for element in dataset.take(40)]


def _value(tensor: Any) -> Any:
    dense = tf.sparse.to_dense(tensor) if isinstance(tensor, tf.SparseTensor) else tensor
    return dense.numpy() if hasattr(dense, "numpy") else dense


def assert_equal(ones: list[Any], others: list[Any]) -> None:
    assert len(ones) == len(others)
    for one, other in zip(ones, others, strict=True):
        tf.nest.assert_same_structure(one, other)
        for left, right in zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True):
            assert np.array_equal(left, right) and left.dtype == right.dtype


@pytest.mark.parametrize("form", FORMS, ids=[form.name for form in FORMS])
def test_the_plan_is_in_the_patch(form: Form, tmp_path: Path) -> None:
    write(tmp_path, form)
    seen = run(tmp_path, whole=False)
    source = live.read(seen.trained, name="train")
    others = [live.read(one, name=f"check {number}") for number, one in enumerate(seen.evaluated)]
    edits = edits_of(form.plan, source)
    plan = Plan("tuned", (Rewrite("rule", "n0", Safety.EXACT, edits, ""),))

    def may_share(rewrite: Rewrite) -> bool:
        return True

    emission = emit(source.pipeline, plan, others=[one.pipeline for one in others], may_share=may_share)
    assert [one.why for one in emission.not_covered] == []
    diff = "".join(
        line
        for old, new in emission.files.values()
        for line in difflib.unified_diff(old.splitlines(True), new.splitlines(True), n=1)
    )
    print(diff)
    before = run(tmp_path, whole=True)
    for path, (_, new) in emission.files.items():
        Path(path).write_text(new)
    after = run(tmp_path, whole=True)
    wanted = live.read(replay(source, apply_edits(source.pipeline, edits)))
    assert first_difference(live.read(after.trained).pipeline, wanted.pipeline) == ""
    assert_equal(drawn(before.trained), drawn(after.trained))
    for one, other in zip(before.evaluated, after.evaluated, strict=True):
        assert_equal(drawn(one), drawn(other))

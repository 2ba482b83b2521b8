"""Every form of `forms.py`: the script is captured, a plan written into it, and the patched script run.

It must build the operators of the plan, and every dataset of the script must have its original elements.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import linecache
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

import numpy as np

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
    apply_edits,
)
from pipetune.core.functions import FunctionVariant
from pipetune.core.pipeline import Pipeline
from pipetune.pipelines import call_sites, live
from pipetune.pipelines.replay import replay
from pipetune.probes import batches, function_splitting
from pipetune.rewrites import gather
from pipetune.rewrites.rule import RuleContext
from pipetune.source.emit import Emission, emit
from pipetune.stages.emission import translate_rewrite
from pipetune.worker.verification import first_difference
from tests.source.forms import DATA, FORMS, NOT_WRITTEN, Form

BEFORE = "import tensorflow as tf\nfrom data import *\n"


class Stopped(Exception):
    """Raised where training begins, as pipetune stops a script there."""


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


def run(folder: Path, *, whole: bool) -> tuple[Any, list[Any]]:
    """Runs `train.py` of a folder up to its first training step or to its end; what it trained and evaluated on."""
    linecache.clearcache()
    call_sites.clear()
    path = folder / "train.py"
    with _importing(folder), call_sites.Recorder():
        data = importlib.import_module("data")
        if not whole:
            fit = data.fit

            def stop(*given: Any) -> None:
                fit(*given)
                raise Stopped

            data.fit = stop
        with contextlib.suppress(Stopped):
            exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), {"__name__": "__main__"})
        return data.trained[0], list(data.evaluated)


RULES = {
    "batched": "vectorize-map",
    "fused": "map-fusion",
    "gathered": "gather-batches",
    "options": "threads",
    "parsed": "parse-batches",
    "series": "gather-windows",
    "vectorized": "vectorize-map",
}
FORMS_ON_BATCHES = {
    "vectorized": FunctionVariant.VECTORIZED,
    "batched": FunctionVariant.ON_BATCHES,
    "parsed": FunctionVariant.PARSING,
}


def plan_of(words: str, source: live.LivePipeline) -> Plan:
    """The plan that words stand for, with a rewrite for each part: "vectorized map; prefetch".

    - `vectorized map`, `batched map`, `parsed map`: after the last batch, called on batches in that variant.
    - `gathered`, `series`: rows, or windows, gathered by their indices, as the rules propose it.
    - `prefetch`: one at the end.
    - `fused map#0 map#1`: both fused into one.
    - `map.num_parallel_calls=2`: an argument, of all operators of that name; `options.deterministic=True`.
    """
    pipeline = source.pipeline
    rewrites: list[Rewrite] = []
    for part in words.split("; "):
        edits = tuple(_edits(part, source, pipeline))
        rule = RULES.get(part.split()[0].partition(".")[0], "parallel-map" if "=" in part else part.split()[0])
        rewrites.append(Rewrite(rule, getattr(edits[0], "node", "n0"), Safety.EXACT, edits, ""))
        pipeline = apply_edits(pipeline, edits)
    return Plan("tuned", tuple(rewrites))


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
        case "fused":
            *first, last = (node.id for node in nodes)
            fused = ReplaceFunction(last, FunctionVariant.FUSED, "fused", tuple(first))
            return [fused, *(Remove(name) for name in reversed(first))]
        case "gathered" | "series":
            told = function_splitting.annotate_gathers(source, batches.annotate_batches(source, pipeline))
            rules = (gather.GATHER_BATCHES_RULE, gather.GATHER_WINDOWS_RULE)
            proposals = [one for rule in rules for one in rule.propose(RuleContext(told))]
            (rewrite,) = (one for one in proposals if isinstance(one, Rewrite))
            return list(rewrite.edits)
    batch, form = next(node for node in reversed(pipeline.nodes) if node.op == "batch"), FORMS_ON_BATCHES[verb]
    behind = [(Move(node.id, batch.id), ReplaceFunction(node.id, form, "form")) for node in reversed(nodes)]
    return [edit for edits in behind for edit in edits]


def _named(name: str, pipeline: Pipeline) -> list[Any]:
    """The operators with a name: "map" for all of them, "map#1" for the second."""
    op, _, position = name.partition("#")
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


def sharing(source: live.LivePipeline, others: list[live.LivePipeline]) -> Callable[[Rewrite], bool]:
    """Whether a rewrite may change other datasets too: only where each of them stays equal with it."""
    places = {node.location for node in source.pipeline}
    passing = [other for other in others if any(node.location in places for node in other.pipeline)]

    def is_equal(rewrite: Rewrite, other: live.LivePipeline) -> bool:
        theirs = translate_rewrite(rewrite, source.pipeline, other.pipeline)
        if theirs is None:
            return False
        changed = replay(other, apply_edits(other.pipeline, theirs.edits))
        try:
            assert_equal(drawn(other.dataset), drawn(changed))
        except AssertionError:
            return False
        return True

    return lambda rewrite: all(is_equal(rewrite, other) for other in passing)


def added(files: Mapping[str, tuple[str, str]]) -> str:
    """The lines that are new in the files, in order."""
    diffs = [difflib.unified_diff(old.splitlines(), new.splitlines(), n=0) for _, (old, new) in sorted(files.items())]
    lines = [line for diff in diffs for line in diff]
    new = [line[1:].rstrip() for line in lines if line.startswith("+") and not line.startswith("+++")]
    return "\n".join(new).strip("\n")


def written(folder: Path, form: Form) -> tuple[Emission, Pipeline]:
    """Captures the script of a form and writes its plan into it, without changing the files.

    Returns:
        What is written, and the pipeline of the plan when it runs.
    """
    for name, text in {"data": DATA, **form.files, "train": BEFORE + form.script}.items():
        (folder / f"{name}.py").write_text(text)
    trained, evaluated = run(folder, whole=False)
    source = live.read(trained, name="train")
    others = [live.read(one, name=f"check {number}") for number, one in enumerate(evaluated)]
    plan = plan_of(form.plan, source)
    pipelines = [one.pipeline for one in others]
    emission = emit(source.pipeline, plan, other_pipelines=pipelines, may_share=sharing(source, others))
    return emission, live.read(replay(source, apply_edits(source.pipeline, plan.edits))).pipeline


@pytest.mark.sample(12)
@pytest.mark.parametrize("form", FORMS, ids=[form.name for form in FORMS])
def test_patched_script_runs_the_plan(form: Form, tmp_path: Path) -> None:
    emission, wanted = written(tmp_path, form)
    assert [one.why for one in emission.not_covered] == []
    assert added(emission.files) == form.adds.strip("\n")
    trained, evaluated = run(tmp_path, whole=True)
    for path, (_, new) in emission.files.items():
        Path(path).write_text(new)
    trained_now, evaluated_now = run(tmp_path, whole=True)
    assert first_difference(live.read(trained_now).pipeline, wanted) == ""
    for one, other in zip([trained, *evaluated], [trained_now, *evaluated_now], strict=True):
        assert_equal(drawn(one), drawn(other))


@pytest.mark.parametrize("form", NOT_WRITTEN, ids=[form.name for form in NOT_WRITTEN])
def test_unsupported_form_leaves_the_script_unchanged(form: Form, tmp_path: Path) -> None:
    emission, _ = written(tmp_path, form)
    assert emission.files == {} and form.why in emission.not_covered[0].why

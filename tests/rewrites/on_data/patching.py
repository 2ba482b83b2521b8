"""Scripts to patch, what a rule proposes for a dataset, and whether a patched script builds the planned pipeline."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.edits import Edit, NoProposal, Plan, Rewrite, Safety, apply_edits
from pipetune.core.pipeline import Pipeline
from pipetune.core.results import Comparison
from pipetune.equality import compare
from pipetune.pipelines import live, replay
from pipetune.rewrites.rule import RuleContext
from pipetune.source.emit import emit
from pipetune.worker.verification import first_difference
from tests.pipelines.test_recorder import Sample

Annotation = Callable[[live.LivePipeline, Pipeline], Pipeline]
Propose = Callable[[RuleContext], Iterable[Rewrite | NoProposal]]


def proposed(
    propose: Propose, dataset: Any, *annotations: Annotation, **facts: Any
) -> tuple[live.LivePipeline, list[Rewrite]]:
    """Returns the pipeline of a dataset, with what the probes find in their order, and what a rule proposes."""
    source = dataset if isinstance(dataset, live.LivePipeline) else live.read(dataset)
    pipeline = source.pipeline
    for annotate in annotations:
        pipeline = annotate(source, pipeline)
    found = propose(RuleContext(pipeline, **{"cores": 2, **facts}))
    return live.LivePipeline(pipeline, source.datasets), [one for one in found if isinstance(one, Rewrite)]


def compared(source: live.LivePipeline, edits: Iterable[Edit], safety: Safety, *, elements: int = 40) -> Comparison:
    return compare.compare(source, apply_edits(source.pipeline, edits), safety, elements=elements)


def check_equal(source: live.LivePipeline, rewrite: Rewrite, *, elements: int = 40) -> Comparison:
    """Asserts that a rewrite is proven to keep the data as its class promises; returns the comparison."""
    proof = compared(source, rewrite.edits, rewrite.safety, elements=elements)
    assert proof.proven and proof.equal, [check for check in proof.checks if check.equal is not True]
    return proof


def check_proven(
    source: live.LivePipeline, edits: Iterable[Edit], safety: Safety = Safety.EXACT, *, elements: int = 40
) -> Comparison:
    """Asserts that an edited pipeline gives the same, by every check that there is; returns the comparison."""
    proof = compared(source, edits, safety, elements=elements)
    assert proof.proven and all(check.equal for check in proof.checks), proof.checks
    return proof


def script(folder: Path, text: str, *, above: str = "import tensorflow as tf\n\n") -> Sample:
    """Returns a script of `text`, without its indentation, below the lines `above`."""
    sample = Sample(folder, text)
    sample.file.write_text(above + sample.file.read_text().lstrip("\n"))
    return sample


def patched_text(sample: Sample, source: live.LivePipeline, *rewrites: Rewrite) -> str:
    emission = emit(source.pipeline, Plan("tuned", rewrites))
    assert emission.not_covered == (), emission.not_covered
    return emission.files[str(sample.file)][1]


def why_not_patched(source: live.LivePipeline, rewrite: Rewrite) -> str:
    emission = emit(source.pipeline, Plan("tuned", (rewrite,)))
    assert emission.files == {}
    return emission.not_covered[0].why


def rerun(sample: Sample, text: str) -> Any:
    """Replaces the text of a script, runs it, and returns its module."""
    sample.file.write_text(text)
    linecache.clearcache()
    return sample.run()


def digests(dataset: Any) -> list[str]:
    """Returns the digests of the first elements, with every draw fixed."""
    found = list(compare.digests(dataset, count=24, seed=3, time_limit_seconds=100))
    assert found
    return found


def check_patch(
    sample: Sample, source: live.LivePipeline, *rewrites: Rewrite, expected: str = "", elements: int | None = None
) -> str:
    """Asserts that the patch contains `expected`, and that the script then builds the edited pipeline and its elements.

    With `elements`, the plan is compared with the original in as many. Returns the text of the patched script.
    """
    plan = Plan("tuned", rewrites)
    new = patched_text(sample, source, *rewrites)
    assert expected in new, new

    patched = live.read(rerun(sample, new).ds)
    edited = apply_edits(source.pipeline, plan.edits)
    assert first_difference(source.pipeline, edited) != "" == first_difference(patched.pipeline, edited)
    assert patched.dataset.element_spec == source.dataset.element_spec
    planned = replay.replay(source, edited)
    try:
        assert digests(patched.dataset) == digests(planned)
    except compare.PINNING_ERRORS:  # Python code may draw
        for one, other in zip(patched.dataset, planned, strict=True):
            tf.nest.map_structure(lambda a, b: np.testing.assert_array_equal(a, b, strict=True), one, other)
    if elements is not None:
        proof = compare.compare(source, edited, plan.safety, elements=elements)
        assert proof.proven and proof.equal
    return new

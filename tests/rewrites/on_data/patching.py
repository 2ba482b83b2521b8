"""Patches a sample with a rewrite and checks that the patched script builds the pipeline of the plan."""

from __future__ import annotations

import linecache

from pipetune.core.edits import Plan, Rewrite, apply_edits
from pipetune.equality.compare import compare
from pipetune.pipelines import live, replay
from pipetune.source.emit import emit
from pipetune.stages.emission import expected_digests
from pipetune.worker.verification import first_difference
from tests.pipelines.test_recorder import Sample


def check_patch(sample: Sample, source: live.LivePipeline, *rewrites: Rewrite, expected: str, elements: int) -> None:
    """Asserts that the patch contains `expected`, builds the edited pipeline, and that this one is proven equal."""
    plan = Plan("tuned", rewrites)
    emission = emit(source.pipeline, plan)
    assert emission.not_covered == (), emission.not_covered
    _, new = emission.files[str(sample.file)]
    assert expected in new

    sample.file.write_text(new)
    linecache.clearcache()
    patched = live.read(sample.run().ds)
    edited = apply_edits(source.pipeline, plan.edits)
    assert first_difference(patched.pipeline, edited) == ""
    proof = compare(source, edited, plan.safety, elements=elements)
    assert proof.proven and proof.equal
    planned = expected_digests(replay.replay(source, edited), seed=3)
    assert expected_digests(patched.dataset, seed=3) == planned

"""From a rewrite to the patched source of a sample, which must make the very pipeline of the plan."""

from __future__ import annotations

import linecache

from pipetune.core.editing import apply_edits
from pipetune.core.edits import Plan, Rewrite
from pipetune.source.emit import emit
from pipetune.tf.equality.compare import compare
from pipetune.tf.pipelines import live
from pipetune.worker.verification import first_difference
from tests.tf.test_capture import Sample


def check_patch(sample: Sample, source: live.LivePipeline, rewrite: Rewrite, *, expected: str, elements: int) -> None:
    """Asserts that the patched text holds `expected`, makes the edited pipeline, and that this one is proven equal."""
    emission = emit(source.pipeline, Plan("tuned", (rewrite,)))
    assert emission.not_covered == (), emission.not_covered
    _, new = emission.files[str(sample.file)]
    assert expected in new

    sample.file.write_text(new)
    linecache.clearcache()
    patched = live.read(sample.run().ds)
    edited = apply_edits(source.pipeline, rewrite.edits)
    assert first_difference(patched.pipeline, edited) == ""
    proof = compare(source, edited, rewrite.safety, elements=elements)
    assert proof.proven and proof.equal

"""Writes the distributed module of a tuned pipeline, if running it proves it correct."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pipetune.core.errors import CannotExpress, CannotReplay
from pipetune.core.files import write_text
from pipetune.core.pipeline import Pipeline
from pipetune.core.service import ServiceNeed
from pipetune.core.session import DistributedResult
from pipetune.core.standalone import BatchBytes, Delivery
from pipetune.distribution import proving, saying
from pipetune.model.service import recommendation
from pipetune.source import standalone_kinds, standalone_tfds
from pipetune.source.standalone import emit_standalone
from pipetune.source.standalone_kind import Kind
from pipetune.source.standalone_remote import refuse_all
from pipetune.tf.pipelines.live import LivePipeline
from pipetune.tf.standalone import batch_bytes, standalone_parts, static_shapes

Need = Callable[[float | None], ServiceNeed]
"""Determines whether a service helps, given the compression ratio of its elements; None if that is unknown."""


def distribute(
    source: LivePipeline,
    tuned: Pipeline,
    *,
    kind: str,
    out_file: Path | str,
    script: str = "the script",
    service: Need | None = None,
) -> DistributedResult:
    """Writes `out_file`, a module with `dataset_fn`, and its companion files, if running it proves it correct.

    If the pipeline cannot be expressed as such a module, or running it shows that an element is missing or duplicated,
    nothing is written: `module` is empty and the first note says why.

    Args:
        source: the user's live pipeline.
        tuned: the same pipeline with the plan's edits.
        kind: one of `standalone_kinds.names()`.
        out_file: the file to write; an existing one is removed first.
        script: the name of the user's script, for the header.
        service: called if the module is for a tf.data service; None if nothing was measured.

    Raises:
        PipetuneError: a file cannot be written.
    """
    path, script = Path(out_file), Path(script).name
    path.unlink(missing_ok=True)  # from an earlier run
    try:
        chosen = standalone_kinds.find(kind)
        standalone_tfds.refuse(tuned, kind)
        tuned = chosen.prepare(tuned)
        refuse_all(lambda: chosen.refuse(tuned), *_shapes(chosen, source, tuned))
        found = standalone_parts.collect(source, tuned)
        weighed, need = _weigh(chosen, source, tuned, service)
        written = emit_standalone(found.parts, kind, script=script, batch_bytes=weighed)
        counted = proving.count(chosen, written, source, tuned, parameter=found.parameter)
    except (CannotExpress, CannotReplay) as error:
        return DistributedResult(kind, "", "", notes=tuple(filter(None, (error.message, error.hint))))
    checks, covered = counted.rows, counted.coverage
    wrong = saying.wrong_in_one(checks)
    if wrong:
        return DistributedResult(kind, "", "", notes=(wrong, *written.notes), checks=checks, coverage=covered)
    order, no_index = proving.order(chosen, written, tuned, checks, parameter=found.parameter)
    full, no_fill = proving.full(written, checks, tuned, parameter=found.parameter)
    written = emit_standalone(
        found.parts,
        kind,
        script=script,
        checked=" ".join(filter(None, (saying.checked(chosen, checks), order, full))),
        epoch_batches=proving.epoch_batches(checks, tuned, written.batch_size),
        batch_bytes=weighed,
        need=need,
        no_index=no_index,
        no_fill=no_fill,
    )
    write_text(path, written.text)
    for name, text in written.companions:
        write_text(path.with_name(name), text)
    guarantee = (written.guarantee,) if written.guarantee else ()
    return DistributedResult(
        kind,
        written.text,
        str(path),
        notes=(*guarantee, *written.notes, *saying.notes(chosen, checks), *filter(None, (order, full))),
        checks=checks,
        companions=tuple(str(path.with_name(name)) for name, _ in written.companions),
        coverage=covered,
        advice=(*(recommendation(need) if need is not None else ()), *saying.spec(checks)),
        service=need,
    )


def _shapes(kind: Kind, source: LivePipeline, tuned: Pipeline) -> list[Callable[[], None]]:
    """The check that all shapes are static, for kinds that require it."""
    return [lambda: static_shapes.check_static(source, tuned)] if kind.static_shapes else []


def _weigh(
    kind: Kind, source: LivePipeline, tuned: Pipeline, service: Need | None
) -> tuple[BatchBytes | None, ServiceNeed | None]:
    """The size of a batch sent to another process, and whether a service helps; None for kinds without a service."""
    if kind.delivery is not Delivery.SERVICE:
        return None, None
    weighed = batch_bytes.weigh(source, tuned)
    packed = weighed.packed if weighed is not None else None
    packing = weighed.raw / packed if weighed is not None and packed else None
    return weighed, service(packing) if service is not None else None

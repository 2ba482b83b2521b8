"""Writes the distributed module of a tuned pipeline, if running it proves it correct."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.distribution import DeliveryMode, ElementBytes, ModuleCheck
from pipetune.core.errors import CannotExpress, CannotReplay
from pipetune.core.files import write_text
from pipetune.core.measurement import joined
from pipetune.core.pipeline import Pipeline
from pipetune.core.results import ServiceNeed
from pipetune.core.session import DistributedResult
from pipetune.distributed.collect import parts
from pipetune.distributed.emit import kinds
from pipetune.distributed.emit.kind import Kind, Known, Standalone
from pipetune.distributed.emit.sharding import BATCHES, clause, refuse_all, refuse_tfds
from pipetune.distributed.verify import batch_checks, coverage
from pipetune.distributed.verify.counting import Counted
from pipetune.model.sizing import recommendation
from pipetune.pipelines.live import LivePipeline

AssessService = Callable[[float | None], ServiceNeed]
"""Determines whether a service helps, given the compression ratio of its elements; None if that is unknown."""

Checks = tuple[ModuleCheck, ...]
"""Results of running a module with several numbers of workers."""


def distribute(
    source: LivePipeline,
    tuned: Pipeline,
    *,
    kind: str,
    out_file: Path | str,
    script: str = "the script",
    service: AssessService | None = None,
) -> DistributedResult:
    """Writes `out_file`, a module with `dataset_fn`, and its companion files, if running it proves that it is correct.

    If the pipeline cannot be expressed as such a module, or running it shows that an element is missing or duplicated,
    nothing is written: `module` is empty and the first note says why.

    Args:
        source: the user's live pipeline.
        tuned: the same pipeline with the plan's edits.
        kind: one of `kinds.names()`.
        out_file: the file to write; an existing one is removed first.
        script: the name of the user's script, for the header.
        service: called if the module is for a tf.data service; None if nothing was measured.

    Returns:
        The text of the module, the checks, and notes for the user.

    Raises:
        PipetuneError: a file cannot be written.
    """
    path, script = Path(out_file), Path(script).name
    path.unlink(missing_ok=True)  # from an earlier run
    try:
        chosen = kinds.find(kind)
        refuse_tfds(tuned, kind)
        tuned = chosen.prepare(tuned)
        looks = [lambda: chosen.refuse(tuned)]
        if chosen.static_shapes:
            looks.append(lambda: batch_checks.check_static(source, tuned))
        refuse_all(*looks)
        collected, parameter = parts.collect(source, tuned)
        weighed, need = _measure_batch_bytes(chosen, source, tuned, service)
        known = Known(script, batch_bytes=weighed, tensorflow=tf.__version__, notes=_live_notes(chosen, source, tuned))
        written = chosen.emit(collected, known)
        counted = count_deliveries(chosen, written, source, tuned, parameter=parameter)
    except (CannotExpress, CannotReplay) as error:
        return DistributedResult(kind, "", "", notes=tuple(filter(None, (error.message, error.hint))))
    checks, covered = counted.checks, counted.coverage
    wrong = next((check for check in checks if check.missing or check.duplicated), None)
    if wrong is not None:
        why = (
            f"With {wrong.workers} workers, {wrong.missing} elements were missing "
            f"and {wrong.duplicated} were duplicated."
        )
        return DistributedResult(kind, "", "", notes=(why, *written.notes), checks=checks, coverage=covered)
    order, no_index = _outcome(lambda: _check_index_order(chosen, written, tuned, checks, parameter))
    full, no_fill = _outcome(lambda: _check_filled_batches(written, checks, tuned, parameter))
    delivered = _delivery_description(chosen, checks, tuned)
    same = "Its functions and its element_spec are those of the tuned pipeline."
    known = replace(
        known,
        checked=" ".join(filter(None, (delivered, same, order, full))),
        epoch_batches=_epoch_batches(checks, tuned, written.batch_size),
        need=need,
        no_index=no_index,
        no_fill=no_fill,
    )
    written = chosen.emit(collected, known)
    write_text(path, written.text)
    for name, text in written.companions:
        write_text(path.with_name(name), text)
    guarantee = (written.guarantee,) if written.guarantee else ()
    return DistributedResult(
        kind,
        written.text,
        str(path),
        notes=(*guarantee, *written.notes, *_notes(chosen, checks, written, tuned), *filter(None, (order, full))),
        checks=checks,
        companions=tuple(str(path.with_name(name)) for name, _ in written.companions),
        coverage=covered,
        advice=(*(recommendation(need) if need is not None else ()), *checks[0].spec),
        service=need,
    )


def _live_notes(kind: Kind, source: LivePipeline, tuned: Pipeline) -> tuple[str, ...]:
    """Returns notes on what differs from the pipeline on one machine by what only live objects show."""
    notes = list(batch_checks.mixing_maps(source, tuned)) if kind.delivery is DeliveryMode.PARTS else []
    seed = tensorflow_private.global_seed()
    functions = [node.function for node in tuned if node.function is not None]
    if seed is not None and any(function.random and function.seeded for function in functions):
        notes.append(
            f"random functions follow the global seed: call tf.random.set_seed({seed}) first, as the script does"
        )
    return tuple(notes)


def _measure_batch_bytes(
    kind: Kind, source: LivePipeline, tuned: Pipeline, service: AssessService | None
) -> tuple[ElementBytes | None, ServiceNeed | None]:
    """Returns the size of a batch sent to another process and the need for a service; None without a service."""
    if kind.delivery is not DeliveryMode.SERVICE:
        return None, None
    weighed = batch_checks.weigh(source, tuned)
    packed = weighed.packed if weighed is not None else None
    packing = weighed.raw / packed if weighed is not None and packed else None
    return weighed, service(packing) if service is not None else None


def count_deliveries(
    kind: Kind, module: Standalone, source: LivePipeline, tuned: Pipeline, *, parameter: object
) -> Counted:
    """Returns what the workers receive, for several numbers of workers, by running the module in this process.

    Arguments and errors are those of `coverage.count` and `coverage.check_service`.
    """
    if kind.delivery is DeliveryMode.SERVICE:
        return coverage.check_service(module, source, tuned, parameter=parameter)
    return coverage.count(kind, module, source, tuned, parameter=parameter)


def _outcome(check: Callable[[], str]) -> tuple[str, str]:
    """Returns a sentence on running a variant of a module, or "", and why the variant is left out, or ""."""
    try:
        return check(), ""
    except CannotExpress as error:
        return "", clause(error)


def _check_index_order(kind: Kind, module: Standalone, tuned: Pipeline, checks: Checks, parameter: object) -> str:
    if not module.indexed:
        return ""
    return coverage.check_order(
        module.text,
        tuned=tuned,
        delivery=kind.delivery,
        parameter=parameter,
        global_batch_size=module.global_batch_size,
        epoch_batches=_epoch_batches(checks, tuned, module.batch_size, every_row=True),
    )


def _check_filled_batches(module: Standalone, checks: Checks, tuned: Pipeline, parameter: object) -> str:
    if not module.fills or module.global_batch_size is None:
        return ""
    ends = not any(node.op == "repeat" for node in tuned)
    elements = checks[0].elements if ends and checks[0].filled is not None else None
    rows = module.global_batch_size
    return coverage.check_fill(module.text, global_batch_size=rows, elements=elements, parameter=parameter)


def _epoch_batches(checks: Checks, tuned: Pipeline, batch_size: int | None, *, every_row: bool = False) -> int | None:
    """Returns the number of batches that contain all of the data once; None if elements were not counted.

    With `every_row` an incomplete last batch is counted even if `drop_remainder` drops it.
    """
    first = checks[0]
    if first.counted != "elements" or first.batches_per_worker is None or first.elements is None:
        return None
    drops = not every_row and any(node.argument("drop_remainder") for node in tuned if node.op in BATCHES)
    size = batch_size or 1
    return first.elements // size if drops else math.ceil(first.elements / size)


def _delivery_description(kind: Kind, checks: Checks, tuned: Pipeline) -> str:
    """Returns sentences on what was delivered when the module was run, for its header."""
    workers = ", ".join(str(check.workers) for check in checks)
    first = checks[0]
    how = f"by running it in one process as {workers} {'ranks' if kind.delivery is DeliveryMode.RANKS else 'workers'}"
    if kind.delivery is DeliveryMode.SERVICE:
        how = f"by running a service with {workers} workers on one machine"
    if first.missing is None:
        return f"Checked {how}; the delivered elements were not counted. {first.why}"
    unseen = batch_checks.uncounted(tuned) if first.counted == "elements" else ()
    apart = f" What {' and '.join(unseen)} leaves out was not counted." if unseen else ""
    if first.everything:
        what = "files" if first.counted == "files" else "elements"
        return f"Checked {how}: each delivered all {first.elements} {what}, every one once per epoch.{apart}"
    counted = {
        "elements": f"all {first.elements} elements were delivered, each once per epoch",
        "files": f"each of the {first.elements} files was read by one worker",
    }.get(first.counted, f"the first {first.elements} elements were delivered, each once")
    return f"Checked {how}: {counted}.{apart}"


def _notes(kind: Kind, checks: Checks, module: Standalone, tuned: Pipeline) -> list[str]:
    """Returns the notes for the user on incomplete last batches, uneven batches, and what could not be counted."""
    uneven = [str(check.workers) for check in checks if check.equal_batches is False]
    found: list[str] = []
    known = [check for check in checks if check.filled is not None]
    if known:
        columns = zip(*((check.workers, check.dropped, check.filled) for check in known), strict=True)
        numbers, dropped, filled = (joined([f"{value:,}" for value in column]) for column in columns)
        set_there = any(node.argument("drop_remainder") for node in tuned if node.op in BATCHES)
        drops = "drops" if set_there else "would drop"
        found.append(
            f"of {known[0].elements:,} samples per epoch, drop_remainder {drops} {dropped} "
            f"with {numbers} {'replicas' if kind.one_process else 'workers'}"
            + (f"; with fill=True none is dropped and {filled} padding rows are added" if module.fills else "")
        )
    if uneven and kind.delivery is DeliveryMode.PARTS:
        found.append(
            f"with {' or '.join(uneven)} workers, batches of an epoch differ in number or size: repeat the dataset and "
            "set the steps per epoch, or drop the remainder"
        )
    return found + [f"{check.workers} workers: {check.why}" for check in checks if check.why]

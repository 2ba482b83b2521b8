"""The distributed form of a tuned pipeline: written, proved, and only then saved."""

from __future__ import annotations

import math
from pathlib import Path

from pipetune.core.coverage import Coverage
from pipetune.core.errors import CannotExpress, CannotReplay
from pipetune.core.files import write_text
from pipetune.core.pipeline import Pipeline
from pipetune.core.session import DistributedResult
from pipetune.core.standalone import Delivery
from pipetune.core.tfds_reading import readings
from pipetune.source import standalone_kinds
from pipetune.source.standalone import emit_standalone
from pipetune.source.standalone_kind import Kind, Standalone
from pipetune.tf.pipelines.live import LivePipeline
from pipetune.tf.standalone import (
    batch_bytes,
    coverage,
    processes,
    service_coverage,
    service_processes,
    standalone_parts,
    static_shapes,
)
from pipetune.tf.standalone.coverage import Counted
from pipetune.tf.standalone.processes import NotRun

Checks = tuple[dict[str, object], ...]

_BATCHES = frozenset({"batch", "padded_batch"})
_STEPS = 100  # that real processes take of data without end, where an epoch of it was not counted


def distribute(
    source: LivePipeline,
    tuned: Pipeline,
    *,
    kind: str,
    out_file: Path | str,
    script: str = "the script",
    in_processes: bool = False,
) -> DistributedResult:
    """Writes `out_file`, a module with `dataset_fn`, and what belongs beside it, if running it proves it right.

    Where the pipeline has no such form, or running it shows an element missing or twice, nothing is written:
    `module` is empty and the first note says why.

    Args:
        source: the live pipeline of the user.
        tuned: the same pipeline with the plan's edits.
        kind: one of `standalone_kinds.names()`.
        script: the name of the user's script, for the header.
        in_processes: run it as several real processes too, where it is meant for such; takes some ten seconds.

    Raises:
        PipetuneError: a file cannot be written.
    """
    path, script = Path(out_file), Path(script).name
    path.unlink(missing_ok=True)  # of an earlier run
    try:
        chosen = standalone_kinds.find(kind)
        _refuse_tfds(tuned)
        tuned = chosen.prepare(tuned)
        if chosen.static_shapes:
            static_shapes.check_static(source, tuned)
        found = standalone_parts.collect(source, tuned)
        weighed = batch_bytes.weigh(source, tuned) if chosen.delivery is Delivery.SERVICE else None
        written = emit_standalone(found.parts, kind, script=script, batch_bytes=weighed)
        counted = _count(chosen, written, source, tuned, parameter=found.parameter)
    except (CannotExpress, CannotReplay) as error:
        return DistributedResult(kind, "", "", notes=tuple(filter(None, (error.message, error.hint))))
    checks, covered = counted.rows, counted.coverage
    wrong = [check for check in checks if check["missing"] or check["duplicated"]]
    if wrong:
        reason = (
            f"Not written: with {wrong[0]['workers']} workers {wrong[0]['missing']} elements were missing "
            f"and {wrong[0]['duplicated']} came twice."
        )
        return DistributedResult(kind, "", "", notes=(reason, *written.notes), checks=checks, coverage=covered)
    written = emit_standalone(
        found.parts,
        kind,
        script=script,
        checked=_checked(chosen, checks),
        epoch_batches=_epoch_batches(checks, tuned, written.batch_size),
        batch_bytes=weighed,
    )
    ran, why = None, ""
    if in_processes:
        ran, why = _in_processes(chosen, written, counted, tuned, parameter=found.parameter)
    if ran is not None and not ran.complete:
        reason = (
            f"Not written: run as {ran.servers or len(ran.workers)} processes {ran.never} elements were missing and "
            f"{ran.repeated} came more than once."
        )
        return DistributedResult(
            kind, "", "", notes=(reason, *written.notes), checks=checks, coverage=covered, processes=ran
        )
    write_text(path, written.text)
    for name, text in written.companions:
        write_text(path.with_name(name), text)
    notes = (*written.notes, *_notes(chosen, checks))
    companions = tuple(str(path.with_name(name)) for name, _ in written.companions)
    return DistributedResult(
        kind,
        written.text,
        str(path),
        notes=notes,
        checks=checks,
        companions=companions,
        coverage=covered,
        processes=ran,
        processes_why=why,
    )


def _refuse_tfds(tuned: Pipeline) -> None:
    """Refuses what TensorFlow Datasets reads: its own call divides the files.

    Raises:
        CannotExpress: with how that is said in the script.
    """
    for reading in readings(tuned):
        already = " It is given an input_context already." if reading.shard is not None else ""
        raise CannotExpress(
            f"{reading.call} ({reading.location}) reads the data: a module would have to read it without the library."
            + already,
            hint=f"Let each worker call {reading.call}(..., read_config=tfds.ReadConfig(input_context=input_context)) "
            "in the function given to distribute_datasets_from_function: it reads files of its own then.",
        )


def _count(
    kind: Kind, written: Standalone, source: LivePipeline, tuned: Pipeline, *, parameter: object
) -> Counted:
    if kind.delivery is Delivery.SERVICE:
        return service_coverage.check_service(
            written.text,
            source,
            tuned=tuned,
            splits=written.splits,
            parameter=parameter,
            batch_size=written.batch_size,
        )
    return coverage.count(
        written.text,
        source,
        tuned=tuned,
        parameter=parameter,
        shard_by=written.shard_by,
        global_batch_size=written.global_batch_size,
        batch_size=written.batch_size,
        delivery=kind.delivery,
    )


def _in_processes(
    kind: Kind, written: Standalone, counted: Counted, tuned: Pipeline, *, parameter: object
) -> tuple[Coverage | None, str]:
    """What the module gives to real processes; None, and the reason, where none ran."""
    wanted = counted.wanted
    if not kind.in_processes or wanted is None:
        return None, ""
    batches = counted.rows[0].get("batches_per_worker")
    most_steps = None
    if any(node.op == "repeat" for node in tuned):  # one epoch of it
        most_steps = max(batches) if isinstance(batches, list) else _STEPS
    try:
        if kind.delivery is Delivery.SERVICE:
            return service_processes.run(
                written.text,
                dict(written.companions)["serve.py"],
                wanted,
                splits=written.splits,
                parameter=parameter,
                full_batch=written.batch_size or 1,
                most_steps=most_steps,
            ), ""
        each = counted.rows[0].get("per_replica_batch")
        return processes.run(
            written.text,
            wanted,
            delivery=kind.delivery,
            parameter=parameter,
            global_batch_size=written.global_batch_size,
            full_batch=each if isinstance(each, int) else written.batch_size or 1,
            most_steps=most_steps,
        ), ""
    except (NotRun, CannotExpress, CannotReplay) as error:
        return None, error.message


def _epoch_batches(checks: Checks, tuned: Pipeline, batch_size: int | None) -> int | None:
    """Batches in which all of the data comes once, where that was counted."""
    first = checks[0]
    elements = first["elements"]
    if first.get("counted") != "elements" or first.get("batches_per_worker") is None or not isinstance(elements, int):
        return None
    drops = any(node.argument("drop_remainder") for node in tuned if node.op in _BATCHES)
    size = batch_size or 1
    return elements // size if drops else math.ceil(elements / size)


def _checked(kind: Kind, checks: Checks) -> str:
    """What was checked, for the header."""
    return f"{_counting(kind, checks)} Its functions and its element_spec are those of the tuned pipeline."


def _counting(kind: Kind, checks: Checks) -> str:
    workers = ", ".join(str(check["workers"]) for check in checks)
    first = checks[0]
    how = f"by running it in one process as {workers} {'ranks' if kind.delivery is Delivery.RANKS else 'workers'}"
    if kind.delivery is Delivery.SERVICE:
        how = f"by running a service with {workers} workers on one machine"
    if first["missing"] is None:
        return f"Checked {how}; which elements come was not counted. {first['why']}"
    if first["each"] == "everything":
        return f"Checked {how}: each gave {_counted(first)}, every one once per epoch."
    counted = {
        "elements": f"all {first['elements']} elements came, each once per epoch",
        "files": f"each of the {first['elements']} files was read by one worker",
    }.get(str(first["counted"]), f"the first {first['elements']} elements came, each once")
    return f"Checked {how}: {counted}."


def _counted(check: dict[str, object]) -> str:
    return f"all {check['elements']} {'files' if check['counted'] == 'files' else 'elements'}"


def _notes(kind: Kind, checks: Checks) -> list[str]:
    uneven = [str(check["workers"]) for check in checks if check["equal_batches"] is False]
    found = []
    if uneven and kind.delivery is Delivery.PARTS:
        found.append(
            f"with {' or '.join(uneven)} workers the batches of an epoch are not equal: repeat and fix the "
            "steps per epoch, or drop the remainder"
        )
    if any(check.get("why") for check in checks):
        found += [f"{check['workers']} workers: {check['why']}" for check in checks if check.get("why")]
    return found

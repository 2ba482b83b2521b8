"""The distributed form of a tuned pipeline: written, proved, and only then saved."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from pipetune.core.errors import CannotExpress, CannotReplay
from pipetune.core.files import write_text
from pipetune.core.pipeline import Pipeline
from pipetune.core.service import ServiceNeed
from pipetune.core.session import DistributedResult
from pipetune.core.standalone import BatchBytes, Delivery
from pipetune.model.service import recommendation
from pipetune.source import standalone_kinds
from pipetune.source.standalone import emit_standalone
from pipetune.source.standalone_kind import Kind, Standalone
from pipetune.tf.pipelines.live import LivePipeline
from pipetune.tf.standalone import (
    batch_bytes,
    coverage,
    fill_coverage,
    index_coverage,
    service_coverage,
    standalone_parts,
    static_shapes,
)

Checks = tuple[dict[str, object], ...]
Need = Callable[[float | None], ServiceNeed]
"""Whether a service helps, for how many times smaller its elements get once packed; None where that is not known."""

_BATCHES = frozenset({"batch", "padded_batch"})


def distribute(
    source: LivePipeline,
    tuned: Pipeline,
    *,
    kind: str,
    out_file: Path | str,
    script: str = "the script",
    service: Need | None = None,
) -> DistributedResult:
    """Writes `out_file`, a module with `dataset_fn`, and what belongs beside it, if running it proves it right.

    Where the pipeline has no such form, or running it shows an element missing or twice, nothing is written:
    `module` is empty and the first note says why.

    Args:
        source: the live pipeline of the user.
        tuned: the same pipeline with the plan's edits.
        kind: one of `standalone_kinds.names()`.
        script: the name of the user's script, for the header.
        service: asked where a service is what is to be written; None: nothing was measured.

    Raises:
        PipetuneError: a file cannot be written.
    """
    path, script = Path(out_file), Path(script).name
    path.unlink(missing_ok=True)  # of an earlier run
    try:
        chosen = standalone_kinds.find(kind)
        tuned = chosen.prepare(tuned)
        if chosen.static_shapes:
            static_shapes.check_static(source, tuned)
        found = standalone_parts.collect(source, tuned)
        weighed, need = _weigh(chosen, source, tuned, service)
        written = emit_standalone(found.parts, kind, script=script, batch_bytes=weighed)
        checks = _check(chosen, written, source, tuned, parameter=found.parameter)
    except (CannotExpress, CannotReplay) as error:
        return DistributedResult(kind, "", "", notes=tuple(filter(None, (error.message, error.hint))))
    wrong = [check for check in checks if check["missing"] or check["duplicated"]]
    if wrong:
        reason = (
            f"Not written: with {wrong[0]['workers']} workers {wrong[0]['missing']} elements were missing "
            f"and {wrong[0]['duplicated']} came twice."
        )
        return DistributedResult(kind, "", "", notes=(reason, *written.notes), checks=checks)
    epoch_batches = _epoch_batches(checks, tuned, written.batch_size)
    order, no_index = _order(chosen, written, tuned, checks, parameter=found.parameter)
    full, no_fill = _full(written, checks, tuned, parameter=found.parameter)
    written = emit_standalone(
        found.parts,
        kind,
        script=script,
        checked=" ".join(filter(None, (_checked(chosen, checks), order, full))),
        epoch_batches=epoch_batches,
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
        notes=(*guarantee, *written.notes, *_notes(chosen, checks), *filter(None, (order, full))),
        checks=checks,
        companions=tuple(str(path.with_name(name)) for name, _ in written.companions),
        advice=(*(recommendation(need) if need is not None else ()), *_spec(checks)),
        service=need,
    )


def _weigh(
    kind: Kind, source: LivePipeline, tuned: Pipeline, service: Need | None
) -> tuple[BatchBytes | None, ServiceNeed | None]:
    """What a batch weighs on its way to another process, and whether it should be sent at all."""
    if kind.delivery is not Delivery.SERVICE:
        return None, None
    weighed = batch_bytes.weigh(source, tuned)
    packed = weighed.packed if weighed is not None else None
    packing = weighed.raw / packed if weighed is not None and packed else None
    return weighed, service(packing) if service is not None else None


def _check(
    kind: Kind, written: Standalone, source: LivePipeline, tuned: Pipeline, *, parameter: object
) -> Checks:
    if kind.delivery is Delivery.SERVICE:
        return service_coverage.check_service(
            written.text,
            source,
            tuned=tuned,
            splits=written.splits,
            parameter=parameter,
            batch_size=written.batch_size,
        )
    return coverage.check(
        written.text,
        source,
        tuned=tuned,
        parameter=parameter,
        shard_by=written.shard_by,
        global_batch_size=written.global_batch_size,
        batch_size=written.batch_size,
        delivery=kind.delivery,
        one_process=kind.one_process,
    )


def _full(written: Standalone, checks: Checks, tuned: Pipeline, *, parameter: object) -> tuple[str, str]:
    """What filling last batches showed, a sentence; and why that is to be left out, where it failed."""
    if not written.fills or written.global_batch_size is None:
        return "", ""
    ends = not any(node.op == "repeat" for node in tuned)
    elements = checks[0]["elements"] if ends and checks[0].get("filled") is not None else None
    try:
        return fill_coverage.check_fill(
            written.text,
            global_batch_size=written.global_batch_size,
            elements=elements if isinstance(elements, int) else None,
            parameter=parameter,
        ), ""
    except CannotExpress as error:
        return "", _clause(error)


def _order(
    kind: Kind, written: Standalone, tuned: Pipeline, checks: Checks, *, parameter: object
) -> tuple[str, str]:
    """What running the form with indices showed, a sentence; and why it is to be left out, where it failed."""
    if not written.indexed:
        return "", ""
    try:
        return index_coverage.check_order(
            written.text,
            tuned=tuned,
            delivery=kind.delivery,
            parameter=parameter,
            global_batch_size=written.global_batch_size,
            epoch_batches=_epoch_batches(checks, tuned, written.batch_size, every_row=True),
        ), ""
    except CannotExpress as error:
        return "", _clause(error)


def _clause(error: CannotExpress) -> str:
    """A reason as part of a sentence."""
    return error.message[0].lower() + error.message[1:].rstrip(".")


def _epoch_batches(
    checks: Checks, tuned: Pipeline, batch_size: int | None, *, every_row: bool = False
) -> int | None:
    """Batches in which all of the data comes once, where that was counted; `every_row` also of a batch not full."""
    first = checks[0]
    elements = first["elements"]
    if first.get("counted") != "elements" or first.get("batches_per_worker") is None or not isinstance(elements, int):
        return None
    drops = not every_row and any(node.argument("drop_remainder") for node in tuned if node.op in _BATCHES)
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


def _remainders(kind: Kind, checks: Checks) -> list[str]:
    """What a last batch costs that is not full, for every number of workers it was counted for."""
    known = [check for check in checks if check.get("filled") is not None]
    if not known:
        return []
    who = "replicas" if kind.one_process else "workers"
    numbers, dropped, filled = (
        _joined([f"{check[key]:,}" for check in known]) for key in ("workers", "dropped", "filled")
    )
    return [
        f"of {known[0]['elements']:,} samples in an epoch drop_remainder leaves out {dropped} with {numbers} {who}; "
        f"with fill=True none is left out and {filled} rows only fill"
    ]


def _joined(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _spec(checks: Checks) -> list[str]:
    """What the module's element_spec says otherwise than the script's, with the fewest workers it was run as."""
    told = checks[0].get("spec")
    return [str(line) for line in told] if isinstance(told, list) else []


def _notes(kind: Kind, checks: Checks) -> list[str]:
    uneven = [str(check["workers"]) for check in checks if check["equal_batches"] is False]
    found = _remainders(kind, checks)
    if uneven and kind.delivery is Delivery.PARTS:
        found.append(
            f"with {' or '.join(uneven)} workers the batches of an epoch are not equal: repeat and fix the "
            "steps per epoch, or drop the remainder"
        )
    if any(check.get("why") for check in checks):
        found += [f"{check['workers']} workers: {check['why']}" for check in checks if check.get("why")]
    return found

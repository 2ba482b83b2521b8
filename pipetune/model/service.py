"""Whether a tf.data service pays off for a training process: compares the local input rate with the model's own rate.

A service adds the cost of sending every element, so that it can only help if the machine that trains cannot feed
itself. The number of workers comes from `model.sizing`, for a job of one replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from pipetune.core.editing import apply_edits
from pipetune.core.edits import Remove
from pipetune.core.machine import Machine
from pipetune.core.pipeline import Pipeline
from pipetune.core.service import ServiceNeed
from pipetune.core.session import DatasetResult
from pipetune.core.sizing import Job, Quantity
from pipetune.model.sizing import size


def service_need(
    result: DatasetResult, machine: Machine, *, step_seconds: float | None = None, packing: float | None = None
) -> ServiceNeed:
    """What the measured training process would need from a service.

    Args:
        result: the dataset that it trains on.
        machine: the machine it was measured on; a worker is assumed to be the same.
        step_seconds: duration of a step; None for the measured step of the model alone.
        packing: compression ratio of the elements; None if not measured.
    """
    cores, profile = machine.cores_granted, result.profile
    step = step_seconds or (profile.consumer.bound_seconds if profile is not None else None)
    if profile is None or not step:
        return ServiceNeed(worker_cores=cores, why="how long training takes for a step was not measured")
    job = Job(1, 1, step, profile.examples_per_element, cores, cores, compression=packing)
    here = size(result, machine, job)
    there = size(_without_caches(result), machine, job).feed
    missing = here.feed.why or "how fast the input is was not measured"
    return ServiceNeed(
        step_rate=job.rate,
        local_rate=here.feed.host_rate,
        workers=there.service_workers,
        worker_cores=cores,
        bytes_per_second=here.service_bytes_per_second,
        packed_bytes_per_second=here.service_bytes_compressed,
        shares_processors=machine.device == "cpu" and step_seconds is None,
        why=missing if here.feed.host_rate is None else "",
    )


def recommendation(need: ServiceNeed) -> Iterator[str]:
    """Yields sentences: whether a service helps, with how many workers, and how much they send."""
    if need.step_rate is None or need.local_rate is None:
        yield f"Whether a tf.data service helps is not known: {need.why}."
    else:
        both = (
            f"training takes {_figure(need.step_rate)} examples/s at most, and the input alone delivers "
            f"{_range(need.local_rate, _figure)}/s on {_machine(need.worker_cores)}"
        )
        shared = ", the same that train" if need.shares_processors else ""
        match need.recommended:
            case False:
                yield f"A tf.data service is not recommended: {both}{shared}. Sending batches would only cost more."
            case True:
                yield f"A tf.data service helps: {both}{shared}."
            case None:
                yield f"Whether a tf.data service helps is open: {both}{shared}."
    if need.workers is not None and need.recommended is not False:
        yield (
            f"{_workers(need.workers)} of {_machine(need.worker_cores)} would deliver what training takes, by the "
            f"{need.workers.basis.value} rate of one; what sending costs comes on top, on both sides."
        )
    elif need.recommended:
        yield "How many workers it takes is not known: what one delivers without a cache was not measured."
    if need.bytes_per_second is not None and need.recommended is not False:
        packed = need.packed_bytes_per_second
        smaller = f", {_range(packed, _speed)} packed" if packed is not None else ""
        yield f"Into the training process come {_range(need.bytes_per_second, _speed)}{smaller}."


def _without_caches(result: DatasetResult) -> DatasetResult:
    """The dataset as workers run it, without caches: each pass over the data is a new task with an empty cache."""
    written, tuned, rates = result.pipeline, result.tuned, dict(result.rates)
    for pipeline, rate in ((written, "defaults"), (tuned, "tuned")):
        if pipeline is not None and _caches(pipeline):
            rates.pop(rate, None)  # it was measured with the caches
    return replace(
        result,
        pipeline=apply_edits(written, _caches(written)),
        tuned=apply_edits(tuned, _caches(tuned)) if tuned is not None else None,
        rates=rates,
    )


def _caches(pipeline: Pipeline) -> list[Remove]:
    return [Remove(node.id) for node in pipeline if node.op == "cache"]


def _machine(cores: float) -> str:
    return f"{cores:g} core" if cores == 1 else f"{cores:g} cores"


def _workers(workers: Quantity) -> str:
    text = _range(workers, lambda number: f"{number:,.0f}")
    return f"{text} worker{'' if text == '1' else 's'}"


def _range(quantity: Quantity, form: Callable[[float], str]) -> str:
    low, high = form(quantity.low), form(quantity.high)
    return low if low == high else f"{low} to {high}"


def _figure(value: float) -> str:
    """Formats with three significant digits: 12.3, 1,230."""
    return f"{value:,.3g}" if value < 1000 else f"{float(f'{value:.3g}'):,.0f}"


def _speed(bytes_per_second: float) -> str:
    for unit, divisor in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if bytes_per_second >= divisor:
            return f"{bytes_per_second / divisor:.3g} {unit}"
    return f"{bytes_per_second:.3g} B/s"

"""Whether a tf.data service pays off for a training process, and what storing its output would take instead.

A service adds the cost of sending every element, so it can only help if the machine that trains cannot feed
itself. The number of workers comes from `model.sizing`, for a job of one replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from pipetune.core.edits import Remove, apply_edits
from pipetune.core.machine import Machine
from pipetune.core.pipeline import Pipeline
from pipetune.core.results import ServiceNeed
from pipetune.core.session import DatasetResult
from pipetune.core.sizing import QuantityRange, TrainingJob
from pipetune.model.bottleneck import core_count
from pipetune.model.sizing import compute_sizing


def service_need(
    result: DatasetResult,
    machine: Machine,
    *,
    step_seconds: float | None = None,
    compression_ratio: float | None = None,
) -> ServiceNeed:
    """Returns what the measured training process would need from a service.

    Args:
        result: the dataset that it trains on.
        machine: the machine it was measured on; a worker is assumed to be the same.
        step_seconds: duration of a step; None for the measured step of the model alone.
        compression_ratio: compression ratio of the elements; None if not measured.
    """
    cores, profile = machine.cores_granted, result.profile
    step = step_seconds or (profile.consumer.bound_seconds if profile is not None else None)
    if profile is None or not step:
        return ServiceNeed(worker_cores=cores, why="the training step time was not measured")
    job = TrainingJob(1, 1, step, profile.examples_per_element, cores, cores, compression=compression_ratio)
    here = compute_sizing(result, machine, job)
    there = compute_sizing(_without_caches(result), machine, job).best_requirements
    missing = here.best_requirements.why or "the rate of the input was not measured"
    return ServiceNeed(
        step_rate=job.rate,
        local_rate=here.best_requirements.host_rate,
        workers=there.service_workers,
        worker_cores=cores,
        bytes_per_second=here.service_bytes_per_second,
        packed_bytes_per_second=here.service_bytes_compressed,
        shares_processors=machine.device == "cpu" and step_seconds is None,
        why=missing if here.best_requirements.host_rate is None else "",
    )


def recommendation(need: ServiceNeed) -> Iterator[str]:
    """Yields sentences: whether a service helps, with how many workers, and how much they send."""
    if need.step_rate is None or need.local_rate is None:
        yield f"It is unknown whether a tf.data service helps: {need.why}."
    else:
        both = (
            f"training consumes at most {_format_number(need.step_rate)} examples/s, and the input alone delivers "
            f"{_range(need.local_rate, _format_number)}/s on {core_count(need.worker_cores)}"
        )
        both += ", the same cores that training uses" if need.shares_processors else ""
        match need.recommended:
            case False:
                yield f"A tf.data service is not recommended: {both}. Sending batches would only cost more."
            case True:
                yield f"A tf.data service helps: {both}."
            case None:
                yield f"It is undecided whether a tf.data service helps: {both}."
    if need.workers is not None and need.recommended is not False:
        count = f"{_workers(need.workers)} of {core_count(need.worker_cores)}"
        yield (
            f"{count} would deliver what training consumes, according to the {need.workers.basis.value} rate of one "
            "worker; the cost of sending elements is extra, on both sides."
        )
    elif need.recommended:
        yield "The number of workers needed is unknown: the rate of one worker without a cache was not measured."
    if need.bytes_per_second is not None and need.recommended is not False:
        packed = need.packed_bytes_per_second
        smaller = f", {_range(packed, _speed)} compressed" if packed is not None else ""
        yield f"The training process receives {_range(need.bytes_per_second, _speed)}{smaller}."


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


def _workers(workers: QuantityRange) -> str:
    text = _range(workers, lambda number: f"{number:,.0f}")
    return f"{text} worker{'' if text == '1' else 's'}"


def _range(quantity: QuantityRange, form: Callable[[float], str]) -> str:
    low, high = form(quantity.low), form(quantity.high)
    return low if low == high else f"{low} to {high}"


def _format_number(value: float) -> str:
    """Formats with three significant digits: 12.3, 1,230."""
    return f"{value:.3g}" if value < 999.5 else f"{float(f'{value:.3g}'):,.0f}"


def _speed(bytes_per_second: float) -> str:
    for unit, divisor in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if bytes_per_second >= divisor:
            return f"{_format_number(bytes_per_second / divisor)} {unit}"
    return f"{_format_number(bytes_per_second)} B/s"

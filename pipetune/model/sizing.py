"""What a training job on more machines needs from its input, where it stops scaling, and whether a tf.data service pays
off for it.

A service adds the cost of sending every element, so it can only help if the machine that trains cannot feed
itself. The number of its workers is that of a job of one replica.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pipetune.core import element_counts
from pipetune.core.edits import Remove, apply_edits
from pipetune.core.machine import Machine
from pipetune.core.measurement import Rate
from pipetune.core.operators import CountEffect, operator_facts
from pipetune.core.pipeline import INFINITE, Pipeline
from pipetune.core.profile import Profile
from pipetune.core.results import ServiceNeed
from pipetune.core.session import DatasetResult
from pipetune.core.sizing import (
    PER_HOST_LIMITS,
    FilesNeeded,
    InputRequirements,
    JobSize,
    MissingFigure,
    Origin,
    QuantityRange,
    ReplicaLimit,
    ScalingLimit,
    Sizing,
    TrainingJob,
)
from pipetune.model.bottleneck import core_count
from pipetune.model.memory import by_operator, predicted_peak_bytes
from pipetune.model.segments import upstream_of_cache
from pipetune.model.throughput import ThroughputPrediction, no_prediction_reason, predict, reads_files

_MANY_CORES = 4096
"""Stands for any number of cores; a rate that is about the same with a quarter of them is limited by threads."""

_ALL_BUSY = 0.95
"""Cores are the limit from this share of the rate that all cores allow: AUTOTUNE makes as many calls as cores."""


@dataclass(frozen=True)
class _Variant:
    """One variant of the pipeline with its measurements."""

    name: str  # as `InputRequirements.variant`
    pipeline: Pipeline
    profile: Profile
    rate: Rate | None
    cores: float  # cores of the machine it was measured on

    @property
    def examples_per_element(self) -> float:
        """Examples in an element of the output: those of a batch."""
        return self.profile.examples_per_element

    @property
    def measured_rate(self) -> float | None:
        """Measured examples per second; None if the variant was not run alone."""
        return self.rate.examples_per_second if self.rate is not None else None

    def predict_on(self, cores: float) -> ThroughputPrediction:
        """Returns the predicted rate without a storage bound: the job reads from other storage than this machine."""
        return predict(self.pipeline, self.profile, cores, storage_bytes_per_second=math.inf)


def _feed(variant: _Variant, job: TrainingJob, *, unexplained: float) -> InputRequirements:
    """Returns what `variant` needs to feed `job`; `unexplained` are bytes of the measured peak beyond its buffers."""
    why = no_prediction_reason(variant.pipeline, variant.profile)
    cpu = _cpu_seconds(variant, why)
    here = None if why else variant.predict_on(variant.cores)
    there = None if why else variant.predict_on(job.host_cores)
    rate = _rate(variant, here, job.host_cores)
    most, node = (None, None) if here is None else _highest_rate(variant, here)
    read = _read_bytes(variant)
    return InputRequirements(
        variant=variant.name,
        cpu_seconds=cpu,
        cores=_cores(variant, job, cpu, here),
        host_rate=rate,
        host_limit=_limit(there),
        host_node=None if there is None else there.bottleneck,
        most_rate=most,
        most_node=node,
        replicas_fed=None if rate is None else rate.times(1 / job.replica_rate),
        service_workers=_workers(_rate(variant, here, job.worker_cores), job),
        storage_bytes_per_second=None if read is None else _exactly(read * job.rate),
        memory_bytes=_memory(variant, job, unexplained, rebatched=False),
        memory_bytes_rebatched=_memory(variant, job, unexplained, rebatched=True),
        why=why,
    )


def _exactly(value: float, origin: Origin = Origin.MEASURED) -> QuantityRange:
    return QuantityRange(value, value, origin)


def _limit(there: ThroughputPrediction | None) -> ScalingLimit:
    if there is None:
        return ScalingLimit.INPUT
    return ScalingLimit.CORES if there.rate >= _ALL_BUSY * there.cores_rate else ScalingLimit.THREADS


def _cpu_seconds(variant: _Variant, why: str) -> QuantityRange | None:
    """CPU seconds per example: of the process in measuring windows, and the sum of the profile.

    For the original pipeline both were measured, with full parallelism and with none; for a plan the sum is predicted.
    """
    window = variant.rate.cpu_us_per_example if variant.rate is not None else None
    found = [window * 1e-6] if window else []
    whole = variant.profile.input_cpu_seconds
    if variant.name == "current" and whole:
        found.append(whole / variant.examples_per_element)
    elif not why:
        found.append(variant.predict_on(1).cpu_seconds / variant.examples_per_element)
    if not found or max(found) <= 0:
        return None
    measured = bool(window) or variant.name == "current"
    note = "the process with its threads busy, and one after another" if len(found) == 2 and measured else ""
    return QuantityRange(min(found), max(found), Origin.MEASURED if measured else Origin.PREDICTED, note)


def _rate(variant: _Variant, here: ThroughputPrediction | None, cores: float) -> QuantityRange | None:
    """Examples per second on `cores` cores: measured if the measured machine has as many. Else the range from the
    prediction to the prediction corrected by its error on the measured machine.
    """
    if cores == variant.cores and variant.measured_rate:
        return _exactly(variant.measured_rate)
    if here is None:
        return None
    predicted = variant.predict_on(cores).rate
    return None if predicted == math.inf else _with_error(predicted, variant, here)


def _with_error(predicted: float, variant: _Variant, here: ThroughputPrediction) -> QuantityRange:
    """A predicted rate in elements, as the range of examples that the error on the measured machine leaves open."""
    rate, rate_here = predicted * variant.examples_per_element, here.rate * variant.examples_per_element
    off = variant.measured_rate / rate_here if variant.measured_rate and 0 < rate_here < math.inf else 1.0
    return QuantityRange(rate * min(1.0, off), rate * max(1.0, off), Origin.PREDICTED)


def _highest_rate(variant: _Variant, here: ThroughputPrediction) -> tuple[QuantityRange | None, str | None]:
    """The highest rate with any number of cores, and the operator that limits it; None if more cores always help."""
    many = variant.predict_on(_MANY_CORES)
    if many.rate == math.inf or variant.predict_on(_MANY_CORES / 4).rate < 0.9 * many.rate:
        return None, None
    return _with_error(many.rate, variant, here), many.bottleneck


def _cores(
    variant: _Variant, job: TrainingJob, cpu: QuantityRange | None, here: ThroughputPrediction | None
) -> QuantityRange | None:
    """Cores needed on one host: at least those that are fully busy, at most as many as at the utilization measured."""
    if cpu is None:
        return None
    low, high = job.host_rate * cpu.low, job.host_rate * cpu.high
    if variant.measured_rate and _limit(here) is ScalingLimit.CORES:
        high = max(high, job.host_rate * variant.cores / variant.measured_rate)
    return QuantityRange(low, high, cpu.basis)


def _workers(rate: QuantityRange | None, job: TrainingJob) -> QuantityRange | None:
    """Number of tf.data service workers, each running the whole pipeline; the cost of sending elements is excluded."""
    if rate is None:
        return None
    return QuantityRange(math.ceil(job.rate / rate.high), math.ceil(job.rate / rate.low), rate.basis)


def _read_bytes(variant: _Variant) -> float | None:
    """Bytes read from files per example once in-memory caches are filled; None if unknown."""
    if _has_cache_file(variant.pipeline):
        return None
    still = upstream_of_cache(variant.pipeline) | variant.pipeline.row_index_operators
    if not any(node.id not in still and reads_files(node) for node in variant.pipeline):
        return 0.0
    read = variant.profile.files.bytes_per_element if variant.profile.files is not None else None
    return None if read is None else read / variant.examples_per_element


def _has_cache_file(pipeline: Pipeline) -> bool:
    return any(node.op == "cache" and node.argument("filename") for node in pipeline)


def _memory(variant: _Variant, job: TrainingJob, unexplained: float, *, rebatched: bool) -> QuantityRange | None:
    """Bytes above the process's baseline on a host that builds a batch per replica; None if element sizes are unknown.

    The range goes from the bytes of the buffers to these plus `unexplained` bytes. An in-memory cache holds at least
    the host's share of the files, and at most everything. With `rebatched` every host builds and splits global batches
    instead; then it is None also for a pipeline without a batch.
    """
    pipeline, growing = variant.pipeline, _batch_dependent(variant.pipeline)
    if variant.profile.element_bytes is None or (rebatched and not growing):
        return None
    grown = job.batch_examples * (job.replicas if rebatched else 1) / variant.examples_per_element
    buffered = by_operator(pipeline, variant.profile, cores=job.host_cores)
    held = {name: size * grown if name in growing else size for name, size in buffered.items()}
    prefetched = (2 if rebatched else 1) * job.replicas_on_full_host
    ahead = prefetched * variant.profile.element_bytes * job.batch_examples / variant.examples_per_element
    cached = sum(held[node.id] for node in pipeline if node.op == "cache")
    most = sum(held.values()) + ahead
    return QuantityRange(most - cached * (1 - 1 / job.hosts), most + unexplained, Origin.PREDICTED)


def _batch_dependent(pipeline: Pipeline) -> frozenset[str]:
    """The last batching operator and everything downstream of it: their memory grows with the batch size."""
    making = [node.id for node in pipeline if operator_facts(node.op).makes_batches]
    if not making:
        return frozenset()
    return frozenset({making[-1], *(node.id for node in pipeline.downstream(making[-1]))})


_SMALLEST_SCALE_HALVINGS = 6
"""The table starts at the job's number of replicas halved this many times, and ends at twice that number."""


def _ceilings(
    job: TrainingJob,
    feed: InputRequirements,
    *,
    files: FilesNeeded,
    epoch_examples: int | None,
    read_bytes: QuantityRange | None,
) -> tuple[ReplicaLimit, ...]:
    """Returns all known limits, by the number of replicas at which the job would reach them, the lowest first.

    `read_bytes` are those read from storage per example. It and `epoch_examples` are None if unknown.
    """
    found = []
    if feed.replicas_fed is not None:
        found.append(_ceiling(job, feed.host_limit, feed.replicas_fed, feed.host_node))
    if feed.most_rate is not None and feed.host_limit is ScalingLimit.CORES:
        found.append(_ceiling(job, ScalingLimit.THREADS, feed.most_rate.times(1 / job.replica_rate), feed.most_node))
    read = read_bytes.high if read_bytes is not None else 0.0
    network, storage = job.network_bytes_per_second, job.storage_bytes_per_second
    for limit, bandwidth in ((ScalingLimit.NETWORK, network), (ScalingLimit.STORAGE, storage)):
        if bandwidth is not None and read > 0:
            found.append(_ceiling(job, limit, _exactly(bandwidth / (read * job.replica_rate), Origin.GIVEN)))
    if files.files:
        found.append(_ceiling(job, ScalingLimit.FILES, _exactly(float(files.files * job.per_host))))
    if epoch_examples is not None:
        found.append(_ceiling(job, ScalingLimit.DATA, _exactly(epoch_examples / job.batch_examples)))
    return tuple(sorted(found, key=lambda one: (not one.reached and one.limit in PER_HOST_LIMITS, one.replicas.low)))


def _rung(job: TrainingJob, replicas: int, limits: Sequence[ReplicaLimit], *, known: bool) -> JobSize:
    """Returns the job with so many replicas, and the rate that its input delivers there."""
    hosts = -(-replicas // job.per_host)
    on_full = min(replicas, job.per_host)
    fed = float(replicas)
    held_by: ScalingLimit | None = None
    for one in limits:
        if one.limit is ScalingLimit.DATA:
            continue  # limits the number of steps, not the rate
        if one.limit in PER_HOST_LIMITS:
            most = replicas * min(1.0, one.replicas.low / on_full)  # all replicas wait for those of a full host
        else:
            most = min(float(replicas), one.replicas.low)
        if most < fed:
            fed, held_by = most, one.limit
    if held_by is None and any(one.limit is ScalingLimit.DATA and one.replicas.low < replicas for one in limits):
        held_by = ScalingLimit.DATA
    return JobSize(replicas, hosts, replicas * job.replica_rate, fed * job.replica_rate if known else None, held_by)


def epoch_examples(pipeline: Pipeline, profile: Profile) -> int | None:
    """Returns the most examples in an epoch, counted upstream of `repeat`; None if unknown.

    Walks upstream only through operators that pass every element on, or put elements into batches.
    """
    node, per_element, found = pipeline.output, profile.examples_per_element, None
    while True:
        count = element_counts.max_elements(pipeline, profile, node.id)
        if count is not None and count != INFINITE:
            found = round(count * per_element)
        operator = operator_facts(node.op)
        if node.op == "repeat":
            found = None  # it counted several epochs
        elif operator.makes_batches:
            per_element /= element_counts.integer_or(node.argument("batch_size"), 0) or per_element
        elif operator.count is not CountEffect.ONE_TO_ONE:
            return found
        if len(node.inputs) != 1:
            return found
        node = pipeline[node.inputs[0]]


def _ceiling(job: TrainingJob, limit: ScalingLimit, replicas: QuantityRange, node: str | None = None) -> ReplicaLimit:
    requested = job.replicas_on_full_host if limit in PER_HOST_LIMITS else job.replicas
    return ReplicaLimit(limit, replicas, node, reached=replicas.low < requested)


def compute_sizing(result: DatasetResult, machine: Machine, job: TrainingJob) -> Sizing:
    """Returns what `job` needs, as far as it follows from the session.

    Args:
        result: a dataset with a profile.
        machine: the machine it was measured on.
        job: the training job.
    """
    profile = result.profile
    assert profile is not None
    variants = [_Variant("current", result.pipeline, profile, result.rates.get("defaults"), machine.cores_granted)]
    if result.plan is not None and result.tuned is not None:
        variants.append(_Variant("tuned", result.tuned, profile, result.rates.get("tuned"), machine.cores_granted))
    # Of the measured peak beyond the buffers: kernels' scratch memory, allocators' free lists.
    buffers = predicted_peak_bytes(result.pipeline, profile, cores=machine.cores_granted)
    unexplained = max(0.0, profile.peak_rss_mib * 2**20 - buffers) if profile.peak_rss_mib is not None else 0.0
    feeds = tuple(_feed(variant, job, unexplained=unexplained) for variant in variants)
    last = feeds[-1]
    files = _files(variants[-1], job)
    epoch = epoch_examples(result.pipeline, profile)
    service = _element_bytes(variants[-1], job)
    packed = None
    if service is not None and job.compression is not None:
        packed = QuantityRange(service.low / job.compression, service.high / job.compression, Origin.GIVEN)
    loop = _loop_cores(profile, machine, job)
    read = None if last.storage_bytes_per_second is None else last.storage_bytes_per_second.times(1 / job.rate)
    scales = {-(-job.replicas // 2**power) for power in range(_SMALLEST_SCALE_HALVINGS + 1)} | {2 * job.replicas}
    limits = _ceilings(job, last, files=files, epoch_examples=epoch, read_bytes=read)
    return Sizing(
        dataset=result.pipeline.name,
        job=job,
        feeds=feeds,
        service_bytes_per_second=service,
        service_bytes_compressed=packed,
        loop_cores=loop,
        files=files,
        epoch_examples=epoch,
        ceilings=limits,
        rungs=tuple(_rung(job, one, limits, known=last.host_rate is not None) for one in sorted(scales)),
        missing=tuple(_missing(variants[-1], last, job, service=service, files=files, loop=loop)),
        processor=machine.processor,
        measured_cores=machine.cores_granted,
    )


def _element_bytes(variant: _Variant, job: TrainingJob) -> QuantityRange | None:
    """Bytes per second of the uncompressed elements that the replicas of one host take; None if unknown."""
    if variant.profile.element_bytes is None:
        return None
    return _exactly(job.host_rate * variant.profile.element_bytes / variant.examples_per_element)


def _loop_cores(profile: Profile, machine: Machine, job: TrainingJob) -> QuantityRange | None:
    """Cores that the training loops of one host use besides the input; None on a CPU, where they include the step."""
    spent = profile.consumer.bound_cpu_seconds
    if spent is None or machine.device == "cpu":
        return None
    return _exactly(job.replicas_on_full_host * spent / job.step_seconds)


def _files(variant: _Variant, job: TrainingJob) -> FilesNeeded:
    use = variant.profile.files
    named = use.files + use.remote_files if use is not None else 0
    known = named if use is not None and use.complete and (named or not use.opened) else None
    cycles = [node.argument("cycle_length") for node in variant.pipeline if node.op == "interleave"]
    cycle = max((one for one in cycles if isinstance(one, int) and one > 0), default=None)
    share = known / (job.hosts * math.ceil(known / job.hosts)) if known else None
    return FilesNeeded(known, job.hosts, None if cycle is None else cycle * job.hosts, share)


def _missing(
    variant: _Variant,
    feed: InputRequirements,
    job: TrainingJob,
    *,
    service: QuantityRange | None,
    files: FilesNeeded,
    loop: QuantityRange | None,
) -> Iterator[MissingFigure]:
    """Yields the missing figures, why, and what would provide them, in the order in which figures are shown."""
    again = "pipetune analyze measures it"
    if feed.cpu_seconds is None:
        yield MissingFigure("cores", "the CPU time of the input was not measured", again)
    if loop is None:
        yield MissingFigure("cores for the training loop itself", "not measured on an accelerator")
    if feed.host_rate is None:
        why = f"{feed.why}, and it was measured on {variant.cores:g} cores" if feed.why else "its rate was not measured"
        yield MissingFigure("what a host delivers", why, f"--cores {variant.cores:g} gives the figure for that many")
    if feed.storage_bytes_per_second is None:
        kept = _has_cache_file(variant.pipeline)
        why = "the bytes read from its cache file were not measured" if kept else "bytes read were not counted"
        yield MissingFigure("storage", why)
    elif feed.storage_bytes_per_second.high > 0 and job.storage_bytes_per_second is None:
        why = "the bandwidth that all hosts share is not known"
        yield MissingFigure("whether storage keeps up", why, "--storage-bandwidth")
    if job.network_bytes_per_second is None:
        yield MissingFigure("whether the network keeps up", "it is not known", "--network")
    elif job.hosts > 1:
        yield MissingFigure("gradients on the network", "they share it with the input, and were not measured")
    if service is None:
        yield MissingFigure("network for tf.data service", "the size of elements is not known", again)
    elif job.compression is None:
        yield MissingFigure("the same compressed", "it was not measured how small they get", "--compression")
    if files.files is None:
        yield MissingFigure("files", "the number of files it reads is not known")
    if feed.memory_bytes is None:
        yield MissingFigure("memory", "neither the peak nor the size of elements was measured", again)


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
        count = f"{_number_of_workers(need.workers)} of {core_count(need.worker_cores)}"
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


def _number_of_workers(workers: QuantityRange) -> str:
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

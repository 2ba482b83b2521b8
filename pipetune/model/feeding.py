"""What one variant of a pipeline needs to feed a job: CPU time, cores, rates, bytes read, memory.

c CPU seconds per example keep n b c / t cores of a host busy, for n replicas that take b examples in a step of t
seconds. The rate of one input pipeline on these cores comes from the cost model (`model.throughput`, after Plumber,
Kuchnik et al., MLSys 2022), corrected by the measured rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pipetune.core.measurement import Rate
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import Profile
from pipetune.core.sizing import Basis, Feed, Job, Limit, Quantity
from pipetune.model import host_memory
from pipetune.model.stages import behind_cache
from pipetune.model.throughput import Prediction, predict, reads_files
from pipetune.model.trust import why_not

_MANY_CORES = 4096
"""Stands for any number of cores; a rate that is about the same with a quarter of them is limited by threads."""

_ALL_BUSY = 0.95
"""Cores are the limit from this share of the rate that all cores allow: AUTOTUNE makes as many calls as cores."""


@dataclass(frozen=True)
class Form:
    """One variant of the pipeline with its measurements."""

    variant: str
    pipeline: Pipeline
    profile: Profile
    rate: Rate | None
    cores: float  # cores of the machine it was measured on

    @property
    def per_element(self) -> float:
        return self.profile.examples_per_element

    def predicted(self, cores: float) -> Prediction:
        """Predicts the rate without a storage bound: the job reads from other storage than this machine."""
        return predict(self.pipeline, self.profile, cores, storage_bytes_per_second=math.inf)


def feed_of(form: Form, job: Job, *, unexplained: float) -> Feed:
    """What `form` needs to feed `job`; `unexplained` is the part of the measured peak, in bytes, that is no buffer."""
    why = why_not(form.pipeline, form.profile)
    cpu = _cpu_seconds(form, why)
    here = None if why else form.predicted(form.cores)
    there = None if why else form.predicted(job.host_cores)
    rate = _rate(form, here, job.host_cores)
    most, node = (None, None) if here is None else _most(form, here)
    fed = None if rate is None else rate.times(1 / job.replica_rate)
    read = _read_bytes(form)
    return Feed(
        variant=form.variant,
        cpu_seconds=cpu,
        cores=_cores(form, job, cpu, here),
        host_rate=rate,
        host_limit=_limit(there),
        host_node=None if there is None else there.bottleneck,
        most_rate=most,
        most_node=node,
        replicas_fed=fed,
        service_workers=_workers(_rate(form, here, job.worker_cores), job),
        storage_bytes_per_second=None if read is None else Quantity(read, read, Basis.MEASURED).times(job.rate),
        memory_bytes=host_memory.per_replica(form.pipeline, form.profile, job, unexplained=unexplained),
        memory_bytes_rebatched=host_memory.rebatched(form.pipeline, form.profile, job, unexplained=unexplained),
        why=why,
    )


def _limit(there: Prediction | None) -> Limit:
    if there is None:
        return Limit.INPUT
    return Limit.CORES if there.rate >= _ALL_BUSY * there.cores_rate else Limit.THREADS


def _cpu_seconds(form: Form, why: str) -> Quantity | None:
    """CPU seconds per example: of the process in measuring windows, and the sum of the profile.

    For the original pipeline both were measured, with full parallelism and with none; for a plan the sum is predicted.
    """
    found = []
    window = form.rate.cpu_us_per_example if form.rate is not None else None
    if window:
        found.append(window * 1e-6)
    whole = form.profile.input_cpu_seconds
    if form.variant == "as written" and whole:
        found.append(whole / form.per_element)
    elif not why:
        found.append(form.predicted(1).cpu_seconds / form.per_element)
    if not found or max(found) <= 0:
        return None
    measured = bool(window) or form.variant == "as written"
    note = "the process with its threads busy, and one after another" if len(found) == 2 and measured else ""
    return Quantity(min(found), max(found), Basis.MEASURED if measured else Basis.PREDICTED, note)


def _rate(form: Form, here: Prediction | None, cores: float) -> Quantity | None:
    """Examples per second on `cores` cores: measured if the measured machine has as many. Else the range from the
    prediction to the prediction corrected by its error on the measured machine.
    """
    measured = form.rate.examples_per_second if form.rate is not None else None
    if cores == form.cores and measured:
        return Quantity(measured, measured, Basis.MEASURED)
    if here is None:
        return None
    predicted = form.predicted(cores).rate * form.per_element
    if predicted == math.inf:
        return None
    off = _off(form, here)
    return Quantity(predicted * min(1.0, off), predicted * max(1.0, off), Basis.PREDICTED)


def _off(form: Form, here: Prediction) -> float:
    """Measured over predicted rate on the measured machine; 1 if either is missing."""
    measured = form.rate.examples_per_second if form.rate is not None else None
    predicted = here.rate * form.per_element
    return measured / predicted if measured and 0 < predicted < math.inf else 1.0


def _most(form: Form, here: Prediction) -> tuple[Quantity | None, str | None]:
    """The highest rate with any number of cores, and the operator that limits it; None if more cores always help."""
    many = form.predicted(_MANY_CORES)
    if many.rate == math.inf or form.predicted(_MANY_CORES / 4).rate < 0.9 * many.rate:
        return None, None
    rate = many.rate * form.per_element
    off = _off(form, here)
    return Quantity(rate * min(1.0, off), rate * max(1.0, off), Basis.PREDICTED), many.bottleneck


def _cores(form: Form, job: Job, cpu: Quantity | None, here: Prediction | None) -> Quantity | None:
    """Cores needed on one host: at least those that are fully busy, at most as many as at the utilization measured."""
    if cpu is None:
        return None
    low, high = job.host_rate * cpu.low, job.host_rate * cpu.high
    measured = form.rate.examples_per_second if form.rate is not None else None
    if measured and _limit(here) is Limit.CORES:
        high = max(high, job.host_rate * form.cores / measured)
    return Quantity(low, high, cpu.basis)


def _workers(rate: Quantity | None, job: Job) -> Quantity | None:
    """Number of tf.data service workers, each running the whole pipeline; the cost of sending elements is excluded."""
    if rate is None:
        return None
    return Quantity(math.ceil(job.rate / rate.high), math.ceil(job.rate / rate.low), rate.basis)


def _read_bytes(form: Form) -> float | None:
    """Bytes read from files per example once in-memory caches are filled; None if unknown."""
    if any(node.op == "cache" and node.argument("filename") for node in form.pipeline):
        return None
    still = behind_cache(form.pipeline) | form.pipeline.numbered
    if not any(node.id not in still and reads_files(node) for node in form.pipeline):
        return 0.0
    use = form.profile.files
    return None if use is None or use.bytes_per_element is None else use.bytes_per_element / form.per_element

"""What a training job on more machines needs of its input: arithmetic on the measured costs of one session.

With b examples that a replica takes per step of t seconds, R replicas take R b / t examples per second, and the n
replicas of a host n b / t of them. c CPU seconds per example keep n b c / t cores of it busy; what one input pipeline
can deliver on them is the cost model's (`model.throughput`, after Plumber, Kuchnik et al., MLSys 2022), held by the
rate that was measured. Costs per example are taken to be what they were on the measured processor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pipetune.core.machine import Machine
from pipetune.core.measurement import Rate
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import Profile
from pipetune.core.session import DatasetResult
from pipetune.core.sizing import Basis, Feed, FilesNeeded, Job, Limit, Missing, Quantity, Sizing
from pipetune.model import host_memory, scaling
from pipetune.model.stages import behind_cache
from pipetune.model.throughput import Prediction, predict, reads_files
from pipetune.model.trust import why_not

_MANY_CORES = 4096
"""Stands for any number of cores; a rate that is no higher there than at a quarter of them is held by threads."""

_ALL_BUSY = 0.95
"""Share of what all cores allow from which on cores are the limit: AUTOTUNE has as many calls as there are cores."""


@dataclass(frozen=True)
class _Form:
    """One form of the pipeline with all that was measured of it."""

    variant: str
    pipeline: Pipeline
    profile: Profile
    rate: Rate | None
    cores: float  # of the machine it was measured on

    @property
    def per_element(self) -> float:
        return self.profile.examples_per_element

    def predicted(self, cores: float) -> Prediction:
        """Storage left out: what delivered here is not what the job reads from."""
        return predict(self.pipeline, self.profile, cores, storage_bytes_per_second=math.inf)


def size(result: DatasetResult, machine: Machine, job: Job) -> Sizing:
    """What `job` needs, as far as the session knows.

    Args:
        result: a dataset with a profile.
        machine: the one it was measured on.

    Raises:
        ValueError: the dataset has no profile.
    """
    profile = result.profile
    if profile is None:
        raise ValueError("a dataset without a profile")
    forms = [_Form("as written", result.pipeline, profile, result.rates.get("defaults"), machine.cores_granted)]
    if result.plan is not None and result.tuned is not None:
        forms.append(_Form("tuned", result.tuned, profile, result.rates.get("tuned"), machine.cores_granted))
    unexplained = host_memory.unexplained_bytes(result.pipeline, profile, cores=machine.cores_granted)
    feeds = tuple(_feed(form, job, unexplained=unexplained) for form in forms)
    last = feeds[-1]
    files = _files(forms[-1], job)
    epoch = scaling.epoch_examples(result.pipeline, profile)
    service = _element_bytes(forms[-1], job)
    loop = _loop_cores(profile, machine, job)
    read = None if last.storage_bytes_per_second is None else last.storage_bytes_per_second.times(1 / job.rate)
    ceilings = scaling.ceilings(job, last, files=files, epoch_examples=epoch, read_bytes=read)
    return Sizing(
        dataset=result.pipeline.name,
        job=job,
        feeds=feeds,
        service_bytes_per_second=service,
        service_bytes_compressed=_compressed(service, job),
        loop_cores=loop,
        files=files,
        epoch_examples=epoch,
        ceilings=ceilings,
        rungs=scaling.rungs(job, ceilings, known=last.host_rate is not None),
        missing=_missing(forms[-1], last, job, service=service, files=files, loop=loop),
        processor=machine.processor,
        measured_cores=machine.cores_granted,
    )


def _feed(form: _Form, job: Job, *, unexplained: float) -> Feed:
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


def _cpu_seconds(form: _Form, why: str) -> Quantity | None:
    """CPU seconds per example: of the process in windows of its own, and what the profile adds up to.

    As written both were measured, at all the parallelism there is and at none; of a plan the costs are predicted.
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


def _rate(form: _Form, here: Prediction | None, cores: float) -> Quantity | None:
    """Examples per second on so many cores: as measured where it has as many, else as predicted, and the same held
    by what the prediction for the measured machine was off by.
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


def _off(form: _Form, here: Prediction) -> float:
    """measured / predicted on the measured machine; 1 where one is missing."""
    measured = form.rate.examples_per_second if form.rate is not None else None
    predicted = here.rate * form.per_element
    return measured / predicted if measured and 0 < predicted < math.inf else 1.0


def _most(form: _Form, here: Prediction) -> tuple[Quantity | None, str | None]:
    """The rate that no number of cores raises, and the operator that holds it; None where more cores always help."""
    many = form.predicted(_MANY_CORES)
    if many.rate == math.inf or form.predicted(_MANY_CORES / 4).rate < 0.9 * many.rate:
        return None, None
    rate = many.rate * form.per_element
    off = _off(form, here)
    return Quantity(rate * min(1.0, off), rate * max(1.0, off), Basis.PREDICTED), many.bottleneck


def _cores(form: _Form, job: Job, cpu: Quantity | None, here: Prediction | None) -> Quantity | None:
    """Cores of one host: busy all the time at least, at most used as well as those here were."""
    if cpu is None:
        return None
    low, high = job.host_rate * cpu.low, job.host_rate * cpu.high
    measured = form.rate.examples_per_second if form.rate is not None else None
    if measured and _limit(here) is Limit.CORES:
        high = max(high, job.host_rate * form.cores / measured)
    return Quantity(low, high, cpu.basis)


def _workers(rate: Quantity | None, job: Job) -> Quantity | None:
    """Whole workers of tf.data service, each running the whole pipeline; what sending elements costs left out."""
    if rate is None:
        return None
    return Quantity(math.ceil(job.rate / rate.high), math.ceil(job.rate / rate.low), rate.basis)


def _read_bytes(form: _Form) -> float | None:
    """Bytes read from files per example once caches in memory are filled; None where that is not known."""
    if any(node.op == "cache" and node.argument("filename") for node in form.pipeline):
        return None
    still = behind_cache(form.pipeline) | form.pipeline.numbered
    if not any(node.id not in still and reads_files(node) for node in form.pipeline):
        return 0.0
    use = form.profile.files
    return None if use is None or use.bytes_per_element is None else use.bytes_per_element / form.per_element


def _element_bytes(form: _Form, job: Job) -> Quantity | None:
    """Bytes per second of the elements that the replicas of one host take, as they lie in memory."""
    if form.profile.element_bytes is None:
        return None
    rate = job.host_rate * form.profile.element_bytes / form.per_element
    return Quantity(rate, rate, Basis.MEASURED)


def _compressed(elements: Quantity | None, job: Job) -> Quantity | None:
    if elements is None or job.compression is None:
        return None
    return Quantity(elements.low / job.compression, elements.high / job.compression, Basis.GIVEN)


def _loop_cores(profile: Profile, machine: Machine, job: Job) -> Quantity | None:
    """Cores that the training loops of one host take beside its input; on a processor the step itself is in it."""
    spent = profile.consumer.bound_cpu_seconds
    if spent is None or machine.device == "cpu":
        return None
    cores = job.on_one_host * spent / job.step_seconds
    return Quantity(cores, cores, Basis.MEASURED)


def _files(form: _Form, job: Job) -> FilesNeeded:
    use = form.profile.files
    named = use.files + use.remote_files if use is not None else 0
    known = named if use is not None and use.complete and (named or not use.opened) else None
    cycles = [node.argument("cycle_length") for node in form.pipeline if node.op == "interleave"]
    cycle = max((one for one in cycles if isinstance(one, int) and one > 0), default=None)
    share = None
    if known:
        share = known / (job.hosts * math.ceil(known / job.hosts))
    return FilesNeeded(known, job.hosts, None if cycle is None else cycle * job.hosts, share)


def _missing(
    form: _Form, feed: Feed, job: Job, *, service: Quantity | None, files: FilesNeeded, loop: Quantity | None
) -> tuple[Missing, ...]:
    """What is left out and who could say it, in the order of the figures."""
    again = "pipetune analyze measures it"
    found = []
    if feed.cpu_seconds is None:
        found.append(Missing("cores", "the CPU time of the input was not measured", again))
    if loop is None:
        found.append(Missing("cores for the training loop itself", "not measured on an accelerator"))
    if feed.host_rate is None:
        why = f"{feed.why}, and it was measured on {form.cores:g} cores" if feed.why else "its rate was not measured"
        found.append(Missing("what a host delivers", why, f"--cores {form.cores:g} answers for that many"))
    if feed.storage_bytes_per_second is None:
        kept = any(node.op == "cache" and node.argument("filename") for node in form.pipeline)
        why = "how much is read from its cache file was not measured" if kept else "bytes read were not counted"
        found.append(Missing("storage", why))
    elif feed.storage_bytes_per_second.high > 0 and job.storage_bytes_per_second is None:
        found.append(Missing("whether storage keeps up", "what all hosts share is not known", "--storage-bandwidth"))
    if job.network_bytes_per_second is None:
        found.append(Missing("whether the network keeps up", "it is not known", "--network"))
    if service is None:
        found.append(Missing("network for tf.data service", "the size of elements is not known", again))
    elif job.compression is None:
        found.append(Missing("the same compressed", "it was not measured how small they get", "--compression"))
    if files.files is None:
        found.append(Missing("files", "how many it reads is not known"))
    if feed.memory_bytes is None:
        found.append(Missing("memory", "neither the peak nor the size of elements was measured", again))
    return tuple(found)

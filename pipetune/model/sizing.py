"""What a training job on more machines needs from its input, computed from the measured costs of one session.

If a replica takes b examples per step of t seconds, R replicas take R b / t examples per second, and the n replicas
of a host n b / t of them. Costs per example are assumed to be the same as on the measured processor.
"""

from __future__ import annotations

import math

from pipetune.core.machine import Machine
from pipetune.core.profile import Profile
from pipetune.core.session import DatasetResult
from pipetune.core.sizing import Basis, Feed, FilesNeeded, Job, Missing, Quantity, Sizing
from pipetune.model import host_memory, scaling
from pipetune.model.feeding import Form, feed_of


def size(result: DatasetResult, machine: Machine, job: Job) -> Sizing:
    """What `job` needs, as far as it follows from the session.

    Args:
        result: a dataset with a profile.
        machine: the machine it was measured on.
        job: the training job.

    Raises:
        ValueError: the dataset has no profile.
    """
    profile = result.profile
    if profile is None:
        raise ValueError("a dataset without a profile")
    forms = [Form("as written", result.pipeline, profile, result.rates.get("defaults"), machine.cores_granted)]
    if result.plan is not None and result.tuned is not None:
        forms.append(Form("tuned", result.tuned, profile, result.rates.get("tuned"), machine.cores_granted))
    unexplained = host_memory.unexplained_bytes(result.pipeline, profile, cores=machine.cores_granted)
    feeds = tuple(feed_of(form, job, unexplained=unexplained) for form in forms)
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


def _element_bytes(form: Form, job: Job) -> Quantity | None:
    """Bytes per second of the uncompressed elements that the replicas of one host take; None if unknown."""
    if form.profile.element_bytes is None:
        return None
    rate = job.host_rate * form.profile.element_bytes / form.per_element
    return Quantity(rate, rate, Basis.MEASURED)


def _compressed(elements: Quantity | None, job: Job) -> Quantity | None:
    if elements is None or job.compression is None:
        return None
    return Quantity(elements.low / job.compression, elements.high / job.compression, Basis.GIVEN)


def _loop_cores(profile: Profile, machine: Machine, job: Job) -> Quantity | None:
    """Cores that the training loops of one host use besides the input; None on a CPU, where they include the step."""
    spent = profile.consumer.bound_cpu_seconds
    if spent is None or machine.device == "cpu":
        return None
    cores = job.on_one_host * spent / job.step_seconds
    return Quantity(cores, cores, Basis.MEASURED)


def _files(form: Form, job: Job) -> FilesNeeded:
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
    form: Form, feed: Feed, job: Job, *, service: Quantity | None, files: FilesNeeded, loop: Quantity | None
) -> tuple[Missing, ...]:
    """The figures that are missing, why, and what would provide them, in the order in which figures are shown."""
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
    elif job.hosts > 1:
        found.append(Missing("gradients on the network", "they share it with the input, and were not measured"))
    if service is None:
        found.append(Missing("network for tf.data service", "the size of elements is not known", again))
    elif job.compression is None:
        found.append(Missing("the same compressed", "it was not measured how small they get", "--compression"))
    if files.files is None:
        found.append(Missing("files", "how many it reads is not known"))
    if feed.memory_bytes is None:
        found.append(Missing("memory", "neither the peak nor the size of elements was measured", again))
    return tuple(found)

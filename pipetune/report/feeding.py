"""Whether the input of one host feeds its replicas, in sentences: what they take, what it delivers, what would do."""

from __future__ import annotations

from pipetune.core.session import DatasetResult
from pipetune.core.sizing import Sizing, TrainingJob
from pipetune.report import words
from pipetune.report.places import Places
from pipetune.report.quantities import bits, number, span
from pipetune.report.scaling import named


def need(job: TrainingJob) -> str:
    """What all replicas take, and those of a host."""
    whole = f"They take {words.significant(job.rate)} examples/s: {number(job.batch_examples)} per replica and step"
    if job.hosts == 1:
        return f"{whole}."
    return f"{whole}, {words.rate(job.host_rate)} on a host of {job.replicas_on_full_host}."


def verdict(sizing: Sizing) -> str:
    """Whether one host feeds its replicas, by the form to run."""
    job, feed = sizing.job, sizing.best_requirements
    host = f"one host of {words.plain(job.host_cores)} cores" if job.host_cores != 1 else "one host of 1 core"
    replicas = (
        "its replica" if job.replicas_on_full_host == 1 else "its " + words.count(job.replicas_on_full_host, "replica")
    )
    if feed.host_rate is None:
        why = f": {words.clean(feed.why)}" if feed.why else ""
        return words.sentence(f"whether {host} feeds {replicas} is unknown{why}")
    form = f", {feed.variant}," if len(sizing.feeds) > 1 else ""
    delivers = f"the input{form} delivers {span(feed.host_rate, words.rate)} there"
    match feed.can_feed(job.replicas_on_full_host):
        case True:
            return words.sentence(f"{host} feeds {replicas}: {delivers}")
        case False:
            enough = f"enough for {span(feed.replicas_fed, words.significant)}"
            return words.sentence(f"{host} does not feed {replicas}: {delivers}, {enough}")
    take = words.rate(job.host_rate)
    return words.sentence(f"{host} may or may not feed {replicas}: {delivers}, and they take {take}")


def advice(sizing: Sizing, result: DatasetResult, places: Places) -> str:
    """What would feed them; empty where one host does, or nothing is known."""
    job, feed = sizing.job, sizing.best_requirements
    if feed.host_rate is None or feed.can_feed(job.replicas_on_full_host):
        return ""
    parts = []
    most = feed.most_rate
    if feed.cores is not None and not (most is not None and most.high < job.host_rate):
        parts.append(f"A host needs {span(feed.cores, words.significant)} cores for its input alone.")
    if most is not None and most.low < job.host_rate:
        enough = "No number of cores is enough" if most.high < job.host_rate else "Cores may not be enough"
        parts.append(
            f"{enough}: {named(feed.most_node, result, places)} holds an input pipeline to {span(most, words.rate)}. "
            f"{_more_calls(feed.most_node, result)}"
            "Fewer replicas on a host, or a process for each, gives it less to feed."
        )
    if feed.service_workers is not None:
        workers = span(feed.service_workers, lambda value: f"{value:,.0f}")
        each = f"{words.plain(job.worker_cores)} core{'' if job.worker_cores == 1 else 's'}"
        parts.append(
            f"tf.data service would take {workers} workers of {each} for the whole job; what sending costs comes on "
            f"top, on both sides{_too_much_to_send(sizing)}."
        )
    return " ".join(parts)


def _too_much_to_send(sizing: Sizing) -> str:
    """Whether what the service sends to a host is more than its network carries, as the end of a sentence."""
    network = sizing.job.network_bytes_per_second
    sent = sizing.service_bytes_compressed or sizing.service_bytes_per_second
    if network is None or sent is None or sent.low <= network:
        return ""
    return f", and {bits(sent.low)} into each host are more than its network carries"


def _more_calls(node_id: str | None, result: DatasetResult) -> str:
    """A sentence where the operator makes a fixed number of calls: more of them are another way."""
    pipeline = result.tuned if result.tuned is not None and result.plan is not None else result.pipeline
    calls = pipeline[node_id].argument("num_parallel_calls") if node_id is not None and node_id in pipeline else None
    if isinstance(calls, int) and not isinstance(calls, bool) and calls > 0:
        return f"It makes {words.count(calls, 'call')} at a time: give it more. "
    return ""

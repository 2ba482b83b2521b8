"""A sizing in words: what a job on more machines needs of its input, each figure as a range with where it is from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pipetune.core.session import DatasetResult
from pipetune.core.sizing import Basis, Feed, Job, Missing, Quantity, Sizing
from pipetune.report import words
from pipetune.report.places import Places
from pipetune.report.scaling import ScalingView, named, scaling_view

UNKNOWN = "-"


@dataclass(frozen=True)
class NeedRow:
    """One need, a cell for each form of the pipeline."""

    label: str
    cells: tuple[str, ...]
    basis: str  # of the last cell


@dataclass(frozen=True)
class TakenRow:
    """One thing the job was taken to be, and who said so."""

    label: str
    text: str
    basis: str


@dataclass(frozen=True)
class SizingView:
    """Everything shown of a sizing."""

    title: str
    need: str
    verdict: str
    advice: str
    variants: tuple[str, ...]
    host: tuple[NeedRow, ...]
    job: tuple[NeedRow, ...]
    scaling: ScalingView
    taken: tuple[TakenRow, ...]
    missing: tuple[str, ...]


def sizing_view(sizing: Sizing, result: DatasetResult, places: Places) -> SizingView:
    """The sizing of `result` in words."""
    job = sizing.job
    return SizingView(
        title=f"{_replicas(job.replicas)} on {words.count(job.hosts, 'host')}, {_step(job)}",
        need=_need(job),
        verdict=_verdict(sizing),
        advice=_advice(sizing, result, places),
        variants=tuple(feed.variant for feed in sizing.feeds),
        host=tuple(_host_rows(sizing)),
        job=tuple(_job_rows(sizing)),
        scaling=scaling_view(sizing, result, places),
        taken=tuple(_taken(sizing)),
        missing=tuple(_left_out(one) for one in sizing.missing),
    )


def span(quantity: Quantity | None, form: Callable[[float], str]) -> str:
    """ "62.1 to 67.4 us": the unit once where both ends have the same."""
    if quantity is None:
        return UNKNOWN
    low, high = form(quantity.low), form(quantity.high)
    if low == high:
        return low
    number, _, unit = low.partition(" ")
    same = unit and high.endswith(f" {unit}")
    if not unit and low.endswith("/s") and high.endswith("/s"):
        number, same = low.removesuffix("/s"), True
    return f"{number if same else low} to {high}"


def speed(bytes_per_second: float) -> str:
    """As storage is sold: "1.20 GB/s"."""
    return _decimal(bytes_per_second, "B/s")


def bits(bytes_per_second: float) -> str:
    """As networks are sold: "9.60 Gb/s"."""
    return _decimal(8 * bytes_per_second, "b/s")


def _decimal(value: float, unit: str) -> str:
    for prefix in ("", "k", "M", "G"):
        if value < 999.5:
            return f"{words.significant(value)} {prefix}{unit}"
        value /= 1000
    return f"{words.significant(value)} T{unit}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else words.significant(value)


def _replicas(number: int) -> str:
    return words.count(number, "replica")


def _step(job: Job) -> str:
    return f"a training step of {words.seconds(job.step_seconds)}"


def _need(job: Job) -> str:
    whole = f"They take {words.significant(job.rate)} examples/s: {_number(job.batch_examples)} per replica and step"
    if job.hosts == 1:
        return f"{whole}."
    return f"{whole}, {words.rate(job.host_rate)} on a host of {job.on_one_host}."


def _verdict(sizing: Sizing) -> str:
    """Whether one host feeds its replicas, by the form to run."""
    job, feed = sizing.job, sizing.feed
    host = f"one host of {words.plain(job.host_cores)} cores" if job.host_cores != 1 else "one host of 1 core"
    replicas = "its replica" if job.on_one_host == 1 else f"its {_replicas(job.on_one_host)}"
    if feed.host_rate is None:
        why = f": {words.clean(feed.why)}" if feed.why else ""
        return words.sentence(f"whether {host} feeds {replicas} cannot be told{why}")
    form = f", {feed.variant}," if len(sizing.feeds) > 1 else ""
    delivers = f"the input{form} delivers {span(feed.host_rate, words.rate)} there"
    match feed.feeds(job.on_one_host):
        case True:
            return words.sentence(f"{host} feeds {replicas}: {delivers}")
        case False:
            enough = f"enough for {span(feed.replicas_fed, words.significant)}"
            return words.sentence(f"{host} does not feed {replicas}: {delivers}, {enough}")
    take = words.rate(job.host_rate)
    return words.sentence(f"{host} may or may not feed {replicas}: {delivers}, and they take {take}")


def _advice(sizing: Sizing, result: DatasetResult, places: Places) -> str:
    """What would feed them; empty where one host does, or nothing is known."""
    job, feed = sizing.job, sizing.feed
    if feed.host_rate is None or feed.feeds(job.on_one_host):
        return ""
    said = []
    most = feed.most_rate
    if feed.cores is not None and not (most is not None and most.high < job.host_rate):
        said.append(f"A host needs {span(feed.cores, words.significant)} cores for its input alone.")
    if most is not None and most.low < job.host_rate:
        enough = "No number of cores is enough" if most.high < job.host_rate else "Cores may not be enough"
        said.append(
            f"{enough}: {named(feed.most_node, result, places)} holds an input pipeline to {span(most, words.rate)}. "
            f"{_more_calls(feed.most_node, result)} replicas on a host, or a process for each, means more pipelines."
        )
    if feed.service_workers is not None:
        workers = span(feed.service_workers, lambda value: f"{value:,.0f}")
        each = f"{words.plain(job.worker_cores)} core{'' if job.worker_cores == 1 else 's'}"
        said.append(
            f"Or tf.data service with {workers} workers of {each} for the whole job; what sending costs comes on top, "
            f"on both sides{_too_much_to_send(sizing)}."
        )
    return " ".join(said)


def _too_much_to_send(sizing: Sizing) -> str:
    """Whether what the service sends to a host is more than its network carries, as the end of a sentence."""
    network = sizing.job.network_bytes_per_second
    sent = sizing.service_bytes_compressed or sizing.service_bytes_per_second
    if network is None or sent is None or sent.low <= network:
        return ""
    return f", and {bits(sent.low)} into each host are more than its network carries"


def _more_calls(node_id: str | None, result: DatasetResult) -> str:
    """More calls, where an operator has a fixed number of them; then the beginning of what else helps."""
    pipeline = result.tuned if result.tuned is not None and result.plan is not None else result.pipeline
    calls = pipeline[node_id].argument("num_parallel_calls") if node_id is not None and node_id in pipeline else None
    if isinstance(calls, int) and not isinstance(calls, bool) and calls > 0:
        return f"It makes {words.count(calls, 'call')} at a time; give it more. Else: fewer"
    return "Fewer"


def _row(label: str, sizing: Sizing, read: Callable[[Feed], Quantity | None], form: Callable[[float], str]) -> NeedRow:
    found = [read(feed) for feed in sizing.feeds]
    last = found[-1]
    return NeedRow(label, tuple(span(one, form) for one in found), last.basis.value if last is not None else "")


def _host_rows(sizing: Sizing) -> Iterator[NeedRow]:
    job = sizing.job
    yield _row("CPU time per example", sizing, lambda feed: feed.cpu_seconds, words.seconds)
    yield _row("cores busy with the input", sizing, lambda feed: feed.cores, words.significant)
    if sizing.loop_cores is not None:
        loop = sizing.loop_cores
        yield NeedRow(
            "cores for the training loops", (span(loop, words.significant),) * len(sizing.feeds), loop.basis.value
        )
    yield _row(f"delivers on {words.plain(job.host_cores)} cores", sizing, lambda feed: feed.host_rate, words.rate)
    yield _row("so many replicas are fed", sizing, lambda feed: feed.replicas_fed, words.significant)
    if any(feed.most_rate is not None for feed in sizing.feeds):
        yield _row("delivers on any number of cores", sizing, lambda feed: feed.most_rate, words.rate)
    yield _row("memory, a batch per replica", sizing, lambda feed: feed.memory_bytes, words.byte_size)
    if any(feed.memory_bytes_rebatched is not None for feed in sizing.feeds):
        yield _row("memory, whole global batches", sizing, lambda feed: feed.memory_bytes_rebatched, words.byte_size)


def _job_rows(sizing: Sizing) -> Iterator[NeedRow]:
    job, columns = sizing.job, len(sizing.feeds)

    def same(label: str, quantity: Quantity | None, form: Callable[[float], str]) -> NeedRow:
        return NeedRow(label, (span(quantity, form),) * columns, quantity.basis.value if quantity else "")

    hosts = job.hosts
    yield _row("read from storage, all hosts", sizing, lambda feed: feed.storage_bytes_per_second, speed)
    if hosts > 1:

        def into_one(feed: Feed) -> Quantity | None:
            whole = feed.storage_bytes_per_second
            return None if whole is None else whole.times(job.on_one_host / job.replicas)

        yield _row("the same over a host's network", sizing, into_one, bits)
    yield _row("tf.data service workers", sizing, lambda feed: feed.service_workers, lambda value: f"{value:,.0f}")
    yield same("from them over a host's network", sizing.service_bytes_per_second, bits)
    if sizing.service_bytes_compressed is not None:
        yield same("the same compressed", sizing.service_bytes_compressed, bits)
    files = sizing.files
    if files.files == 0:
        return
    yield NeedRow("files needed, at least", (f"{files.at_least:,}",) * columns, "")
    if files.to_overlap is not None and files.to_overlap > files.at_least:
        yield NeedRow("files to read as many at once", (f"{files.to_overlap:,}",) * columns, "")
    there = UNKNOWN if files.files is None else f"{files.files:,}"
    yield NeedRow("files there are", (there,) * columns, Basis.MEASURED.value if files.files else "")


def _taken(sizing: Sizing) -> Iterator[TakenRow]:
    job = sizing.job
    rows = (
        ("replicas", "replicas", f"{job.replicas:,}"),
        ("per_host", "replicas on a host", f"{job.per_host:,}"),
        ("step_seconds", "training step", words.seconds(job.step_seconds)),
        ("batch_examples", "examples per replica and step", _number(job.batch_examples)),
        ("host_cores", "cores of a host", words.plain(job.host_cores)),
        ("worker_cores", "cores of a service worker", words.plain(job.worker_cores)),
    )
    for name, label, text in rows:
        yield TakenRow(label, text, _basis(job, name))
    if job.storage_bytes_per_second is not None:
        yield TakenRow("storage, to all hosts", speed(job.storage_bytes_per_second), Basis.GIVEN.value)
    if job.network_bytes_per_second is not None:
        yield TakenRow("network, into a host", bits(job.network_bytes_per_second), Basis.GIVEN.value)
    if sizing.processor:
        yield TakenRow("a core", words.clean(sizing.processor), Basis.MEASURED.value)
    if sizing.epoch_examples is not None:
        yield TakenRow("examples in an epoch", f"{sizing.epoch_examples:,}", Basis.MEASURED.value)


def _basis(job: Job, name: str) -> str:
    return job.bases.get(name, Basis.ASSUMED).value


def _left_out(one: Missing) -> str:
    ask = f" ({one.ask})" if one.ask else ""
    return f"{one.figure[0].upper()}{one.figure[1:]}: {words.clean(one.why)}{ask}."

"""What `pipetune size` prints: what a job on more machines needs of its input, and whether a host gives it.

Then where it stops scaling, what was taken, what is left out. Each figure is a range with where it is from; 80 columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pipetune.core.session import DatasetResult
from pipetune.core.sizing import (
    PER_HOST_LIMITS,
    InputRequirements,
    Origin,
    QuantityRange,
    ReplicaLimit,
    ScalingLimit,
    Sizing,
    TrainingJob,
)
from pipetune.report import words
from pipetune.report.console import indented, print_parts, unit_text
from pipetune.report.places import Places

_UNKNOWN = "-"

_HELD_BY = {
    ScalingLimit.CORES: "cores of a host",
    ScalingLimit.THREADS: "threads of the input",
    ScalingLimit.NETWORK: "network of a host",
    ScalingLimit.STORAGE: "storage",
    ScalingLimit.FILES: "too few files",
    ScalingLimit.DATA: "less than a step of data",
    ScalingLimit.INPUT: "input of a host",
}


def print_sizing(sizing: Sizing, result: DatasetResult, places: Places, *, stream: TextIO | None = None) -> None:
    """Print the sizing of `result`; characters the stream cannot carry become question marks."""
    print_parts(_parts(sizing, result, places), stream)


def _parts(sizing: Sizing, result: DatasetResult, places: Places) -> Iterator[RenderableType]:
    job = sizing.job
    size = f"{words.count(job.replicas, 'replica')} on {words.count(job.hosts, 'host')}"
    yield unit_text(f"{size}, a training step of {words.seconds(job.step_seconds)}", style="bold")
    yield indented(unit_text(_need(job)))
    yield indented(unit_text(_verdict(sizing), style="bold"))
    if advice := _advice(sizing, result, places):
        yield indented(unit_text(advice))
    yield from _needs("One host", _host_rows(sizing), sizing)
    yield from _needs("The whole job", _job_rows(sizing), sizing)
    yield from _scaling(sizing, result, places)
    yield from _heading("What was taken")
    taken = _grid("left", "right", "left")
    for label, text, basis in _taken(sizing):
        taken.add_row(label, unit_text(text), Text(basis, style="dim"))
    yield indented(taken)
    if sizing.missing:
        yield from _heading("Left out")
        for one in sizing.missing:
            ask = f" ({one.ask})" if one.ask else ""
            yield indented(unit_text(f"{one.figure[0].upper()}{one.figure[1:]}: {words.clean(one.why)}{ask}."))


def _heading(title: str) -> Iterator[RenderableType]:
    yield Text()
    yield Text(title, style="bold")


def _grid(*sides: str) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for side in sides:
        table.add_column(justify="right" if side == "right" else "left", overflow="fold")
    return table


def _taken(sizing: Sizing) -> Iterator[tuple[str, str, str]]:
    """What the job was taken to be: label, figure, and who said so."""
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
        yield label, text, job.bases.get(name, Origin.ASSUMED).value
    if job.storage_bytes_per_second is not None:
        yield "storage, to all hosts", speed(job.storage_bytes_per_second), Origin.GIVEN.value
    if job.network_bytes_per_second is not None:
        yield "network, into a host", bits(job.network_bytes_per_second), Origin.GIVEN.value
    if sizing.processor:
        yield "a core", words.clean(sizing.processor), Origin.MEASURED.value
    if sizing.epoch_examples is not None:
        yield "examples in an epoch", f"{sizing.epoch_examples:,}", Origin.MEASURED.value


# -- ranges and rates: the unit once, bytes as storage and networks are sold


def span(quantity: QuantityRange | None, form: Callable[[float], str]) -> str:
    """ "62.1 to 67.4 us": the unit once where both ends have the same."""
    if quantity is None:
        return _UNKNOWN
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
    """Examples in a batch: whole as a rule, an average where batches differ."""
    return f"{value:,.0f}" if value == int(value) else words.significant(value)


# -- whether the input of one host feeds its replicas: what they take, what it delivers, what would do


def _need(job: TrainingJob) -> str:
    whole = f"They take {words.significant(job.rate)} examples/s: {_number(job.batch_examples)} per replica and step"
    if job.hosts == 1:
        return f"{whole}."
    return f"{whole}, {words.rate(job.host_rate)} on a host of {job.replicas_on_full_host}."


def _verdict(sizing: Sizing) -> str:
    """Whether one host feeds its replicas, by the form to run."""
    job, feed = sizing.job, sizing.best_requirements
    host = f"one host of {words.cores(job.host_cores)}"
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


def _advice(sizing: Sizing, result: DatasetResult, places: Places) -> str:
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
            f"{enough}: {_named(feed.most_node, result, places)} holds an input pipeline to {span(most, words.rate)}. "
            f"{_more_calls(feed.most_node, result)}"
            "Fewer replicas on a host, or a process for each, gives it less to feed."
        )
    if feed.service_workers is not None:
        workers = span(feed.service_workers, lambda value: f"{value:,.0f}")
        each = words.cores(job.worker_cores)
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


# -- the needs: a row for each, a cell for each form of the pipeline

_Need = tuple[str, tuple[str, ...], str]
"""Label, a cell for each form of the pipeline, and where the last cell is from."""


def _needs(title: str, rows: Iterable[_Need], sizing: Sizing) -> Iterator[RenderableType]:
    yield from _heading(title)
    variants = [feed.variant for feed in sizing.feeds]
    table = _grid("left", *("right" for _ in variants), "left")
    if len(variants) > 1:
        table.add_row("", *(Text(name, style="bold") for name in variants), "")
    for label, cells, basis in rows:
        table.add_row(label, *map(unit_text, cells), Text(basis, style="dim"))
    yield indented(table)


def _row(
    label: str, sizing: Sizing, read: Callable[[InputRequirements], QuantityRange | None], form: Callable[[float], str]
) -> _Need:
    found = [read(feed) for feed in sizing.feeds]
    last = found[-1]
    return label, tuple(span(one, form) for one in found), last.basis.value if last is not None else ""


def _host_rows(sizing: Sizing) -> Iterator[_Need]:
    job = sizing.job
    yield _row("CPU time per example", sizing, lambda feed: feed.cpu_seconds, words.seconds)
    yield _row("cores busy with the input", sizing, lambda feed: feed.cores, words.significant)
    if sizing.loop_cores is not None:
        yield _row("cores for the training loops", sizing, lambda _: sizing.loop_cores, words.significant)
    yield _row(f"delivers on {words.cores(job.host_cores)}", sizing, lambda feed: feed.host_rate, words.rate)
    yield _row("so many replicas are fed", sizing, lambda feed: feed.replicas_fed, words.significant)
    if any(feed.most_rate is not None for feed in sizing.feeds):
        yield _row("delivers on any number of cores", sizing, lambda feed: feed.most_rate, words.rate)
    yield _row("memory, a batch per replica", sizing, lambda feed: feed.memory_bytes, words.byte_size)
    if any(feed.memory_bytes_rebatched is not None for feed in sizing.feeds):
        yield _row("memory, whole global batches", sizing, lambda feed: feed.memory_bytes_rebatched, words.byte_size)


def _job_rows(sizing: Sizing) -> Iterator[_Need]:
    job, columns = sizing.job, len(sizing.feeds)
    yield _row("read from storage, all hosts", sizing, lambda feed: feed.storage_bytes_per_second, speed)
    if job.hosts > 1:

        def into_one(feed: InputRequirements) -> QuantityRange | None:
            whole = feed.storage_bytes_per_second
            return None if whole is None else whole.times(job.replicas_on_full_host / job.replicas)

        yield _row("the same over a host's network", sizing, into_one, bits)
    yield _row("tf.data service workers", sizing, lambda feed: feed.service_workers, lambda value: f"{value:,.0f}")
    yield _row("from them over a host's network", sizing, lambda _: sizing.service_bytes_per_second, bits)
    if sizing.service_bytes_compressed is not None:
        yield _row("the same compressed", sizing, lambda _: sizing.service_bytes_compressed, bits)
    files = sizing.files
    if files.files == 0:
        return
    yield "files needed, at least", (f"{files.at_least:,}",) * columns, ""
    if files.to_overlap is not None and files.to_overlap > files.at_least:
        yield "files to read as many at once", (f"{files.to_overlap:,}",) * columns, ""
    there = _UNKNOWN if files.files is None else f"{files.files:,}"
    yield "files there are", (there,) * columns, Origin.MEASURED.value if files.files else ""
    if files.used_share is not None and files.used_share < 1 and (files.files or 0) >= job.hosts:
        share = words.percent(files.used_share)
        yield "of the hosts' time used, files alike", (share,) * columns, Origin.PREDICTED.value


# -- where the job stops scaling: every limit as a number of replicas, and the job at other sizes


def _scaling(sizing: Sizing, result: DatasetResult, places: Places) -> Iterator[RenderableType]:
    yield from _heading("Where it stops scaling")
    yield indented(unit_text(_first(sizing.first_ceiling, sizing.job)))
    if sizing.ceilings:
        limits = _grid("left", "left")
        for one in sizing.ceilings:
            label = Text(_HELD_BY[one.limit], style="bold yellow" if one.reached else "")
            limits.add_row(label, unit_text(_limit_sentence(one, sizing, result, places)))
        yield indented(limits)
    table = _grid("right", "right", "right", "right", "left")
    table.add_row(*(Text(name, style="bold") for name in ("replicas", "hosts", "needed", "delivered", "held back by")))
    for size in sizing.rungs:
        delivered = _UNKNOWN if size.delivered is None else words.rate(size.delivered)
        held_by = _HELD_BY[size.held_by] if size.held_by is not None else ""
        cells = (f"{size.replicas:,}", f"{size.hosts:,}", words.rate(size.needed), delivered, held_by)
        table.add_row(*cells, style="bold" if size.replicas == sizing.job.replicas else "")
    yield Text()
    yield indented(table)


def _named(node_id: str | None, result: DatasetResult, places: Places) -> str:
    """An operator and where it stands: "map (train.py:32)"."""
    pipeline = result.tuned if result.tuned is not None and node_id in result.tuned else result.pipeline
    if node_id is None or node_id not in pipeline:
        return "one thread"
    title = words.clean(pipeline[node_id].title)
    where = places.place_of_node(node_id, result.tuned, result.pipeline)
    return f"{title} ({where.text})" if where else title


def _first(first: ReplicaLimit | None, job: TrainingJob) -> str:
    size = words.count(job.replicas, "replica")
    if first is None:
        return f"Nothing that is known stops it at {size}, or at more on as many hosts more."
    replicas, why = whole_replicas(first.replicas), _HELD_BY[first.limit]
    if first.limit in PER_HOST_LIMITS:
        return f"It stops on every host, at {replicas} of {job.replicas_on_full_host:,}: {why}."
    if first.reached:
        return f"It stops at {replicas} of {job.replicas:,}: {why}."
    return f"Nothing that is known stops it at {size}; the first limit comes at {replicas}: {why}."


def whole_replicas(quantity: QuantityRange) -> str:
    """Replicas that are fed in full: "23 replicas", "23 to 25 replicas", "less than one replica"."""
    low, high = math.floor(quantity.low), math.floor(quantity.high)
    if high < 1:
        return "less than one replica"
    numbers = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"{numbers} replica{'' if high == 1 else 's'}"


def _limit_sentence(one: ReplicaLimit, sizing: Sizing, result: DatasetResult, places: Places) -> str:
    job, replicas = sizing.job, whole_replicas(one.replicas)
    match one.limit:
        case ScalingLimit.CORES:
            return f"{words.cores(job.host_cores)} {'feeds' if job.host_cores == 1 else 'feed'} {replicas} on a host."
        case ScalingLimit.THREADS:
            cores = "" if sizing.best_requirements.host_limit is ScalingLimit.THREADS else ", whatever its cores"
            return f"{words.sentence(_named(one.node, result, places)).rstrip('.')} feeds {replicas} on a host{cores}."
        case ScalingLimit.INPUT:
            return f"As measured it feeds {replicas} on a host."
        case ScalingLimit.NETWORK:
            return f"It carries what {replicas} on a host read, where storage is reached over it."
        case ScalingLimit.STORAGE:
            return f"It delivers what {replicas} read."
        case ScalingLimit.FILES:
            files = words.count(sizing.files.files or 0, "file")
            return (
                f"{files} divide over as many hosts, {replicas}: a host more gets none, or each reads everything and "
                "keeps its share."
            )
        case ScalingLimit.DATA:
            examples = f"{sizing.epoch_examples:,}" if sizing.epoch_examples is not None else "its"
            return f"An epoch of {examples} examples is one step of {replicas}."

"""The table of needs: a row for each, a cell for each form of the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pipetune.core.sizing import InputRequirements, Origin, QuantityRange, Sizing
from pipetune.report import words
from pipetune.report.quantities import UNKNOWN, bits, span, speed


@dataclass(frozen=True)
class NeedRow:
    """One need, a cell for each form of the pipeline."""

    label: str
    cells: tuple[str, ...]
    basis: str  # of the last cell


def _row(
    label: str, sizing: Sizing, read: Callable[[InputRequirements], QuantityRange | None], form: Callable[[float], str]
) -> NeedRow:
    found = [read(feed) for feed in sizing.feeds]
    last = found[-1]
    return NeedRow(label, tuple(span(one, form) for one in found), last.basis.value if last is not None else "")


def host_rows(sizing: Sizing) -> Iterator[NeedRow]:
    """What the input of one host takes and gives."""
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


def job_rows(sizing: Sizing) -> Iterator[NeedRow]:
    """What all hosts need together: storage, workers, networks, files."""
    job, columns = sizing.job, len(sizing.feeds)

    def same(label: str, quantity: QuantityRange | None, form: Callable[[float], str]) -> NeedRow:
        return NeedRow(label, (span(quantity, form),) * columns, quantity.basis.value if quantity else "")

    hosts = job.hosts
    yield _row("read from storage, all hosts", sizing, lambda feed: feed.storage_bytes_per_second, speed)
    if hosts > 1:

        def into_one(feed: InputRequirements) -> QuantityRange | None:
            whole = feed.storage_bytes_per_second
            return None if whole is None else whole.times(job.replicas_on_full_host / job.replicas)

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
    yield NeedRow("files there are", (there,) * columns, Origin.MEASURED.value if files.files else "")
    if files.used_share is not None and files.used_share < 1 and (files.files or 0) >= job.hosts:
        share = words.percent(files.used_share)
        yield NeedRow("of the hosts' time used, files alike", (share,) * columns, Origin.PREDICTED.value)

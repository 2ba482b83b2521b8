"""A sizing in words: what a job on more machines needs of its input, each figure as a range with where it is from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipetune.core.session import DatasetResult
from pipetune.core.sizing import MissingFigure, Origin, Sizing, TrainingJob
from pipetune.report import words
from pipetune.report.feeding import advice, need, verdict
from pipetune.report.needs import NeedRow, host_rows, job_rows
from pipetune.report.places import Places
from pipetune.report.quantities import bits, number, speed
from pipetune.report.scaling import ScalingView, scaling_view


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
    size = f"{words.count(job.replicas, 'replica')} on {words.count(job.hosts, 'host')}"
    return SizingView(
        title=f"{size}, a training step of {words.seconds(job.step_seconds)}",
        need=need(job),
        verdict=verdict(sizing),
        advice=advice(sizing, result, places),
        variants=tuple(feed.variant for feed in sizing.feeds),
        host=tuple(host_rows(sizing)),
        job=tuple(job_rows(sizing)),
        scaling=scaling_view(sizing, result, places),
        taken=tuple(_taken(sizing)),
        missing=tuple(_left_out(one) for one in sizing.missing),
    )


def _taken(sizing: Sizing) -> Iterator[TakenRow]:
    job = sizing.job
    rows = (
        ("replicas", "replicas", f"{job.replicas:,}"),
        ("per_host", "replicas on a host", f"{job.per_host:,}"),
        ("step_seconds", "training step", words.seconds(job.step_seconds)),
        ("batch_examples", "examples per replica and step", number(job.batch_examples)),
        ("host_cores", "cores of a host", words.plain(job.host_cores)),
        ("worker_cores", "cores of a service worker", words.plain(job.worker_cores)),
    )
    for name, label, text in rows:
        yield TakenRow(label, text, _basis(job, name))
    if job.storage_bytes_per_second is not None:
        yield TakenRow("storage, to all hosts", speed(job.storage_bytes_per_second), Origin.GIVEN.value)
    if job.network_bytes_per_second is not None:
        yield TakenRow("network, into a host", bits(job.network_bytes_per_second), Origin.GIVEN.value)
    if sizing.processor:
        yield TakenRow("a core", words.clean(sizing.processor), Origin.MEASURED.value)
    if sizing.epoch_examples is not None:
        yield TakenRow("examples in an epoch", f"{sizing.epoch_examples:,}", Origin.MEASURED.value)


def _basis(job: TrainingJob, name: str) -> str:
    return job.bases.get(name, Origin.ASSUMED).value


def _left_out(one: MissingFigure) -> str:
    ask = f" ({one.ask})" if one.ask else ""
    return f"{one.figure[0].upper()}{one.figure[1:]}: {words.clean(one.why)}{ask}."

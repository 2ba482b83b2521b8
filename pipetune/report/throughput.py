"""The throughput of the input in its variants, consumed as fast as it delivers."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.results import Rate
from pipetune.core.session import DatasetResult
from pipetune.report import words
from pipetune.report.blocks import Block, Cell, Column, Facts, Row, Section, Sentence, Table, missing_or
from pipetune.report.values import Fact, figure, interval

VARIANTS = (
    ("off", "optimizations off", "TensorFlow's own graph optimizations switched off"),
    ("defaults", "current", "the script as it is"),
    ("autotune", "AUTOTUNE everywhere", "AUTOTUNE for every parallelism, and a final prefetch"),
    ("tuned", "tuned", "with the plan"),
)


def throughput(result: DatasetResult) -> Section | None:
    """One row per variant that was measured; None if there is none."""
    rows = [_row(result.rates[name], label, note) for name, label, note in VARIANTS if _known(result, name)]
    if not rows:
        return None
    return Section("throughput", "Input throughput", tuple(_blocks(result, rows)), folded=True)


def _known(result: DatasetResult, name: str) -> bool:
    if name == "tuned" and result.plan is None:
        return False  # its rate would stand for something that is not recommended
    return name in result.rates and result.rates[name].examples_per_second is not None


def _blocks(result: DatasetResult, rows: list[Row]) -> Iterator[Block]:
    yield Table(
        "Each variant of the input alone, consumed as fast as it delivers",
        (
            Column("Variant"),
            Column("Examples", number=True),
            Column("Batches", number=True),
            Column("CPU per example", number=True),
            Column("First batch", number=True),
            Column("Peak memory", number=True),
        ),
        tuple(rows),
    )
    facts = [
        Fact(label, interval(gain, words.ratio).text, words.count(gain.pairs, "pair"))
        for label, gain in (
            ("tuned over current", result.input_speedup),
            ("tuned over AUTOTUNE everywhere", result.input_speedup_over_autotune),
        )
        if gain is not None
    ]
    if facts:
        yield Facts(tuple(facts))
    if result.plan is not None and not _known(result, "tuned"):
        yield Sentence("The tuned input was not run alone.", quiet=True)


def _row(rate: Rate, label: str, note: str) -> Row:
    return Row(
        (
            Cell(label, note=note),
            missing_or(figure(rate.examples_per_second, words.rate)),
            missing_or(figure(rate.batches_per_second, words.rate)),
            missing_or(figure(rate.cpu_us_per_example, lambda value: words.seconds(value / 1e6))),
            missing_or(figure(rate.first_batch_seconds, words.seconds)),
            missing_or(figure(rate.peak_rss_mib, words.mebibytes)),
        )
    )

"""Single training steps as they were measured: waiting and computing, one column each, with the ends of epochs."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from pipetune.core.results import StepSeries
from pipetune.core.session import DatasetResult, Session
from pipetune.report import words
from pipetune.report.blocks import Block, Part, Section, Sentence, Series

_LABELS = {"defaults": "current", "tuned": "tuned"}
_WAITS = (
    "A wait here is the time until the batch is there. The wait of a step above is longer where input and model share "
    "processors: it also counts what the model is slowed down by."
)
_CLIPPED_ABOVE = 4.0  # medians of the longest series: columns beyond are cut, so that the others can be seen


def steps(session: Session) -> Section | None:
    """The recorded steps of the main dataset; None where none were recorded."""
    result = session.main_dataset
    blocks = tuple(_blocks(result)) if result is not None else ()
    return Section("steps", "Steps as measured", blocks) if blocks else None


def _blocks(result: DatasetResult) -> Iterator[Block]:
    names = ("defaults", "tuned") if result.plan is not None else ("defaults",)  # none of a plan that is not proven
    found = {name: result.step_series[name] for name in names if name in result.step_series}
    known = {name: series for name, series in found.items() if series.step_seconds}
    if not known:
        return
    longest = max(max(series.step_seconds) for series in known.values())
    typical = max(statistics.median(series.step_seconds) for series in known.values())
    highest = min(longest, _CLIPPED_ABOVE * typical)
    for name, series in known.items():
        yield _series(_LABELS[name], series, highest)
        if series.why:
            yield Sentence(words.sentence(words.clean(series.why)), quiet=True)
    if any(series.wait_seconds is not None for series in known.values()):
        yield Sentence(_WAITS, quiet=True)


def _series(label: str, series: StepSeries, highest: float) -> Series:
    median, slow = percentiles(series.step_seconds)
    text = (
        f"{len(series.step_seconds)} {label} steps: median {words.seconds(median)}, 95 % within {words.seconds(slow)}, "
        f"longest {words.seconds(max(series.step_seconds))}"
    )
    if series.epoch_ends:
        text += f"; lines mark the {'end of an epoch' if len(series.epoch_ends) == 1 else 'ends of epochs'}"
    cut = sum(seconds > highest for seconds in series.step_seconds)
    if cut:
        text += f"; {words.count(cut, 'column')} cut at {words.seconds(highest)}"
    kinds = ("model", "wait") if series.wait_seconds is not None else ("step",)
    meanings = {"model": "model", "wait": "waiting for data", "step": "step"}
    lines = [(median / highest, f"median {words.seconds(median)}")]
    if slow / highest - median / highest >= 0.12 and slow <= highest:  # labels that do not touch
        lines.append((slow / highest, f"95 % {words.seconds(slow)}"))
    return Series(
        columns=tuple(_columns(series, highest)),
        legend=tuple((kind, meanings[kind]) for kind in kinds),
        marks=series.epoch_ends,
        lines=tuple(lines),
        sentence=f"{text}.",
    )


def percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """The median and the value below which 95 % are; of at least two values."""
    return statistics.median(seconds), statistics.quantiles(seconds, n=20, method="inclusive")[-1]


def _columns(series: StepSeries, highest: float) -> Iterator[tuple[Part, ...]]:
    waits = series.wait_seconds or (0.0,) * len(series.step_seconds)
    for step, wait in zip(series.step_seconds, waits, strict=True):
        if series.wait_seconds is None:
            yield (Part("step", min(step, highest) / highest),)
            continue
        model = min(step - wait, highest)
        yield (Part("model", model / highest), Part("wait", min(wait, highest - model) / highest))

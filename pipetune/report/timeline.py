"""The step timeline: model, input and their overlap, drawn as the tf.data performance guide draws them.

With input time i and model time m a step takes P = i + m when they take turns, and P = max(i, m) when they
overlap and share nothing. Of a measured P, P - m is waiting and i + m - P is overlap.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.core.session import DatasetResult, TrainingResult
from pipetune.report import skew, words
from pipetune.report.values import Figure, figure

# A measured step this far outside what input and model alone allow is said to be so.
_TOLERANCE = 0.05


@dataclass(frozen=True)
class TimelineRow:
    """One way of running steps. Milliseconds."""

    name: str
    label: str
    measured: bool
    period_ms: float
    input_ms: float
    model_ms: float
    overlap_ms: float
    wait_ms: float  # of the model, per step
    extra_ms: float  # neither input nor model explains it
    sentence: str


@dataclass(frozen=True)
class Timeline:
    """Measured steps beside the two predictions."""

    rows: tuple[TimelineRow, ...]
    real: Figure
    bound: Figure
    input_alone: Figure
    predicted_sum: Figure
    predicted_maximum: Figure
    notes: tuple[str, ...] = ()
    why: str = ""  # why it cannot be drawn


def timeline(result: DatasetResult, training: TrainingResult | None) -> Timeline:
    """Rows in the order: predicted sum, as written, tuned, predicted maximum."""
    consumer, whose = skew.awaited(result)
    if consumer is None:
        nothing = Figure(why="the consumer was not profiled")
        return Timeline((), nothing, nothing, nothing, nothing, nothing, why="the consumer was not profiled")
    why = words.clean(consumer.why) or "it was not measured"
    rows = []
    bound, alone = consumer.bound_seconds, consumer.input_seconds
    total, longest = consumer.predicted_sum, consumer.predicted_maximum
    if bound is not None and alone is not None and total is not None and longest is not None:
        rows.append(_row("sum", "Taking turns", total, alone, bound, measured=False))
        if consumer.real_seconds is not None:
            rows.append(_row("defaults", "As written", consumer.real_seconds, alone, bound, measured=True))
        if training and training.tuned_step_ms is not None:
            tuned = result.rates.get("tuned")
            batches = tuned.batches_per_second if tuned else None
            if batches:
                rows.append(_row("tuned", "Tuned", training.tuned_step_ms / 1e3, 1 / batches, bound, measured=True))
        rows.append(_row("maximum", "Fully overlapped", longest, alone, bound, measured=False))
    return Timeline(
        rows=tuple(rows),
        real=figure(consumer.real_seconds, words.seconds, why=why),
        bound=figure(bound, words.seconds, why=why),
        input_alone=figure(alone, words.seconds, why=why),
        predicted_sum=figure(total, words.seconds, why=why),
        predicted_maximum=figure(longest, words.seconds, why=why),
        notes=(*_notes(rows), *_of_others(whose)),
        why="" if rows else why,
    )


def _row(name: str, label: str, period: float, alone: float, bound: float, *, measured: bool) -> TimelineRow:
    """All in seconds; what exceeds the period is cut, what exceeds the sum is shown as unexplained."""
    extra = max(0.0, period - alone - bound)
    shown_input, shown_model = min(alone, period), min(bound, period)
    overlap = max(0.0, shown_input + shown_model - period)
    wait = max(0.0, period - shown_model - extra)
    text = f"{words.seconds(period)} per step"
    if measured:
        share = wait / period if period else 0.0
        text += f", the model waits {words.seconds(wait)} of it ({words.percent(share)})" if wait else ", no wait"
    else:
        text += ", predicted"
    return TimelineRow(
        name=name,
        label=label,
        measured=measured,
        period_ms=period * 1e3,
        input_ms=shown_input * 1e3,
        model_ms=shown_model * 1e3,
        overlap_ms=overlap * 1e3,
        wait_ms=wait * 1e3,
        extra_ms=extra * 1e3,
        sentence=text,
    )


def _of_others(whose: str) -> tuple[str, ...]:
    if not whose:
        return ()
    return (f"The input is that of {whose}, the slowest, for which every step waits; tuned, that of the first worker.",)


def _notes(rows: list[TimelineRow]) -> tuple[str, ...]:
    notes = []
    by_name = {row.name: row for row in rows}
    total, longest = by_name.get("sum"), by_name.get("maximum")
    for name, subject in (("defaults", "The step as written"), ("tuned", "The tuned step")):
        row = by_name.get(name)
        if row is None or total is None or longest is None:
            continue
        if row.extra_ms > _TOLERANCE * row.period_ms:
            notes.append(
                f"{subject} takes {words.milliseconds(row.extra_ms)} longer than input and model in turns: "
                "they share processors, or something else in the loop takes time."
            )
        elif name == "defaults" and row.period_ms < longest.period_ms * (1 - _TOLERANCE):
            notes.append(f"{subject} is shorter than its longer part alone: the machine's speed changed.")
    return tuple(notes)

"""The one bar of a training step: model, input wait, start of an epoch, overlap lost.

Of three measurements, the real step P, the model's own step m (one cached batch, repeated) and the input alone i:

- model = m: what a step takes whatever the input does;
- input wait = max(i, m) - m: what a perfectly overlapped input still adds, because it is slower than the model;
- start of an epoch = s: a step's share of the wait there, while nothing is delivered; shown where it is notable;
- overlap lost = P - max(i, m) - s: what input and model lose by not running at the same time.

They add up to P; where noise makes P shorter than one of them, that part ends with the step. Of several workers in
step i is the slowest one's, where one surely is.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.core.session import DatasetResult
from pipetune.report import skew, words
from pipetune.report.values import Figure, figure

_NOTHING = 0.0005  # share of a step shown as none
_NOTABLE_START = 0.005  # share of a step from which on the start of an epoch is a part of its own
_DEFINITIONS = (
    ("model", "model", "one cached batch, repeated: what a step takes whatever the input does"),
    ("wait", "input wait", "what a perfectly overlapped input still adds: the longer of both, less the model"),
    ("start", "start of an epoch", "a step's share of the wait there: files are opened, a shuffle buffer is filled"),
    ("lost", "overlap lost", "the rest: input and model could have run at the same time and did not"),
)


@dataclass(frozen=True)
class StepPart:
    """One part of the bar; `kind` names its colour."""

    kind: str
    label: str
    time: Figure
    share: Figure  # of the step
    definition: str
    start: float = 0.0  # percent of the bar
    width: float = 0.0


@dataclass(frozen=True)
class StepBar:
    """The bar of the step as written; `why` says why there is none."""

    parts: tuple[StepPart, ...] = ()
    sentence: str = ""
    why: str = ""


def step_bar(result: DatasetResult) -> StepBar:
    consumer, whose = skew.awaited(result)
    if consumer is None:
        return StepBar(why="the consumer was not profiled")
    real = consumer.real_seconds
    model, wait, lost = consumer.model_seconds, consumer.input_wait_seconds, consumer.overlap_lost_seconds
    begin = consumer.start_wait_seconds
    if not real or model is None or wait is None or lost is None or begin is None:
        return StepBar(why=words.clean(consumer.why) or "it was not measured")
    times = (model, wait, begin, lost) if begin >= _NOTABLE_START * real else (model, wait, None, begin + lost)
    parts = []
    start = 0.0
    for (kind, label, definition), time in zip(_DEFINITIONS, times, strict=True):
        if time is None:
            continue
        share = time / real
        if whose and kind == "wait":
            definition += f"; the input of {whose}, the slowest"
        parts.append(
            StepPart(
                kind=kind,
                label=label,
                time=figure(time, words.seconds if share >= _NOTHING else lambda _: "none"),
                share=figure(share, words.percent),
                definition=definition,
                start=100 * start,
                width=100 * share,
            )
        )
        start += share
    said = ", ".join(f"{part.label} {part.time.text}" for part in parts)
    return StepBar(tuple(parts), f"A step of {words.seconds(real)}: {said}.")

"""The time of a training step and its parts: one value for each, used wherever a report shows it; single steps, and
what is apart from steady state: the first batch, filled buffers, the starts of epochs, drift.

The wait is what a step takes beyond the model: with P seconds per step and m seconds with one cached batch repeated,
(P - m) / P of it. It includes the start of an epoch, where nothing is delivered, and the time in which input and model
could have run at the same time but did not; both are shown as parts of the wait, not beside it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pipetune.core.measurement import Interval, StepSeries
from pipetune.core.profile import ConsumerProfile
from pipetune.core.results import Drift, RunDynamics
from pipetune.core.session import DatasetResult, Session, TrainingResult
from pipetune.report import words
from pipetune.report.blocks import Bar, Bars, Block, Facts, Part, Sentence, Series
from pipetune.report.words import Fact, interval

_NOTABLE = 0.01  # share of the step from which on a part of the wait is shown on its own

_LEGEND = {
    "model": "model",
    "wait": "waiting for data",
    "lost": "waiting for data, although input and model could overlap",
    "start": "waiting at the start of an epoch",
}


@dataclass(frozen=True)
class StepTimes:
    """Seconds per training step; None if not measured. `wait` is the share of the current step spent waiting."""

    current: float | None = None
    tuned: float | None = None
    autotune: float | None = None
    candidate: float | None = None  # expected of the unproven plan
    wait: Interval | None = None
    not_overlapped: float = 0.0  # parts of the wait
    start: float = 0.0
    why: str = ""
    work: str = "training"  # what the steps do
    whose: str = ""  # the worker whose input every step waits for; "" if it is the first

    @property
    def model(self) -> float | None:
        """What a current step takes without any wait."""
        if self.current is None or self.wait is None:
            return None
        return self.current * (1 - min(1.0, max(0.0, self.wait.median)))

    @property
    def tuned_wait(self) -> float | None:
        """The share of the tuned step spent waiting."""
        if self.tuned is None or self.model is None:
            return None
        return max(0.0, self.tuned - self.model) / self.tuned

    @property
    def wait_change(self) -> str:
        """The wait before and after, in a sentence; "" if it was not measured."""
        if self.wait is None:
            return ""
        before, after = words.percent(max(0.0, self.wait.median)), self.tuned_wait
        waits = f"{self.work.capitalize()} waits for data"
        if after is None:
            return f"{waits} {interval(self.wait, words.percent).text} of each step."
        return f"{waits} {words.percent(after)} of each step, before {before}."


def step_times(session: Session) -> StepTimes:
    """Returns the times of the main dataset's step: those of the confirmation, before that those of the profile."""
    result = session.main_dataset
    if result is None:
        return StepTimes(why="no dataset was measured")
    training = session.training or TrainingResult()
    consumer, whose = _awaited(result)
    current = consumer.real_seconds if training.defaults_step_ms is None else training.defaults_step_ms / 1e3
    wait = result.diagnosis.wait_share if result.diagnosis else consumer.wait_share
    real = consumer.real_seconds
    scale = current / real if current and real else 1.0
    candidate = result.candidate if result.candidate is not None and result.candidate.is_shown else None
    gain = candidate.gain if candidate is not None and candidate.unit == "training" else None
    proven = result.plan is not None and bool(result.plan.rewrites)
    return StepTimes(
        current=current,
        tuned=training.tuned_step_ms / 1e3 if training.tuned_step_ms is not None and proven else None,
        autotune=None if training.autotune_step_ms is None else training.autotune_step_ms / 1e3,
        candidate=current / gain.median if current and gain is not None else None,
        wait=wait,
        not_overlapped=scale * (consumer.overlap_lost_seconds or 0.0),
        start=scale * (consumer.start_wait_seconds or 0.0),
        why=words.clean(consumer.why or training.why) or "it was not measured",
        work=session.work,
        whose=whose,
    )


def _awaited(result: DatasetResult) -> tuple[ConsumerProfile, str]:
    """The consumer with the input that its steps wait for, and whose that is; '' where it is the first worker's own.

    Workers in step wait in every step for the slowest input, of which the first worker's profile knows nothing.
    """
    consumer = result.profile.consumer if result.profile else ConsumerProfile("none")
    slowest = result.skew.slowest if result.skew is not None and result.skew.is_certain else None
    if consumer.input_seconds is None or slowest is None or slowest.worker == 0:
        return consumer, ""
    if slowest.seconds <= consumer.input_seconds:
        return consumer, ""
    return replace(consumer, input_seconds=slowest.seconds), f"worker {slowest.worker}"


def step_bars(times: StepTimes) -> Bars | None:
    """Returns the steps as bars on one axis, model and wait; None without a measured step."""
    rows = [
        (label, step)
        for label, step in (
            ("current", times.current),
            ("tuned", times.tuned),
            ("not proven" if times.tuned is None else "", times.candidate),
            ("AUTOTUNE everywhere", times.autotune),
        )
        if step and label
    ]
    if not rows or times.current is None:
        return None
    longest = max(step for _, step in rows)
    bars, kinds, texts = [], set(), []
    for label, step in rows:
        parts = _parts(times, step, current=label == "current")
        kinds |= {kind for kind, _ in parts}
        drawn = tuple(Part(kind, seconds / longest) for kind, seconds in parts if seconds > 0)
        bars.append(Bar(label, words.seconds(step), drawn, marked=label == "tuned"))
        texts.append(f"{label} {words.seconds(step)}")
    return Bars(
        tuple(bars),
        legend=tuple((kind, meaning) for kind, meaning in _LEGEND.items() if kind in kinds),
        limit=None if times.model is None else times.model / longest,
        sentence=f"Time per training step: {', '.join(texts)}.",
    )


def _parts(times: StepTimes, step: float, *, current: bool) -> list[tuple[str, float]]:
    if times.model is None:
        return [("step", step)]
    model = min(times.model, step)
    rest = step - model
    if not current:
        return [("model", model), ("wait", rest)]
    start = min(times.start, rest) if times.start >= _NOTABLE * step else 0.0
    lost = min(times.not_overlapped, rest - start) if times.not_overlapped >= _NOTABLE * step else 0.0
    parts = [("model", model), ("lost", lost), ("wait", rest - start - lost), ("start", start)]
    return [(kind, seconds) for kind, seconds in parts if seconds > 0 or kind in ("model", "wait")]


_WAITS = (
    "A wait here is the time until the batch is there. The wait of a step above is longer where input and model share "
    "processors: it also counts what the model is slowed down by."
)
_CLIPPED_ABOVE = 4.0  # medians of the longest series: columns beyond are cut, so that the others can be seen


def steps(session: Session) -> Iterator[Block]:
    result = session.main_dataset
    if result is None:
        return
    names = ("defaults", "tuned") if result.plan is not None else ("defaults",)  # none of a plan that is not proven
    found = {name: result.step_series[name] for name in names if name in result.step_series}
    known = {name: series for name, series in found.items() if series.step_seconds}
    if not known:
        return
    longest = max(max(series.step_seconds) for series in known.values())
    typical = max(statistics.median(series.step_seconds) for series in known.values())
    highest = min(longest, _CLIPPED_ABOVE * typical)
    for name, series in known.items():
        yield _series(words.VARIANTS[name], series, highest)
        if series.why:
            yield Sentence(words.sentence(words.clean(series.why)), quiet=True)
    if any(series.wait_seconds is not None for series in known.values()):
        yield Sentence(_WAITS, quiet=True)


def _series(label: str, series: StepSeries, highest: float) -> Series:
    median = statistics.median(series.step_seconds)
    slow = statistics.quantiles(series.step_seconds, n=20, method="inclusive")[-1]  # 95 % are below
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


def _columns(series: StepSeries, highest: float) -> Iterator[tuple[Part, ...]]:
    waits = series.wait_seconds or (0.0,) * len(series.step_seconds)
    for step, wait in zip(series.step_seconds, waits, strict=True):
        if series.wait_seconds is None:
            yield (Part("step", min(step, highest) / highest),)
            continue
        model = min(step - wait, highest)
        yield (Part("model", model / highest), Part("wait", min(wait, highest - model) / highest))


_LONG_FILL = 0.5  # seconds
_LONG_PAUSE, _PAUSE_SHARE = 0.1, 0.01  # seconds, and share of an epoch
_FASTER_LATER = 1.1  # ratio
_FEWEST_BLOCKS = 8  # of a run, from which on its course is drawn


def epochs_sentence(course: RunDynamics | None) -> str:
    """What differs from steady state enough to be worth a line; "" if nothing does."""
    if course is None:
        return ""
    parts = []
    if course.fill_seconds is not None and course.fill_seconds >= _LONG_FILL:
        parts.append(f"filling the shuffle buffer takes {words.seconds(course.fill_seconds)} of a first element")
    extra, epoch = course.border_seconds, course.epoch_seconds
    if extra and epoch and extra >= max(_LONG_PAUSE, _PAUSE_SHARE * epoch) and course.epoch_elements != 1:
        parts.append(f"the start of each epoch takes {words.seconds(extra)} more")
    if course.later is not None and course.later.low >= _FASTER_LATER:
        parts.append(f"later epochs run at {interval(course.later, words.ratio).text} the rate of the first")
    drift = course.drift
    if drift is not None and drift.significant:
        change = interval(drift.change, words.ratio).text
        parts.append(f"an element takes {change} as long at the end of the run as at its start")
    return words.sentence("; ".join(parts)) if parts else ""


def epochs(result: DatasetResult) -> Iterator[Block]:
    """How the input ran through its epochs; nothing where it was not."""
    course = result.course
    if course is None:
        return
    yield Facts(tuple(_facts(course)))
    highest = max(course.curve, default=0.0)
    if len(course.curve) >= _FEWEST_BLOCKS and highest > 0:
        low = words.seconds(min(course.curve))
        yield Series(
            tuple((Part("input", value / highest),) for value in course.curve),
            (("input", "time per element"),),
            marks=(),
            lines=(),
            sentence=f"Time per element over the run, block by block: {low} to {words.seconds(highest)}.",
        )
    yield from (Sentence(words.clean(note), quiet=True) for note in course.notes)


def _facts(course: RunDynamics) -> Iterator[Fact]:
    if course.first_seconds is not None:
        yield Fact("first element", words.seconds(course.first_seconds), "of the first iterator")
    if course.fill_seconds is not None:
        yield Fact("filling the shuffle buffer", words.seconds(course.fill_seconds), "part of a first element")
    if course.border_seconds is not None:
        passed = "1 end of an epoch" if course.borders == 1 else f"{course.borders:,} ends of epochs"
        note = passed if course.borders else "measured on fresh iterators"
        yield Fact("extra time where an epoch starts", words.seconds(course.border_seconds), note)
    if course.epoch_elements is not None:
        yield Fact("elements of an epoch", f"{course.epoch_elements:,}")
    if course.later is not None:
        yield Fact("later epochs", interval(course.later, words.ratio).text, "their rate over that of the first")
    yield Fact("drift", *_drift(course.drift))


def _drift(drift: Drift | None) -> tuple[str, str]:
    if drift is None:
        return "not measured", "the run was too short"
    seen = f"seconds per element, end over start of {words.count(drift.elements, 'element')}"
    if not drift.significant:
        apart = drift.change.low > 1 or drift.change.high < 1  # but not in every run, or no more than noise gives
        return "not proven" if apart else "none found", f"{interval(drift.change, words.ratio).text} {seen}"
    return interval(drift.change, words.ratio).text, f"{seen}; from element {drift.since:,} on, seen in two runs"

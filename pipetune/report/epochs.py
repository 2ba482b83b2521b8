"""What is apart from steady state: the first batch, filled buffers, the starts of epochs, drift."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.results import Drift, RunDynamics
from pipetune.core.session import DatasetResult
from pipetune.report import words
from pipetune.report.blocks import Block, Facts, Part, Sentence, Series
from pipetune.report.words import Fact, interval

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

"""The course of a run in words: first element, shuffle fill, epoch border, later epochs, drift, cost per dataset."""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.core.results import DatasetCost, Drift, RunDynamics
from pipetune.core.session import DatasetResult, Session
from pipetune.report import words
from pipetune.report.values import Fact, Figure, figure, interval

_PAUSE_SAID, _LONG_PAUSE = 0.01, 0.1  # share of an epoch, and seconds, from which the terminal speaks of its border
_FILL_SAID = 0.5  # seconds
_LATER_SAID = 1.1  # ratio

_NO_EPOCH = "no epoch ended in the time there was"


@dataclass(frozen=True)
class CourseBlock:
    """One block of the run's curve; percent of the chart."""

    start: float
    width: float
    height: float


@dataclass(frozen=True)
class CourseView:
    """What is apart from steady state; `sentence` holds only what matters, and is empty where nothing does."""

    facts: tuple[Fact, ...] = ()
    sentence: str = ""
    curve: tuple[CourseBlock, ...] = ()
    curve_sentence: str = ""
    notes: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class CostRow:
    """What one dataset of the script costs."""

    name: str
    role: str
    taken: str  # elements the script took before training was measured
    taken_wall: Figure
    taken_cpu: Figure
    element_wall: Figure
    element_cpu: Figure
    epoch: Figure
    share: Figure  # of one pass over every dataset whose cost is known
    note: str


def course_view(result: DatasetResult) -> CourseView:
    course = result.course
    if course is None:
        return CourseView(why="the input was not run through its epochs")
    return CourseView(
        facts=tuple(_facts(course)),
        sentence=_sentence(course),
        curve=_curve(course),
        curve_sentence=_curve_sentence(course),
        notes=tuple(words.clean(note) for note in course.notes),
    )


def cost_rows(session: Session) -> tuple[CostRow, ...]:
    """One row per dataset with a cost, in the order of the session; none where one dataset is all there is to tell."""
    known = [(result, result.cost) for result in session.datasets if result.cost is not None]
    total = sum(cost.epoch_wall_seconds or 0.0 for _, cost in known)
    return tuple(_cost_row(result, cost, total) for result, cost in known)


def _facts(course: RunDynamics) -> list[Fact]:
    no_steady = Fact("Steady", "not measured")
    border = "above a steady element, " + (
        f"{words.count(course.borders, 'border')} passed" if course.borders else f"of fresh iterators: {_NO_EPOCH}"
    )
    later = course.later
    found = [
        Fact("First element", _time(course.first_seconds), "of the first iterator"),
        Fact("Shuffle fill", *_fill(course)),
        Fact("Steady", f"{words.seconds(course.steady_seconds)} per element", _epoch(course))
        if course.steady_seconds is not None
        else no_steady,
        Fact("Epoch border", _time(course.border_seconds), border if course.border_seconds is not None else ""),
        Fact("Later epochs", interval(later, words.ratio).text, "rate over the first epoch's" if later else _NO_EPOCH),
        Fact("Drift", *_drift(course.drift)),
    ]
    return found


def _time(seconds: float | None) -> str:
    return "not measured" if seconds is None else words.seconds(seconds)


def _fill(course: RunDynamics) -> tuple[str, str]:
    if course.fill_seconds is None:
        return "none", "nothing is shuffled, or it could not be told apart"
    return words.seconds(course.fill_seconds), "of a first element: with the shuffle buffers less without"


def _epoch(course: RunDynamics) -> str:
    if course.epoch_elements is None:
        return ""
    text = f"{words.count(course.epoch_elements, 'element')} in an epoch"
    return f"{text}, {words.seconds(course.epoch_seconds)} alone" if course.epoch_seconds is not None else text


def _drift(drift: Drift | None) -> tuple[str, str]:
    if drift is None:
        return "not measured", "the run was too short"
    seen = f"seconds per element, end over start of {words.count(drift.elements, 'element')}"
    if not drift.significant:
        apart = drift.change.low > 1 or drift.change.high < 1  # but not in every run, or no more than noise gives
        return "none proven" if apart else "none found", f"{interval(drift.change, words.ratio).text} {seen}"
    return interval(drift.change, words.ratio).text, f"{seen}; from element {drift.since:,} on, seen in two runs"


def _sentence(course: RunDynamics) -> str:
    """What differs from steady state enough to be worth a line."""
    parts = []
    if course.fill_seconds is not None and course.fill_seconds >= _FILL_SAID:
        parts.append(f"filling the shuffle buffer takes {words.seconds(course.fill_seconds)} of a first element")
    border, epoch = course.border_seconds, course.epoch_seconds
    if border and epoch and border >= max(_LONG_PAUSE, _PAUSE_SAID * epoch) and course.epoch_elements != 1:
        parts.append(f"every epoch border costs {words.seconds(border)}")
    if course.later is not None and course.later.low >= _LATER_SAID:
        parts.append(f"later epochs run at {interval(course.later, words.ratio).text} the rate of the first")
    drift = course.drift
    if drift is not None and drift.significant:
        change = interval(drift.change, words.ratio).text
        parts.append(f"an element takes {change} as long at the end of the run as at its start")
    return words.sentence("; ".join(parts)) if parts else ""


def _curve(course: RunDynamics) -> tuple[CourseBlock, ...]:
    highest = max(course.curve, default=0.0)
    if len(course.curve) < 8 or highest <= 0:
        return ()
    width = 100 / len(course.curve)
    return tuple(CourseBlock(index * width, width, 100 * value / highest) for index, value in enumerate(course.curve))


def _curve_sentence(course: RunDynamics) -> str:
    if not _curve(course):
        return ""
    low, high = words.seconds(min(course.curve)), words.seconds(max(course.curve))
    return f"Seconds per element over the run, block by block: {low} to {high}."


def _cost_row(result: DatasetResult, cost: DatasetCost, total: float) -> CostRow:
    alone = "it was not measured alone"
    epoch = cost.epoch_wall_seconds
    return CostRow(
        name=words.clean(result.pipeline.name),
        role=words.clean(result.role),
        taken=f"{result.consumed_elements:,}" if not cost.whole_call else "the whole call",
        taken_wall=figure(cost.taken_wall_seconds, words.seconds),
        taken_cpu=figure(cost.taken_cpu_seconds, words.seconds),
        element_wall=figure(cost.element_wall_seconds, words.seconds, why=alone),
        element_cpu=figure(cost.element_cpu_seconds, words.seconds, why=alone),
        epoch=figure(epoch, words.seconds, why=alone if cost.element_wall_seconds is None else "its length is unknown"),
        share=figure(epoch / total if epoch is not None and total else None, words.percent, why=alone),
        note="the model's work is in it" if cost.whole_call else "",
    )

"""After the trials: epochs and what differs from steady state: first element, epoch boundary, later epochs, drift.

Takes a bounded share of the user's time, and notes what it skipped for lack of time. Also records what each of the
script's datasets costs.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace

from pipetune.core.course import Course, DatasetCost
from pipetune.core.measurement import RunFailed
from pipetune.core.operators import Count, facts
from pipetune.core.pipeline import INFINITE, Node, Pipeline
from pipetune.core.profile import Finding, Profile
from pipetune.search.course import (
    Epoch,
    blocks,
    border_seconds,
    drift,
    drift_series,
    later_rate,
    looks_like_drift,
    split,
    steady_seconds,
    without_drain,
)
from pipetune.search.runner import SystemClock
from pipetune.stages.study import Study
from pipetune.tf.measure import epochs as running
from pipetune.tf.measure import windows

_MOST_SECONDS = 6.0
_SHARE = 0.1  # of the budget, at most
_WITHOUT_TRIALS_SECONDS, _QUICK_SECONDS = 3.0, 0.5
_RUN = 0.4  # share of the time for the first run; the same again if a drift must be confirmed
_FILL = 0.3  # share of the time to measure the shuffle fill
_CACHE_SHARE = 0.1  # of the memory limit, for a second copy of a cache
_FRESH = 3  # fresh iterators, where no epoch ended
_OTHER_SECONDS, _OTHERS_SECONDS = 0.4, 2.5  # for each of the script's other datasets, and for all of them
_PAUSE_MATTERS, _LONG_PAUSE_SECONDS = 0.05, 0.15  # share of an epoch; every new iterator takes a few milliseconds


@dataclass
class _Time:
    """A time budget; the clock starts in the constructor."""

    seconds: float

    def __post_init__(self) -> None:
        self._clock = SystemClock()
        self._end = self._clock.now() + self.seconds

    @property
    def left(self) -> float:
        return self._end - self._clock.now()


def take_course(study: Study, profile: Profile) -> Course:
    """Runs the input alone through its epochs; stores the course, costs and findings in the session."""
    journal = study.journal
    with journal.phase("course", "running the input through its epochs"):
        time = _Time(_seconds(study))
        try:
            course = _course(study, profile, time)
        except RunFailed as failure:
            course = Course(first_seconds=profile.first_element_seconds, notes=(f"No further course: {failure}",))
        study.runner.restore()
        journal.dataset(course=course)
        _costs(study, profile, course)
        found = tuple(findings(study.subject.source.pipeline, profile, course))
        if found:
            journal.update(findings=tuple(dict.fromkeys((*journal.session.findings, *found))))
    return course


def _seconds(study: Study) -> float:
    settings = study.settings
    if settings.quick:
        return _QUICK_SECONDS
    return min(_MOST_SECONDS, _SHARE * settings.budget_seconds) if settings.trials else _WITHOUT_TRIALS_SECONDS


def _course(study: Study, profile: Profile, time: _Time) -> Course:
    source = study.subject.source
    dataset, pipeline = source.dataset, source.pipeline
    first = profile.first_element_seconds
    notes: list[str] = []
    endless = pipeline.output.cardinality == INFINITE
    length = _epoch_elements(pipeline)

    def run() -> list[Epoch]:
        # By now the caches of the script's own dataset are full; in a first epoch they are empty.
        fresh = running.with_empty_caches(source)
        most = running.MOST_ELEMENTS if fresh is None else _elements_that_fit(study, profile)
        seen = running.run_epochs(
            dataset if fresh is None else fresh, seconds=_RUN * time.seconds, most_elements=most
        )
        if endless:
            (only,) = seen
            return split(only.arrivals, length) if length else seen
        return seen

    fill = _fill(study, first, time, notes)
    if first is not None and first > time.left:
        notes.append("A first element takes longer than there was time for: epochs and drift were not looked at.")
        return Course(first_seconds=first, fill_seconds=fill, notes=tuple(notes))
    seen = run()
    steady = steady_seconds(seen)
    border = border_seconds(seen, steady) if steady is not None else None
    ended = [epoch for epoch in seen if epoch.complete]
    if border is None and steady is not None and not endless:
        border = _fresh_border(dataset, steady, first or 0.0, time)
    if endless and len(seen) < 2:
        notes.append("No epoch border was passed in the time there was.")
    held = _held_elements(pipeline)
    drains_unseen = held is None or (held > 0 and endless and length is None)
    if drains_unseen:
        notes.append(
            "Drift was not looked for: the length of an epoch is not known, and an emptied shuffle buffer is none."
        )
    series = [] if drains_unseen else [drift_series(without_drain(seen, held or 0))]
    if series and looks_like_drift(series[0]) and time.left > 0.5 * _RUN * time.seconds:
        again = drift_series(without_drain(run(), held or 0))
        series.append(again)  # a slowdown by other work on the machine does not recur
    if not ended and not endless:
        notes.append("No epoch ended in the time there was: later epochs were not compared.")
    counted = len(ended[0].arrivals) if ended and not endless else None
    return Course(
        first_seconds=first,
        fill_seconds=fill,
        steady_seconds=steady,
        border_seconds=border,
        borders=max(0, len(seen) - 1),
        epoch_elements=counted or (round(length) if length else None),
        epochs=len(ended),
        later=later_rate(seen),
        drift=drift(series),
        curve=tuple(round(mean, 7) for mean in blocks(series[0])) if series else (),
        notes=tuple(notes),
    )


def _elements_that_fit(study: Study, profile: Profile) -> int:
    """Returns how many elements a second copy of a cache may hold."""
    size = profile.element_bytes or 0.0
    fit = _CACHE_SHARE * study.memory_limit_bytes / size if size > 0 else running.MOST_ELEMENTS
    return max(1, min(running.MOST_ELEMENTS, int(fit)))


def _fill(study: Study, first: float | None, time: _Time, notes: list[str]) -> float | None:
    """Measures the shuffle fill: seconds to a first element, with minus without shuffles; medians, alternating runs."""
    bare = running.without_shuffle(study.subject.source)
    if bare is None:
        return None
    running.first_seconds(bare)  # its graph is optimized once
    known = first or 0.0
    if 2 * known > _FILL * time.seconds:
        notes.append("The shuffle fill rests on the very first element, which also optimises the graph.")
        return max(0.0, known - running.first_seconds(bare))
    times = 3 if 6 * known < _FILL * time.seconds else 1
    filled: list[float] = []
    empty: list[float] = []
    for _ in range(times):
        filled.append(running.first_seconds(study.subject.source.dataset))
        empty.append(running.first_seconds(bare))
    return max(0.0, statistics.median(filled) - statistics.median(empty))


def _fresh_border(dataset: object, steady: float, first: float, time: _Time) -> float | None:
    """Returns the extra seconds of a fresh iterator's first element, for use where no epoch ended in time."""
    firsts: list[float] = []
    while len(firsts) < _FRESH and time.left > max(firsts, default=first):
        firsts.append(running.first_seconds(dataset))
    return max(0.0, statistics.median(firsts) - steady) if firsts else None


def _epoch_elements(pipeline: Pipeline) -> float | None:
    """Returns the output elements per epoch, if known; the epochs of an endless pipeline are those of its repeat."""
    if pipeline.output.cardinality >= 0:
        return float(pipeline.output.cardinality)
    for node in reversed(pipeline.nodes):
        if node.op == "repeat" and len(node.inputs) == 1:
            known, per_output = pipeline[node.inputs[0]].cardinality, _per_output(pipeline, node)
            return None if known <= 0 or per_output is None else known / per_output
    return None


def _held_elements(pipeline: Pipeline) -> int | None:
    """Returns the output elements left in shuffle buffers when their input is exhausted; None if not fixed."""
    held = 0
    for node in pipeline:
        size = node.argument("buffer_size")
        if node.op == "shuffle" and size != 1:
            per_output = _per_output(pipeline, node)
            if per_output is None or not isinstance(size, int):
                return None
            held += math.ceil(size / per_output)
    return held


def _per_output(pipeline: Pipeline, node: Node) -> float | None:
    """Returns the elements of `node` per element of the output; None if not fixed."""
    found = 1.0
    for below in pipeline.downstream(node.id):
        size = below.argument("batch_size")
        if below.op in ("batch", "padded_batch") and isinstance(size, int):
            found *= size
        elif below.op != "repeat" and facts(below.op).count is not Count.ONE_TO_ONE:
            return None
    return found


def _costs(study: Study, profile: Profile, course: Course) -> None:
    """Stores the cost of each dataset in its result, with the time that the script has spent on it so far."""
    if not study.journal.studies_training:
        return
    results = list(study.journal.session.datasets)
    others = _Time(0.0 if study.settings.quick else _OTHERS_SECONDS)
    uses = [(study.subject.source, study.subject.use), *study.subject.others]
    for index, (source, use) in enumerate(uses):
        known = source.pipeline.output.cardinality
        cost = DatasetCost(
            taken_wall_seconds=use.wall_seconds,
            taken_cpu_seconds=use.cpu_seconds,
            whole_call=use.whole_call,
            epoch_elements=known if known >= 0 else None,
        )
        if index == 0:
            rate = results[0].rates.get("defaults")
            alone = profile.consumer.input_seconds
            per_example = rate.cpu_us_per_example if rate else None
            cost = replace(
                cost,
                element_wall_seconds=alone,
                element_cpu_seconds=None if per_example is None else per_example * 1e-6 * profile.examples_per_element,
                epoch_elements=course.epoch_elements or cost.epoch_elements,
            )
        elif (profile.first_element_seconds or 0.0) + _OTHER_SECONDS < others.left:
            cost = _alone(source.dataset, cost)
        results[index] = replace(results[index], cost=cost)
    study.runner.restore()
    study.journal.update(datasets=tuple(results))


def _alone(dataset: object, cost: DatasetCost) -> DatasetCost:
    try:
        window = windows.input_window(dataset, seconds=_OTHER_SECONDS, warmup_seconds=0.1, settle_seconds=0.1)
    except RunFailed:
        return cost
    return replace(
        cost, element_wall_seconds=window.step_seconds, element_cpu_seconds=window.cpu_seconds / window.steps
    )


def findings(pipeline: Pipeline, profile: Profile, course: Course) -> list[Finding]:
    """Returns the warnings about the course: a long pause at each epoch boundary, an input that slows down."""
    found = []
    real = profile.consumer.real_seconds
    elements = course.epoch_elements
    if course.border_seconds and elements and course.steady_seconds is not None:
        working = elements * max(real or 0.0, course.steady_seconds)
        share = course.border_seconds / (working + course.border_seconds)
        if share >= _PAUSE_MATTERS and course.border_seconds >= _LONG_PAUSE_SECONDS and elements > 1:
            shuffle = next((node for node in reversed(pipeline.nodes) if node.op == "shuffle"), None)
            filling = course.fill_seconds is not None and course.fill_seconds > 0.5 * course.border_seconds
            place = (shuffle if filling and shuffle else pipeline.output).location
            found.append(
                Finding(
                    "epoch-pause",
                    f"Every epoch begins with a pause of {course.border_seconds:.2g} s, "
                    f"{100 * share:.0f} % of an epoch of {elements:,} elements"
                    + (": the shuffle buffer is filled anew." if filling else "."),
                    "A repeat() right behind the shuffle lets TensorFlow fill the next epoch's buffer while this one "
                    "is read (give fit steps_per_epoch then); a smaller shuffle buffer fills sooner."
                    if filling
                    else "Keep the iterator over epochs: repeat() and steps_per_epoch.",
                    place.file if place else None,
                    place.line if place else None,
                )
            )
    drifting = course.drift
    if drifting is not None and drifting.significant and drifting.change.low > 1:
        place = pipeline.output.location
        change = drifting.change
        found.append(
            Finding(
                "slows-down",
                f"The input slows down while it runs: an element takes {change.median:.2f} times as long "
                f"({change.low:.2f} to {change.high:.2f}) at the end of {drifting.elements:,} elements as at the "
                f"start, rising from element {drifting.since:,} on.",
                "Look for what grows: a list, a file or a table in a generator or Python function, or records that "
                "get longer towards the end of the data.",
                place.file if place else None,
                place.line if place else None,
            )
        )
    return found

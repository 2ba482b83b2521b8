"""After the decision: epochs and what differs from steady state (first element, epoch boundary, later epochs, drift),
and single training steps, one after the other, of the script as written and with the plan.

Takes a bounded share of the user's time, and notes what it skipped for lack of time.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from dataclasses import replace

from pipetune.core.edits import Plan
from pipetune.core.errors import StepFailed
from pipetune.core.measurement import RunFailed, StepSeries, percent, two_digits
from pipetune.core.operators import CountEffect, operator_facts
from pipetune.core.pipeline import INFINITE, Node, Pipeline
from pipetune.core.profile import EPOCH_PAUSE, Finding, Profile, finding_at
from pipetune.core.results import RunDynamics
from pipetune.core.time_plan import EPOCHS, STEP_SERIES, Part
from pipetune.measure import epochs
from pipetune.measure.caches import with_empty_caches
from pipetune.measure.run_dynamics import (
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
from pipetune.stages.profiling import ORIGINAL
from pipetune.stages.study import Study

_LEAST_SECONDS = 0.4  # by judgement: in less, nothing of an epoch is seen
_RUN_SHARE = 0.4  # share of the time for the first run; the same again if a drift must be confirmed
_FILL_SHARE = 0.3  # share of the time to measure the shuffle fill
_CACHE_SHARE = 0.1  # of the memory limit, for a second copy of a cache
_FRESH_ITERATORS = 3  # fresh iterators, where no epoch ended
_PAUSE_SHARE, _LONG_PAUSE_SECONDS = 0.05, 0.15  # share of an epoch; every new iterator takes a few milliseconds


def measure_epochs(study: Study, profile: Profile) -> None:
    """Runs the input alone through its epochs; stores the course in the session, with costs and findings."""
    journal, seconds = study.journal, study.time_plan.seconds_for(EPOCHS)
    if seconds < _LEAST_SECONDS:
        return
    with journal.phase("course", "running the input through its epochs"):
        try:
            with study.runner.measuring():
                course = _measured_course(study, profile, seconds)
        except RunFailed as failure:
            course = RunDynamics(
                first_seconds=profile.first_element_seconds,
                notes=(f"The epochs could not be measured any further: {failure}",),
            )
        journal.update_dataset(course=course)
        journal.add_findings(findings(study.subject.source.pipeline, profile, course))


def _measured_course(study: Study, profile: Profile, seconds: float) -> RunDynamics:
    source, end = study.runner.measured, time.monotonic() + seconds
    dataset, pipeline = source.dataset, source.pipeline
    first = profile.first_element_seconds
    notes: list[str] = []
    endless = pipeline.output.cardinality == INFINITE
    length = epoch_elements(pipeline)

    def run() -> list[Epoch]:
        # By now the caches of the script's own dataset may be full; in a first epoch they are empty.
        fresh = dataset
        if (profile.cache_seconds or 0.0) < _RUN_SHARE * seconds:
            with contextlib.suppress(RunFailed):
                fresh = with_empty_caches(source).dataset
        most = epochs.MOST_ELEMENTS if fresh is dataset else _elements_that_fit(study, profile)
        seen = epochs.run_epochs(fresh, seconds=_RUN_SHARE * seconds, most_elements=most)
        if endless:
            (only,) = seen
            return split(only.arrivals, length) if length else seen
        return seen

    fill = _fill(study, first, seconds, notes)
    if first is not None and first > end - time.monotonic():
        notes.append("The first element takes longer than the available time: epochs and drift were not measured.")
        return RunDynamics(first_seconds=first, fill_seconds=fill, notes=tuple(notes))
    seen = run()
    steady = steady_seconds(seen)
    border = border_seconds(seen, steady) if steady is not None else None
    ended = [epoch for epoch in seen if epoch.complete]
    if border is None and steady is not None and not endless:
        border = _fresh_iterator_seconds(dataset, steady, first or 0.0, end)
    if endless and len(seen) < 2:
        notes.append("No epoch boundary was reached in the available time.")
    held = _held_elements(pipeline)
    drains_unseen = held is None or (held > 0 and endless and length is None)
    if drains_unseen:
        notes.append(
            "Drift was not measured: the length of an epoch is unknown, and the drain of a shuffle buffer "
            "would look like drift."
        )
    series = [] if drains_unseen else [drift_series(without_drain(seen, held or 0))]
    if series and looks_like_drift(series[0]) and end - time.monotonic() > 0.5 * _RUN_SHARE * seconds:
        again = drift_series(without_drain(run(), held or 0))
        series.append(again)  # a slowdown by other work on the machine does not recur
    if not ended and not endless:
        notes.append("No epoch ended in the available time: later epochs were not compared.")
    counted = len(ended[0].arrivals) if ended and not endless else None
    return RunDynamics(
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
    fit = _CACHE_SHARE * study.memory_limit_bytes / size if size > 0 else epochs.MOST_ELEMENTS
    return max(1, min(epochs.MOST_ELEMENTS, int(fit)))


def _fill(study: Study, first: float | None, seconds: float, notes: list[str]) -> float | None:
    """Measures the shuffle fill: seconds to a first element, with minus without shuffles; medians, alternating runs."""
    bare = epochs.without_shuffle(study.runner.measured)
    if bare is None:
        return None
    epochs.first_seconds(bare)  # its graph is optimized once
    known = first or 0.0
    if 2 * known > _FILL_SHARE * seconds:
        notes.append("The shuffle fill time is based on the very first element, which includes graph optimization.")
        return max(0.0, known - epochs.first_seconds(bare))
    times = 3 if 6 * known < _FILL_SHARE * seconds else 1
    pairs = [(epochs.first_seconds(study.runner.measured.dataset), epochs.first_seconds(bare)) for _ in range(times)]
    filled, empty = (statistics.median(pair[index] for pair in pairs) for index in (0, 1))
    return max(0.0, filled - empty)


def _fresh_iterator_seconds(dataset: object, steady: float, first: float, end: float) -> float | None:
    """Returns the extra seconds of a fresh iterator's first element, for use where no epoch ended in time."""
    firsts: list[float] = []
    while len(firsts) < _FRESH_ITERATORS and end - time.monotonic() > max(firsts, default=first):
        firsts.append(epochs.first_seconds(dataset))
    return max(0.0, statistics.median(firsts) - steady) if firsts else None


def epoch_elements(pipeline: Pipeline) -> float | None:
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
        elif below.op != "repeat" and operator_facts(below.op).count is not CountEffect.ONE_TO_ONE:
            return None
    return found


def findings(pipeline: Pipeline, profile: Profile, course: RunDynamics) -> list[Finding]:
    """Returns the warnings about the course: a long pause at each epoch boundary, an input that slows down."""
    found = []
    step = (profile.consumer.real_seconds or 0.0) - profile.consumer.start_seconds  # the pause is in `real_seconds`
    elements = course.epoch_elements
    if course.border_seconds and elements and course.steady_seconds is not None:
        working = elements * max(step, course.steady_seconds)
        share = course.border_seconds / (working + course.border_seconds)
        if share >= _PAUSE_SHARE and course.border_seconds >= _LONG_PAUSE_SECONDS and elements > 1:
            shuffle = next((node for node in reversed(pipeline.nodes) if node.op == "shuffle"), None)
            filling = course.fill_seconds is not None and course.fill_seconds > 0.5 * course.border_seconds
            found.append(
                finding_at(
                    EPOCH_PAUSE,
                    shuffle if filling and shuffle else pipeline.output,
                    f"Every epoch begins with a pause of {two_digits(course.border_seconds)} s, "
                    f"{percent(share)} of an epoch of {elements:,} elements"
                    + (": the shuffle buffer is refilled." if filling else "."),
                    "A repeat() directly after the shuffle lets TensorFlow fill the next epoch's buffer while "
                    "the current one is read (epochs then end by a number of steps, such as steps_per_epoch of fit); a "
                    "smaller shuffle buffer fills sooner."
                    if filling
                    else "Keep one iterator across epochs: use repeat() and, for each epoch, a number of steps.",
                )
            )
    drifting = course.drift
    if drifting is not None and drifting.significant and drifting.change.low > 1:
        change = drifting.change
        found.append(
            finding_at(
                "slows-down",
                pipeline.output,
                f"The input slows down while it runs: an element takes {change.median:.2f} times as long "
                f"({change.low:.2f} to {change.high:.2f}) at the end of {drifting.elements:,} elements as at the "
                f"start; the slowdown begins at element {drifting.since:,}.",
                "Check what grows: a list, a file or a table in a generator or Python function, or records "
                "that get longer toward the end of the data.",
            )
        )
    return found


FEWEST_STEPS, MOST_STEPS = 20, 200  # of a series, by judgement: fewer show no pattern, more cannot be told apart


def record_steps(study: Study, profile: Profile, plan: Plan | None) -> None:
    """Records steps of the script as written, and with a proven plan, in the time that is left; stores them."""
    if not study.runner.trains:
        return
    journal = study.journal
    subjects = {"defaults": ORIGINAL} | ({"tuned": plan} if plan is not None and plan.rewrites else {})
    with journal.phase("steps", "recording single training steps"):
        for index, (name, one) in enumerate(subjects.items()):
            share = 1 / (len(subjects) - index + 1)  # what is measured afterwards has as much
            series = _series(study, profile, one, share=share)
            journal.update_dataset(step_series={**journal.result.step_series, name: series})


def _series(study: Study, profile: Profile, plan: Plan, *, share: float) -> StepSeries:
    """Returns the steps with `plan`; none, and the reason, where they cannot be recorded.

    More than the fewest steps take no more than this share of the time that is left.
    """
    runner, time_plan = study.runner, study.time_plan
    if profile.consumer.real_seconds is None:
        return StepSeries(why=profile.consumer.why)
    step, each = profile.consumer.real_seconds / _gain(study, plan), profile.consumer.input_seconds
    epoch = runner.epoch_steps * each if runner.epoch_steps is not None and each is not None else None
    filling = runner.seconds_to_fill(plan, epoch)
    if filling is None:
        return StepSeries(why="It is unknown how long it takes until a cache is filled.")
    seconds, start = time_plan.seconds_for(STEP_SERIES), filling + (profile.first_element_seconds or 0.0)
    needed = start + FEWEST_STEPS * step
    if needed > seconds:
        return StepSeries(
            why=f"{FEWEST_STEPS} steps need {two_digits(needed)} s, and {two_digits(seconds)} s were left for them."
        )
    fitting = int((share * time_plan.left(Part.INFORMATION) - start) / step)
    try:
        if not runner.seconds_around["training"]:  # this process has not trained yet: what is compiled now is not later
            runner.training_window(ORIGINAL, steps=1)
        steps = min(max(fitting, FEWEST_STEPS), MOST_STEPS)
        series = runner.record_steps(plan, steps=steps, seconds=seconds - filling)
    except (RunFailed, StepFailed) as failure:
        return StepSeries(why=str(failure))
    if len(series.step_seconds) < FEWEST_STEPS:
        return StepSeries(why=f"Only {len(series.step_seconds)} steps were taken in {two_digits(seconds - filling)} s.")
    return replace(series, epoch_ends=max(series.epoch_ends, _counted_ends(study, len(series.step_seconds)), key=len))


def _gain(study: Study, plan: Plan) -> float:
    """Returns how many times as fast the steps are with `plan`, as measured in training; 1 if they were not."""
    trials = reversed(study.journal.session.trials)
    gains = (one.gain for one in trials if one.plan.key == plan.key and one.unit == "training" and one.gain)
    return next((gain.median for gain in gains), 1.0)


def _counted_ends(study: Study, steps: int) -> tuple[int, ...]:
    """Returns the ends of epochs in as many steps, as far as their length is known.

    A `repeat` of the pipeline's own, or of a strategy's, begins an epoch unseen.
    """
    elements = study.runner.epoch_steps or epoch_elements(study.subject.source.pipeline)
    if not elements:
        return ()
    handed = study.subject.use.distributed_input
    each = elements / (handed.handover.elements_per_step if handed is not None else 1)
    ends = (math.floor(number * each + 1e-6) for number in range(1, math.ceil(steps / each)))
    return tuple(end for end in ends if 0 < end < steps)

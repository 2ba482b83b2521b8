"""After the decision: single training steps, one after the other, of the script as written and with the plan."""

from __future__ import annotations

import math
from dataclasses import replace

from pipetune.core.edits import Plan
from pipetune.core.errors import StepFailed
from pipetune.core.profile import Profile
from pipetune.core.results import RunFailed, StepSeries, two_digits
from pipetune.core.time_plan import STEP_SERIES, Part
from pipetune.stages.epochs import epoch_elements
from pipetune.stages.profiling import ORIGINAL
from pipetune.stages.study import Study

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

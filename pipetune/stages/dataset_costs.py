"""What each of the script's datasets costs, the one trained on and the others, and whether validation costs much."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pipetune.capture.consumption import Consumption
from pipetune.core import element_counts
from pipetune.core.measurement import RunFailed, percent, two_digits
from pipetune.core.profile import VALIDATION_INPUT, Diagnosis, Finding, Profile
from pipetune.core.results import DatasetCost, validation_share
from pipetune.core.session import DatasetResult
from pipetune.measure.caches import with_full_caches
from pipetune.measure.epochs import run_epochs
from pipetune.pipelines.live import LivePipeline
from pipetune.stages.study import Study
from pipetune.timing import windows

# By judgement, for each of the other datasets and for all of them: where validation is tuned, this delays the patch.
_OTHER_SECONDS, _OTHERS_SECONDS = 0.4, 2.5
_FEWEST_ELEMENTS = 5  # of another dataset, which a window takes with its warm-up, however long each of them takes
_SECOND_INPUT_SHARE = 0.05  # of a training step, from which on another dataset that each step reads is told
VALIDATION_SHARE = 0.05  # of the time for training and validation, from which on its input is worth tuning


def measure_dataset_costs(study: Study, profile: Profile, *, most_saved: float = 0.0) -> None:
    """Stores the cost of each dataset in its result, with the time that the script has spent on it so far.

    Study and profile are those of training; `most_saved` is as in `with_validation_shares`.
    """
    journal = study.journal
    if not journal.studies_training:
        return
    results = list(journal.session.datasets)
    end = time.monotonic() + (0.0 if study.settings.quick else _OTHERS_SECONDS)
    journal.report_progress("measuring the other datasets of the script")
    results[0] = replace(results[0], cost=_training_cost(study, profile, results[0]))
    others = list(enumerate(study.subject.other_datasets, start=1))
    others.sort(key=lambda one: one[1][1].role != "validation" and not one[1][1].in_turn)  # what decides first
    for index, (source, use) in others:
        cost = _other_cost(study, profile, source, use, left=end - time.monotonic())
        epoch = study.subject.use.steps_per_epoch or (results[0].cost.epoch_elements if results[0].cost else None)
        steps = use.every if use.every_in_steps else epoch and use.every * epoch
        results[index] = replace(results[index], cost=replace(cost, training_steps=steps))
    results = with_validation_shares(results, profile, most_saved=most_saved)
    findings = [*validation_findings(results), *second_input_findings(results, profile)]
    journal.add_findings(findings, datasets=tuple(results))


def validation_costs_much(study: Study, profile: Profile, diagnosis: Diagnosis | None = None) -> bool:
    """Whether validation may be tuned, and its input takes much of the time; then all costs are stored.

    All are of training; with a diagnosis it is to be made faster, and validation then takes more of the time.
    """
    if not study.tunes_validation:
        return False
    saved = diagnosis.most_saved_share if diagnosis is not None else None
    measure_dataset_costs(study, profile, most_saved=saved or 0.0)
    return any(result.share for result in study.journal.session.datasets)


def _script_cost(source: LivePipeline, use: Consumption) -> DatasetCost:
    """Returns what the script itself has spent on a dataset, with the length of its epochs as far as it is known."""
    elements = source.pipeline.output.cardinality
    if use.role == "validation" and use.steps_per_epoch:
        elements = use.steps_per_epoch
    return DatasetCost(
        taken_wall_seconds=use.wall_seconds,
        taken_cpu_seconds=use.cpu_seconds,
        whole_call=use.whole_call,
        epoch_elements=elements if elements >= 0 else None,
    )


def _training_cost(study: Study, profile: Profile, result: DatasetResult) -> DatasetCost:
    source, use = study.subject.source, study.subject.use
    cost, rate, course = _script_cost(source, use), result.rates.get("defaults"), result.course
    per_example = rate.cpu_us_per_example if rate else None
    elements = (course.epoch_elements if course is not None else None) or cost.epoch_elements
    return replace(
        cost,
        element_wall_seconds=profile.consumer.input_seconds,
        element_cpu_seconds=None if per_example is None else per_example * 1e-6 * profile.examples_per_element,
        epoch_elements=elements or use.steps_per_epoch or study.runner.epoch_steps or _most_elements(source, profile),
    )


def _other_cost(study: Study, profile: Profile, source: LivePipeline, use: Consumption, *, left: float) -> DatasetCost:
    """Returns the cost of a dataset that is not trained on, measured in the seconds that are left for all of them."""
    cost = _script_cost(source, use)
    if use.role == "validation" and source.pipeline.memory_caches:
        idle = source.pipeline.idle_operators
        if all(node.op in ("cache", "prefetch") for node in source.pipeline if node.id not in idle):
            return cost  # later passes cost next to nothing; to fill the cache may take longer than there is time
        begun = time.monotonic()
        try:
            with study.runner.measuring():
                source = with_full_caches(source, seconds=left / 2).live
        except RunFailed:
            return cost  # what its first pass takes says nothing of the others
        left -= time.monotonic() - begun
    ends = not windows.is_endless(source.dataset)
    if use.role == "validation" and cost.epoch_elements is None and ends and left > _OTHER_SECONDS:
        with study.runner.measuring():
            return _with_cost_of_pass(source.dataset, cost, seconds=left)
    # An element that takes long cannot be interrupted. What the script has read itself tells how long one takes.
    each = use.wall_seconds / use.elements if use.elements else 0.0
    if max(_FEWEST_ELEMENTS * each, profile.first_element_seconds or 0.0) + _OTHER_SECONDS < left:
        with study.runner.measuring():
            return _with_input_cost(source.dataset, cost)
    return cost


def _most_elements(source: LivePipeline, profile: Profile) -> int | None:
    """Returns how many elements an epoch has at most; None if nothing limits it."""
    most = element_counts.max_elements(source.pipeline, profile, source.pipeline.output.id)
    return most if most is not None and most > 0 else None


def _with_input_cost(dataset: Any, cost: DatasetCost) -> DatasetCost:
    try:
        window = windows.input_window(dataset, seconds=_OTHER_SECONDS, warmup_seconds=0.1, settle_seconds=0.1)
    except RunFailed:
        return cost
    return replace(
        cost,
        element_wall_seconds=window.step_seconds,
        element_cpu_seconds=window.cpu_seconds / window.steps,
        first_wall_seconds=max(0.0, window.first_seconds - window.step_seconds),
    )


def _with_cost_of_pass(dataset: Any, cost: DatasetCost, *, seconds: float) -> DatasetCost:
    """Returns the cost of one pass, or of what is seen of it in this time: the length of an epoch is unknown."""
    before = time.process_time()
    try:
        (epoch,) = run_epochs(dataset, seconds=seconds, most_epochs=1)
    except RunFailed:
        return cost
    elements, each = len(epoch.arrivals), epoch.element_seconds
    return replace(
        cost,
        element_wall_seconds=each,
        element_cpu_seconds=(time.process_time() - before) / elements,
        first_wall_seconds=max(0.0, epoch.first_seconds - each),
        epoch_elements=elements,
        whole_pass=epoch.complete,
    )


def with_validation_shares(
    results: Sequence[DatasetResult], profile: Profile, *, most_saved: float = 0.0
) -> list[DatasetResult]:
    """Returns the results with the share of the time that the input of validation takes, where that is much.

    Args:
        results: of all datasets with their costs, the one trained on first.
        profile: of the dataset trained on.
        most_saved: the share of a training step that a plan may save; what is much then, counts too.
    """
    training, step = results[0].cost, profile.consumer.real_seconds
    if training is None or not step:
        return list(results)

    def of_each_step(result: DatasetResult) -> float:
        """Returns the seconds of a pass, divided by the training steps before it."""
        taken = (result.cost.epoch_wall_seconds if result.cost and result.role == "validation" else None) or 0.0
        steps = (result.cost.training_steps if result.cost else None) or training.epoch_elements
        return taken / steps if steps else 0.0

    seconds = [of_each_step(result) for result in results]
    shares = [one / (step + sum(seconds)) for one in seconds]
    return [
        replace(result, share=share) if validation_share(share, training=1 - most_saved) >= VALIDATION_SHARE else result
        for result, share in zip(results, shares, strict=True)
    ]


def validation_findings(results: Sequence[DatasetResult]) -> list[Finding]:
    """Returns warnings about validation data whose input takes much of the time."""
    found = []
    for result in results:
        if result.share is None or result.share < VALIDATION_SHARE:
            continue
        assert result.cost is not None and result.cost.epoch_wall_seconds is not None
        taken, share = result.cost.epoch_wall_seconds, result.share
        skips = any(node.op == "skip" for node in result.pipeline.nodes)
        found.append(
            Finding(
                VALIDATION_INPUT,
                f"By its input alone, validation takes at least {percent(share)} of the time for training and "
                f"validation: {two_digits(taken)} s of {two_digits(taken / share)} s.",
                f"--dataset {result.pipeline.name} analyzes it."
                + (" Move skip() before the expensive operators: what it drops is computed first." if skips else ""),
                result.file or None,
                result.line or None,
            )
        )
    return found


def second_input_findings(results: Sequence[DatasetResult], profile: Profile) -> list[Finding]:
    """Returns warnings about datasets that take much of each training step beside the one with this profile."""
    step, found = profile.consumer.real_seconds or 0.0, []
    for result in results:
        seconds = (result.cost.element_wall_seconds if result.cost is not None and result.in_turn else None) or 0.0
        if 0 < _SECOND_INPUT_SHARE * step <= seconds:
            name, needs, whole = result.pipeline.name, two_digits(1000 * seconds), two_digits(1000 * step)
            found.append(
                Finding(
                    "second-input",
                    f"Each training step takes an element of {name}, too. It needs up to {needs} ms of the "
                    f"{whole} ms of a step, and is left as it is.",
                    f"Apply the patch, if there is one, and analyze this dataset next: --dataset {name}.",
                    result.file or None,
                    result.line or None,
                )
            )
    return found

"""Step 5b: a plan for validation where its input takes much of an epoch; it goes into the patch for training."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from dataclasses import replace

from pipetune.capture.consumption import Consumption
from pipetune.capture.rebuilding import rebuild_loops, rebuilt_operators
from pipetune.core.edits import Consent, Plan, Rewrite, Safety
from pipetune.core.errors import PipetuneError
from pipetune.core.measurement import RunFailed, two_digits
from pipetune.core.pipeline import AUTOTUNE, Node
from pipetune.core.results import Outcome, RejectionReason, validation_share
from pipetune.core.session import OptionalRewrite, PatchResult, Rejection, Session
from pipetune.core.time_plan import VALIDATION_PAIRS
from pipetune.equality.elements import element_bytes
from pipetune.measure.epochs import pass_seconds
from pipetune.measure.runner import TensorFlowRunner
from pipetune.pipelines.live import LivePipeline
from pipetune.pipelines.replay import replay
from pipetune.rewrites import cache, propose_all
from pipetune.rewrites.conflicts import find_conflict
from pipetune.rewrites.epoch_constancy import order_of
from pipetune.rewrites.rule import RuleContext
from pipetune.search.composing import values_of
from pipetune.search.runner import allows
from pipetune.source.emit import Emission
from pipetune.stages.dataset_costs import VALIDATION_SHARE
from pipetune.stages.emission import emission_for_validation, expected_digests, inherited_by, patch_of
from pipetune.stages.study import OTHERS_COMPARISON_SECONDS, Study

_DROPPING, _PARALLEL = "split-early", "parallel-map"  # the rules: both need no profile of the pipeline
_LEAST_GAIN = 1.1  # of one pass each; by judgement: less is not worth a hunk in the patch, and one pass is noisy


def tune_validation(study: Study, plan: Plan | None) -> bool:
    """Stores a plan for the validation data, with the patch that has it, if its input takes much of the time.

    It is compared and tried in one pass here; the patch is run, and pairs of passes are measured, when it is verified.
    Study and `plan` are those of training. Returns whether there is a plan.
    """
    journal = study.journal
    shares = [result.share or 0.0 for result in journal.session.datasets]
    share, gain = max(shares), _measured_gain(journal.session, plan)
    if not study.tunes_validation or validation_share(share, training=1 / gain) < VALIDATION_SHARE:
        return False
    index = shares.index(share)
    source, use = study.subject.other_datasets[index - 1]
    result = journal.session.datasets[index]
    assert result.cost is not None and result.cost.epoch_wall_seconds is not None
    seconds = study.time_plan.seconds_for_validation(verifies=plan is not None)
    if OTHERS_COMPARISON_SECONDS + VALIDATION_PAIRS * result.cost.epoch_wall_seconds > seconds:
        journal.add_notes(_NO_TIME.format(use.name))
        return False
    journal.select_dataset(index, study.time_plan)
    try:
        with journal.phase("validation", f"trying rewrites of {use.name}"):
            _find_plan(study, source, use, plan or Plan(""), end=time.monotonic() + seconds)
    except (RunFailed, PipetuneError) as problem:
        journal.add_notes(f"Rewrites of {use.name} could not be tried: {str(problem).rstrip('.')}.")
    finally:
        journal.select_dataset(0, study.time_plan)
    return journal.session.validation is not None


def _measured_gain(session: Session, plan: Plan | None) -> float:
    """Returns how many times as fast training is with the plan, at least; 1 without a plan, and if that is not known.

    What was accepted on the way to the plan counts: with more rewrites than are left of it, or with the first of them.
    """
    kept = {one.key for one in plan.rewrites} if plan is not None else set[str]()
    gains = (
        one.gain.median
        for one in session.trials
        if one.outcome is Outcome.ACCEPTED and one.kind != "ablation" and one.unit == "training"
        if one.gain is not None and not kept.isdisjoint(rewrite.key for rewrite in one.plan.rewrites)
    )
    return max(gains, default=1.0)


_NO_TIME = "No time was left to try rewrites of {0} within the budget: --dataset {0} analyzes it."


def _find_plan(study: Study, source: LivePipeline, use: Consumption, training: Plan, *, end: float) -> None:
    """Stores the plan, or why there is none, in the dataset that is selected: the validation data `source`.

    `training` is the plan for training; `end` is when all that validation may take ends, in `time.monotonic` seconds.
    """
    journal, pipeline = study.journal, source.pipeline
    result, cost = journal.result, journal.result.cost
    assert cost is not None and cost.epoch_wall_seconds is not None and cost.epoch_elements is not None
    inherited = inherited_by(journal.session, result)
    free_bytes = study.memory_limit_bytes - sum(one.predicted_bytes for one in training.rewrites)
    elements = cost.epoch_elements if cost.whole_pass else None
    candidates = functools.partial(
        _candidates, study, source, use, inherited=inherited, elements=elements, free_bytes=free_bytes
    )
    allowed = Consent.REORDER in study.settings.allow
    choices = candidates(reorders=allowed)

    def emitted(added: list[Rewrite]) -> tuple[list[Rewrite], Emission]:
        plan = Plan(pipeline.name, tuple(added))
        return added, emission_for_validation(journal.session, result, plan, inherited)

    def best(choices: list[list[Rewrite]]) -> tuple[list[Rewrite], Emission]:
        # Of places that are as good: one that the source can express, without a new parameter that its notes tell of.
        return min(map(emitted, choices), key=lambda one: (len(one[1].covered) < len(one[0]), len(one[1].notes)))

    without_own: list[list[Rewrite]] = [[]] if choices[0] and inherited.rewrites else []
    tried = [best(choices)] if choices[0] or inherited.rewrites else []
    with contextlib.closing(study.input_runner(source)) as runner:
        for added, emission in itertools.chain(tried, map(emitted, without_own)):
            journal.update_dataset(rejected=(*journal.result.rejected, *emission.not_covered))
            own = Plan(pipeline.name, tuple(one for one in added if one.key in emission.covered))
            plan = Plan(pipeline.name, (*inherited.rewrites, *own.rewrites))
            if added and not own.rewrites:
                continue
            compared_with = inherited if own.rewrites else Plan(pipeline.name)
            patch = patch_of(study, emission, training)
            failure = _store_plan(study, runner, patch, plan, compared_with, end=end)
            if failure is None:
                break
            reason, why = failure
            rejected = tuple(Rejection(one.rule, one.node, why, reason=reason) for one in own.rewrites)
            journal.update_dataset(rejected=(*journal.result.rejected, *rejected))
            if reason is RejectionReason.NO_TIME:
                return journal.add_notes(_NO_TIME.format(pipeline.name))
        if not allowed and all(one.rule != cache.NAME for choice in choices for one in choice):
            _offer_cache(study, runner, *best(candidates(reorders=True)), inherited=inherited, end=end)


def _offer_cache(
    study: Study, runner: TensorFlowRunner, added: list[Rewrite], emission: Emission, *, inherited: Plan, end: float
) -> None:
    """Offers a cache that freezes an order if it is in `added`, the source can express it, and it shortens a pass.

    As behind `image_dataset_from_directory`, which shuffles: what a whole pass yields is the same in any order.
    """
    journal = study.journal
    frozen = next((one for one in added if one.safety is Safety.REORDERS), None)
    if frozen is None or not all(one.key in emission.covered for one in added) or time.monotonic() > end:
        return
    plan = Plan(runner.source.pipeline.name, (*inherited.rewrites, *added))
    failure = _store_plan(study, runner, PatchResult(), plan, journal.result.plan or inherited, end=end, offer=frozen)
    if failure is not None:
        reason, why = failure
        rejection = Rejection(frozen.rule, frozen.node, why, reason=reason)
        journal.update_dataset(rejected=(*journal.result.rejected, rejection))


def _store_plan(
    study: Study,
    runner: TensorFlowRunner,
    patch: PatchResult,
    plan: Plan,
    without: Plan,
    *,
    end: float,
    offer: Rewrite | None = None,
) -> tuple[RejectionReason, str] | None:
    """Stores a plan of the validation data if it keeps them and shortens a pass; else returns why it does not.

    `patch` has the plan; `without` is the plan whose passes are to be shortened; `end` is as in `_find_plan`. If the
    plan needs approval for the rewrite `offer`, that is offered in its place.
    """
    journal, source, cost = study.journal, runner.source, study.journal.result.cost
    assert cost is not None and cost.epoch_wall_seconds is not None and cost.epoch_elements is not None
    written = cost.epoch_wall_seconds
    journal.report_progress(f"comparing {source.pipeline.name} with and without its rewrites")
    comparison = runner.compare(plan)
    if not allows(comparison, plan):
        why = comparison.why or "it could not be shown to yield the same data"
        return RejectionReason.NOT_EQUAL, f"{why}."
    with runner.measuring():
        before, after = (
            pass_seconds(runner.dataset(one), elements=cost.epoch_elements, seconds=max(1.0, written))
            if one.rewrites
            else written
            for one in (without, plan)
        )
    measured = f"A pass takes {two_digits(after)} s with it and {two_digits(before)} s without."
    if before < _LEAST_GAIN * after:
        return RejectionReason.NOT_FASTER, measured
    filling = runner.seconds_to_fill(plan, written) or 0.0
    if time.monotonic() + filling + VALIDATION_PAIRS * (written + after) > end:
        return RejectionReason.NO_TIME, "There was no time to measure it in pairs."
    if offer is not None:
        missing = study.settings.missing(offer.consents, randomness_fixed=study.subject.randomness_fixed)
        consent = "--allow " + ",".join(sorted(one.value for one in missing))
        journal.update_dataset(offered=(OptionalRewrite(offer, None, consent, measured),))
        return None
    edited = runner.edited(plan)
    patch = replace(patch, expected=expected_digests(replay(source, edited), seed=study.settings.seed))
    order = order_of(source.pipeline, plan)
    journal.update_dataset(plan=plan, tuned=edited, comparison=comparison, order=order, patch=patch)
    return None


def _passes(epochs: int | None, use: Consumption) -> int | None:
    """Returns how often the script validates in so many epochs of training; None if that is not known."""
    return None if epochs is None or use.every_in_steps else epochs // use.every


def _candidates(
    study: Study,
    source: LivePipeline,
    use: Consumption,
    *,
    inherited: Plan,
    elements: int | None,
    free_bytes: float,
    reorders: bool = False,
) -> list[list[Rewrite]]:
    """Returns what is tried: `take` and `skip` before maps whose results they drop, and a cache; else parallel maps.

    There is no cache where the number of elements is unknown. If it may stand at several places, there is one list for
    each, the best first; one alone where what moves excludes it, for source may have no form for that. One is tried.

    These rules need no profile, which would take longer than there is time for validation. Figures of validation are
    compared from run to run: only EXACT rewrites are tried, and a split before draws that no run repeats anyway. With
    `reorders`, a cache that freezes an order is tried where no other may stand.
    """
    settings, pipeline = study.settings, source.pipeline
    epochs = _passes(study.subject.use.epochs, use) if use.role == "validation" else None
    turns = rebuild_loops(source, use)
    context = RuleContext(
        pipeline=pipeline,
        cores=study.cores,
        memory_limit_bytes=free_bytes,
        randomness_fixed=study.subject.randomness_fixed,
        built_in_loop=frozenset(turns),
        rebuilt_operators=rebuilt_operators(pipeline, turns, epochs=epochs),
        partial_read=use.steps_per_epoch is not None,
        elements_read=use.readings.elements,
        rewritten_file=study.subject.written_files.written_again(source, use.call_path),
        epochs=_passes(study.subject.epochs, use),
        fingerprint=pipeline.fingerprint,
        detected_cores=study.machine.cores_detected,
        device=study.machine.device,
        resuming=study.subject.resuming_elsewhere,
    )

    def measured_bytes(node: Node) -> float:
        with study.runner.measuring():
            return element_bytes(next(iter(source.datasets[node.id])))

    def may_be_tried(one: Rewrite) -> bool:
        redrawn = one.rule == _DROPPING and one.safety is Safety.STATISTICAL and not context.randomness_fixed
        allowed = one.needs <= settings.allow and one.rule not in settings.without
        frozen = reorders and one.rule == cache.NAME
        return allowed and (redrawn or one.safety is Safety.EXACT or frozen)

    proposed = list(filter(may_be_tried, propose_all(context)[0]))
    early = [one for one in proposed if one.rule == _DROPPING]
    parallel = [one for one in proposed if one.rule == _PARALLEL and AUTOTUNE in values_of(one)]
    repeats = replace(context, python_repeats=Consent.PYTHON_CACHE in settings.allow)
    whole = functools.partial(cache.cache_whole_passes, repeats, elements=elements or 0, element_bytes=measured_bytes)
    cached = whole() if elements else []
    if elements and reorders and not cached:
        cached = whole(reorders=True)
    known = {one.key for one in inherited.rewrites}
    caches = [[one] for one in cached if may_be_tried(one)]
    together = [[*early, *one] for one in caches] if early else []
    found = list[list[Rewrite]]()
    for tried in [*together, *caches] or [early or parallel]:
        chosen = list[Rewrite]()
        for one in tried:
            if one.key not in known and not find_conflict(context, [*inherited.rewrites, *chosen, one]):
                chosen.append(one)
        if not any(all(one in other for one in chosen) for other in found):
            found.append(chosen)
    return found

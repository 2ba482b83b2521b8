"""Step 1 where the script has caches of its own: whether the first epoch is measured, or those after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pipetune.capture import findings
from pipetune.capture.rebuilding import rebuild_loops, rebuilt_operators
from pipetune.core.pipeline import INFINITE
from pipetune.core.profile import Profile, finding_at
from pipetune.core.results import RunFailed, two_digits
from pipetune.measure.caches import FullCaches, counted, with_full_caches
from pipetune.rewrites.epoch_constancy import ends_early
from pipetune.rewrites.rule import RuleContext
from pipetune.stages.profiling import take_profile
from pipetune.stages.study import Study

_TOLD_SHARE, _TOLD_SECONDS = 0.1, 1.0
"""What filling the caches adds to the training, from which on it is told: as a share, and in seconds where the share is
not known. By judgement: less decides nothing."""

_FIRST_EPOCH_SHARE, _FIRST_EPOCH_SECONDS = 0.5, 10.0
"""Share of the training that filling the caches may add. If it adds more, the first epoch is what is measured, unless
filling takes less than these seconds: windows would complete the caches."""

_LATER = "Later epochs read from the cache, and gain nothing from what is upstream of it."
_BUILD_ONCE = "Build the dataset once, before the loop, or remove its cache and analyze the script again."


def profile_training(study: Study) -> Profile:
    """Returns the profile of the original pipeline and its consumer, which is also stored in the session.

    Where the script has caches of its own, it is that of the epochs after the first, if these take longer.

    Raises:
        RunFailed: the pipeline cannot be run at all.
    """
    full = _fill_own_caches(study) if _reads_full_caches(study) else None
    leaves_early = study.subject.elements_read is not None  # else no count is needed
    if full is not None and leaves_early and _may_stay_incomplete(study, counted(full)):
        study.runner.measured = study.subject.source
        full = None
    if full is None:
        return take_profile(study)
    seconds = full.seconds
    profile = take_profile(study, cache_seconds=seconds)
    rebuilds = _is_rebuilt(study)
    share = 1.0 if rebuilds else _added_share(study, profile, seconds)
    takes = f"which takes {'more than' if full.at_least else 'about'} {two_digits(seconds)} s"
    if share is not None:
        takes += ", again in each iteration of the loop" if rebuilds else f": {share:.0%} of the training"
    if share is not None and share > _FIRST_EPOCH_SHARE and seconds > _FIRST_EPOCH_SECONDS:
        study.runner.measured = study.subject.source
        study.journal.update(training=None)  # of later epochs
        _warn(
            study,
            f"{takes}. So this epoch was measured, and a gain holds for it alone.",
            _BUILD_ONCE if rebuilds else _LATER,
        )
        return take_profile(study)
    if share > _TOLD_SHARE if share is not None else seconds > _TOLD_SECONDS:
        never = ", which this script does not have" if rebuilds else ""
        hint = (
            "Nothing upstream of the cache runs in those epochs. If the same data is read in many runs, a cache in a "
            "file is filled once."
        )
        _warn(study, f"{takes}. What was measured are the epochs after it{never}.", _BUILD_ONCE if rebuilds else hint)
    return profile


def _reads_full_caches(study: Study) -> bool:
    """Whether the script reads its data again once its own memory caches are full, as far as that is known.

    Of a cache with an unknown number of elements, that number tells, once it is filled.
    """
    subject = study.subject
    use, caches = subject.use, subject.source.pipeline.memory_caches
    passes, unknown = _passes(study), {cache.id: 1 for cache in caches if cache.cardinality < 0}
    if study.team is not None or subject.partial_read or not caches or (passes is not None and passes < 2):
        return False
    if _may_stay_incomplete(study, unknown):
        return False
    return not findings.leaves_caches_incomplete(subject.source, use, subject.other_datasets)


def _is_rebuilt(study: Study) -> bool:
    """Whether a loop of the script builds one of its caches in each iteration, which reads it once."""
    pipeline, use = study.subject.source.pipeline, study.subject.use
    rebuilt = rebuilt_operators(pipeline, rebuild_loops(study.subject.source, use), epochs=use.epochs)
    return any(
        cache.id in rebuilt and all(reader.op != "repeat" for reader in pipeline.downstream(cache.id))
        for cache in pipeline.memory_caches
    )


def _may_stay_incomplete(study: Study, counts: Mapping[str, int]) -> bool:
    """Whether the loop that reads the data may begin anew before each of the script's caches has all its elements.

    `counts` has how many these are, by node id, where TensorFlow does not know it.
    """
    pipeline = study.subject.source.pipeline
    nodes = tuple(replace(node, cardinality=counts.get(node.id, node.cardinality)) for node in pipeline)
    context = RuleContext(replace(pipeline, nodes=nodes), elements_read=study.subject.elements_read)
    return any(ends_early(context, cache) for cache in context.pipeline.memory_caches)


def _passes(study: Study) -> float | None:
    """Returns how often the script reads its data in all; None if that is not known."""
    subject, steps = study.subject, study.runner.epoch_steps
    if subject.source.pipeline.output.cardinality != INFINITE:
        return subject.epochs
    taken = subject.use.steps_per_epoch
    return taken * subject.epochs / steps if taken and subject.epochs and steps else None


def _fill_own_caches(study: Study) -> FullCaches | None:
    """Lets windows read the script's own caches as later epochs find them, and returns these; None if that cannot be.

    The budget counts from the end of it: later epochs begin there.
    """
    journal, limit = study.journal, study.time_plan.seconds_to_fill_caches()
    source = study.subject.source
    with journal.phase("capture", "filling the cache of the script, as its first epoch does"):
        try:
            with study.runner.measuring():
                full = with_full_caches(
                    source, seconds=limit, most_bytes=study.resident_bytes + study.memory_limit_bytes
                )
        except RunFailed as problem:
            why = str(problem).rstrip(".")
            _warn(
                study,
                f"and only that epoch was measured. {why}.",
                f"{_LATER} With a larger --budget, the cache is filled before anything is measured.",
            )
            return None
    study.runner.measured = full.live
    study.time_plan.begin()
    return full


def _added_share(study: Study, profile: Profile, cache_seconds: float) -> float | None:
    """Returns which share of the training is added by filling the caches; None if its length is not known."""
    passes, steps, step = _passes(study), study.runner.epoch_steps, profile.consumer.real_seconds
    if passes is None or steps is None or step is None:
        return None
    added = max(0.0, cache_seconds - steps * step)
    return added / (added + passes * steps * step)


def _warn(study: Study, takes: str, hint: str) -> None:
    """Adds the warning about the first of the script's caches."""
    (cache, *_) = study.subject.source.pipeline.memory_caches
    message = f"The first epoch fills this cache, {takes}"
    study.journal.add_findings([finding_at("cache-fill", cache, message, hint)])

"""Steps 1 and 2b: the cost of each operator, measured in two ways, and how input and model share a training step; where
the script has caches of its own, in the first epoch or in those after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from pipetune.capture import findings
from pipetune.capture.rebuilding import rebuild_loops, rebuilt_operators
from pipetune.core.edits import Plan
from pipetune.core.measurement import Interval, Pause, RunFailed, percent, two_digits
from pipetune.core.pipeline import INFINITE, Node, Pipeline
from pipetune.core.profile import (
    LONGEST_FILL_SECONDS,
    ConsumerProfile,
    CostSource,
    Diagnosis,
    Finding,
    MemoryGrowth,
    OperatorProfile,
    Profile,
    finding_at,
)
from pipetune.core.session import TrainingResult
from pipetune.core.time_plan import AUTOTUNE_SETTLING, MEMORY_GROWTH, OPERATOR_COSTS, STALL, Part, SystemClock
from pipetune.measure import machine, profiler, runtime_choices
from pipetune.measure.caches import CutBuffers, FullCaches, counted, cut_buffers, with_full_caches
from pipetune.measure.differencing import Cost, DifferencingResult, measure_costs
from pipetune.measure.epochs import measure_transfer
from pipetune.measure.memory import MemorySamples, sample_memory
from pipetune.measure.stall import Stall, measure_stall
from pipetune.model.bottleneck import diagnose, output_buffer
from pipetune.model.memory import added_bytes, growth
from pipetune.model.segments import fused_map_batch_pairs
from pipetune.pipelines.element_counting import count_elements
from pipetune.rewrites.epoch_constancy import ends_early
from pipetune.rewrites.rule import RuleContext
from pipetune.stages.study import Study

ORIGINAL = Plan("defaults")

_INPUT_SECONDS = 1.0  # of a window of the input alone, by judgement: shorter is noisier, longer delays the verdict
_COST_SECONDS = 1.5  # for the costs of all operators, by judgement: shorter is noisier, longer delays the verdict
_STEPS_SECONDS = 0.5  # of a window of training steps: where the wait is clear four pairs end it, else there are more
_MOST_STEPS, _MOST_LOOP_STEPS = 500, 60  # a loop may end after a few hundred steps
_LONG_START_SECONDS = 0.5  # of a first element, by judgement: where one takes as long, the length of an epoch matters
_COUNT_SECONDS = 1.0  # for one reader, by judgement: longer delays the verdict
_NOTABLE_START = 0.03  # share of training: what counts as a gain
_COLD = 2.0
"""How many times slower than alone the input may get beside a model that uses no processor: between two elements its
threads sleep, and its data leave the caches. By judgement; with a model that keeps all of them busy it is once more."""


def take_profile(study: Study, *, cache_seconds: float | None = None) -> Profile:
    """Returns the profile of the original pipeline and its consumer, which is also stored in the session.

    Args:
        study: the study.
        cache_seconds: that it took to fill the script's own caches; None: they are empty.

    Raises:
        RunFailed: the pipeline cannot be run at all.
    """
    journal, runner = study.journal, study.runner
    part = study.time_plan.scale
    with journal.phase("profile", "measuring the input alone"):
        with runner.measuring():
            # Workers in lockstep would each cut by what they measure.
            cut = cut_buffers(runner.measured) if study.team is None else runner.cut
        if cut.fill_seconds > LONGEST_FILL_SECONDS:
            runner.cut = cut
        # Memory first: the process keeps what later trials allocate.
        counted = machine.reset_peak_rss()
        alone = runner.input_window(ORIGINAL, seconds=part * _INPUT_SECONDS, warmup_seconds=0.3)
        peak_mib = max(0.0, machine.peak_rss_bytes() - study.resident_bytes) / 2**20 if counted else None
        counts = runner.profile.cardinality if runner.profile is not None else None
        starts_late = bool(cut.sizes) or alone.first_seconds > _LONG_START_SECONDS
        if starts_late and runner.epoch_steps is None and study.team is None:
            journal.report_progress("counting the elements of an epoch, whose start takes long")
            with runner.measuring():
                counts = count_elements(study.subject.source, limit_seconds=part * _COUNT_SECONDS)
                cut = cut_buffers(runner.measured, counts) if cut.sizes else cut
        first, runner.cut = runner.cut, cut
        journal.report_progress("reading the cost of each operator")
        runner.drop_file_caches()
        with runner.measuring():
            costs = profiler.profile_input(
                runner.cut.source, seconds=part * _COST_SECONDS, full_caches=cache_seconds is not None
            )
    with journal.phase("verdict", "comparing the training step with one cached batch"):
        epoch = study.subject.source.pipeline.epoch_elements(counts or {})
        pause = alone.pause.within(epoch) if alone.pause is not None else None
        consumer = _consumer_profile(study, alone.step_seconds, pause, epoch=epoch, fill_seconds=cut.fill_seconds)
    first_seconds = alone.first_seconds + (cut.fill_seconds if first.sizes else 0.0)
    if runner.shares_processors and cut.fill_seconds <= LONGEST_FILL_SECONDS and _waits_at_starts(consumer):
        runner.cut = cut = CutBuffers(runner.measured)  # windows of plans must show what these save of it
    output = study.subject.source.pipeline.output
    by_node = {operator.node: operator for operator in costs.operators}
    profile = Profile(
        operators=costs.operators,
        consumer=consumer,
        examples_per_element=runner.examples_per_element,
        element_bytes=by_node[output.id].bytes_out,
        input_cpu_seconds=costs.cpu_seconds,
        input_wall_seconds=costs.wall_seconds,
        first_element_seconds=first_seconds,
        peak_rss_mib=peak_mib,
        cardinality=counts,
        cut_buffers=cut.sizes,
        fill_seconds=cut.fill_seconds,
        cache_seconds=cache_seconds,
        notes=(*costs.notes, *runner.notes),
        intervals=tuple(round(seconds, 7) for seconds in alone.intervals),
        pause=_waited_pause(study, pause, consumer),
    )
    if peak_mib is not None:
        missing = added_bytes(first.source.pipeline, study.subject.source.pipeline, profile) / 2**20
        profile = replace(profile, peak_rss_mib=peak_mib + missing)
    if journal.session.training is None:  # as measured before any trial, or why it was not
        real, bound = (None if one is None else 1000 * one for one in (consumer.real_seconds, consumer.bound_seconds))
        journal.update(training=TrainingResult(defaults_step_ms=real, bound_step_ms=bound, why=consumer.why))
    rate = replace(alone.rate, first_batch_seconds=first_seconds, peak_rss_mib=profile.peak_rss_mib)
    return study.store_profile(profile, rates={"defaults": rate})


def _waits_at_starts(consumer: ConsumerProfile) -> bool:
    """Whether training waits at the starts of epochs above all."""
    share, real = consumer.wait_share, consumer.real_seconds
    if share is None or real is None:
        return False
    return consumer.start_seconds > real * max(_NOTABLE_START, share.median / 2)


_AUTOTUNE_AHEAD = 512
"""Elements that a prefetch with AUTOTUNE holds in the end: it doubles its buffer as often as training finds it empty
(TensorFlow's prefetch_autotuner.h), which takes more pauses than windows have."""


def _elements_ahead(study: Study) -> int:
    """Returns how many elements the pipeline prepares ahead of training."""
    buffer = output_buffer(study.subject.source.pipeline)
    return _AUTOTUNE_AHEAD if buffer is None else buffer


def _waited_pause(study: Study, pause: Pause | None, consumer: ConsumerProfile) -> Pause | None:
    """Returns the pauses of the input if training waits for them, at least in part; None if that hardly matters."""
    step = consumer.bound_seconds
    if pause is None or not step:
        return None
    waited = pause.unbridged(_elements_ahead(study), step)
    return pause if waited is not None and waited.matters(step) else None


def _slowdown(stall: Stall, cores: float) -> float:
    """Returns how many times slower than alone the input may get beside the model."""
    return _COLD + min(1.0, stall.bound_cpu_seconds / (cores * stall.bound_seconds))


_LONGER = 1.1
"""A step on a repeated batch that takes this much longer than a real one in every pair does other work. By judgement:
noise of a tenth in one direction is not found in all of four pairs."""


def _limited(
    share: Interval, *, input_share: float, slowdown: float, start_share: float, ratios: Sequence[float] = ()
) -> Interval:
    """Returns the wait share, limited to what an input that never overlaps with the step could cause.

    If the whole interval lies above that limit, something else made the real step longer than the one on a repeated
    batch (batches of other shapes, other work): the wait is anything up to the limit, and half of it is expected. It is
    anything, too, if that made the step on a repeated batch longer: the loop does more where it is a certain one.

    Args:
        share: as measured.
        input_share: what the input takes alone, as a share of a real step.
        slowdown: how many times slower than alone the input may get beside the model.
        start_share: what the start of an epoch takes, as a share of a real step.
        ratios: of steps on a repeated batch and real ones, pair by pair.
    """
    most = slowdown * input_share + start_share
    if ratios and min(ratios) > _LONGER:
        return replace(share, high=min(most, 0.99), method=f"{share.method}; a step on one repeated batch takes longer")
    if share.high <= most:
        return share
    low = share.low if share.low < most else 0.0
    return replace(
        share,
        median=share.median if share.median < most else (low + most) / 2,  # the middle of what is left
        low=low,
        high=most,
        method=f"{share.method}; at most {slowdown:.2g} times what the input takes alone",
    )


def _consumer_profile(
    study: Study, input_seconds: float, pause: Pause | None, *, epoch: int | None, fill_seconds: float
) -> ConsumerProfile:
    consumer, runner = study.subject.consumer, study.runner
    if not runner.trains:
        return ConsumerProfile(kind=consumer.kind, input_seconds=input_seconds, why=consumer.description)
    try:
        stall: Stall = measure_stall(
            lambda steps: runner.training_window(ORIGINAL, steps=steps, epoch_steps=epoch).counting_start(
                epoch, more_seconds=fill_seconds
            ),
            lambda steps: runner.bound_window(steps=steps).counting_start(epoch),
            clock=SystemClock(),
            limit_seconds=study.time_plan.seconds_for(STALL),
            input_seconds=input_seconds,
            pause=pause,
            ahead=_elements_ahead(study),
            epoch_steps=epoch,
            most_steps=_MOST_LOOP_STEPS if consumer.kind == "loop" else _MOST_STEPS,
            window_seconds=_STEPS_SECONDS,
            seed=study.settings.seed,
            steps=study.settings.steps,
        )
    except RunFailed as failure:
        return ConsumerProfile(kind=consumer.kind, input_seconds=input_seconds, why=str(failure))
    share = _limited(
        stall.share,
        input_share=input_seconds / stall.real_seconds,
        slowdown=_slowdown(stall, study.cores),
        start_share=stall.start_seconds / stall.real_seconds,
        ratios=stall.ratios,
    )
    return ConsumerProfile(
        kind=consumer.kind,
        real_seconds=stall.real_seconds,
        bound_seconds=stall.bound_seconds,
        input_seconds=input_seconds,
        wait_share=share,
        bound_cpu_seconds=stall.bound_cpu_seconds or None,
        real_cpu_seconds=stall.real_cpu_seconds or None,
        start_seconds=stall.start_seconds,
    )


_LEAST_COST_SECONDS = 1.5  # by judgement: in less, too few rounds are measured for an interval


def refine_costs(study: Study, profile: Profile, diagnosis: Diagnosis) -> tuple[Profile, Diagnosis]:
    """Returns profile and diagnosis with the costs measured by prefix differencing; both are stored in the session.

    If that is not possible, it does not raise: the costs stay those of the runtime's model, and a note says why.
    """
    pipeline = study.subject.source.pipeline
    notes = (*profile.notes, *fusion_notes(pipeline))
    seconds = study.time_plan.seconds_for(OPERATOR_COSTS)
    try:
        if study.time_plan.quick or seconds < _LEAST_COST_SECONDS:
            raise RunFailed("the time budget is too short to measure them")
        with study.journal.phase("costs", "measuring the cost of each operator in a second way"):
            operators = {operator.node: operator for operator in profile.operators}
            with study.runner.measuring():
                found = measure_costs(
                    study.runner.cut.source,
                    operators,
                    seconds=seconds,
                    seed=study.settings.seed,
                    full_caches=profile.cache_seconds is not None,
                )
        profile = with_differences(replace(profile, notes=notes), pipeline, found)
        diagnosis = diagnose(pipeline, profile, study.machine, study.settings)
    except RunFailed as failure:
        profile = replace(profile, notes=(*notes, f"{_MODEL_ALONE}: {str(failure).rstrip('.')}."))
    study.store_profile(profile, diagnosis=diagnosis)
    if study.journal.studies_training:
        study.journal.report_bottleneck(diagnosis)
    return profile, diagnosis


def with_differences(profile: Profile, pipeline: Pipeline, found: DifferencingResult) -> Profile:
    """Returns the profile with the costs measured by differencing; the input's cost is the sum over its operators."""
    operators = tuple(_measured(operator, found, pipeline[operator.node]) for operator in profile.operators)
    return replace(
        profile,
        operators=operators,
        input_cpu_seconds=sum((one.visits or 0.0) * (one.cpu_seconds or 0.0) for one in operators),
        input_wall_seconds=sum((one.visits or 0.0) * (one.wall_seconds or 0.0) for one in operators),
        notes=(*profile.notes, *(_SEVERAL_THREADS.format(pipeline[name].title) for name in found.several_threads)),
    )


def _measured(operator: OperatorProfile, found: DifferencingResult, node: Node) -> OperatorProfile:
    visits = found.visits.get(operator.node, operator.visits)
    cost = found.costs.get(operator.node)
    if cost is None or _lost_in_noise(cost, operator, node):
        return replace(operator, visits=visits)
    return replace(
        operator,
        visits=visits,
        cpu_seconds=cost.cpu.median,
        wall_seconds=cost.wall.median,
        waiting_seconds=cost.waiting.median,
        cpu_interval=cost.cpu,
        waiting_interval=cost.waiting,
        several_threads=cost.several_threads,
        cost_source=CostSource.PREFIX_DIFFERENCING,
    )


def _lost_in_noise(cost: Cost, operator: OperatorProfile, node: Node) -> bool:
    """Whether differences cannot tell an operator's cost from nothing, and the runtime's model can.

    Downstream of an expensive operator a cheap one is lost in the noise of the differences: a batch of 2 MB after maps
    of 20 ms seemed to cost nothing (less, in fact), but alone downstream of a cache it is all that is left. It took
    400 us, and the runtime counted 415. The runtime's clock is exact for an operator that calls no function.
    """
    if operator.cpu_seconds is None or cost.cpu.low > 0 or cost.waiting.low > 0:
        return False
    return node.function is None or operator.cpu_seconds <= cost.cpu.high


def fusion_notes(pipeline: Pipeline) -> tuple[str, ...]:
    """Returns the notes on operators that TensorFlow fuses when it runs the original pipeline."""
    return tuple(
        f"TensorFlow fuses {pipeline[first].title} and {pipeline[second].title} into one operator; the cost of "
        "each is taken from the unfused operators."
        for first, second in fused_map_batch_pairs(pipeline)
    )


_MODEL_ALONE = "The costs come from the runtime's model, which cannot distinguish waiting from working"
_SEVERAL_THREADS = (
    "The kernels of {0} use several threads at once: its CPU time is the sum over these threads and exceeds its wall "
    "time."
)


def time_device_copy(study: Study, profile: Profile) -> Profile:
    """Returns the profile with the copy to the GPU timed; unchanged if the device is no GPU. Takes half a second."""
    if study.machine.device != "gpu":
        return profile
    study.journal.report_progress("measuring the copy to the device")
    try:
        with study.runner.measuring():
            profile = replace(profile, transfer=measure_transfer(study.subject.source.dataset, "/GPU:0"))
    except RunFailed as failure:
        study.journal.add_notes(str(failure))
    return study.store_profile(profile)


_FEWEST_SECONDS = 0.4  # by judgement: in less time too few elements pass for a slope, and nothing is measured


def watch_memory(study: Study, profile: Profile) -> Profile:
    """Returns the profile with the growth of memory; growth that does not stop becomes a finding.

    Steady growth is measured a second time, on a fresh iterator: growth that only fills a cache or the free lists of an
    allocator has stopped by then. Nothing is measured where there is no time to fill the script's own shuffle buffers.
    """
    journal, seconds = study.journal, study.time_plan.seconds_for(MEMORY_GROWTH)
    filling = profile.first_element_seconds or 0.0
    if seconds < _FEWEST_SECONDS or not study.time_plan.affords(Part.INFORMATION, filling + seconds):
        return profile
    with journal.phase("memory", "watching memory while the input runs"):
        seen = _watch(study, seconds)
        if seen is None:
            return profile
        found = _growth(study, seen)
        if found is not None and found.steady:
            again = _watch(study, seconds)
            found = _growth(study, again) if again is not None else None
    profile = study.store_profile(replace(profile, growth=found, held=seen.held))
    if found is not None and found.steady:
        journal.add_findings([finding(study, found)])
    return profile


def _watch(study: Study, seconds: float) -> MemorySamples | None:
    try:
        with study.runner.measuring():
            return sample_memory(study.runner.measured.dataset, seconds=seconds)
    except RunFailed:
        return None


def _growth(study: Study, seen: MemorySamples) -> MemoryGrowth | None:
    count = study.subject.source.pipeline.output.cardinality
    return growth(seen.samples, epoch_elements=count if count > 0 else None)


def finding(study: Study, found: MemoryGrowth) -> Finding:
    """Returns the finding about growing memory, at the Python function that may retain what it creates, if any."""
    node = next((one for one in study.subject.source.pipeline if one.runs_python), None)
    place = node.location if node is not None else None
    slope = found.bytes_per_element.median * (found.epoch_elements or 1000)
    per = "epoch" if found.epoch_elements else "1,000 elements"
    return Finding(
        "memory-grows",
        f"Memory grows by {slope / 2**20:,.1f} MiB per {per} while the input runs alone, and does not stop: "
        f"{found.grown_bytes / 2**20:,.0f} MiB in {found.elements:,} elements.",
        f"Check what the Python code of {node.title} retains between calls."
        if node is not None
        else "Something in the input retains what it creates: an unbounded cache, a table or a Python list.",
        place.file if place else None,
        place.line if place else None,
    )


def read_tensorflow_optimizations(study: Study) -> None:
    """Stores which graph passes TensorFlow applies, and the values in effect so far, in the session.

    Takes a few tenths of a second.
    """
    study.journal.update_dataset(optimisations=runtime_choices.read_passes(study.subject.source))
    store_autotuned(study, {"defaults": ORIGINAL})


def watch_autotune(study: Study) -> None:
    """Reads the values that AUTOTUNE settles on for the original pipeline, if it has any to choose."""
    so_far = study.runner.autotune_readings.get(ORIGINAL.key)
    if so_far is None or not any(value.tunable for value in so_far.values):
        return
    study.journal.report_progress("waiting for AUTOTUNE to settle")
    with suppress(RunFailed):  # the baselines will report the failure
        study.runner.watch_autotune(ORIGINAL, seconds=study.time_plan.seconds_for(AUTOTUNE_SETTLING))


def store_autotuned(study: Study, plans: dict[str, Plan]) -> None:
    """Stores the values in effect under these plans in the session, as far as they were read in their windows."""
    seen = {
        name: study.runner.autotune_readings[plan.key]
        for name, plan in plans.items()
        if plan.key in study.runner.autotune_readings and name != "off"
    }
    study.journal.update_dataset(autotuned={**study.journal.result.autotuned, **seen})


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
    share = 1.0 if rebuilds else _added_share(study, profile, full)
    takes = f"which takes {'more than' if full.at_least else 'about'} {two_digits(seconds)} s"
    if share is not None:
        longer = f"longer than later epochs by {percent(share)} of the training"
        takes += f", {'again in each iteration of the loop' if rebuilds else longer}"
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


def _added_share(study: Study, profile: Profile, full: FullCaches) -> float | None:
    """Returns which share of the training is added by filling the caches; None if its length is not known."""
    passes, step = _passes(study), profile.consumer.real_seconds
    steps = study.runner.epoch_steps or study.subject.source.pipeline.epoch_elements(counted(full))
    if passes is None or steps is None or step is None:
        return None
    added = max(0.0, full.seconds - steps * step)
    return added / (added + passes * steps * step)


def _warn(study: Study, takes: str, hint: str) -> None:
    """Adds the warning about the first of the script's caches."""
    (cache, *_) = study.subject.source.pipeline.memory_caches
    message = f"The first epoch fills this cache, {takes}"
    study.journal.add_findings([finding_at("cache-fill", cache, message, hint)])

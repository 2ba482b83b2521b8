"""The verdict: whether the input holds training back, which operator it is and why, and what a change would save."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from pipetune.core.machine import Machine
from pipetune.core.measurement import Interval, joined, percent
from pipetune.core.operators import operator_facts
from pipetune.core.pipeline import AUTOTUNE, Node, Pipeline
from pipetune.core.profile import INPUT_BOUND_ABOVE, LARGEST_BUFFER, NOT_BOUND_BELOW, Cause, Diagnosis, Profile, Verdict
from pipetune.core.results import Scenario
from pipetune.core.settings import Settings
from pipetune.model.segments import defaults_apply
from pipetune.model.throughput import Bound, ThroughputPrediction, no_prediction_reason, predict, sequential_segments

_SMALL = 0.05  # share of a step below which waiting needs no explanation
_EXPLAINS = 0.5  # share of the lost overlap that a cause must explain
_FULL = 0.75  # share of the available CPU time above which input and model compete for it
_INJECTED = "experimental_optimization.inject_prefetch"
_ENOUGH = 0.02  # of a step; a buffer that is within this of an unlimited one suffices


@dataclass(frozen=True)
class Explanation:
    """The cause, the operator responsible (None if there is none), and a sentence to add to the verdict."""

    cause: Cause
    node: str | None = None
    sentence: str = ""


def explain(pipeline: Pipeline, profile: Profile, bottleneck: str | None, cores: float) -> Explanation | None:
    """Returns the most likely cause, regardless of how certain the verdict is; None if no operator's cost is known.

    Args:
        pipeline: the original pipeline.
        profile: its measurements.
        bottleneck: the operator that binds the input alone; None if no cost is known.
        cores: cores available to the process.
    """
    consumer = profile.consumer
    wait, lost, real = consumer.input_wait_seconds, consumer.overlap_lost_seconds, consumer.real_seconds
    if consumer.wait_share is not None and consumer.wait_share.median < _SMALL:
        return Explanation(Cause.CONSUMER)
    if real and consumer.bound_seconds and (consumer.input_seconds or real) + consumer.start_seconds < _SMALL * real:
        return Explanation(Cause.CONSUMER)  # even without any overlap, the input would not matter
    start = consumer.start_wait_seconds
    if wait is not None and lost is not None and start is not None and real and start > max(wait, lost, _SMALL * real):
        share = f"{100 * start / real:.0f} %"
        return Explanation(Cause.START, None, f"The start of each epoch takes {share} of the time of training.")
    if wait is not None and lost is not None and real and lost > wait and lost > _SMALL * real:
        found = _overlap(pipeline, profile, lost, cores)
        if found is not None:
            return found
    if bottleneck is None:
        return None
    node = pipeline[bottleneck]
    measured = profile.operator(node.id)
    if node.runs_python or (measured is not None and measured.python):
        return Explanation(Cause.PYTHON, node.id, _PYTHON)
    return Explanation(Cause.OPERATOR, node.id)


_PYTHON = "It runs Python code, whose calls take turns wherever they hold the GIL."


def _overlap(pipeline: Pipeline, profile: Profile, lost: float, cores: float) -> Explanation | None:
    """Explains why input and model overlap less than they could; None if no cause explains enough of it."""
    consumer = profile.consumer
    bound = consumer.bound_seconds or 0.0
    buffer = output_buffer(pipeline)
    if buffer == 0:
        return Explanation(Cause.NO_PREFETCH, None, "Nothing is prepared ahead: input and model take turns.")
    if buffer is not None and profile.intervals:
        intervals = profile.intervals
        behind = buffered_step_seconds(intervals, bound, buffer) - buffered_step_seconds(intervals, bound, None)
        if behind >= _EXPLAINS * lost:
            enough = sufficient_buffer(intervals, bound)
            advice = f"; {enough} would be enough" if enough is not None and enough > buffer else ""
            slowest, usual = _duration(max(intervals)), _duration(statistics.median(intervals))
            return Explanation(
                Cause.BUFFER,
                next((node.id for node in reversed(pipeline.nodes) if node.op == "prefetch"), None),
                f"The input is fast enough on average but comes in bursts (up to {slowest} for an element, "
                f"half of them within {usual}), and the last prefetch buffers {buffer}{advice}.",
            )
    working = profile.input_cpu_seconds or 0.0
    needed = working + (consumer.bound_cpu_seconds or 0.0)
    longest = consumer.predicted_maximum or 0.0
    # The input can take no more time from the model than the CPU time it uses.
    if consumer.bound_cpu_seconds and working >= _EXPLAINS * lost and needed > _FULL * cores * longest:
        both = f"together they need {_duration(needed)} of CPU time per step"
        return Explanation(Cause.PROCESSORS, None, f"Input and model share the {core_count(cores)}: {both}.")
    return None


def _duration(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"


def output_buffer(pipeline: Pipeline) -> int | None:
    """Returns the number of elements prepared ahead of the consumer; 0 for none, None if TensorFlow chooses it.

    This is the buffer of the last prefetch, or of the one that TensorFlow appends to a pipeline without one at its end.
    """
    node = pipeline.last_except(("with_options",))
    if node.op == "prefetch":
        size = node.argument("buffer_size")
        return size if isinstance(size, int) and size != AUTOTUNE else None
    if defaults_apply(pipeline) and pipeline.options.get(_INJECTED) is not False:
        return None
    ahead = any(
        other.op == "prefetch"
        or ((name := operator_facts(other.op).parallel_argument) and other.argument(name) is not None)
        for other in pipeline
    )
    return None if ahead else 0


def buffered_step_seconds(intervals: Sequence[float], model_seconds: float, buffer: int | None) -> float:
    """Returns the seconds per step of a model that is fed through a buffer.

    Args:
        intervals: seconds that the input takes for each of several consecutive elements; not empty. They are repeated.
        model_seconds: seconds per step of the model alone.
        buffer: size in elements; 0 means that input and model take turns, None that the buffer is unlimited.
    """
    mean = statistics.fmean(intervals)
    if buffer is None:
        return max(mean, model_seconds)
    if buffer == 0:
        return mean + model_seconds
    count = len(intervals)
    taken = [0.0] * (2 * count)  # time at which the model takes each element
    made = 0.0
    for index in range(2 * count):  # the first pass fills the buffer, the second is measured
        room = taken[index - buffer] if index >= buffer else 0.0
        made = max(made, room) + intervals[index % count]
        free = taken[index - 1] + model_seconds if index else 0.0
        taken[index] = max(made, free)
    return (taken[-1] - taken[count - 1]) / count


def sufficient_buffer(intervals: Sequence[float], model_seconds: float) -> int | None:
    """Returns the smallest power of two that is about as good as an unlimited buffer; None if none is."""
    goal = (1 + _ENOUGH) * buffered_step_seconds(intervals, model_seconds, None)
    sizes = (1 << power for power in range(min(LARGEST_BUFFER, 2 * len(intervals)).bit_length()))
    return next((size for size in sizes if buffered_step_seconds(intervals, model_seconds, size) <= goal), None)


def verdict_of(share: Interval | None) -> Verdict:
    """Returns the verdict for the waiting share of a step, from the possible gain if the wait were gone.

    Where input and model share processors this includes the CPU time of the input: the step without a wait is measured
    on one repeated batch. The thresholds are those of `core.profile`.
    """
    if share is None:
        return Verdict.UNDETERMINED
    if share.high < NOT_BOUND_BELOW:
        return Verdict.NOT_INPUT_BOUND
    if share.high <= INPUT_BOUND_ABOVE:
        return Verdict.BALANCED
    return Verdict.INPUT_BOUND if share.low >= NOT_BOUND_BELOW else Verdict.UNDETERMINED


def diagnose(pipeline: Pipeline, profile: Profile, machine: Machine, settings: Settings) -> Diagnosis:
    """Returns what holds training back, from the measured wait and the cost model of the input.

    Args:
        pipeline: the original pipeline.
        profile: its measurements.
        machine: the machine; its cores and storage limit the prediction.
        settings: if set, `step_time_seconds` replaces the model's own time per step.
    """
    share = profile.consumer.wait_share
    prediction = predict(pipeline, profile, machine.cores_granted)
    bound_seconds = settings.step_time_seconds or profile.consumer.bound_seconds
    verdict = verdict_of(share)
    # If training was measured to wait, a segment can be at fault even though it is faster than the model when it
    # runs alone: the consumer's rate then is no bound.
    pretended = settings.step_time_seconds is not None
    keeps_up = bound_seconds and (pretended or verdict is Verdict.NOT_INPUT_BOUND)
    consumer_rate = 1 / bound_seconds if bound_seconds and keeps_up else float("inf")
    saved = most_saved_share(profile, bound_seconds)
    real = profile.consumer.real_seconds
    known = profile.operators and any(operator.cpu_seconds is not None for operator in profile.operators)
    reason = explain(pipeline, profile, prediction.bottleneck if known else None, machine.cores_granted)
    return Diagnosis(
        verdict=verdict,
        sentence=_sentence(verdict, share, saved, profile.consumer.why),
        wait_share=share,
        wait_seconds=None if share is None or real is None else share.median * real,
        most_saved_share=saved,
        bottleneck=prediction.bottleneck if known else None,
        bottleneck_sentence=_join_sentences(
            _bottleneck_sentence(pipeline, prediction, machine.cores_granted) if known else "", reason
        )
        + ("" if reason is not None and reason.cause is Cause.BUFFER else _pause_sentence(profile)),
        input_rate_bound=prediction.rate if known and prediction.rate < float("inf") else None,
        sequential_segments=sequential_segments(prediction, consumer_rate=consumer_rate) if known else (),
        cause=reason.cause if reason else None,
        cause_node=reason.node if reason else None,
    )


def _join_sentences(bottleneck: str, reason: Explanation | None) -> str:
    """Joins the bottleneck sentence and that of the cause; a cause that is not an operator comes first."""
    if reason is None or not reason.sentence:
        return bottleneck
    parts = [bottleneck, reason.sentence] if reason.cause is Cause.PYTHON else [reason.sentence, bottleneck]
    return " ".join(part for part in parts if part)


def _pause_sentence(profile: Profile) -> str:
    """Describes the pauses of an input that comes in bursts, where they may take a noticeable share of training."""
    pause, real = profile.pause, profile.consumer.real_seconds
    if pause is None or not real or pause.seconds_per_element < _SMALL * real:
        return ""
    bridged = f"; {profile.bridging_buffer} prefetched elements bridge a pause" if profile.bridging_buffer else ""
    return f" It pauses for {pause}{bridged}."


def most_saved_share(profile: Profile, bound_seconds: float | None = None) -> float | None:
    """Returns the largest share of a step that an input without cost would save; None if unknown.

    This is the upper end of the measured wait, else 1 - bound / real.
    """
    if profile.consumer.wait_share is not None:
        return max(0.0, profile.consumer.wait_share.high)
    bound = bound_seconds or profile.consumer.bound_seconds
    real = profile.consumer.real_seconds
    return None if bound is None or not real else max(0.0, 1 - bound / real)


def _sentence(verdict: Verdict, share: Interval | None, saved: float | None, why: str) -> str:
    if share is None:
        return "The time that training waits for its input could not be measured" + (
            f": {why.rstrip('.')}." if why else "."
        )
    between = f"{_percent(max(0.0, share.low))} to {_percent(share.high)}"
    waits = f"Training waits for input {_percent(share.median)} of each step ({between})"
    match verdict:
        case Verdict.NOT_INPUT_BOUND:
            return f"{waits}: the input does not hold training back."
        case Verdict.BALANCED:
            return f"{waits}: input and model are nearly in balance{_at_most(saved)}."
        case Verdict.INPUT_BOUND:
            return f"{waits}: the input holds training back{_at_most(saved)}."
        case Verdict.UNDETERMINED:
            return f"{waits}: too uncertain to tell whether the input holds training back{_at_most(saved)}."


def _at_most(saved: float | None) -> str:
    return "" if saved is None else f"; a better input can save at most {_percent(saved)} of a step"


def _percent(share: float) -> str:
    return percent(share, digits=0 if share >= 0.1 or share == 0 else 1)


def _bottleneck_sentence(pipeline: Pipeline, prediction: ThroughputPrediction, cores: float) -> str:
    """Describes which operator binds, its location, and in what way it binds."""
    if prediction.bound is Bound.CONSUMER:
        return "Taking elements in Python, one by one, bounds the input: with larger batches there are fewer elements."
    if prediction.bottleneck is None:
        return ""
    named = _named(pipeline[prediction.bottleneck], pipeline)
    others = [_named(pipeline[name], pipeline) for name in prediction.nodes if name != prediction.bottleneck]
    match prediction.bound:
        case Bound.SEGMENT:
            thread = f" in one thread with {_listed(others)}" if others else " in one thread"
            return f"{named} bounds the input: it runs{thread}."
        case Bound.PARALLEL:
            return f"{named} bounds the input: all its parallel calls are busy."
        case Bound.CORES:
            return f"{named} needs the most CPU time, and the input keeps all of the {core_count(cores)} busy."
        case Bound.STORAGE:
            return f"{named} bounds the input: it reads at the full speed of the storage."


def _named(node: Node, pipeline: Pipeline) -> str:
    """Operator, the call that makes it, file name and line; the folder would be too long for a sentence.

    Of several on one line, as `map(parse).map(augment)`, the function says which it is.
    """
    if node.location is None:
        return node.title
    method, place = node.location.method, (node.op, node.location.file, node.location.line)
    within = "" if method in ("", "apply", node.op) else f" of {method}"  # of several operators, as `list_files`
    alike = [one for one in pipeline if one.location and (one.op, one.location.file, one.location.line) == place]
    if len(alike) > 1 and node.function is not None and node.function.name.isidentifier():
        within = f" of {node.function.name}"
    return f"{node.title}{within} ({PurePath(node.location.file).name}:{node.location.line})"


def core_count(cores: float) -> str:
    """Returns a number of cores in words: "1 core", "2.5 cores"."""
    return f"{cores:g} core{'' if cores == 1 else 's'}"


def _listed(names: list[str]) -> str:
    return joined(names if len(names) <= 3 else [*names[:3], f"{len(names) - 3} more"])


_CORE_FACTORS = (2, 4)  # multiples of the available cores
_MODEL_SPEEDUPS = (2, 10)  # of the training step
_STORAGE_SPEEDUP = 4  # multiple of the storage bandwidth
_REPLICAS = (2, 4, 8)  # on this host; each takes its own batch per step
_MORE_MEMORY = "twice the memory"


def what_if(
    pipeline: Pipeline,
    profile: Profile,
    cores: float,
    *,
    step_seconds: float | None = None,
    storage_bytes_per_second: float | None = None,
    larger_memory_pipelines: Iterable[Pipeline] = (),
) -> tuple[Scenario, ...]:
    """Returns the scenarios, the current state first.

    At best training overlaps with its input, so the joint bound is the lower of the two rates.

    Args:
        pipeline: the original or the tuned pipeline.
        profile: its measured costs.
        cores: cores available to the process.
        step_seconds: step time of the model alone; None if not measured, then only the input is bounded.
        storage_bytes_per_second: storage bandwidth; None if unknown, then faster storage is left out.
        larger_memory_pipelines: the pipelines that twice the memory would allow.
    """
    if reason := no_prediction_reason(pipeline, profile):
        return (Scenario("as it is", why=reason),)

    def rated(
        name: str, of: Pipeline = pipeline, *, times: float = 1, storage: float = 1, model: float = 1, replicas: int = 1
    ) -> Scenario:
        bandwidth = None if storage_bytes_per_second is None else storage_bytes_per_second * storage
        found = predict(of, profile, cores * times, storage_bytes_per_second=bandwidth)
        training, binds = None, "input"
        if step_seconds:
            shared, alone = found.rate / replicas, model / step_seconds
            training, binds = min(shared, alone), "input" if shared < alone else "model"
        finite = found.rate if found.rate < float("inf") else None
        return Scenario(name, finite, training, binds, found.bottleneck, found.bound.value)

    now = rated("as it is")
    table = [now, *(rated(f"{factor} times the cores", times=factor) for factor in _CORE_FACTORS)]
    if step_seconds is not None:
        table += [rated(f"a training step {factor} times as fast", model=factor) for factor in _MODEL_SPEEDUPS]
    if storage_bytes_per_second is not None:
        table.append(rated(f"storage {_STORAGE_SPEEDUP} times as fast", storage=_STORAGE_SPEEDUP))
    trusted = (one for one in larger_memory_pipelines if not no_prediction_reason(one, profile))
    larger = [replace(now, name=_MORE_MEMORY), *(rated(_MORE_MEMORY, one) for one in trusted)]
    table.append(max(larger, key=lambda one: float("inf") if one.input_rate is None else one.input_rate))
    table += [rated(f"{count} replicas on this host", replicas=count) for count in _REPLICAS]
    return tuple(table)

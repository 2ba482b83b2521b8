"""The verdict: whether the input holds training back, how much that costs, and which operator is responsible.

Thresholds are those of XProf's input-pipeline analyzer: waiting for less than 5 % of a step is not input-bound, up to
20 % is balanced, and above that is input-bound.
"""

from __future__ import annotations

from pathlib import PurePath

from pipetune.core.machine import Machine
from pipetune.core.measurement import Interval
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.profile import Cause, Diagnosis, Profile, Verdict
from pipetune.core.settings import Settings
from pipetune.model.cause import Explanation, explain
from pipetune.model.throughput import Bound, Prediction, predict, sequential_segments

NOT_BOUND_BELOW = 0.05
INPUT_BOUND_ABOVE = 0.20


def verdict_of(share: Interval | None) -> Verdict:
    """The verdict for the waiting share of a step: undetermined unless the interval lies within one range."""
    if share is None:
        return Verdict.UNDETERMINED
    if share.high < NOT_BOUND_BELOW:
        return Verdict.NOT_INPUT_BOUND
    if share.low > INPUT_BOUND_ABOVE:
        return Verdict.INPUT_BOUND
    if share.low >= NOT_BOUND_BELOW and share.high <= INPUT_BOUND_ABOVE:
        return Verdict.BALANCED
    return Verdict.UNDETERMINED


def diagnose(pipeline: Pipeline, profile: Profile, machine: Machine, settings: Settings) -> Diagnosis:
    """Diagnoses what holds training back, from the measured wait and the cost model of the input.

    If set, `settings.step_time_seconds` replaces the model's own time per step.
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
        bottleneck_sentence=_why(
            _bottleneck_sentence(pipeline, prediction, machine.cores_granted) if known else "", reason
        ),
        input_rate_bound=prediction.rate if known and prediction.rate < float("inf") else None,
        sequential_segments=sequential_segments(prediction, consumer_rate=consumer_rate) if known else (),
        cause=reason.cause if reason else None,
        cause_node=reason.node if reason else None,
    )


def _why(bottleneck: str, reason: Explanation | None) -> str:
    """Joins the bottleneck sentence and that of the cause; a cause that is not an operator comes first."""
    if reason is None or not reason.sentence:
        return bottleneck
    parts = [bottleneck, reason.sentence] if reason.cause is Cause.PYTHON else [reason.sentence, bottleneck]
    return " ".join(part for part in parts if part)


def most_saved_share(profile: Profile, bound_seconds: float | None = None) -> float | None:
    """The largest share of a step that an input without cost would save: the upper end of the measured wait,
    else 1 - bound / real; None if neither is known.
    """
    if profile.consumer.wait_share is not None:
        return max(0.0, profile.consumer.wait_share.high)
    bound = bound_seconds or profile.consumer.bound_seconds
    real = profile.consumer.real_seconds
    return None if bound is None or not real else max(0.0, 1 - bound / real)


def _sentence(verdict: Verdict, share: Interval | None, saved: float | None, why: str) -> str:
    if share is None:
        return "It could not be measured how long training waits for its input" + (
            f": {why.rstrip('.')}." if why else "."
        )
    waits = f"Training waits for input {_percent(share.median)} of each step ({_between(share)})"
    match verdict:
        case Verdict.NOT_INPUT_BOUND:
            return f"{waits}: the input is not what holds training back."
        case Verdict.BALANCED:
            return f"{waits}: input and model are nearly in balance{_at_most(saved)}."
        case Verdict.INPUT_BOUND:
            return f"{waits}: the input holds training back{_at_most(saved)}."
        case Verdict.UNDETERMINED:
            return f"{waits}: too uncertain to tell whether the input holds training back{_at_most(saved)}."


def _at_most(saved: float | None) -> str:
    return "" if saved is None else f"; a better input can save at most {_percent(saved)} of a step"


def _between(share: Interval) -> str:
    return f"{_percent(max(0.0, share.low))} to {_percent(share.high)}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 or share == 0 else f"{100 * share:.1f} %"


def _bottleneck_sentence(pipeline: Pipeline, prediction: Prediction, cores: float) -> str:
    """Describes which operator binds, its location, and in what way it binds."""
    if prediction.bound is Bound.CONSUMER:
        return "Taking elements one by one bounds the input: larger batches mean fewer of them."
    if prediction.bottleneck is None:
        return ""
    named = _named(pipeline[prediction.bottleneck])
    others = [_named(pipeline[name]) for name in prediction.nodes if name != prediction.bottleneck]
    match prediction.bound:
        case Bound.SEGMENT:
            beside = f" in one thread with {_listed(others)}" if others else " in one thread"
            return f"{named} bounds the input: it runs{beside}."
        case Bound.PARALLEL:
            return f"{named} bounds the input: all its parallel calls are busy."
        case Bound.CORES:
            granted = f"{cores:g} core" + ("" if cores == 1 else "s")
            return f"{named} needs the most processor time, and the input keeps all of the {granted} busy."
        case Bound.STORAGE:
            return f"{named} bounds the input: storage delivers no more bytes per second."


def _named(node: Node) -> str:
    """Operator, file name and line; the folder would be too long for a sentence."""
    if node.location is None:
        return node.title
    return f"{node.title} ({PurePath(node.location.file).name}:{node.location.line})"


def _listed(names: list[str], most: int = 3) -> str:
    if len(names) > most:
        return ", ".join(names[:most]) + f" and {len(names) - most} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)

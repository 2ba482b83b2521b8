"""How far the inputs of several workers are apart, in words."""

from __future__ import annotations

from dataclasses import replace

from pipetune.core.distribution import InputSkew
from pipetune.core.profile import ConsumerProfile
from pipetune.core.session import DatasetResult
from pipetune.report import words


def skew(found: InputSkew | None) -> str:
    """What the slowest worker's input takes beside the others'; '' where a process trains alone."""
    if found is None:
        return ""
    missing = (one for one in found.inputs if not one.step_seconds)
    parts = [_apart(found), *(f"The input of worker {one.worker} was not measured: {_why(one.why)}" for one in missing)]
    return " ".join(part for part in parts if part)


def awaited(result: DatasetResult) -> tuple[ConsumerProfile | None, str]:
    """The consumer with the input that its steps wait for, and whose that is; '' where it is the first worker's own.

    Workers in step wait in every step for the slowest input, of which the first worker's profile knows nothing.
    """
    consumer = result.profile.consumer if result.profile else None
    slowest = result.skew.slowest if result.skew is not None and result.skew.is_certain else None
    if consumer is None or consumer.input_seconds is None or slowest is None or slowest.worker == 0:
        return consumer, ""
    if slowest.seconds <= consumer.input_seconds:
        return consumer, ""
    return replace(consumer, input_seconds=slowest.seconds), f"worker {slowest.worker}"


def _apart(found: InputSkew) -> str:
    slowest, ratio, first = found.slowest, found.ratio, found.first_batch_spread_seconds
    if slowest is None or ratio is None:
        return ""
    fastest = min(one.seconds for one in found.measured_inputs)
    text = (
        f"Input skew: each alone, the inputs of {len(found.measured_inputs)} workers take {words.seconds(fastest)} to "
        f"{words.seconds(slowest.seconds)} a step"
    )
    if found.is_certain:
        text += f", worker {slowest.worker} {words.ratio(ratio)} the median, and every step waits for it"
    else:
        text += ", no further apart than the rounds of one worker"
    if first is not None:
        text += f"; the last worker's first batch comes {words.seconds(first)} after the first's"
    return f"{text}."


def _why(reason: str) -> str:
    return words.sentence(words.clean(reason))

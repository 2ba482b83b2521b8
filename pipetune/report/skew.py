"""How far the inputs of several workers are apart, in words."""

from __future__ import annotations

from pipetune.core.skew import InputSkew
from pipetune.report import words


def skew(found: InputSkew | None) -> str:
    """What the slowest worker's input takes beside the others'; '' where a process trains alone."""
    if found is None:
        return ""
    missing = (one for one in found.inputs if not one.step_seconds)
    parts = [_apart(found), *(f"The input of worker {one.worker} was not measured: {_why(one.why)}" for one in missing)]
    return " ".join(part for part in parts if part)


def _apart(found: InputSkew) -> str:
    slowest, ratio, first = found.slowest, found.ratio, found.first_batch_seconds
    if slowest is None or ratio is None:
        return ""
    fastest = min(one.seconds for one in found.measured)
    said = (
        f"Input skew: each alone, the inputs of {len(found.measured)} workers take {words.seconds(fastest)} to "
        f"{words.seconds(slowest.seconds)} a step"
    )
    if found.certain:
        said += f", worker {slowest.worker} {words.ratio(ratio)} the median, and every step waits for it"
    else:
        said += ", no further apart than the rounds of one worker"
    if first is not None:
        said += f"; the last worker's first batch comes {words.seconds(first)} after the first's"
    return f"{said}."


def _why(reason: str) -> str:
    return words.sentence(words.clean(reason))

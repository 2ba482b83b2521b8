"""Checks of a CI gate on a session.

A limit counts as exceeded only if the whole interval is beyond it; else the check is undetermined. A figure that was
not measured fails, except in comparisons with a baseline.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass

from pipetune.core.change import difference_of, ratio_of
from pipetune.core.errors import PipetuneError
from pipetune.core.planfile import first_difference
from pipetune.core.session import Session


class Result(enum.StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    UNDETERMINED = "undetermined"  # the interval contains the limit


@dataclass(frozen=True)
class GateRow:
    """One check and its result."""

    name: str
    result: Result
    text: str


def finished(session: Session, *, later: str = "") -> GateRow:
    """Checks that the analysis completed.

    Args:
        later: the folder of a later run that did not complete, in whose place this session is shown; "" if none.
    """
    if later:
        return GateRow("session", Result.FAILED, f"a later run did not come to its end: {later}")
    if session.status == "done":
        return GateRow("session", Result.PASSED, "the analysis came to its end")
    detail = f": {session.status_detail}" if session.status_detail else ""
    return GateRow("session", Result.FAILED, f"the analysis ended as {session.status}{detail}")


def input_wait(session: Session, limit: float) -> GateRow:
    """Checks that training waits for input for at most the share `limit` of a step."""
    dataset = session.tuned_dataset
    share = dataset.diagnosis.wait_share if dataset and dataset.diagnosis else None
    if share is None:
        return GateRow("input wait", Result.FAILED, "was not measured")
    text = f"{_percent(share.median)} of a step ({_percent(share.low)} to {_percent(share.high)})"
    if share.high <= limit:
        return GateRow("input wait", Result.PASSED, f"{text}, at most {_percent(limit)}")
    result = Result.FAILED if share.low > limit else Result.UNDETERMINED
    return GateRow("input wait", result, f"{text}, the limit is {_percent(limit)}")


def speedup(session: Session, wanted: float) -> GateRow:
    """Checks that the confirmed plan speeds training up by at least the factor `wanted`."""
    found = session.training.speedup if session.training else None
    if found is None:
        why = session.training.why if session.training and session.training.why else "no plan was confirmed"
        return GateRow("speedup", Result.FAILED, f"was not measured: {why}")
    text = f"{found.median:.2f}x ({found.low:.2f} to {found.high:.2f})"
    if found.low >= wanted:
        return GateRow("speedup", Result.PASSED, f"{text}, at least {wanted:.2f}x")
    result = Result.FAILED if found.high < wanted else Result.UNDETERMINED
    return GateRow("speedup", result, f"{text}, wanted {wanted:.2f}x")


def refuse_other_pipeline(session: Session, baseline: Session) -> None:
    """Checks that both sessions are of the same pipeline, either original or with the patch of one of them applied.

    Raises:
        PipetuneError: the pipelines differ; the message names the first operator that differs.
    """
    ours, theirs = session.tuned_dataset, baseline.tuned_dataset
    if ours is None or theirs is None:
        return
    here, there = ours.pipeline, theirs.pipeline
    pairs = ((here, there), (ours.tuned, there), (here, theirs.tuned))
    if any(one is not None and other is not None and one.fingerprint == other.fingerprint for one, other in pairs):
        return
    operators = json.loads(json.dumps(there.describe()))
    raise PipetuneError(
        f"The baseline is of another pipeline: {first_difference(here, operators, there='the baseline')}.",
        hint="Name a session of the same pipeline, or compare them all the same with --any.",
    )


def against(session: Session, baseline: Session, *, tolerance: float) -> list[GateRow]:
    """Checks that `session` is not worse than `baseline` by more than `tolerance` (a share)."""
    elsewhere = other_machine(session, baseline)
    rows = [_wait_against(session, baseline, tolerance), _room_against(session, baseline, tolerance)]
    if elsewhere:
        rows = [
            GateRow(row.name, Result.UNDETERMINED, f"{row.text}; {elsewhere}")
            if row.result is Result.FAILED
            else row
            for row in rows
        ]
    known = {finding.code for finding in baseline.findings}
    new = [finding for finding in session.findings if finding.code not in known]
    text = "; ".join(f"{finding.code}: {finding.message}" for finding in new) or "none that is new"
    return [*rows, GateRow("warnings", Result.FAILED if new else Result.PASSED, text)]


def other_machine(session: Session, baseline: Session) -> str:
    """Returns why the figures of the two sessions are not comparable; "" if they are."""
    here, there = session.machine, baseline.machine
    if here is None or there is None:
        return "a machine is not known"
    for name, ours, theirs in (
        ("processor", here.processor, there.processor),
        ("cores", here.cores_granted, there.cores_granted),
        ("device", here.device, there.device),
        ("TensorFlow", here.tensorflow, there.tensorflow),
    ):
        if ours != theirs:
            return f"measured elsewhere ({name}: {ours} against {theirs})"
    return ""


def _wait_against(session: Session, baseline: Session, tolerance: float) -> GateRow:
    shares = [
        dataset.diagnosis.wait_share if dataset and dataset.diagnosis else None
        for dataset in (session.tuned_dataset, baseline.tuned_dataset)
    ]
    change = difference_of(shares[0], shares[1]) if shares[0] and shares[1] else None
    if change is None:
        return GateRow("input wait against baseline", Result.UNDETERMINED, "was not measured in both")
    median, low, high = (bound * 100 for bound in (change.median, change.low, change.high))
    text = f"{median:+.1f} points ({low:+.1f} to {high:+.1f}) of a step"
    if change.high <= tolerance:
        return GateRow("input wait against baseline", Result.PASSED, text)
    result = Result.FAILED if change.low > tolerance else Result.UNDETERMINED
    return GateRow("input wait against baseline", result, f"{text}, {tolerance * 100:.1f} are tolerated")


def _room_against(session: Session, baseline: Session, tolerance: float) -> GateRow:
    """Checks the plan's gain: if it is larger than in the baseline, the script has become slower since."""
    name = "room for improvement"
    found = [one.training.speedup if one.training else None for one in (session, baseline)]
    if found[0] is None:
        return GateRow(name, Result.PASSED, "no plan was confirmed to be faster")
    if found[1] is None:
        low = found[0].low
        result = Result.FAILED if low > 1 + tolerance else Result.PASSED
        return GateRow(name, result, f"{found[0].median:.2f}x now, none in the baseline")
    change = ratio_of(found[0], found[1])
    if change is None:
        return GateRow(name, Result.UNDETERMINED, "cannot be compared")
    text = f"{found[0].median:.2f}x now, {found[1].median:.2f}x in the baseline"
    if change.high <= 1 + tolerance:
        return GateRow(name, Result.PASSED, text)
    result = Result.FAILED if change.low > 1 + tolerance else Result.UNDETERMINED
    return GateRow(name, result, f"{text}: {change.median:.2f} times ({change.low:.2f} to {change.high:.2f})")


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"

"""Comparison of sessions: the checks of a CI gate, all figures, and what only one of two sessions has."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from pipetune.core.errors import PipetuneError
from pipetune.core.measurement import Interval, Rate, difference_of, ratio_of
from pipetune.core.pipeline import location_of
from pipetune.core.plan_file import first_difference
from pipetune.core.profile import Finding
from pipetune.core.session import Session


class GateResult(enum.StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    UNDETERMINED = "undetermined"  # the interval contains the limit


SESSION, WARNINGS = "session", "warnings"  # names of checks that are not about the input


@dataclass(frozen=True)
class GateCheck:
    name: str
    result: GateResult
    text: str


def check_completed(session: Session, *, later: str = "") -> GateCheck:
    """Returns the check that the analysis completed.

    Args:
        session: the session.
        later: folder of a later run that did not complete, so that this session is shown instead; "" if none.
    """
    if later:
        return GateCheck(SESSION, GateResult.FAILED, f"a later run did not complete: {later}")
    if session.status == "done":
        return GateCheck(SESSION, GateResult.PASSED, "the analysis completed")
    detail = f": {session.status_detail}" if session.status_detail else ""
    return GateCheck(SESSION, GateResult.FAILED, f"the analysis did not complete ({session.status}){detail}")


def check_input_wait(session: Session, limit: float) -> GateCheck:
    """Returns the check that training waits for input for at most the share `limit` (0 to 1) of a step."""
    share = _wait_share(session)
    if share is None:
        return GateCheck("input wait", GateResult.FAILED, "was not measured")
    result = _at_most(share, limit)
    text = f"{_percent(share.median)} of a step ({_percent(share.low)} to {_percent(share.high)})"
    bound = "at most" if result is GateResult.PASSED else "the limit is"
    return GateCheck("input wait", result, f"{text}, {bound} {_percent(limit)}")


def _at_most(found: Interval, limit: float) -> GateResult:
    if found.high <= limit:
        return GateResult.PASSED
    return GateResult.FAILED if found.low > limit else GateResult.UNDETERMINED


def check_speedup(session: Session, target: float) -> GateCheck:
    """Returns the check that the confirmed plan speeds training up by at least the factor `target`."""
    found = session.training.speedup if session.training else None
    if found is None:
        why = session.training.why if session.training and session.training.why else "no plan was confirmed"
        return GateCheck("speedup", GateResult.FAILED, f"was not measured: {why}")
    text = f"{found.median:.2f}x ({found.low:.2f} to {found.high:.2f})"
    if found.low >= target:
        return GateCheck("speedup", GateResult.PASSED, f"{text}, at least {target:.2f}x")
    result = GateResult.FAILED if found.high < target else GateResult.UNDETERMINED
    return GateCheck("speedup", result, f"{text}, required {target:.2f}x")


def require_same_pipeline(session: Session, baseline: Session) -> None:
    """Checks that both sessions are of the same pipeline, either original or with the patch of one of them applied.

    Raises:
        PipetuneError: the pipelines differ; the message names the first operator that differs.
    """
    ours, theirs = session.main_dataset, baseline.main_dataset
    if ours is None or theirs is None:
        return
    here, there = ours.pipeline, theirs.pipeline
    pairs = ((here, there), (ours.tuned, there), (here, theirs.tuned))
    if any(one is not None and other is not None and one.fingerprint == other.fingerprint for one, other in pairs):
        return
    difference = first_difference(here, there.identities(), there="the baseline")
    raise PipetuneError(
        f"The baseline belongs to a different pipeline: {difference}.",
        hint="Specify a session of the same pipeline, or compare anyway with --any.",
    )


def compare_with_baseline(session: Session, baseline: Session, *, tolerance: float) -> list[GateCheck]:
    """Returns the checks that `session` is not worse than `baseline` by more than `tolerance` (a share, 0 to 1).

    Compares input wait, the gain that is left for a plan, and warnings.
    """
    other_machine = machine_difference(session, baseline)
    rows = []
    for compare in (_compare_input_wait, _compare_room):
        row = compare(session, baseline, tolerance)
        if other_machine and row.result is GateResult.FAILED:
            row = GateCheck(row.name, GateResult.UNDETERMINED, f"{row.text}; {other_machine}")
        rows.append(row)
    new = new_findings(session, baseline)
    text = "; ".join(f"{finding.code}: {finding.message}" for finding in new) or "no new warnings"
    return [*rows, GateCheck(WARNINGS, GateResult.FAILED if new else GateResult.PASSED, text)]


def new_findings(session: Session, baseline: Session) -> tuple[Finding, ...]:
    """Returns the warnings of `session` of a kind that `baseline` does not have."""
    known = {finding.code for finding in baseline.findings}
    return tuple(finding for finding in session.findings if finding.code not in known)


def machine_difference(session: Session, baseline: Session) -> str:
    """Returns why the figures of the two sessions are not comparable; "" if they are."""
    here, there = session.machine, baseline.machine
    if here is None or there is None:
        return "the machine of a session is unknown"
    difference = here.difference(there)
    return f"measured on a different machine ({difference})" if difference else ""


def _compare_input_wait(session: Session, baseline: Session, tolerance: float) -> GateCheck:
    ours, theirs = _wait_share(session), _wait_share(baseline)
    change = difference_of(ours, theirs) if ours and theirs else None
    name = "input wait against baseline"
    if change is None:
        return GateCheck(name, GateResult.UNDETERMINED, "was not measured in both")
    result = _at_most(change, tolerance)
    median, low, high = (bound * 100 for bound in (change.median, change.low, change.high))
    text = f"{median:+.1f} points ({low:+.1f} to {high:+.1f}) of a step"
    if result is not GateResult.PASSED:
        text += f", the tolerance is {tolerance * 100:.1f} points"
    return GateCheck(name, result, text)


def _compare_room(session: Session, baseline: Session, tolerance: float) -> GateCheck:
    """Checks the plan's gain: if it is larger than in the baseline, the script has become slower since."""
    name = "room for improvement"
    now, then = (one.training.speedup if one.training else None for one in (session, baseline))
    if now is None:
        return GateCheck(name, GateResult.PASSED, "no plan was confirmed to be faster")
    if then is None:
        result = GateResult.FAILED if now.low > 1 + tolerance else GateResult.PASSED
        return GateCheck(name, result, f"{now.median:.2f}x now, no confirmed plan in the baseline")
    change = ratio_of(now, then)
    if change is None:
        return GateCheck(name, GateResult.UNDETERMINED, "cannot be compared")
    result = _at_most(change, 1 + tolerance)
    text = f"{now.median:.2f}x now, {then.median:.2f}x in the baseline"
    if result is not GateResult.PASSED:
        text += f": the ratio is {change.median:.2f} ({change.low:.2f} to {change.high:.2f})"
    return GateCheck(name, result, text)


def _wait_share(session: Session) -> Interval | None:
    return session.diagnosis.wait_share if session.diagnosis else None


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"


@dataclass(frozen=True)
class FigureDifference:
    """One figure in two sessions; `change` is the ratio after/before, or for shares the difference."""

    name: str
    unit: str  # "x", "%", "ms", "examples/s", "us", "s", "MiB"
    before: float | None
    after: float | None
    change: Interval | None = None  # None unless both values have an interval
    more_is_better: bool = True

    @property
    def ratio(self) -> float | None:
        """Ratio after/before, for figures without an interval."""
        if self.before is None or self.after is None or self.before <= 0:
            return None
        return self.after / self.before

    @property
    def proven(self) -> str:
        """ "better" or "worse" if the interval of the change excludes "no change", else ""."""
        if self.change is None:
            return ""
        nothing = 0.0 if self.unit == "%" else 1.0
        higher, lower = ("better", "worse") if self.more_is_better else ("worse", "better")
        if self.change.low > nothing:
            return higher
        return lower if self.change.high < nothing else ""


@dataclass(frozen=True)
class ItemChanges:
    """Items that only one of two sessions has: `gone` only the earlier, `new` only the later one."""

    gone: tuple[str, ...]
    new: tuple[str, ...]


def figures(before: Session, after: Session) -> tuple[FigureDifference, ...]:
    """Returns every figure that at least one of the sessions has, the training speedup first."""
    rows = (
        _interval("training speedup", *(one.training.speedup if one.training else None for one in (before, after))),
        *_steps(before, after),
        _interval("input wait", _wait_share(before), _wait_share(after), share=True),
        *_rates(before, after),
    )
    return tuple(row for row in rows if row.before is not None or row.after is not None)


def rewrites(before: Session, after: Session) -> ItemChanges:
    """Returns the rewrites that only one of the plans has, as "rule (call site): what it does"."""
    return _item_changes(_plan_words(before), _plan_words(after))


def warnings(before: Session, after: Session) -> ItemChanges:
    """Returns the problems in the script that only one of the sessions found, as "code: message"."""
    return _item_changes(
        *([f"{finding.code}: {finding.message}" for finding in one.findings] for one in (before, after))
    )


def same_pipeline(before: Session, after: Session) -> bool | None:
    """Whether both sessions tuned the same pipeline; None if one of them tuned none."""
    ours, theirs = before.main_dataset, after.main_dataset
    if ours is None or theirs is None:
        return None
    return ours.pipeline.fingerprint == theirs.pipeline.fingerprint


def _steps(before: Session, after: Session) -> Iterator[FigureDifference]:
    for variant, field in (("current", "defaults_step_ms"), ("tuned", "tuned_step_ms"), ("no input", "bound_step_ms")):
        first, second = (getattr(one.training, field, None) for one in (before, after))
        yield FigureDifference(f"training step, {variant}", "ms", first, second, more_is_better=False)


def _rates(before: Session, after: Session) -> Iterator[FigureDifference]:
    datasets = [before.main_dataset, after.main_dataset]
    for over, field in (("", "input_speedup"), (" over AUTOTUNE", "input_speedup_over_autotune")):
        yield _interval(f"input speedup{over}", *(getattr(dataset, field, None) for dataset in datasets))
    for variant, words in (("defaults", "current"), ("tuned", "tuned")):
        rates = [dataset.rates.get(variant, Rate()) if dataset else Rate() for dataset in datasets]
        for name, unit, field, more in (
            ("input alone", "examples/s", "examples_per_second", True),
            ("CPU per example", "us", "cpu_us_per_example", False),
            ("first batch", "s", "first_batch_seconds", False),
            ("peak memory", "MiB", "peak_rss_mib", False),
        ):
            first, second = (getattr(rate, field) for rate in rates)
            yield FigureDifference(f"{name} {words}", unit, first, second, more_is_better=more)


def _interval(name: str, before: Interval | None, after: Interval | None, *, share: bool = False) -> FigureDifference:
    """Returns the row of a ratio, which should be high, or of a share of a step, which should be low."""
    change = difference_of if share else ratio_of
    return FigureDifference(
        name,
        "%" if share else "x",
        before.median if before else None,
        after.median if after else None,
        change(after, before) if before and after else None,
        more_is_better=not share,
    )


def _plan_words(session: Session) -> list[str]:
    dataset = session.main_dataset
    if dataset is None or dataset.plan is None:
        return []
    words = []
    for rewrite in dataset.plan.rewrites:
        location = location_of(rewrite.node, dataset.pipeline, dataset.tuned)
        place = f" ({location.method}, line {location.line})" if location else ""
        words.append(f"{rewrite.rule}{place}: {rewrite.summary}")
    return words


def _item_changes(before: list[str], after: list[str]) -> ItemChanges:
    return ItemChanges(
        gone=tuple(text for text in before if text not in after),
        new=tuple(text for text in after if text not in before),
    )

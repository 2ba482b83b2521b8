"""Comparison of two sessions: all figures, and the rewrites and warnings that only one of them has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipetune.core.change import difference_of, ratio_of
from pipetune.core.measurement import Interval, Rate
from pipetune.core.session import Session
from pipetune.core.summary import location_of


@dataclass(frozen=True)
class Difference:
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
        if self.change.low > nothing:
            return "better" if self.more_is_better else "worse"
        if self.change.high < nothing:
            return "worse" if self.more_is_better else "better"
        return ""


@dataclass(frozen=True)
class ComingAndGoing:
    """Items that only one of two sessions has: `gone` only the earlier, `new` only the later one."""

    gone: tuple[str, ...]
    new: tuple[str, ...]


def figures(before: Session, after: Session) -> tuple[Difference, ...]:
    """Returns every figure that at least one of the sessions has, the training speedup first."""
    rows = (
        _interval(
            "training speedup", *(one.training.speedup if one.training else None for one in (before, after))
        ),
        *_steps(before, after),
        _wait(before, after),
        *_rates(before, after),
    )
    return tuple(row for row in rows if row.before is not None or row.after is not None)


def rewrites(before: Session, after: Session) -> ComingAndGoing:
    """Compares the rewrites of the plans, as "rule (call site): what it does"."""
    return _coming_and_going(_plan_words(before), _plan_words(after))


def warnings(before: Session, after: Session) -> ComingAndGoing:
    """Compares the bugs found in the scripts."""
    return _coming_and_going(
        *([f"{finding.code}: {finding.message}" for finding in one.findings] for one in (before, after))
    )


def same_pipeline(before: Session, after: Session) -> bool | None:
    """Whether both sessions tuned the same pipeline; None if one of them tuned none."""
    ours, theirs = before.tuned_dataset, after.tuned_dataset
    if ours is None or theirs is None:
        return None
    return ours.pipeline.fingerprint == theirs.pipeline.fingerprint


def _steps(before: Session, after: Session) -> Iterator[Difference]:
    for name, field in (
        ("training step as written", "defaults_step_ms"),
        ("training step tuned", "tuned_step_ms"),
        ("training step, no input", "bound_step_ms"),
    ):
        values = [getattr(one.training, field, None) for one in (before, after)]
        yield Difference(name, "ms", values[0], values[1], more_is_better=False)


def _wait(before: Session, after: Session) -> Difference:
    shares = [
        one.tuned_dataset.diagnosis.wait_share if one.tuned_dataset and one.tuned_dataset.diagnosis else None
        for one in (before, after)
    ]
    first, second = shares
    return Difference(
        "input wait",
        "%",
        first.median if first else None,
        second.median if second else None,
        difference_of(second, first) if first and second else None,
        more_is_better=False,
    )


def _rates(before: Session, after: Session) -> Iterator[Difference]:
    datasets = [before.tuned_dataset, after.tuned_dataset]
    for name, field in (
        ("input speedup", "input_speedup"),
        ("input over AUTOTUNE", "input_speedup_over_autotune"),
    ):
        yield _interval(name, *(getattr(dataset, field, None) for dataset in datasets))
    for variant, words in (("defaults", "as written"), ("tuned", "tuned")):
        rates = [dataset.rates.get(variant, Rate()) if dataset else Rate() for dataset in datasets]
        for name, unit, field, more in (
            ("input alone", "examples/s", "examples_per_second", True),
            ("CPU per example", "us", "cpu_us_per_example", False),
            ("first batch", "s", "first_batch_seconds", False),
            ("peak memory", "MiB", "peak_rss_mib", False),
        ):
            first, second = (getattr(rate, field) for rate in rates)
            yield Difference(f"{name} {words}", unit, first, second, more_is_better=more)


def _interval(name: str, before: Interval | None, after: Interval | None) -> Difference:
    return Difference(
        name,
        "x",
        before.median if before else None,
        after.median if after else None,
        ratio_of(after, before) if before and after else None,
    )


def _plan_words(session: Session) -> list[str]:
    dataset = session.tuned_dataset
    if dataset is None or dataset.plan is None:
        return []
    words = []
    for rewrite in dataset.plan.rewrites:
        location = location_of(rewrite.node, dataset.pipeline, dataset.tuned)
        place = f" ({location.method}, line {location.line})" if location else ""
        words.append(f"{rewrite.rule}{place}: {rewrite.summary}")
    return words


def _coming_and_going(before: list[str], after: list[str]) -> ComingAndGoing:
    return ComingAndGoing(
        gone=tuple(text for text in before if text not in after),
        new=tuple(text for text in after if text not in before),
    )

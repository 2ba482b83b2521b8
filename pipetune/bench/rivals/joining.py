"""What the processes of a workload leave, put together as benchmarks.json has it."""

from __future__ import annotations

import time

from pipetune.bench.rivals.exchange import Measured
from pipetune.bench.rivals.preparing import Analysis
from pipetune.core.benchmarks import PIPETUNE, Workload, WorkloadResult
from pipetune.core.codec import Json
from pipetune.core.profile import Verdict
from pipetune.core.results import Rate
from pipetune.core.session import Session
from pipetune.core.summary import summary

_ABOUT_THE_MACHINE = "While measuring"


def joined(
    workload: Workload,
    measured: Measured,
    analysis: Analysis,
    rivals: dict[str, Rate],
    *,
    bare: Analysis | None,
    notes: tuple[str, ...],
) -> WorkloadResult:
    """The result of a workload; where its cache does not count, that of the plan without it.

    Args:
        bare: the analysis that left caches out, where there was one.
    """
    use = measured.caches.get(PIPETUNE)
    uncounted = use is not None and not use.counts
    session = bare.session if bare is not None and uncounted else analysis.session
    training, answer = session.training, summary(session)
    rules = _rules(session)
    trains = training is not None and bool(rules) and not (uncounted and bare is None)
    return WorkloadResult(
        name=workload.name,
        rivals=rivals,
        ratio_over=measured.ratio_over,
        without_cache=measured.without_cache,
        end_to_end=training.speedup if training and trains else None,
        plan_seconds=round(analysis.seconds, 1),
        rewrites=rules,
        rewrites_without_cache=_rules(bare.session) if bare else (),
        equality=_equality(answer),
        title=workload.title,
        end_to_end_over_autotune=training.speedup_over_autotune if training and trains else None,
        over_defaults=measured.over_defaults,
        caches=measured.caches,
        plans=measured.sets,
        failed=measured.failed,
        verdict=str(answer["verdict"]),
        why="" if rules else _why_no_plan(session),
        analysis_seconds=dict(session.seconds),
        date=time.strftime("%Y-%m-%d %H:%M"),
        notes=notes,
    )


def _rules(session: Session) -> tuple[str, ...]:
    return tuple(dict.fromkeys(rewrite.rule for rewrite in session.plan.rewrites)) if session.plan else ()


def _equality(answer: dict[str, Json]) -> dict[str, object] | None:
    datasets = answer["datasets"]
    found = datasets[0]["equality"] if isinstance(datasets, list) and datasets else None
    return dict(found) if isinstance(found, dict) else None


def _why_no_plan(session: Session) -> str:
    """The diagnosis where nothing was tried, else what the last measurement said, or the search last."""
    dataset = session.main_dataset
    diagnosis = dataset.diagnosis if dataset is not None else None
    if diagnosis is not None and diagnosis.verdict is Verdict.NOT_INPUT_BOUND:
        return f"no plan: {diagnosis.sentence}"
    proofs = [trial.why for trial in session.trials if trial.kind in ("confirmation", "verification")]
    notes = [note for note in session.notes if not note.startswith(_ABOUT_THE_MACHINE)]
    reason = session.status_detail or " ".join(proofs[-1:] or notes[-2:])
    return f"no plan: {reason}" if reason else "no plan"

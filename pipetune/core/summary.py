"""The summary of a session: the figures for other programs, in the documented format."""

from __future__ import annotations

from pipetune.core.codec import Json, encode
from pipetune.core.distribution import Coverage, InputSkew, OriginalSharding
from pipetune.core.edits import Edit, Plan, Rewrite
from pipetune.core.measurement import Interval, Rate
from pipetune.core.pipeline import location_of
from pipetune.core.profile import Diagnosis, Verdict
from pipetune.core.results import Comparison
from pipetune.core.session import DatasetResult, DistributedResult, PatchResult, Session, outcome_of

RATES = ("off", "defaults", "autotune", "tuned")
SECONDS = ("capture", "profile", "verdict", "trials", "confirmation", "verification", "total")


def summary(session: Session) -> dict[str, Json]:
    """Returns every figure of `session`; figures that were not measured are null."""
    diagnosis = session.diagnosis
    return {
        "outcome": outcome_of(session).value,
        "training_at": _training_at(session),
        "verdict": (diagnosis.verdict if diagnosis else Verdict.UNDETERMINED).value,
        "input_wait": _input_wait(diagnosis),
        "datasets": [_dataset(dataset) for dataset in session.profiled_datasets],
        "training": encode(session.training),
        "warnings": [encode(finding) for finding in session.findings],
        "patch": _patch(session.patch, session.plan),
        "side_effects": encode(session.side_effects),
        "seconds": {name: encode(session.seconds.get(name)) for name in (*SECONDS, *sorted(session.seconds))},
        "status": session.status,
        "complete": session.complete,
        "advice": [encode(finding) for finding in session.advice],
        "distributed": _distributed(session.distributed),
    }


def _training_at(session: Session) -> Json:
    """Returns where the dataset that is tuned is consumed, and where others are."""
    main = session.main_dataset
    if main is None:
        return None
    others = [one for one in session.datasets if one is not main]
    return {
        "file": main.file,
        "line": main.line,
        "kind": main.consumer,
        "others": [{"file": one.file, "line": one.line, "kind": one.consumer, "role": one.role} for one in others],
    }


def _input_wait(diagnosis: Diagnosis | None) -> Json:
    if diagnosis is None or (diagnosis.wait_share is None and diagnosis.wait_seconds is None):
        return None
    share, seconds = diagnosis.wait_share, diagnosis.wait_seconds
    return {
        "share": {"median": share.median, "low": share.low, "high": share.high} if share else None,
        "ms_per_step": encode(seconds * 1000) if seconds is not None else None,
    }


def _dataset(dataset: DatasetResult) -> dict[str, Json]:
    pipeline = dataset.pipeline
    located = next((node.location for node in reversed(pipeline.nodes) if node.location), None)
    return {
        "name": pipeline.name,
        "file": located.file if located else None,
        "line": located.line if located else None,
        "role": dataset.role,
        "rates": {name: encode(dataset.rates.get(name)) for name in RATES},
        **_fields(dataset, "input_speedup", "input_speedup_over_autotune"),
        "predicted": _fields(dataset.predicted or Rate(), "examples_per_second", "peak_rss_mib"),
        "rewrites": [
            _rewrite(rewrite, dataset, dataset.gains.get(rewrite.key))
            for rewrite in (dataset.plan.rewrites if dataset.plan else ())
        ],
        "candidate": _candidate(dataset),
        "offered": [
            {**_rewrite(offer.rewrite, dataset, offer.gain), "consent": offer.consent, "why": offer.why}
            for offer in dataset.offered
        ],
        "rejected": [{"rule": one.rule, "why": one.why, "gain": encode(one.gain)} for one in dataset.rejected],
        "equality": _equality(dataset.comparison),
        **_fields(dataset, "order", "handover"),
        "skew": _skew(dataset.skew),
        "as_written": _as_written(dataset.as_written),
    }


def _skew(skew: InputSkew | None) -> Json:
    if skew is None:
        return None
    first = skew.first_batch_spread_seconds
    return {
        "ratio": encode(skew.ratio),
        "certain": skew.is_certain,
        "slowest": skew.slowest.worker if skew.slowest else None,
        "first_batch_ms": None if first is None else 1000 * first,
        "inputs": [
            {
                "worker": one.worker,
                "ms_per_step": 1000 * one.seconds if one.step_seconds else None,
                "rounds_ms": [1000 * seconds for seconds in one.step_seconds],
                "first_batch_ms": None if one.first_seconds is None else 1000 * one.first_seconds,
                "why": one.why,
            }
            for one in skew.inputs
        ],
    }


def _rewrite(rewrite: Rewrite, dataset: DatasetResult, gain: Interval | None) -> dict[str, Json]:
    location = location_of(rewrite.node, dataset.pipeline, dataset.tuned)
    return {
        "rule": rewrite.rule,
        "file": location.file if location else None,
        "line": location.line if location else None,
        "safety": rewrite.safety.name,
        "gain": encode(gain),
        "edits": encode(rewrite.edits, tuple[Edit, ...]),
        "summary": rewrite.summary,
    }


def _candidate(dataset: DatasetResult) -> Json:
    """Returns the rewrites of the unproven plan, and how probable a gain is; null if there is none."""
    found = dataset.candidate
    if found is None:
        return None
    return {
        "rewrites": [_rewrite(rewrite, dataset, None) for rewrite in found.plan.rewrites],
        "gain": encode(found.gain),
        "probability": found.probability,
        "unit": found.unit,
        "why": found.why,
    }


def _equality(comparison: Comparison | None) -> Json:
    if comparison is None:
        return None
    return {"class": comparison.safety.name, **_fields(comparison, "checks", "elements", "epochs", "equal", "notes")}


def _patch(patch: PatchResult | None, plan: Plan | None) -> Json:
    if patch is None:
        return None
    rewrites = plan.rewrites if plan is not None else ()
    return {
        "files": list(patch.files),
        "covered": [rewrite.rule for rewrite in rewrites if rewrite.key in patch.covered],
        "not_covered": [{"rule": rejection.rule, "why": rejection.why} for rejection in patch.not_covered],
        "verified": patch.verified,
    }


def _as_written(found: OriginalSharding | None) -> Json:
    if found is None:
        return None
    return {
        **_fields(found, "workers", "policy"),
        "coverage": _coverage(found.coverage),
        **_fields(found, "why", "refused", "files", "file_bytes"),
    }


def _distributed(form: DistributedResult | None) -> Json:
    if form is None:
        return None
    return {
        "kind": form.kind,
        "file": form.file,
        "coverage": [_coverage(found) for found in form.coverage],
        "as_written": _as_written(form.as_written),
    }


def _coverage(found: Coverage | None) -> Json:
    """Returns the counts, without the segments, which only diagrams need."""
    if found is None:
        return None
    shares = ("elements", "batches", "short_batches", "read", "read_bytes", "used_bytes")
    counts = (
        *("counted", "told_by", "elements", "never", "once", "twice", "oftener", "foreign", "first_out"),
        *("short_batches", "idle_workers", "read_over_used", "each_everything"),
        *("read_bytes", "used_bytes", "bytes_read_over_used", "servers"),
    )
    return {"workers": [_fields(worker, *shares) for worker in found.workers], **_fields(found, *counts)}


def _fields(value: object, *names: str) -> dict[str, Json]:
    return {name: encode(getattr(value, name)) for name in names}

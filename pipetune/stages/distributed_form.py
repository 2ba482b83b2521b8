"""Step 5: the tuned pipeline as a module for distributed training, and what workers get of it unchanged."""

from __future__ import annotations

import os
from dataclasses import replace

from pipetune.capture import job_processes
from pipetune.core.edits import Plan
from pipetune.distributed.emit.kind import choose_kind
from pipetune.distributed.verify import original
from pipetune.model.sizing import service_need
from pipetune.rewrites.cache_places import STORAGE_GUARANTEES
from pipetune.stages.files import stored_prefix
from pipetune.stages.study import Study

_WORKERS = 2  # of the hypothetical job that runs the unchanged script


def write_distributed_form(study: Study, plan: Plan | None) -> None:
    """Writes the distributed form of the tuned pipeline: the requested one, or the one for the script's strategy."""
    journal, settings, source = study.journal, study.settings, study.subject.source
    if not settings.out:  # of a live dataset: the current folder is the user's
        return
    kind, why = choose_kind(settings.distribute, source.pipeline, journal.result.handover, trials=settings.trials)
    if not kind:
        if why:
            journal.add_notes(f"No distributed form is written: {why[0].lower()}{why[1:]}")
        return
    from pipetune.distributed.writing import distribute as emit_distributed

    with journal.phase("emission", f"writing the {kind} form and checking its coverage"):
        # A copy to one device does not belong under a strategy, which makes its own copies.
        kept = Plan(plan.name, tuple(one for one in plan.rewrites if not one.only_training)) if plan else Plan("")
        tuned = study.runner.edited(kept)
        try:
            result = emit_distributed(
                source,
                tuned,
                kind=kind,
                out_file=os.path.join(settings.out, "distributed.py"),
                script=journal.session.command.script or "the script",
                service=lambda packing: service_need(
                    journal.result, study.machine, step_seconds=settings.step_time_seconds, compression_ratio=packing
                ),
            )
        except Exception as error:  # loses nothing of what was found before
            return study.note_error("No distributed form is written", error)
        advice = (why, *result.advice) if why else result.advice
        if kind == "service" and (stored := stored_prefix(study)) is not None:
            result = replace(result, stored=stored, notes=(*result.notes, STORAGE_GUARANTEES))
            advice = (*advice, stored.sentence)
        job = job_processes.hypothetical_job(kind, source.dataset, _WORKERS) if result.module else None
        if job is not None:
            result = replace(result, as_written=original.measure_worker_coverage(source, job))
        journal.update(distributed=replace(result, advice=advice))
